// Chains, payloads and a tier to try them on. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kv/bytes_io.h"
#include "kv/disk_tier.h"
#include "kv/key.h"
#include "platform/fake_clock.h"
#include "platform/fake_file_system.h"

namespace lode::kv::test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// Slices of the given bytes, for layers first, first + step, ...
inline model::BlockLayout make_layout(std::vector<std::int64_t> slice_bytes, std::uint32_t first, std::uint32_t step) {
  model::BlockLayout layout;
  for (std::size_t i = 0; i < slice_bytes.size(); ++i) {
    model::BlockLayout::Slice slice;
    slice.layer = LayerIndex{first + step * static_cast<std::uint32_t>(i)};
    slice.offset = layout.block_bytes;
    slice.bytes = slice_bytes[i];
    layout.block_bytes += slice_bytes[i];
    layout.slices.push_back(slice);
  }
  return layout;
}

inline constexpr GroupId kFullGroup{0}, kWindowGroup{1};

// Layers 0 and 2 in one group, 1, 3 and 4 in the other.
inline std::vector<model::BlockLayout> small_groups() {
  return {make_layout({4096, 8192}, 0, 2), make_layout({4096, 4096, 4096}, 1, 2)};
}

// `blocks` blocks that follow `parent`; `seed` decides the tokens.
inline std::vector<DiskBlock> make_chain(std::size_t blocks, std::uint64_t seed, BlockKey parent = {},
                                         std::int64_t index = 0) {
  std::mt19937_64 random(seed);
  std::vector<DiskBlock> chain;
  for (std::size_t i = 0; i < blocks; ++i) {
    DiskBlock& b = chain.emplace_back();
    for (auto& id : b.ids) id = static_cast<TokenId>(random() % 50'000);
    b.parent = parent;
    b.index = index + static_cast<std::int64_t>(i);
    b.key = parent = child_key(parent, b.ids);
  }
  return chain;
}

// What this block of this group must hold: a function of both, so that any read can be checked.
inline void fill_payload(const BlockKey& key, GroupId group, std::byte* to, std::int64_t bytes) {
  std::uint64_t seed;
  std::memcpy(&seed, key.bytes.data(), sizeof seed);
  for (std::int64_t i = 0; i < bytes; i += 8) {
    std::uint64_t value = (seed + group.v + static_cast<std::uint64_t>(i)) * 0x9e3779b97f4a7c15ull;
    value ^= value >> 29;
    std::memcpy(to + i, &value, 8);
  }
}

struct TempDir {
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "lode-kv-XXXXXX").string();
    if (::mkdtemp(name.data())) path = name;
  }
  ~TempDir() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

class Harness {
 public:
  DiskConfig config;
  platform::FakeFileSystem fake;
  platform::FakeClock clock;
  platform::FileSystem* fs = &fake;
  std::unique_ptr<DiskTier> tier;

  Harness() {
    config.dir = "/cache/kv";
    config.model_fingerprint.fill(0xab);
    config.groups = small_groups();
    config.quota_bytes = 64u << 20;
    config.free_floor_bytes = 0;
  }

  ~Harness() { tier.reset(); }  // It may still be writing payloads.

  Status open() {
    tier.reset();
    auto opened = DiskTier::open(config, *fs, clock);
    if (!opened.ok()) return opened.status();
    tier = std::move(opened).value();
    return {};
  }

  // Queues blocks [first, first + count) of the chain; their payload lives until the harness does.
  WriteResult write(GroupId group, std::span<const DiskBlock> blocks, int* done = nullptr, int* failed = nullptr) {
    std::vector<const std::byte*> data;
    for (const auto& b : blocks) {
      auto& payload = payloads_[{b.key, group.v}];
      if (!payload) {
        payload = aligned_bytes(static_cast<std::size_t>(config.groups[group.v].block_bytes));
        fill_payload(b.key, group, payload.get(), config.groups[group.v].block_bytes);
      }
      data.push_back(payload.get());
    }
    return tier->write(group, blocks, data, [done, failed](bool ok) {
      if (done && ok) ++*done;
      if (failed && !ok) ++*failed;
    });
  }

  // Reads blocks of a group; how many came, each of which is checked bit for bit. Failures must be reported as such.
  std::size_t read(GroupId group, std::span<const DiskBlock> blocks) {
    const auto bytes = static_cast<std::size_t>(config.groups[group.v].block_bytes);
    std::vector<AlignedBytes> slots;
    std::vector<DiskTier::ReadItem> items;
    for (const auto& b : blocks) {
      slots.push_back(aligned_bytes(bytes));
      items.push_back({b.key, group, slots.back().get()});
    }
    ReadTicket* ticket = tier->start_read(items);
    bool all_layers = true;
    for (const auto& slice : config.groups[group.v].slices) all_layers &= ticket->wait_layer(slice.layer);
    while (!ticket->done()) std::this_thread::yield();
    const auto failed = ticket->failed();
    EXPECT_EQ(all_layers, failed.empty());
    const AlignedBytes expected = aligned_bytes(bytes);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (std::find(failed.begin(), failed.end(), i) != failed.end()) continue;
      fill_payload(blocks[i].key, group, expected.get(), static_cast<std::int64_t>(bytes));
      EXPECT_EQ(0, std::memcmp(slots[i].get(), expected.get(), bytes)) << "block " << i << " is wrong";
      // Metadata of what was read is right as well, as long as it is still known.
      if (const DiskBlock* known = tier->find(blocks[i].key)) {
        EXPECT_EQ(known->ids, blocks[i].ids);
        EXPECT_EQ(known->parent, blocks[i].parent);
        EXPECT_EQ(known->index, blocks[i].index);
      }
    }
    tier->release(ticket);
    tier->poll();
    return blocks.size() - failed.size();
  }

  std::size_t contained(GroupId group, std::span<const DiskBlock> blocks) const {
    std::size_t n = 0;
    for (const auto& b : blocks) n += tier->contains(b.key, group);
    return n;
  }

  std::filesystem::path own() const { return config.dir / hex(BlockKey{config.model_fingerprint}); }
  std::vector<std::filesystem::path> extents() const {
    auto files = fake.files(own());
    std::erase_if(files, [](const auto& path) { return path.extension() != ".kvx"; });
    return files;
  }
  // The ledger agrees with the folder, and nothing torn lies in it.
  void expect_tidy() {
    EXPECT_EQ(tier->stats().bytes_allocated, fake.allocated_bytes(config.dir));
    EXPECT_LE(fake.allocated_bytes(config.dir), config.quota_bytes);
    for (const auto& path : fake.files(config.dir)) EXPECT_NE(path.extension(), ".tmp") << path;
  }

 private:
  std::map<std::pair<BlockKey, std::uint32_t>, AlignedBytes> payloads_;
};

}  // namespace lode::kv::test
