// The fast tiers: slots of every group inside a budget, who pins them, and those that nobody pins, on shelves by what
// they are worth. Owns the arenas. What a copy is worth, a Ranker says. Step thread only.
//
// Without a device there is one home, RAM. With one there are two: `near`, the device's memory, and `far`, page-locked
// RAM behind it, which kernels can read and write in place too, only slower. A copy is in one of them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.h"
#include "kernels/device.h"
#include "kv/block.h"
#include "kv/catalog.h"
#include "memory/budget.h"
#include "memory/slot_pool.h"

namespace lode::kv {

enum class Home : std::uint8_t { near, far };

// Says what an unpinned copy is worth: sets its kind and seconds_per_byte. False: it goes with something else.
class Ranker {
 public:
  virtual ~Ranker() = default;
  virtual bool rank(Copy& copy) = 0;
};

struct RamTierOptions {
  std::vector<std::int64_t> block_bytes;  // Of each group.
  std::uint64_t bytes_max = 0;            // Hard; of RAM.
  std::uint64_t piece_bytes = memory::kPieceBytes;
  memory::SlotPoolOptions::Freed freed = memory::SlotPoolOptions::Freed::keep;
  // With a device: its memory's budget, which others draw on too. Both outlive the tier.
  kernels::Device* device = nullptr;
  memory::Budget* near = nullptr;
  RemovalLog* removals = nullptr;  // Told of every copy that remove() takes; outlives the tier.
};

class RamTier {
 public:
  static Result<std::unique_ptr<RamTier>> create(const RamTierOptions& options);

  bool has_far() const { return !far_.empty(); }
  // A slot without a copy: a sequence's own. nullopt: evict first.
  std::optional<SlotId> allocate(GroupId group, Home home = Home::near);
  void free(GroupId group, SlotId slot) { pool(group, slot).free(bare(slot)); }
  static Home home(SlotId slot) { return slot.v & kFarBit ? Home::far : Home::near; }
  std::byte* address(GroupId group, SlotId slot) const { return pool(group, slot).address(bare(slot)); }
  std::byte* address(const Copy& copy) const { return address(copy.group, copy.slot); }
  std::uint64_t block_bytes(GroupId group) const { return near_[group.v]->slot_bytes(); }

  // The slot becomes the copy's. It is pinned and has none.
  void install(Copy& copy, SlotId slot, CopyState state);
  // `reading` -> `in_place`.
  void arrived(Copy& copy);
  // Copies the bytes of a copy in place, which nobody reads meanwhile, into a slot of the other home, which becomes its
  // own; the old one is free. After an error everything is as before, and the slot is still the caller's.
  Status move(Copy& copy, SlotId to);
  // Frees the copy's slot; its pins, if any, now wait for another.
  void remove(Copy& copy);
  void pin(Copy& copy);
  // The last pin puts the copy on a shelf, or frees it where it is not to be kept.
  void unpin(Copy& copy);
  // As unpin; but where that would free the slot, it becomes the caller's own. Else none.
  SlotId unpin_and_take(Copy& copy);

  void set_ranker(Ranker* ranker) { ranker_ = ranker; }  // Before anything is unpinned; outlives the tier's use.
  // The unpinned copy that is worth least, as it was ranked last; nullptr: there is none.
  Copy* least(Home home, const ReuseModel& reuse, std::uint64_t tick) const;
  void rerank(Copy& copy);          // Something has changed that its worth depends on. Nothing, where it is pinned.
  void make_worthless(Copy& copy);  // An unpinned copy that is of no use now.

  const memory::Budget& budget() const { return budget_; }             // Of RAM.
  const memory::Budget* near_budget() const { return options_.near; }  // Of the device.
  std::uint64_t near_committed_bytes() const { return committed(near_); }
  std::uint64_t used_bytes() const { return used(near_) + used(far_); }
  std::uint64_t unpinned_bytes(Home home) const { return lists_[static_cast<std::size_t>(home)].bytes; }
  std::uint64_t unpinned_bytes() const { return unpinned_bytes(Home::near) + unpinned_bytes(Home::far); }
  std::size_t resident_blocks() const { return resident_blocks_; }

 private:
  // Marks a slot of `far`. Pools have fewer than 2^31 slots: each is 4 KiB at least.
  static constexpr std::uint32_t kFarBit = 1u << 31;
  using Pools = std::vector<std::unique_ptr<memory::SlotPool>>;  // [groups]
  struct List {
    Shelves shelves;
    std::uint64_t bytes = 0;
  };

  explicit RamTier(const RamTierOptions& options) : options_(options), budget_(options.bytes_max, options.piece_bytes) {
    parts_.reserve(64);
  }
  Status make_pools(memory::Budget& budget, memory::Place place, Pools& pools);
  memory::SlotPool& pool(GroupId group, SlotId slot) const {
    return home(slot) == Home::far ? *far_[group.v] : *near_[group.v];
  }
  static SlotId bare(SlotId slot) { return SlotId{slot.v & ~kFarBit}; }
  List& list_of(const Copy& copy) { return lists_[static_cast<std::size_t>(home(copy.slot))]; }
  static std::uint64_t used(const Pools& pools);
  static std::uint64_t committed(const Pools& pools);
  SlotId take(Copy& copy);
  void list(Copy& copy);
  void unlist(Copy& copy);
  void count_in(Copy& copy);
  void count_out(Copy& copy);
  void end_point(Copy& copy);
  void rerank(Block& block) {
    for (Copy& c : block.copies) rerank(c);
  }

  const RamTierOptions options_;
  memory::Budget budget_;
  Pools near_, far_;                        // far_ is empty without a device: near_ is RAM then.
  std::array<List, 2> lists_;               // By Home.
  std::vector<kernels::DeviceCopy> parts_;  // Scratch of move.
  std::size_t resident_blocks_ = 0;
  Ranker* ranker_ = nullptr;
};

}  // namespace lode::kv
