#include "kv/ram_tier.h"

#include <algorithm>
#include <utility>

namespace lode::kv {

Status RamTier::make_pools(memory::Budget& budget, memory::Place place, Pools& pools) {
  for (std::size_t g = 0; g < options_.block_bytes.size(); ++g) {
    auto pool = memory::SlotPool::create(budget, {.name = "kv group " + std::to_string(g),
                                                  .slot_bytes = static_cast<std::uint64_t>(options_.block_bytes[g]),
                                                  .freed = options_.freed,
                                                  .place = place});
    if (!pool.ok()) return pool.status();
    pools.push_back(std::move(pool).value());
  }
  return Status::success();
}

Result<std::unique_ptr<RamTier>> RamTier::create(const RamTierOptions& options) {
  using Kind = memory::Place::Kind;
  std::unique_ptr<RamTier> tier(new RamTier(options));
  kernels::Device* const device = options.device;
  if (device) {
    LODE_RETURN_IF_ERROR(tier->make_pools(*options.near, {Kind::device, device}, tier->near_));
    LODE_RETURN_IF_ERROR(tier->make_pools(tier->budget_, {Kind::host, device}, tier->far_));
  } else {
    LODE_RETURN_IF_ERROR(tier->make_pools(tier->budget_, {}, tier->near_));
  }
  return tier;
}

std::optional<SlotId> RamTier::allocate(GroupId group, Home home) {
  if (home == Home::near) return near_[group.v]->allocate();
  const auto slot = far_[group.v]->allocate();
  if (!slot) return std::nullopt;
  return SlotId{slot->v | kFarBit};
}

// One copy may not cross a piece of the page-locked side.
Status RamTier::move(Copy& copy, SlotId to) {
  LODE_CHECK(copy.state == CopyState::in_place && !copy.writing && home(to) != home(copy.slot));
  const SlotId host = home(to) == Home::far ? to : copy.slot;
  const memory::SlotPool& pinned = *far_[copy.group.v];
  const std::uint64_t start = pinned.offset(bare(host)), bytes = pinned.slot_bytes(), piece = pinned.piece_bytes();
  std::byte* const target = address(copy.group, to);
  const std::byte* const source = address(copy);
  parts_.clear();
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t now = std::min(bytes - at, piece - (start + at) % piece);
    parts_.push_back({target + at, source + at, now});
    at += now;
  }
  LODE_RETURN_IF_ERROR(options_.device->copy(parts_));
  const bool listed = copy.listed;
  if (listed) unlist(copy);
  count_out(copy);
  free(copy.group, std::exchange(copy.slot, to));
  count_in(copy);
  if (listed) list(copy);
  return Status::success();
}

void RamTier::install(Copy& copy, SlotId slot, CopyState state) {
  LODE_CHECK(copy.state == CopyState::none && state != CopyState::none && copy.pins > 0);
  copy.slot = slot;
  copy.state = state;
  count_in(copy);
}

// Its parent is a leaf no more.
void RamTier::count_in(Copy& copy) {
  Block& b = *copy.block;
  const bool first = b.resident++ == 0;
  const bool first_near = home(copy.slot) == Home::near && b.near++ == 0;
  resident_blocks_ += first;
  rerank(b);
  if ((!first && !first_near) || b.root()) return;
  b.parent->resident_children += first;
  b.parent->near_children += first_near;
  rerank(*b.parent);
}

// Its parent may be a leaf now.
void RamTier::count_out(Copy& copy) {
  Block& b = *copy.block;
  const bool last_near = home(copy.slot) == Home::near && --b.near == 0;
  const bool last = --b.resident == 0;
  resident_blocks_ -= last;
  rerank(b);
  if ((!last && !last_near) || b.root()) return;
  b.parent->resident_children -= last;
  b.parent->near_children -= last_near;
  rerank(*b.parent);
}

void RamTier::arrived(Copy& copy) {
  LODE_CHECK(copy.state == CopyState::reading);
  copy.state = CopyState::in_place;
}

void RamTier::remove(Copy& copy) {
  if (options_.removals) options_.removals->note(copy.block->key, copy.group, RemovedWhy::memory);
  free(copy.group, take(copy));
}

SlotId RamTier::take(Copy& copy) {
  LODE_CHECK(copy.state != CopyState::none && !copy.writing);
  if (copy.listed) unlist(copy);
  if (copy.point_first >= 0) end_point(copy);
  copy.state = CopyState::none;
  copy.keep = false;
  count_out(copy);
  return std::exchange(copy.slot, SlotId::none());
}

// The resume point is gone with its last block; what only it held is worth what it is alone.
void RamTier::end_point(Copy& copy) {
  const std::int64_t first = std::exchange(copy.point_first, -1);
  for (Block* b = copy.block; b->index >= first; b = b->parent) {
    Copy& c = b->copies[copy.group.v];
    --c.holders;
    rerank(c);
  }
}

void RamTier::pin(Copy& copy) {
  if (copy.pins++ == 0 && copy.listed) unlist(copy);
}

void RamTier::unpin(Copy& copy) {
  LODE_CHECK(copy.pins > 0);
  if (--copy.pins > 0 || copy.state == CopyState::none) return;
  LODE_CHECK(copy.state == CopyState::in_place);  // A load pins what it reads.
  if (copy.keep) list(copy);
  else free(copy.group, take(copy));  // A window slides on, a state passes: nobody would miss them.
}

SlotId RamTier::unpin_and_take(Copy& copy) {
  if (copy.pins > 1 || copy.keep || copy.state != CopyState::in_place) {
    unpin(copy);
    return SlotId::none();
  }
  LODE_CHECK(copy.pins == 1);
  copy.pins = 0;
  return take(copy);
}

void RamTier::list(Copy& copy) {
  List& l = list_of(copy);
  copy.listed = true;
  if (ranker_->rank(copy)) l.shelves.add(copy);
  else l.shelves.add_other(copy);
  l.bytes += block_bytes(copy.group);
}

void RamTier::unlist(Copy& copy) {
  List& l = list_of(copy);
  l.shelves.remove(copy);
  copy.listed = false;
  l.bytes -= block_bytes(copy.group);
}

Copy* RamTier::least(Home home, const ReuseModel& reuse, std::uint64_t tick) const {
  const Shelves& shelves = lists_[static_cast<std::size_t>(home)].shelves;
  Ranked* found = shelves.least(reuse, tick);
  return static_cast<Copy*>(found ? found : shelves.first_other());
}

void RamTier::rerank(Copy& copy) {
  if (!copy.listed) return;
  unlist(copy);
  list(copy);
}

void RamTier::make_worthless(Copy& copy) {
  LODE_CHECK(copy.listed);
  List& l = list_of(copy);
  l.shelves.remove(copy);
  copy.seconds_per_byte = 0;
  l.shelves.add(copy);
}

std::uint64_t RamTier::used(const Pools& pools) {
  std::uint64_t bytes = 0;
  for (const auto& pool : pools) bytes += pool->used_bytes();
  return bytes;
}

std::uint64_t RamTier::committed(const Pools& pools) {
  std::uint64_t bytes = 0;
  for (const auto& pool : pools) bytes += pool->committed_bytes();
  return bytes;
}

}  // namespace lode::kv
