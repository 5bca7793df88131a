#include "kv/disk_index.h"

#include <algorithm>
#include <utility>

namespace lode::kv {

DiskIndex::Handle DiskIndex::add(const ExtentMeta& meta, std::uint64_t allocated_bytes, std::int64_t used_seconds,
                                 std::uint32_t uses) {
  const Handle extent = lru_.emplace(lru_.end());
  extent->name = meta.name;
  extent->parent = meta.parent;
  extent->keys = meta.keys;
  extent->allocated_bytes = allocated_bytes;
  extent->used_seconds = used_seconds;
  extent->uses = uses;
  extent->used_tick = tick_ += meta.keys.size();
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
  rank(*extent);
  return extent;
}

void DiskIndex::remove(Handle extent) {
  if (extent->shelf >= 0) shelves_.remove(*extent);
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

void DiskIndex::touch(const BlockKey& key, std::int64_t used_seconds, std::optional<GroupId> group) {
  const auto node = nodes_.find(key);
  if (node == nodes_.end()) return;
  for (const Place& p : node->second.places) {
    Extent& e = *p.extent;
    if (group && e.name.group != group->v) continue;
    e.used_seconds = used_seconds;
    lru_.splice(lru_.end(), lru_, p.extent);
    if (p.at > 0 && e.used_tick == tick_) continue;
    reuse_.reused(e.kind, e.uses, tick_ - e.used_tick);
    ++e.uses;
    ++e.touched;
    e.used_tick = tick_;
    if (e.shelf >= 0) shelves_.remove(e);
    rank(e);
  }
}

std::vector<ExtentName> DiskIndex::take_touched() {
  std::vector<ExtentName> names;
  for (auto& extent : lru_) {
    names.insert(names.end(), std::min(extent.touched, kTouchesMax), extent.name);
    extent.touched = 0;
  }
  return names;
}

// Puts it on its shelf. Full history: the seconds of computing its blocks. A window or state: those since the one of
// the group before it. Pinned ones stay off.
void DiskIndex::rank(Extent& extent) {
  const auto first = nodes_.find(extent.keys.front());
  if (first == nodes_.end()) return;  // Forged: it holds a key twice.
  const auto blocks = static_cast<std::int64_t>(extent.keys.size());
  std::int64_t gap = 0;
  if (full(extent)) {
    extent.kind = ReuseModel::Kind::history;
  } else {
    extent.kind = by_parent_.contains(extent.keys.back()) ? ReuseModel::Kind::passed : ReuseModel::Kind::end;
    const auto here = [&](const Place& p) { return p.extent->name.group == extent.name.group; };
    for (auto node = nodes_.find(extent.parent); node != nodes_.end() && gap < kGapMax; ++gap) {
      if (std::any_of(node->second.places.begin(), node->second.places.end(), here)) break;
      node = nodes_.find(node->second.block.parent);
    }
  }
  const std::int64_t index = std::max<std::int64_t>(0, first->second.block.index - gap);
  extent.seconds_per_byte = static_cast<float>(cost_.seconds(index * kBlockTokens, (blocks + gap) * kBlockTokens) /
                                               static_cast<double>(std::max<std::uint64_t>(extent.allocated_bytes, 1)));
  if (extent.pins == 0) shelves_.add(extent);
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
std::optional<DiskIndex::Handle> DiskIndex::dependent(const Extent& extent,
                                                      const std::unordered_set<const Extent*>& spared) {
  if (whole_history_.empty() || !whole_history_[extent.name.group]) return std::nullopt;
  BlockKey before = extent.parent;
  for (const BlockKey& key : extent.keys) {
    const auto [from, to] = by_parent_.equal_range(before);
    for (auto i = from; i != to; ++i) {
      const Extent& other = *i->second;
      if (other.keys.front() == key && !whole_history_[other.name.group] && !spared.contains(&other) && other.pins == 0)
        return i->second;
    }
    before = key;
  }
  return std::nullopt;
}

// The one on the shelves that is worth least now.
std::optional<DiskIndex::Handle> DiskIndex::least() {
  for (int tries = 0;; ++tries) {
    auto* extent = static_cast<Extent*>(shelves_.least(reuse_, tick_));
    if (!extent) return std::nullopt;
    const int before = extent->shelf;
    shelves_.remove(*extent);
    rank(*extent);  // What it costs, and what stands before it, may have changed.
    if (extent->shelf <= before || tries == kRerankMax) return find(extent->name);
  }
}

// Down to a leaf. A chain cannot be longer than there are extents.
DiskIndex::Handle DiskIndex::last_descendant(Handle extent, const std::unordered_set<const Extent*>& spared) {
  for (std::size_t steps = 0; steps < lru_.size(); ++steps) {
    std::optional<Handle> child;
    for (const BlockKey& k : extent->keys) {
      const auto [from, to] = by_parent_.equal_range(k);
      for (auto i = from; i != to && !child; ++i) {
        const Extent& other = *i->second;
        if (i->second != extent && other.name.group == extent->name.group && !spared.contains(&other) &&
            other.pins == 0)
          child = i->second;
      }
      if (child) break;
    }
    if (!child) break;
    extent = *child;
  }
  return extent;
}

std::optional<DiskIndex::Handle> DiskIndex::victim(const BlockKey& parent) {
  std::unordered_set<const Extent*> spared;
  std::vector<Handle> off;  // Taken from their shelves meanwhile.
  BlockKey key = parent;
  for (std::size_t steps = 0; steps <= nodes_.size(); ++steps) {
    const auto node = nodes_.find(key);
    if (node == nodes_.end()) break;
    for (const Place& p : node->second.places) {
      if (!spared.insert(&*p.extent).second || p.extent->shelf < 0) continue;
      shelves_.remove(*p.extent);
      off.push_back(p.extent);
    }
    key = node->second.block.parent;
  }
  std::optional<Handle> found = least();
  for (const Handle extent : off) shelves_.add(*extent);
  if (!found) return std::nullopt;
  found = last_descendant(*found, spared);
  return dependent(**found, spared).value_or(*found);
}

void DiskIndex::evict(Handle extent) {
  reuse_.left(extent->kind, extent->uses, tick_ - extent->used_tick);
  remove(extent);
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
      if (p.extent->name.group == group.v && p.extent->pins++ == 0 && p.extent->shelf >= 0) shelves_.remove(*p.extent);
}

void DiskIndex::unpin_all() {
  pins_.clear();
  for (Extent& extent : lru_)
    if (std::exchange(extent.pins, 0) > 0) rank(extent);
}

bool DiskIndex::pinned(const BlockKey& key, GroupId group) const {
  const auto pins = pins_.find(key);
  return pins != pins_.end() && group.v < kGroupsMax && pins->second[group.v] > 0;
}

}  // namespace lode::kv
