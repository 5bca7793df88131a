// The RAM tier: slots of every group inside one budget, who pins them, and the list of those that nobody pins, coldest
// first. Owns the arenas. Knows no tree and no policy. Step thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "kv/block.h"
#include "memory/budget.h"
#include "memory/slot_pool.h"

namespace lode::kv {

struct RamTierOptions {
  std::vector<std::int64_t> block_bytes;  // Of each group.
  std::uint64_t bytes_max = 0;            // Hard.
  std::uint64_t piece_bytes = memory::kPieceBytes;
  memory::SlotPoolOptions::Freed freed = memory::SlotPoolOptions::Freed::keep;
};

class RamTier {
 public:
  static Result<std::unique_ptr<RamTier>> create(const RamTierOptions& options);

  // A slot without a copy: a sequence's own. nullopt: evict first.
  std::optional<SlotId> allocate(GroupId group) { return pools_[group.v]->allocate(); }
  void free(GroupId group, SlotId slot) { pools_[group.v]->free(slot); }
  std::byte* address(GroupId group, SlotId slot) const { return pools_[group.v]->address(slot); }
  std::byte* address(const Copy& copy) const { return pools_[copy.group.v]->address(copy.slot); }
  std::uint64_t block_bytes(GroupId group) const { return pools_[group.v]->slot_bytes(); }

  // The slot becomes the copy's. It is pinned and has none.
  void install(Copy& copy, SlotId slot, CopyState state);
  // `reading` -> `in_place`.
  void arrived(Copy& copy);
  // Frees the copy's slot; its pins, if any, now wait for another.
  void remove(Copy& copy);
  void pin(Copy& copy);
  // The last pin lists the copy as the warmest, or frees it where it is not to be kept.
  void unpin(Copy& copy);
  // As unpin; but where that would free the slot, it becomes the caller's own. Else none.
  SlotId unpin_and_take(Copy& copy);

  Copy* coldest() const { return coldest_; }
  void make_coldest(Copy& copy);  // An unpinned copy that is of no use now.

  const memory::Budget& budget() const { return budget_; }
  std::uint64_t used_bytes() const;
  std::uint64_t unpinned_bytes() const { return unpinned_bytes_; }
  std::size_t resident_blocks() const { return resident_blocks_; }

 private:
  explicit RamTier(const RamTierOptions& options) : budget_(options.bytes_max, options.piece_bytes) {}
  SlotId take(Copy& copy);
  void list(Copy& copy);
  void unlist(Copy& copy);

  memory::Budget budget_;
  std::vector<std::unique_ptr<memory::SlotPool>> pools_;  // [groups]
  Copy *coldest_ = nullptr, *warmest_ = nullptr;
  std::uint64_t unpinned_bytes_ = 0;
  std::size_t resident_blocks_ = 0;
};

}  // namespace lode::kv
