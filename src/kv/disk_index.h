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

namespace lode::kv {

class DiskIndex {
 public:
  struct Extent {
    ExtentName name;
    BlockKey parent;  // Of its first block.
    std::vector<BlockKey> keys;
    std::uint64_t allocated_bytes = 0;
    std::int64_t used_seconds = 0;  // Wall clock of the last use; compares with other models' files only.
    bool touched = false;           // Since take_touched().
    std::int64_t pins = 0;          // Its blocks that pins need of its group, each pin for itself.
  };
  using Handle = std::list<Extent>::iterator;  // Stays valid until that extent is removed.

  // Where a block of one group lies.
  struct Place {
    Handle extent;
    std::uint32_t at = 0;  // Its number inside the extent.
  };

  // As the most recently used one. An extent of that name must not be there.
  Handle add(const ExtentMeta& meta, std::uint64_t allocated_bytes, std::int64_t used_seconds);
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

  void touch(const BlockKey& key, std::int64_t used_seconds);
  // Names touched since the last call, least recent first.
  std::vector<ExtentName> take_touched();

  // The extent to give up first: the least recently used one, or rather its last descendant of the same group, since a
  // child is worth nothing without its parent; or, where the group is one of `whole_history` (DiskConfig), what another
  // group holds on top of that one. Never one that holds `parent` or an ancestor of it, of any group, nor a pinned
  // one.
  std::optional<Handle> victim(const BlockKey& parent, const std::vector<bool>& whole_history);

  const std::list<Extent>& extents() const { return lru_; }  // Least recently used first.
  std::list<Extent>& extents() { return lru_; }
  std::size_t blocks() const { return nodes_.size(); }

 private:
  std::optional<Handle> dependent(const Extent& extent, const std::vector<bool>& whole_history,
                                  const std::unordered_set<const Extent*>& spared);

  struct Node {
    DiskBlock block;
    std::vector<Place> places;  // Of all groups; one or two a group.
  };

  std::list<Extent> lru_;
  std::unordered_map<ExtentName, Handle, ExtentNameHash> by_name_;
  std::unordered_map<BlockKey, Node, BlockKeyHash> nodes_;
  std::unordered_multimap<BlockKey, Handle, BlockKeyHash> by_parent_;                      // Key: Extent::parent.
  std::unordered_map<BlockKey, std::array<std::int32_t, kGroupsMax>, BlockKeyHash> pins_;  // [groups]
};

}  // namespace lode::kv
