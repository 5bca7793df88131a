// Which unpinned bytes leave RAM, and which a device's memory. Owns the measured costs and what was learned of reuse;
// decides over the index and the RAM tier. Step thread only. docs/eviction.md explains the policy.
//
// With a device: what leaves its memory falls to RAM, as far as RAM keeps what nobody pins; what leaves RAM is gone, or
// on the SSD alone. A block that finds no room on the device, because all of it is pinned, lies in RAM.
//
// What goes first is what saves the fewest seconds a byte: the seconds of computing it again (of reading it again,
// where the SSD has it and that takes less) times the uses to expect. A chain's leaves go before what they stand on. A
// block after which nothing can resume is worth nothing: when a window model loses the window before its last
// boundary, or a hybrid its last checkpoint, the rest of that chain goes with it, up to the next block that something
// can still resume at. Nor is a window or a state worth anything without the full history of its block: it goes with
// that.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv/disk_tier.h"
#include "kv/prefix_index.h"
#include "kv/ram_tier.h"
#include "kv/value.h"
#include "model/kv_view.h"

namespace lode::kv {

// Whether the disk tier has this copy, for all the index knows. `disk` may be nullptr.
inline bool on_disk(const DiskTier* disk, const Copy& copy) {
  return disk && !copy.block->off_disk && !copy.bad_on_disk && disk->contains(copy.block->key, copy.group);
}

// What computing and reading take here.
struct Costs {
  ComputeCost compute;
  ReadCost read;
};

class Evictor final : public Ranker {
 public:
  // `slack_blocks`: those that a window's resume point keeps beyond its window. `ram_bytes_max`: of unpinned copies in
  // RAM behind a device.
  Evictor(std::span<const model::CacheGroup> groups, PrefixIndex& index, RamTier& ram, const DiskTier* disk,
          std::int64_t slack_blocks, std::uint64_t ram_bytes_max);

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

  Costs& costs() { return costs_; }
  const Costs& costs() const { return costs_; }
  // Time, for what was used when: ticks are blocks of tokens computed.
  void advance(std::int64_t tokens) { tokens_ += static_cast<std::uint64_t>(tokens); }
  std::uint64_t tick() const { return tokens_ / kBlockTokens; }
  // A prompt uses this copy, or would if it were there.
  void use(Copy& copy);
  // The copy has been computed.
  void begin(Copy& copy) { copy.used_tick = tick(); }
  // The window group's copies of blocks [first, end's] are a resume point now.
  void make_point(Copy& end, std::int64_t first);

  bool rank(Copy& copy) override;

 private:
  // Sees no further back for the resume point before: 16,384 tokens.
  static constexpr std::int64_t kGapMax = 512;
  // What has become worth more since it was ranked is put in its place; more of them than this wait for the next time.
  static constexpr int kRerankMax = 8;

  bool make_room_near();
  bool demote(Copy& copy);
  Copy* victim(Home home);
  bool evict_one(Home home);
  void evict(Copy& copy);
  void evict_point(Copy& copy);
  bool remove_unpinned(Block& block);
  double worth(const Copy& copy) const;
  std::int64_t gap_before(const Block& block) const;
  bool full(const Copy& c) const { return groups_[c.group.v].kind == model::CacheGroup::Kind::full; }
  bool recurrent(const Copy& c) const { return groups_[c.group.v].kind == model::CacheGroup::Kind::checkpoint; }
  // Whether every group but the full ones has what a token after `block` needs.
  bool resumable(const Block& block) const;
  bool orphaned(const Block& block) const;
  static bool in_use(const Block& block);

  const std::span<const model::CacheGroup> groups_;
  PrefixIndex& index_;
  RamTier& ram_;
  const DiskTier* const disk_;
  const std::int64_t slack_blocks_;
  const std::uint64_t ram_bytes_max_;
  bool points_ = false;           // Some group is not one of full history.
  std::uint64_t full_bytes_ = 0;  // Of a block, over the groups of full history.
  Costs costs_;
  ReuseModel reuse_;
  std::uint64_t tokens_ = 0;
  std::uint64_t evicted_ = 0;  // Blocks that lost copies.
};

}  // namespace lode::kv
