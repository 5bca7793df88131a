#include "memory/slot_pool.h"

#include <bit>
#include <utility>

namespace lode::memory {
namespace {

constexpr std::uint64_t kBits = 64;

bool test(const std::vector<std::uint64_t>& bits, std::uint64_t i) {
  return bits[i / kBits] >> (i % kBits) & 1;
}
void set(std::vector<std::uint64_t>& bits, std::uint64_t i) {
  bits[i / kBits] |= 1ull << (i % kBits);
}
void clear(std::vector<std::uint64_t>& bits, std::uint64_t i) {
  bits[i / kBits] &= ~(1ull << (i % kBits));
}

// 20,000 slots are 313 words: a scan from the start costs less than one slot's first cache miss.
std::optional<std::uint64_t> lowest(const std::vector<std::uint64_t>& bits) {
  for (std::uint64_t w = 0; w < bits.size(); ++w)
    if (bits[w]) return w * kBits + static_cast<std::uint64_t>(std::countr_zero(bits[w]));
  return std::nullopt;
}

}  // namespace

SlotPool::SlotPool(const SlotPoolOptions& options, std::unique_ptr<Arena> arena, std::uint64_t slots)
    : slot_bytes_(options.slot_bytes),
      slots_(slots),
      freed_(options.freed),
      arena_(std::move(arena)),
      free_((slots + kBits - 1) / kBits, 0),
      ready_(free_.size(), 0),
      piece_users_(arena_->pieces(), 0) {
  for (std::uint64_t i = 0; i < slots; ++i) set(free_, i);
}

Result<std::unique_ptr<SlotPool>> SlotPool::create(Budget& budget, const SlotPoolOptions& options) {
  LODE_CHECK(options.slot_bytes > 0 && options.slot_bytes % 4096 == 0);
  // As many slots as the whole budget could hold: a free one always exists while the budget has room for it.
  const std::uint64_t slots = budget.bytes_max() / options.slot_bytes;
  auto arena = Arena::create(budget, options.name, slots * options.slot_bytes, options.place);
  if (!arena.ok()) return arena.status();
  return std::unique_ptr<SlotPool>(new SlotPool(options, std::move(arena).value(), slots));
}

std::uint64_t SlotPool::missing_pieces(std::uint64_t slot) const {
  std::uint64_t n = 0;
  for (std::uint64_t p = first_piece(slot); p <= last_piece(slot); ++p) n += !arena_->committed(p);
  return n;
}

bool SlotPool::commit_for(std::uint64_t slot) {
  const std::uint64_t first = first_piece(slot), last = last_piece(slot);
  for (std::uint64_t p = first; p <= last; ++p) {
    if (arena_->committed(p)) continue;
    if (!arena_->commit(p)) {  // The system has less than the budget allows: give back what this slot took.
      for (std::uint64_t q = first; q < p; ++q)
        if (piece_users_[q] == 0) {
          arena_->decommit(q);
          refresh_ready(q);
        }
      return false;
    }
    refresh_ready(p);
  }
  return true;
}

// Sets the `ready` bits of the slots that overlap a piece whose state has changed.
void SlotPool::refresh_ready(std::uint64_t piece) {
  const std::uint64_t lo = piece * arena_->piece_bytes() / slot_bytes_;
  const std::uint64_t hi = ((piece + 1) * arena_->piece_bytes() - 1) / slot_bytes_;
  for (std::uint64_t s = lo; s <= hi && s < slots_; ++s) {
    if (test(free_, s) && missing_pieces(s) == 0) set(ready_, s);
    else clear(ready_, s);
  }
}

std::optional<std::uint64_t> SlotPool::pick_uncommitted() const {
  const std::uint64_t left = arena_->budget().pieces_left();
  if (left == 0) return std::nullopt;
  const auto low = lowest(free_);
  if (!low || missing_pieces(*low) <= left) return low;
  for (std::uint64_t s = *low + 1; s < slots_;
       ++s)  // Rare: the budget's last pieces suit only a slot that is half there.
    if (test(free_, s) && missing_pieces(s) <= left) return s;
  return std::nullopt;
}

std::optional<SlotId> SlotPool::allocate() {
  auto slot = lowest(ready_);
  if (!slot) {
    slot = pick_uncommitted();
    if (!slot || !commit_for(*slot)) return std::nullopt;
  }
  clear(free_, *slot);
  clear(ready_, *slot);
  for (std::uint64_t p = first_piece(*slot); p <= last_piece(*slot); ++p) ++piece_users_[p];
  ++used_;
  return SlotId{static_cast<std::uint32_t>(*slot)};
}

void SlotPool::free(SlotId id) {
  const std::uint64_t slot = id.v;
  LODE_CHECK(slot < slots_ && !test(free_, slot));
  if (freed_ == SlotPoolOptions::Freed::poison) arena_->fill(slot * slot_bytes_, 0xA5, slot_bytes_);
  set(free_, slot);
  set(ready_, slot);
  --used_;
  for (std::uint64_t p = first_piece(slot); p <= last_piece(slot); ++p) {
    LODE_CHECK(piece_users_[p] > 0);
    if (--piece_users_[p] > 0) continue;
    arena_->decommit(p);
    refresh_ready(p);
  }
}

}  // namespace lode::memory
