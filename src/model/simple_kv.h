// A KvView over plain memory that keeps every block: the tests' stand-in for kv::Store. Tests and benchmarks only.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "model/kv_view.h"

namespace lode::model::test {

// Any number of sequences; each grows without bound.
class SimpleKv final : public KvView {
 public:
  SimpleKv(std::span<const CacheGroup> groups, kernels::KvType type, std::size_t sequences)
      : tables_(sequences), pairs_(sequences) {
    for (const CacheGroup& g : groups) layouts_.push_back(block_layout(g, type, type));
    for (auto& t : tables_) t.resize(layouts_.size());
    lengths_.resize(sequences);
  }

  struct Part {
    std::size_t sequence;
    std::int64_t count;
  };
  // The view of one step; lengths move on when `advance` is called.
  SimpleKv& prepare(std::vector<Part> parts) {
    parts_ = std::move(parts);
    runs_.assign(layouts_.size(), {});
    std::int64_t row = 0;
    for (const Part& p : parts_) {
      for (std::size_t g = 0; g < layouts_.size(); ++g) {
        auto& table = tables_[p.sequence][g];
        while (static_cast<std::int64_t>(table.size()) * 32 < lengths_[p.sequence] + p.count) {
          blocks_.emplace_back(
              static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<std::size_t>(layouts_[g].block_bytes))),
              &std::free);
          // 0xFF is NaN in every float type: reading what was not written shows at once.
          std::memset(blocks_.back().get(), 0xFF, static_cast<std::size_t>(layouts_[g].block_bytes));
          table.push_back(blocks_.back().get());
        }
        runs_[g].push_back({row, p.count, lengths_[p.sequence], table.data()});
      }
      row += p.count;
    }
    return *this;
  }
  void advance() {
    for (const Part& p : parts_) {
      lengths_[p.sequence] += p.count;
      pairs_[p.sequence].now ^= 1;
    }
  }
  std::int64_t length(std::size_t sequence) const { return lengths_[sequence]; }

  std::span<const kernels::KvRun> runs(LayerIndex layer) override { return runs_[find(layer).first]; }
  const kernels::KvLayer& layer(LayerIndex layer) override {
    const auto [g, s] = find(layer);
    return layouts_[g].slices[s].kv;
  }
  // Two states a sequence: a step reads the older length's and writes the other.
  std::span<const kernels::StateRun> states(LayerIndex layer) override {
    const auto [g, s] = find(layer);
    const BlockLayout::Slice& slice = layouts_[g].slices[s];
    states_.clear();
    std::int64_t row = 0;
    for (const Part& p : parts_) {
      Pair& pair = pairs_[p.sequence];
      for (auto& bytes : pair.bytes) bytes.resize(static_cast<std::size_t>(layouts_[g].block_bytes), std::byte{0xFF});
      const bool fresh = lengths_[p.sequence] == 0;
      states_.push_back({row, p.count, fresh ? nullptr : pair.bytes[pair.now].data() + slice.offset,
                         pair.bytes[1 - pair.now].data() + slice.offset});
      row += p.count;
    }
    return states_;
  }
  Status wait(LayerIndex) override { return Status::success(); }

 private:
  struct Pair {
    std::vector<std::byte> bytes[2];
    std::size_t now = 0;
  };
  std::pair<std::size_t, std::size_t> find(LayerIndex layer) const {
    for (std::size_t g = 0; g < layouts_.size(); ++g)
      for (std::size_t s = 0; s < layouts_[g].slices.size(); ++s)
        if (layouts_[g].slices[s].layer == layer) return {g, s};
    std::abort();
  }
  std::vector<BlockLayout> layouts_;
  std::vector<std::vector<std::vector<std::byte*>>> tables_;  // [sequence][group][block]
  std::vector<std::vector<kernels::KvRun>> runs_;             // [group][part]
  std::vector<std::int64_t> lengths_;
  std::vector<Part> parts_;
  std::vector<Pair> pairs_;  // [sequence]; of the one checkpoint group.
  std::vector<kernels::StateRun> states_;
  std::vector<std::unique_ptr<std::byte, void (*)(void*)>> blocks_;
};

}  // namespace lode::model::test
