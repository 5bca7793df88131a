#include "kv/eviction.h"

#include <algorithm>
#include <utility>

namespace lode::kv {

Evictor::Evictor(std::span<const model::CacheGroup> groups, PrefixIndex& index, RamTier& ram, const DiskTier* disk,
                 std::int64_t slack_blocks, std::uint64_t ram_bytes_max)
    : groups_(groups),
      index_(index),
      ram_(ram),
      disk_(disk),
      slack_blocks_(slack_blocks),
      ram_bytes_max_(ram_bytes_max) {
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == model::CacheGroup::Kind::full) full_bytes_ += ram.block_bytes(GroupId{g});
    else points_ = true;
  }
  ram.set_ranker(this);
}

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
  Copy* least = victim(Home::near);
  if (!least) return false;
  return (ram_.has_far() && demote(*least)) || evict_one(Home::near);
}

// From the device to RAM, where others make room. False: RAM keeps no more.
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

// The least valuable now: what it was ranked by may have changed since.
Copy* Evictor::victim(Home home) {
  for (int tries = 0;; ++tries) {
    Copy* c = ram_.least(home, reuse_, tick());
    if (!c || tries == kRerankMax || c->seconds_per_byte <= 0 || c->shelf == Shelves::kOthers) return c;
    const int before = c->shelf;
    ram_.rerank(*c);
    if (c->shelf == before || (c->shelf < before && c->shelf != Shelves::kOthers)) return c;
  }
}

bool Evictor::evict_one(Home home) {
  Copy* chosen = victim(home);
  if (!chosen) return false;
  Block* const first = chosen->block;
  Block* p = first;
  if (full(*chosen)) {
    remove_unpinned(*p);
  } else {
    evict(*chosen);
    ++evicted_;
  }
  // Now nothing may be left to resume at between this block and some ancestor.
  bool any = true;
  while (any && !in_use(*p) && !resumable(*p)) {
    Block* parent = p->parent;
    any = remove_unpinned(*p) || p == first;
    index_.settle(*p);
    if (parent->root()) return true;
    p = parent;
  }
  index_.settle(*p);
  return true;
}

void Evictor::evict(Copy& copy) {
  if (copy.shelf != Shelves::kOthers) {
    const std::uint64_t now = tick();
    reuse_.left(copy.kind, copy.uses, now - std::min(now, copy.used_tick));
  }
  if (copy.point_first >= 0) evict_point(copy);
  else ram_.remove(copy);
}

// A window goes with those of its blocks that no other resume point holds.
void Evictor::evict_point(Copy& copy) {
  const std::int64_t first = std::exchange(copy.point_first, -1);
  for (Block* b = copy.block; b->index >= first; b = b->parent) {
    Copy& c = b->copies[copy.group.v];
    if (--c.holders > 0 || !c.listed) {
      ram_.rerank(c);
      continue;
    }
    ram_.remove(c);
    if (b != copy.block) index_.settle(*b);  // The caller has not done with that one.
  }
}

bool Evictor::remove_unpinned(Block& block) {
  bool any = false;
  for (Copy& c : block.copies)
    if (c.listed) {
      evict(c);
      if (c.listed) ram_.remove(c);  // Part of a window whose end is not here.
      any = true;
    }
  evicted_ += any;
  return any;
}

void Evictor::use(Copy& copy) {
  const std::uint64_t now = tick();
  if (!full(copy) && copy.kind == ReuseModel::Kind::history) copy.kind = ReuseModel::Kind::end;  // Not ranked yet.
  if (copy.state != CopyState::none) reuse_.reused(copy.kind, copy.uses, now - std::min(now, copy.used_tick));
  copy.uses = std::min(copy.uses + 1, 1u << 20);
  copy.used_tick = now;
  ram_.rerank(copy);
}

void Evictor::make_point(Copy& end, std::int64_t first) {
  if (end.state != CopyState::in_place || end.point_first >= 0) return;
  end.point_first = first;
  for (Block* b = end.block; b->index >= first; b = b->parent) {
    Copy& c = b->copies[end.group.v];
    ++c.holders;
    if (c.state == CopyState::in_place) c.keep = true;
    ram_.rerank(c);
  }
}

bool Evictor::rank(Copy& copy) {
  const Block& b = *copy.block;
  const bool near = RamTier::home(copy.slot) == Home::near && ram_.has_far();
  const bool leaf = near ? b.near_children == 0 : b.resident_children == 0;
  if (full(copy)) {
    copy.kind = ReuseModel::Kind::history;
    if (!leaf) return false;
    // The last block before a resume point goes with that.
    for (const Copy& c : b.copies)
      if (!full(c) && c.state != CopyState::none && RamTier::home(c.slot) == RamTier::home(copy.slot)) return false;
  } else {
    if (copy.holders > 0 && copy.point_first < 0) return false;
    copy.kind = leaf ? ReuseModel::Kind::end : ReuseModel::Kind::passed;
  }
  copy.seconds_per_byte = static_cast<float>(worth(copy));
  return true;
}

// Seconds that a use of the copy saves, by byte of what goes with it.
double Evictor::worth(const Copy& copy) const {
  const Block& b = *copy.block;
  if (orphaned(b) || (full(copy) && !resumable(b))) return 0;
  const auto compute = [&](std::int64_t blocks) {  // The last `blocks` blocks up to this one's end.
    return costs_.compute.seconds((b.index + 1 - blocks) * kBlockTokens, blocks * kBlockTokens);
  };
  double worth = 0;
  if (!points_) {
    worth = compute(1) / static_cast<double>(full_bytes_);
  } else {
    // A resume point is worth the seconds since the one before. At a chain's end the blocks between go with it.
    const std::int64_t gap = gap_before(b);
    std::uint64_t bytes = 0;
    if (!full(copy)) {
      std::uint64_t own = 1;
      if (copy.point_first >= 0) {
        own = 0;
        for (const Block* p = &b; p->index >= copy.point_first; p = p->parent)
          own += p->copies[copy.group.v].holders == 1;
      }
      bytes = std::max<std::uint64_t>(own, 1) * ram_.block_bytes(copy.group);
    }
    if (full(copy) || copy.kind == ReuseModel::Kind::end) bytes += static_cast<std::uint64_t>(gap) * full_bytes_;
    worth = compute(gap) / static_cast<double>(bytes);
  }
  return on_disk(disk_, copy) ? std::min(worth, costs_.read.seconds(1)) : worth;
}

// Blocks from the resume point before the one at the end of `block`. A window's slack lets the boundaries right before
// it resume too, but goes with it.
std::int64_t Evictor::gap_before(const Block& block) const {
  const bool windows = std::any_of(groups_.begin(), groups_.end(), [](const model::CacheGroup& g) {
    return g.kind == model::CacheGroup::Kind::window || g.kind == model::CacheGroup::Kind::chunk;
  });
  const std::int64_t slack = windows ? slack_blocks_ : 0;
  std::int64_t gap = 1;
  for (const Block* p = block.parent; !p->root() && gap < kGapMax && (gap <= slack || !resumable(*p)); p = p->parent)
    ++gap;
  return gap;
}

// Its parent's history is nowhere: of no use until that is computed again.
bool Evictor::orphaned(const Block& block) const {
  if (block.parent->root()) return false;
  for (const Copy& c : block.parent->copies)
    if (full(c) && c.state == CopyState::none && !on_disk(disk_, c)) return true;
  return false;
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
      if (c.listed) ram_.make_worthless(c);
    if (b->first_child) {
      b = b->first_child;
      continue;
    }
    while (b != &block && !b->next_sibling) b = b->parent;
    if (b != &block) b = b->next_sibling;
  }
}

}  // namespace lode::kv
