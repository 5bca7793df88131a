// Which unpinned bytes leave RAM, and which a device's memory. Owns nothing; decides over the index and the RAM tier.
// Step thread only.
//
// With a device: what leaves its memory falls to RAM, as far as RAM keeps what nobody pins; what leaves RAM is gone, or
// on the SSD alone. A block that finds no room on the device, because all of it is pinned, lies in RAM.
//
// Order: least recently used first, and inside a chain leaves first (a closing sequence lists its blocks from the last
// to the first). A block after which nothing can resume is worth nothing: when a window model loses the window before
// its last boundary, or a hybrid its last checkpoint, the rest of that chain goes with it, up to the next block that
// something can still resume at. Nor is a window or a state worth anything without the full history of its block: it
// goes with that. Checkpoints in the middle of a chain leave the live sequence first, and so RAM.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kv/disk_tier.h"
#include "kv/prefix_index.h"
#include "kv/ram_tier.h"
#include "model/kv_view.h"

namespace lode::kv {

// Whether the disk tier has this copy, for all the index knows. `disk` may be nullptr.
inline bool on_disk(const DiskTier* disk, const Copy& copy) {
  return disk && !copy.block->off_disk && !copy.bad_on_disk && disk->contains(copy.block->key, copy.group);
}

class Evictor {
 public:
  // `ram_bytes_max`: of unpinned copies in RAM behind a device.
  Evictor(std::span<const model::CacheGroup> groups, PrefixIndex& index, RamTier& ram, const DiskTier* disk,
          std::uint64_t ram_bytes_max)
      : groups_(groups), index_(index), ram_(ram), disk_(disk), ram_bytes_max_(ram_bytes_max) {}

  // A slot, evicting unpinned copies as long as that may help. nullopt: everything left is pinned.
  std::optional<SlotId> allocate(GroupId group);
  // The same on the device alone: what it holds unpinned moves on.
  std::optional<SlotId> allocate_near(GroupId group);
  // Evicts until at most `bytes_max` are unpinned in RAM.
  void trim(std::uint64_t bytes_max);
  // Makes room on the device until its budget has so many bytes left, or nothing unpinned is there.
  void yield_near(std::uint64_t bytes);
  // Evicts all that nobody pins, everywhere.
  void drop();
  // The bytes below `block` can't be used until it is computed again: they go first.
  void orphan(Block& block);
  std::uint64_t evicted_blocks() const { return evicted_; }

 private:
  bool make_room_near();
  bool demote(Copy& copy);
  bool evict_one(Home home);
  bool remove_unpinned(Block& block);
  bool full(const Copy& c) const { return groups_[c.group.v].kind == model::CacheGroup::Kind::full; }
  // Whether every group but the full ones has what a token after `block` needs.
  bool resumable(const Block& block) const;
  static bool in_use(const Block& block);

  const std::span<const model::CacheGroup> groups_;
  PrefixIndex& index_;
  RamTier& ram_;
  const DiskTier* const disk_;
  const std::uint64_t ram_bytes_max_;
  std::uint64_t evicted_ = 0;  // Blocks that lost copies.
};

}  // namespace lode::kv
