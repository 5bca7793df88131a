// Gathers published blocks of one chain and group into extents for the disk tier: 16 consecutive blocks aligned to 16
// of the chain, or fewer at a turn's end or after two idle seconds; a checkpoint is an extent of its own. Pins what it
// gathers until it is written. Owns nothing else. Step thread only.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kv/disk_tier.h"
#include "kv/prefix_index.h"
#include "kv/ram_tier.h"
#include "model/kv_view.h"

namespace lode::kv {

class ExtentPacker {
 public:
  static constexpr std::int64_t kIdleNs = 2'000'000'000;

  // Consecutive blocks of one chain and group, in order, not yet queued; of one sequence.
  struct Run {
    std::vector<Copy*> copies;  // At most kExtentBlocks.
    std::int64_t last_ns = 0;   // When the last one was added.
  };

  ExtentPacker(std::span<const model::CacheGroup> groups, DiskTier& disk, RamTier& ram, PrefixIndex& index)
      : groups_(groups), disk_(disk), ram_(ram), index_(index) {}

  // Blocks that an extent of this group holds at most.
  static std::int64_t extent_blocks(const model::CacheGroup& group) {
    return group.kind == model::CacheGroup::Kind::checkpoint ? 1 : kExtentBlocks;
  }
  std::int64_t extent_blocks(GroupId group) const { return extent_blocks(groups_[group.v]); }

  // A copy that has just been published. One that the disk has, or must not have, is passed over.
  void add(Run& run, Copy& copy, std::int64_t now_ns);
  // Queues what the run holds.
  void seal(Run& run);
  void seal_if_idle(Run& run, std::int64_t now_ns) {
    if (!run.copies.empty() && now_ns - run.last_ns >= kIdleNs) seal(run);
  }
  // Queues copies in place that are in no run: what an earlier write dropped. At most extent_blocks() of one chain.
  WriteResult write_now(std::span<Copy* const> copies);
  bool wants(const Copy& copy) const;
  // Copies pinned here: in runs and in the disk tier's queue.
  std::size_t pinned() const { return pinned_; }
  // Whether a full queue has dropped a write since the last call.
  bool take_dropped() { return std::exchange(dropped_, false); }

 private:
  void extend_back(Run& run);
  void hold(Copy& copy);
  void let_go(Copy& copy);
  WriteResult queue(std::span<Copy* const> copies);

  const std::span<const model::CacheGroup> groups_;  // The store's.
  DiskTier& disk_;
  RamTier& ram_;
  PrefixIndex& index_;
  std::size_t pinned_ = 0;
  bool dropped_ = false;
};

}  // namespace lode::kv
