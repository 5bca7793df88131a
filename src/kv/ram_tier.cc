#include "kv/ram_tier.h"

#include <utility>

namespace lode::kv {

Result<std::unique_ptr<RamTier>> RamTier::create(const RamTierOptions& options) {
  std::unique_ptr<RamTier> tier(new RamTier(options));
  for (std::size_t g = 0; g < options.block_bytes.size(); ++g) {
    auto pool =
        memory::SlotPool::create(tier->budget_, {.name = "kv group " + std::to_string(g),
                                                 .slot_bytes = static_cast<std::uint64_t>(options.block_bytes[g]),
                                                 .freed = options.freed});
    if (!pool.ok()) return pool.status();
    tier->pools_.push_back(std::move(pool).value());
  }
  return tier;
}

void RamTier::install(Copy& copy, SlotId slot, CopyState state) {
  LODE_CHECK(copy.state == CopyState::none && state != CopyState::none && copy.pins > 0);
  copy.slot = slot;
  copy.state = state;
  if (copy.block->resident++ == 0) ++resident_blocks_;
}

void RamTier::arrived(Copy& copy) {
  LODE_CHECK(copy.state == CopyState::reading);
  copy.state = CopyState::in_place;
}

void RamTier::remove(Copy& copy) {
  pools_[copy.group.v]->free(take(copy));
}

SlotId RamTier::take(Copy& copy) {
  LODE_CHECK(copy.state != CopyState::none && !copy.writing);
  if (copy.listed) unlist(copy);
  copy.state = CopyState::none;
  copy.keep = false;
  if (--copy.block->resident == 0) --resident_blocks_;
  return std::exchange(copy.slot, SlotId::none());
}

void RamTier::pin(Copy& copy) {
  if (copy.pins++ == 0 && copy.listed) unlist(copy);
}

void RamTier::unpin(Copy& copy) {
  LODE_CHECK(copy.pins > 0);
  if (--copy.pins > 0 || copy.state == CopyState::none) return;
  LODE_CHECK(copy.state == CopyState::in_place);  // A load pins what it reads.
  if (copy.keep) list(copy);
  else remove(copy);
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
  copy.listed = true;
  copy.colder = warmest_;
  copy.warmer = nullptr;
  (warmest_ ? warmest_->warmer : coldest_) = &copy;
  warmest_ = &copy;
  unpinned_bytes_ += block_bytes(copy.group);
}

void RamTier::unlist(Copy& copy) {
  (copy.colder ? copy.colder->warmer : coldest_) = copy.warmer;
  (copy.warmer ? copy.warmer->colder : warmest_) = copy.colder;
  copy.colder = copy.warmer = nullptr;
  copy.listed = false;
  unpinned_bytes_ -= block_bytes(copy.group);
}

void RamTier::make_coldest(Copy& copy) {
  LODE_CHECK(copy.listed);
  unlist(copy);
  copy.listed = true;
  copy.warmer = coldest_;
  (coldest_ ? coldest_->colder : warmest_) = &copy;
  coldest_ = &copy;
  unpinned_bytes_ += block_bytes(copy.group);
}

std::uint64_t RamTier::used_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& pool : pools_) bytes += pool->used_bytes();
  return bytes;
}

}  // namespace lode::kv
