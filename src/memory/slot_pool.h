// Equal slots inside one Arena. Memory follows use: a piece is committed when a slot first needs it and given back when
// no slot overlaps it any more. Owns the arena and who has which slot, not what is in them. Step thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "memory/arena.h"

namespace lode::memory {

struct SlotPoolOptions {
  std::string name;              // Of the owner, for messages.
  std::uint64_t slot_bytes = 0;  // A multiple of 4096: O_DIRECT reads straight into a slot.
  enum class Freed : std::uint8_t { keep, poison } freed = Freed::keep;  // poison: tests see reads of freed slots.
  Place place = {};
};

class SlotPool {
 public:
  static Result<std::unique_ptr<SlotPool>> create(Budget& budget, const SlotPoolOptions& options);

  // The lowest free slot whose memory is committed; else the lowest whose missing pieces the budget still has. Its
  // bytes are arbitrary. nullopt: free something first.
  std::optional<SlotId> allocate();
  void free(SlotId slot);

  std::byte* address(SlotId slot) const { return arena_->data() + slot.v * slot_bytes_; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  std::uint64_t piece_bytes() const { return arena_->piece_bytes(); }
  // Bytes from the pool's start to the slot's.
  std::uint64_t offset(SlotId slot) const { return slot.v * slot_bytes_; }
  std::uint64_t slots_max() const { return slots_; }
  std::uint64_t slots_used() const { return used_; }
  std::uint64_t used_bytes() const { return used_ * slot_bytes_; }
  std::uint64_t committed_bytes() const { return arena_->committed_bytes(); }

 private:
  SlotPool(const SlotPoolOptions& options, std::unique_ptr<Arena> arena, std::uint64_t slots);
  std::uint64_t first_piece(std::uint64_t slot) const { return slot * slot_bytes_ / arena_->piece_bytes(); }
  std::uint64_t last_piece(std::uint64_t slot) const { return ((slot + 1) * slot_bytes_ - 1) / arena_->piece_bytes(); }
  std::uint64_t missing_pieces(std::uint64_t slot) const;
  bool commit_for(std::uint64_t slot);
  void refresh_ready(std::uint64_t piece);
  std::optional<std::uint64_t> pick_uncommitted() const;

  const std::uint64_t slot_bytes_, slots_;
  const SlotPoolOptions::Freed freed_;
  std::unique_ptr<Arena> arena_;
  std::uint64_t used_ = 0;
  std::vector<std::uint64_t> free_;         // Bit per slot: nobody has it.
  std::vector<std::uint64_t> ready_;        // Bit per slot: free, and all its pieces are committed.
  std::vector<std::uint32_t> piece_users_;  // Used slots that overlap the piece.
};

}  // namespace lode::memory
