#include "kv/disk_index.h"

#include <algorithm>

namespace lode::kv {

DiskIndex::Handle DiskIndex::add(const ExtentMeta& meta, std::uint64_t allocated_bytes, std::int64_t used_seconds) {
  const Handle extent = lru_.insert(lru_.end(), Extent{.name = meta.name,
                                                       .parent = meta.parent,
                                                       .keys = meta.keys,
                                                       .allocated_bytes = allocated_bytes,
                                                       .used_seconds = used_seconds});
  LODE_CHECK(by_name_.emplace(meta.name, extent).second);
  by_parent_.emplace(meta.parent, extent);
  for (std::uint32_t i = 0; i < meta.keys.size(); ++i) {
    Node& node = nodes_[meta.keys[i]];
    if (node.places.empty()) {
      node.block = {.key = meta.keys[i],
                    .parent = i == 0 ? meta.parent : meta.keys[i - 1],
                    .index = meta.first_index + i,
                    .ids = meta.ids[i]};
    }
    node.places.push_back({extent, i});
    if (const auto pins = pins_.find(meta.keys[i]); pins != pins_.end()) extent->pins += pins->second[meta.name.group];
  }
  return extent;
}

void DiskIndex::remove(Handle extent) {
  for (const BlockKey& key : extent->keys) {
    const auto node = nodes_.find(key);
    if (node == nodes_.end()) continue;  // The same key twice in one extent: a forged file.
    std::erase_if(node->second.places, [&](const Place& p) { return p.extent == extent; });
    if (node->second.places.empty()) nodes_.erase(node);
  }
  const auto [from, to] = by_parent_.equal_range(extent->parent);
  by_parent_.erase(std::find_if(from, to, [&](const auto& entry) { return entry.second == extent; }));
  by_name_.erase(extent->name);
  lru_.erase(extent);
}

std::optional<DiskIndex::Handle> DiskIndex::find(const ExtentName& name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

std::optional<DiskIndex::Place> DiskIndex::place(const BlockKey& key, GroupId group) const {
  const auto node = nodes_.find(key);
  if (node == nodes_.end()) return std::nullopt;
  std::optional<Place> best;
  for (const Place& p : node->second.places) {
    if (p.extent->name.group != group.v) continue;
    if (!best || p.extent->name.blocks > best->extent->name.blocks) best = p;
  }
  return best;
}

bool DiskIndex::contains(const BlockKey& key, GroupId group) const {
  return place(key, group).has_value();
}

const DiskBlock* DiskIndex::block(const BlockKey& key) const {
  const auto node = nodes_.find(key);
  return node == nodes_.end() ? nullptr : &node->second.block;
}

std::vector<DiskIndex::Handle> DiskIndex::extents_of(const BlockKey& key) const {
  std::vector<Handle> extents;
  if (const auto node = nodes_.find(key); node != nodes_.end()) {
    for (const Place& p : node->second.places) {
      if (std::find(extents.begin(), extents.end(), p.extent) == extents.end()) extents.push_back(p.extent);
    }
  }
  return extents;
}

bool DiskIndex::holds_run(GroupId group, std::span<const BlockKey> keys) const {
  const auto node = nodes_.find(keys.front());
  if (node == nodes_.end()) return false;
  return std::any_of(node->second.places.begin(), node->second.places.end(), [&](const Place& p) {
    // Keys are hashes of everything before them: where the last one is in its place, all between are.
    const std::size_t last = p.at + keys.size() - 1;
    return p.extent->name.group == group.v && last < p.extent->keys.size() && p.extent->keys[last] == keys.back();
  });
}

std::vector<DiskIndex::Handle> DiskIndex::inside(GroupId group, std::span<const BlockKey> keys,
                                                 const ExtentName& except) const {
  std::vector<Handle> found;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (const Handle extent : extents_of(keys[i])) {
      const std::size_t n = extent->keys.size();
      if (extent->name.group == group.v && extent->name != except && extent->keys.front() == keys[i] &&
          i + n <= keys.size() && extent->keys.back() == keys[i + n - 1]) {
        found.push_back(extent);
      }
    }
  }
  return found;
}

void DiskIndex::touch(const BlockKey& key, std::int64_t used_seconds) {
  const auto node = nodes_.find(key);
  if (node == nodes_.end()) return;
  for (const Place& p : node->second.places) {
    p.extent->used_seconds = used_seconds;
    p.extent->touched = true;
    lru_.splice(lru_.end(), lru_, p.extent);
  }
}

std::vector<ExtentName> DiskIndex::take_touched() {
  std::vector<ExtentName> names;
  for (auto& extent : lru_) {
    if (extent.touched) names.push_back(extent.name);
    extent.touched = false;
  }
  return names;
}

std::int64_t DiskIndex::closest_child(const BlockKey& parent, std::span<const TokenId> ids) const {
  // Children compared; a prefix with more is a busy one, and any of them explains a miss.
  constexpr int kCompared = 256;
  std::int64_t best = -1;
  int left = kCompared;
  const auto look_at = [&](const BlockKey& key) {
    const DiskBlock* child = block(key);
    if (!child || --left < 0) return;
    const auto end = std::mismatch(ids.begin(), ids.end(), child->ids.begin(), child->ids.end()).first;
    best = std::max<std::int64_t>(best, end - ids.begin());
  };
  if (const auto node = nodes_.find(parent); node != nodes_.end())
    for (const Place& p : node->second.places)
      if (p.at + 1 < p.extent->keys.size()) look_at(p.extent->keys[p.at + 1]);
  const auto [from, to] = by_parent_.equal_range(parent);
  for (auto i = from; i != to && left > 0; ++i) look_at(i->second->keys.front());
  return best;
}

// An extent of another group that is worth nothing once this one is gone: its first block lies in this one.
std::optional<DiskIndex::Handle> DiskIndex::dependent(const Extent& extent, const std::vector<bool>& whole_history,
                                                      const std::unordered_set<const Extent*>& spared) {
  if (whole_history.empty() || !whole_history[extent.name.group]) return std::nullopt;
  BlockKey before = extent.parent;
  for (const BlockKey& key : extent.keys) {
    const auto [from, to] = by_parent_.equal_range(before);
    for (auto i = from; i != to; ++i) {
      const Extent& other = *i->second;
      if (other.keys.front() == key && !whole_history[other.name.group] && !spared.contains(&other) && other.pins == 0)
        return i->second;
    }
    before = key;
  }
  return std::nullopt;
}

std::optional<DiskIndex::Handle> DiskIndex::victim(const BlockKey& parent, const std::vector<bool>& whole_history) {
  std::unordered_set<const Extent*> spared;
  BlockKey key = parent;
  for (std::size_t steps = 0; steps <= nodes_.size(); ++steps) {
    const auto node = nodes_.find(key);
    if (node == nodes_.end()) break;
    for (const Place& p : node->second.places) spared.insert(&*p.extent);
    key = node->second.block.parent;
  }
  const auto kept = [&](const Extent& extent) { return extent.pins > 0 || spared.contains(&extent); };
  Handle found = lru_.begin();
  while (found != lru_.end() && kept(*found)) ++found;
  if (found == lru_.end()) return std::nullopt;
  // Down to a leaf. A chain cannot be longer than there are extents.
  for (std::size_t steps = 0; steps < lru_.size(); ++steps) {
    std::optional<Handle> child;
    for (const BlockKey& k : found->keys) {
      const auto [from, to] = by_parent_.equal_range(k);
      for (auto i = from; i != to && !child; ++i) {
        if (i->second != found && i->second->name.group == found->name.group && !kept(*i->second)) child = i->second;
      }
      if (child) break;
    }
    if (!child) break;
    found = *child;
  }
  return dependent(*found, whole_history, spared).value_or(found);
}

std::vector<BlockKey> DiskIndex::children(const BlockKey& parent, std::size_t most) const {
  std::vector<BlockKey> keys;
  if (const auto node = nodes_.find(parent); node != nodes_.end())
    for (const Place& p : node->second.places)
      if (p.at + 1 < p.extent->keys.size()) keys.push_back(p.extent->keys[p.at + 1]);
  const auto [from, to] = by_parent_.equal_range(parent);
  for (auto i = from; i != to && keys.size() < 2 * most; ++i) keys.push_back(i->second->keys.front());
  std::sort(keys.begin(), keys.end());  // A block lies in extents of several groups.
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  keys.resize(std::min(keys.size(), most));
  return keys;
}

std::int64_t DiskIndex::used_seconds(const BlockKey& key) const {
  std::int64_t last = 0;
  if (const auto node = nodes_.find(key); node != nodes_.end())
    for (const Place& p : node->second.places) last = std::max(last, p.extent->used_seconds);
  return last;
}

void DiskIndex::pin(const BlockKey& key, GroupId group) {
  LODE_CHECK(group.v < kGroupsMax);
  ++pins_[key][group.v];
  if (const auto node = nodes_.find(key); node != nodes_.end())
    for (const Place& p : node->second.places)
      if (p.extent->name.group == group.v) ++p.extent->pins;
}

void DiskIndex::unpin_all() {
  pins_.clear();
  for (Extent& extent : lru_) extent.pins = 0;
}

bool DiskIndex::pinned(const BlockKey& key, GroupId group) const {
  const auto pins = pins_.find(key);
  return pins != pins_.end() && group.v < kGroupsMax && pins->second[group.v] > 0;
}

}  // namespace lode::kv
