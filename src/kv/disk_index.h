// Which blocks lie in which extent, in memory, and which extent to give up first. Owns no files. Step thread only.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "kv/block.h"
#include "kv/disk_tier.h"
#include "kv/extent.h"
#include "kv/shelves.h"
#include "kv/value.h"

namespace lode::kv {

class DiskIndex {
 public:
  struct Extent : Ranked {
    ExtentName name;
    BlockKey parent;  // Of its first block.
    std::vector<BlockKey> keys;
    std::uint64_t allocated_bytes = 0;
    std::int64_t used_seconds = 0;  // Wall clock of the last use; compares with other models' files only.
    std::uint32_t touched = 0;      // Uses since take_touched().
    std::int64_t pins = 0;          // Its blocks that pins need of its group, each pin for itself: on no shelf then.
  };
  using Handle = std::list<Extent>::iterator;  // Stays valid until that extent is removed.

  // Where a block of one group lies.
  struct Place {
    Handle extent;
    std::uint32_t at = 0;  // Its number inside the extent.
  };

  // As the most recently used one. An extent of that name must not be there.
  Handle add(const ExtentMeta& meta, std::uint64_t allocated_bytes, std::int64_t used_seconds, std::uint32_t uses = 0);
  void remove(Handle extent);
  std::optional<Handle> find(const ExtentName& name);

  bool contains(const BlockKey& key, GroupId group) const;
  // The longest extent that holds the block.
  std::optional<Place> place(const BlockKey& key, GroupId group) const;
  const DiskBlock* block(const BlockKey& key) const;
  // As DiskTier::closest_child.
  std::int64_t closest_child(const BlockKey& parent, std::span<const TokenId> ids) const;
  // As DiskTier::children.
  std::vector<BlockKey> children(const BlockKey& parent, std::size_t most) const;
  std::int64_t used_seconds(const BlockKey& key) const;
  // Extents that hold this block of this group, now or later, are no victims.
  void pin(const BlockKey& key, GroupId group);
  void unpin_all();
  bool pinned(const BlockKey& key, GroupId group) const;
  std::vector<Handle> extents_of(const BlockKey& key) const;  // All groups.
  // Whether one extent of this group holds all of `keys`, consecutive blocks of one chain.
  bool holds_run(GroupId group, std::span<const BlockKey> keys) const;
  // Extents of the group that lie wholly inside `keys`, except `except`.
  std::vector<Handle> inside(GroupId group, std::span<const BlockKey> keys, const ExtentName& except) const;

  // All groups', or one's. An extent counts a use with its first block.
  void touch(const BlockKey& key, std::int64_t used_seconds, std::optional<GroupId> group = std::nullopt);
  // Names touched since the last call, least recent first, each as often as it was used (at most kTouchesMax times).
  static constexpr std::uint32_t kTouchesMax = 17;
  std::vector<ExtentName> take_touched();

  // What computing takes, and which groups are of full history (DiskConfig::whole_history; empty: all).
  void set_compute_cost(const ComputeCost& cost) { cost_ = cost; }
  void set_whole_history(std::vector<bool> whole_history) { whole_history_ = std::move(whole_history); }

  // The extent to give up first: the one worth least (value.h), or rather its last descendant of the same group, since
  // a child is worth nothing without its parent; or, where the group is one of `whole_history` (DiskConfig), what
  // another group holds on top of that one. Never one that holds `parent` or an ancestor of it, of any group, nor a
  // pinned one.
  std::optional<Handle> victim(const BlockKey& parent);
  void evict(Handle extent);  // As remove; that it was not used again until now is learned from.

  const std::list<Extent>& extents() const { return lru_; }  // Least recently used first.
  std::list<Extent>& extents() { return lru_; }
  std::size_t blocks() const { return nodes_.size(); }

 private:
  // What is looked back for the resume point before: 16,384 tokens.
  static constexpr std::int64_t kGapMax = 512;
  static constexpr int kRerankMax = 8;

  std::optional<Handle> dependent(const Extent& extent, const std::unordered_set<const Extent*>& spared);
  std::optional<Handle> least();
  Handle last_descendant(Handle extent, const std::unordered_set<const Extent*>& spared);
  void rank(Extent& extent);
  bool full(const Extent& extent) const { return whole_history_.empty() || whole_history_[extent.name.group]; }

  struct Node {
    DiskBlock block;
    std::vector<Place> places;  // Of all groups; one or two a group.
  };

  std::vector<bool> whole_history_;
  ComputeCost cost_;
  ReuseModel reuse_;
  std::uint64_t tick_ = 0;  // Blocks added.
  Shelves shelves_;
  std::list<Extent> lru_;
  std::unordered_map<ExtentName, Handle, ExtentNameHash> by_name_;
  std::unordered_map<BlockKey, Node, BlockKeyHash> nodes_;
  std::unordered_multimap<BlockKey, Handle, BlockKeyHash> by_parent_;                      // Key: Extent::parent.
  std::unordered_map<BlockKey, std::array<std::int32_t, kGroupsMax>, BlockKeyHash> pins_;  // [groups]
};

}  // namespace lode::kv
