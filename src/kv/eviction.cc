#include "kv/eviction.h"

namespace lode::kv {

std::optional<SlotId> Evictor::allocate_near(GroupId group) {
  for (;;) {
    if (auto slot = ram_.allocate(group)) return slot;
    if (!make_room_near()) return std::nullopt;
  }
}

std::optional<SlotId> Evictor::allocate(GroupId group) {
  if (auto slot = allocate_near(group)) return slot;
  while (ram_.has_far()) {
    if (auto slot = ram_.allocate(group, Home::far)) return slot;
    if (!evict_one(Home::far)) break;
  }
  return std::nullopt;
}

bool Evictor::make_room_near() {
  Copy* coldest = ram_.coldest(Home::near);
  if (!coldest) return false;
  return (ram_.has_far() && demote(*coldest)) || evict_one(Home::near);
}

// From the device to RAM, where colder ones make room. False: RAM keeps no more.
bool Evictor::demote(Copy& copy) {
  const std::uint64_t bytes = ram_.block_bytes(copy.group);
  if (bytes > ram_bytes_max_) return false;
  while (ram_.unpinned_bytes(Home::far) > ram_bytes_max_ - bytes)
    if (!evict_one(Home::far) || !copy.listed) return !copy.listed;  // Its chain may go with what was evicted.
  for (;;) {
    if (const auto slot = ram_.allocate(copy.group, Home::far)) {
      if (ram_.move(copy, *slot).ok()) return true;
      ram_.free(copy.group, *slot);
      return false;
    }
    if (!evict_one(Home::far)) return false;
    if (!copy.listed) return true;
  }
}

void Evictor::trim(std::uint64_t bytes_max) {
  const Home ram = ram_.has_far() ? Home::far : Home::near;
  while (ram_.unpinned_bytes(ram) > bytes_max) LODE_CHECK(evict_one(ram));
}

void Evictor::yield_near(std::uint64_t bytes) {
  const memory::Budget& budget = *ram_.near_budget();
  while (budget.pieces_left() * budget.piece_bytes() < bytes && make_room_near()) {
  }
}

void Evictor::drop() {
  while (evict_one(Home::near) || evict_one(Home::far)) {
  }
}

bool Evictor::evict_one(Home home) {
  Copy* victim = ram_.coldest(home);
  if (!victim) return false;
  Block* p = victim->block;
  if (full(*victim)) {
    remove_unpinned(*p);
  } else {
    ram_.remove(*victim);
    ++evicted_;
  }
  // Now nothing may be left to resume at between this block and some ancestor.
  bool any = true;
  while (any && !in_use(*p) && !resumable(*p)) {
    Block* parent = p->parent;
    any = remove_unpinned(*p) || p == victim->block;
    index_.settle(*p);
    if (parent->root()) return true;
    p = parent;
  }
  index_.settle(*p);
  return true;
}

bool Evictor::remove_unpinned(Block& block) {
  bool any = false;
  for (Copy& c : block.copies)
    if (c.listed) {
      ram_.remove(c);
      any = true;
    }
  evicted_ += any;
  return any;
}

bool Evictor::in_use(const Block& block) {
  if (block.refs > 0) return true;
  for (const Copy& c : block.copies)
    if (c.pins > 0) return true;
  for (const Block* child = block.first_child; child; child = child->next_sibling)
    if (child->resident > 0 || child->refs > 0) return true;
  return false;
}

bool Evictor::resumable(const Block& block) const {
  const std::int64_t end = block.index + 1;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind == model::CacheGroup::Kind::full) continue;
    const std::int64_t first = groups_[g].first_needed(end * kBlockTokens) / kBlockTokens;
    const Block* b = &block;
    for (std::int64_t i = end - 1; i >= first; --i, b = b->parent) {
      const Copy& c = b->copies[g];
      if (c.state == CopyState::none && !on_disk(disk_, c)) return false;
    }
  }
  return true;
}

void Evictor::orphan(Block& block) {
  Block* b = block.first_child;
  while (b && b != &block) {  // Preorder without a stack: a chain may be tens of thousands of blocks deep.
    for (Copy& c : b->copies)
      if (c.listed) ram_.make_coldest(c);
    if (b->first_child) {
      b = b->first_child;
      continue;
    }
    while (b != &block && !b->next_sibling) b = b->parent;
    if (b != &block) b = b->next_sibling;
  }
}

}  // namespace lode::kv
