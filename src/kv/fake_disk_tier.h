// A disk tier in memory for tests of the store: writes and reads end only when a test lets them, and fail on command.
// Keeps the store's own checks honest: destinations and sources are touched when the operation runs, not when it is
// queued. Tests only; one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "kv/disk_tier.h"

namespace lode::kv::test {

class FakeDiskTier final : public DiskTier {
 public:
  // What survives a restart: shared between the tiers of successive stores.
  struct Stored {
    struct Entry {
      DiskBlock block;
      std::map<std::uint32_t, std::vector<std::byte>> bytes;  // By group.
      std::set<std::uint32_t> damaged;                        // Groups whose read fails, once and for all.
      std::set<std::uint32_t> flaky;     // Groups whose next read fails, though the bytes are fine.
      std::set<std::uint32_t> stubborn;  // Groups whose reads all fail, though they stay listed.
    };
    std::map<BlockKey, Entry> blocks;
    std::vector<Pin> pins;
    std::map<std::pair<BlockKey, std::uint32_t>, Removal> removed;
    std::uint64_t pin_bytes_max = 1ull << 40;
  };
  struct Knobs {
    int writes_per_poll = 1 << 30;                                 // 0: nothing is written until a flush.
    int reads_per_poll = 1 << 30;                                  // 0: reads end only when somebody waits for them.
    WriteResult refuse = WriteResult::queued;                      // Anything else: every write is answered so.
    enum class Fail : std::uint8_t { no, yes } writes = Fail::no;  // Queued writes end with an error.
    std::size_t queue_max = 1 << 30;                               // Extents.
    double bytes_per_second = 0;                                   // What restores measure; 0: nothing.
    bool near_cap = false;                                         // Of the day.
  };

  FakeDiskTier(std::vector<model::BlockLayout> layouts, std::shared_ptr<Stored> stored, std::shared_ptr<Knobs> knobs)
      : layouts_(std::move(layouts)), stored_(std::move(stored)), knobs_(std::move(knobs)) {}
  ~FakeDiskTier() override { EXPECT_TRUE(tickets_.empty()) << "every ticket is released before the tier goes"; }

  bool contains(const BlockKey& key, GroupId group) const override {
    const auto it = stored_->blocks.find(key);
    return it != stored_->blocks.end() && it->second.bytes.contains(group.v);
  }
  const DiskBlock* find(const BlockKey& key) const override {
    const auto it = stored_->blocks.find(key);
    return it == stored_->blocks.end() ? nullptr : &it->second.block;
  }
  std::int64_t closest_child(const BlockKey& parent, std::span<const TokenId> ids) const override {
    std::int64_t best = -1;
    for (const auto& [key, entry] : stored_->blocks) {
      if (entry.block.parent != parent || entry.bytes.empty()) continue;
      std::int64_t common = 0;
      while (common < std::ssize(ids) &&
             ids[static_cast<std::size_t>(common)] == entry.block.ids[static_cast<std::size_t>(common)])
        ++common;
      best = std::max(best, common);
    }
    return best;
  }

  std::vector<BlockKey> children(const BlockKey& parent, std::size_t most) const override {
    std::vector<BlockKey> keys;
    for (const auto& [key, entry] : stored_->blocks)
      if (entry.block.parent == parent && !entry.bytes.empty() && keys.size() < most) keys.push_back(key);
    return keys;
  }
  std::int64_t used_seconds(const BlockKey&) const override { return 0; }
  const Removal* removed(const BlockKey& key, GroupId group) const override {
    const auto it = stored_->removed.find({key, group.v});
    return it == stored_->removed.end() ? nullptr : &it->second;
  }
  std::uint64_t purge(std::span<const BlockKey> keys) override {
    std::uint64_t bytes = 0;
    for (const BlockKey& key : keys) {
      const auto it = stored_->blocks.find(key);
      if (it == stored_->blocks.end() || std::any_of(it->second.bytes.begin(), it->second.bytes.end(),
                                                     [&](const auto& b) { return pinned(key, GroupId{b.first}); }))
        continue;
      for (const auto& [group, data] : it->second.bytes) {
        bytes += data.size();
        stored_->removed[{key, group}] = {key, GroupId{group}, RemovedWhy::purged, 0};
      }
      stored_->blocks.erase(it);
    }
    return bytes;
  }
  Status pin(const Pin& pin) override {
    stored_->pins.push_back(pin);
    if (pinned_bytes() <= stored_->pin_bytes_max) return Status::success();
    stored_->pins.pop_back();
    return Status::exhausted("pins would take too much");
  }
  Status unpin(const BlockKey& key) override {
    const auto gone = std::erase_if(stored_->pins, [&](const Pin& p) { return p.key == key; });
    return gone ? Status::success() : Status::not_found("not pinned");
  }
  const std::vector<Pin>& pins() const override { return stored_->pins; }
  bool pinned(const BlockKey& key, GroupId group) const override {
    return std::any_of(stored_->pins.begin(), stored_->pins.end(), [&](const Pin& pin) {
      BlockKey at = pin.key;
      for (std::int64_t i = pin.blocks - 1; i >= 0; --i) {
        if (at == key) return i >= pin.first[group.v];
        const DiskBlock* block = find(at);
        if (!block) break;
        at = block->parent;
      }
      return false;
    });
  }
  std::uint64_t pinned_bytes() const override {
    std::uint64_t bytes = 0;
    for (const auto& [key, entry] : stored_->blocks)
      for (const auto& [group, data] : entry.bytes) bytes += pinned(key, GroupId{group}) ? data.size() : 0;
    return bytes;
  }
  std::uint64_t pin_bytes_max() const override { return stored_->pin_bytes_max; }

  WriteResult write(GroupId group, std::span<const DiskBlock> blocks, std::span<const std::byte* const> data,
                    std::function<void(bool ok)> done) override {
    EXPECT_FALSE(blocks.empty());
    EXPECT_LE(blocks.size(), static_cast<std::size_t>(kExtentBlocks));
    EXPECT_EQ(blocks.front().index / kExtentBlocks, blocks.back().index / kExtentBlocks)
        << "an extent crosses a boundary";
    for (std::size_t i = 1; i < blocks.size(); ++i) {
      EXPECT_EQ(blocks[i].parent, blocks[i - 1].key);
      EXPECT_EQ(blocks[i].index, blocks[i - 1].index + 1);
    }
    const WriteResult result = queue_.size() >= knobs_->queue_max ? WriteResult::dropped_queue_full : knobs_->refuse;
    if (result != WriteResult::queued) {
      ++stats_.writes_dropped;
      return result;
    }
    extent_sizes.push_back(blocks.size());
    queue_.push_back({group, {blocks.begin(), blocks.end()}, {data.begin(), data.end()}, std::move(done)});
    return result;
  }

  ReadTicket* start_read(std::span<const ReadItem> items) override {
    auto t = std::make_unique<Ticket>();
    t->tier = this;
    t->items.assign(items.begin(), items.end());
    ReadTicket* raw = t.get();
    tickets_.push_back(std::move(t));
    return raw;
  }
  void release(ReadTicket* ticket) override {
    const auto at = std::find_if(tickets_.begin(), tickets_.end(), [&](const auto& t) { return t.get() == ticket; });
    ASSERT_NE(at, tickets_.end());
    (*at)->run();
    stats_.bytes_read += (*at)->bytes();
    tickets_.erase(at);
  }
  void touch(const BlockKey&) override {}
  bool near_daily_cap() override { return knobs_->near_cap; }
  void drop(const BlockKey& key) override { stored_->blocks.erase(key); }
  void poll() override {
    for (int i = 0; i < knobs_->writes_per_poll && !queue_.empty(); ++i) write_one();
    while (!done_.empty()) {
      const auto done = std::move(done_.front());
      done_.pop_front();
      done();
    }
    for (int i = 0; i < knobs_->reads_per_poll && i < static_cast<int>(tickets_.size()); ++i)
      tickets_[static_cast<std::size_t>(i)]->run();
  }
  bool flush(std::int64_t) override {
    while (!queue_.empty()) write_one();
    return true;
  }
  DiskStats stats() const override { return stats_; }

  std::vector<std::size_t> extent_sizes;  // Of every extent queued, in order.
  std::size_t queued() const { return queue_.size(); }

 private:
  struct Pending {
    GroupId group;
    std::vector<DiskBlock> blocks;
    std::vector<const std::byte*> data;
    std::function<void(bool)> done;
  };
  struct Ticket final : ReadTicket {
    FakeDiskTier* tier = nullptr;
    std::vector<ReadItem> items;
    std::vector<std::size_t> bad;
    bool ran = false;

    bool wait_layer(LayerIndex) override {
      run();
      return bad.empty();
    }
    bool done() const override { return ran; }
    std::vector<std::size_t> failed() const override { return bad; }
    std::uint64_t bytes() const override {
      std::uint64_t n = 0;
      for (const auto& item : items) n += static_cast<std::uint64_t>(tier->layouts_[item.group.v].block_bytes);
      return n;
    }
    double seconds() const override {
      const double rate = tier->knobs_->bytes_per_second;
      return rate > 0 ? static_cast<double>(bytes()) / rate : 0;
    }
    void run() {
      if (ran) return;
      ran = true;
      for (std::size_t i = 0; i < items.size(); ++i) {
        const auto it = tier->stored_->blocks.find(items[i].key);
        const bool have = it != tier->stored_->blocks.end() && it->second.bytes.contains(items[i].group.v);
        const auto size = static_cast<std::size_t>(tier->layouts_[items[i].group.v].block_bytes);
        const bool passing =
            have && (it->second.flaky.erase(items[i].group.v) > 0 || it->second.stubborn.contains(items[i].group.v));
        if (!have || passing || it->second.damaged.contains(items[i].group.v)) {
          std::memset(items[i].dst, 0xEE, size);  // A failed read may have scribbled.
          if (have && !passing) it->second.bytes.erase(items[i].group.v);
          bad.push_back(i);
        } else {
          std::memcpy(items[i].dst, it->second.bytes[items[i].group.v].data(), size);
        }
      }
    }
  };
  void write_one() {
    Pending p = std::move(queue_.front());
    queue_.pop_front();
    const bool ok = knobs_->writes == Knobs::Fail::no;
    for (std::size_t i = 0; ok && i < p.blocks.size(); ++i) {
      auto [it, fresh] = stored_->blocks.try_emplace(p.blocks[i].key);
      if (fresh) it->second.block = p.blocks[i];
      EXPECT_EQ(it->second.block.ids, p.blocks[i].ids) << "two chains write under one key";
      const auto size = static_cast<std::size_t>(layouts_[p.group.v].block_bytes);
      it->second.damaged.erase(p.group.v);
      it->second.bytes[p.group.v].assign(p.data[i], p.data[i] + size);
    }
    if (!ok) ++stats_.write_errors;
    done_.push_back([done = std::move(p.done), ok] { done(ok); });
  }

  const std::vector<model::BlockLayout> layouts_;
  const std::shared_ptr<Stored> stored_;
  const std::shared_ptr<Knobs> knobs_;
  std::deque<Pending> queue_;
  std::deque<std::function<void()>> done_;  // Durable; told at the next poll.
  std::vector<std::unique_ptr<Ticket>> tickets_;
  DiskStats stats_;
};

}  // namespace lode::kv::test
