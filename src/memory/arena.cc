#include "memory/arena.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace lode::memory {

Arena::Arena(Budget& budget, OwnerId owner, Place place, std::uint64_t pieces)
    : budget_(budget), owner_(owner), place_(place), committed_(pieces, 0) {}

Arena::~Arena() {
  // The host's memory goes with its range; a device's, and its hold on the host's, piece by piece.
  if (place_.device)
    for (std::uint64_t piece = 0; piece < pieces(); ++piece)
      if (committed(piece)) decommit(piece);
  if (place_.kind == Place::Kind::device && base_) place_.device->unreserve(base_);
  budget_.give_back(owner_, committed_bytes() / piece_bytes());
}

Result<std::unique_ptr<Arena>> Arena::create(Budget& budget, std::string name, std::uint64_t bytes, Place place) {
  const std::uint64_t pieces = (bytes + budget.piece_bytes() - 1) / budget.piece_bytes();
  const std::uint64_t reserved = std::max<std::uint64_t>(pieces, 1) * budget.piece_bytes();
  std::unique_ptr<Arena> arena(new Arena(budget, budget.add_owner(std::move(name)), place, pieces));
  if (place.kind == Place::Kind::device) {
    LODE_CHECK(place.device && budget.piece_bytes() % kernels::kDevicePieceBytes == 0);
    auto base = place.device->reserve(reserved);
    if (!base.ok()) return base.status();
    arena->base_ = base.value();
  } else {
    auto range = platform::VirtualRange::reserve(reserved);
    if (!range.ok()) return range.status();
    arena->range_ = std::move(range).value();
    arena->base_ = arena->range_.data();
  }
  return arena;
}

// One piece's memory, all of it or nothing.
Status Arena::provide(std::uint64_t offset) {
  std::byte* const at = base_ + offset;
  if (place_.kind == Place::Kind::host) {
    LODE_RETURN_IF_ERROR(range_.commit(offset, piece_bytes()));
    if (!place_.device) return Status::success();
    const Status pinned = place_.device->pin(at, piece_bytes());
    if (!pinned.ok()) range_.decommit(offset, piece_bytes());
    return pinned;
  }
  for (std::uint64_t part = 0; part < piece_bytes(); part += kernels::kDevicePieceBytes) {
    const Status made = place_.device->commit(at + part);
    if (made.ok()) continue;
    for (std::uint64_t back = 0; back < part; back += kernels::kDevicePieceBytes) place_.device->decommit(at + back);
    return made;
  }
  return Status::success();
}

bool Arena::commit(std::uint64_t piece) {
  LODE_CHECK(!committed_[piece]);
  if (!budget_.take(owner_, 1)) return false;
  if (!provide(piece * piece_bytes()).ok()) {
    budget_.give_back(owner_, 1);
    return false;
  }
  committed_[piece] = 1;
  return true;
}

void Arena::decommit(std::uint64_t piece) {
  LODE_CHECK(committed_[piece]);
  std::byte* const at = base_ + piece * piece_bytes();
  if (place_.kind == Place::Kind::device) {
    for (std::uint64_t part = 0; part < piece_bytes(); part += kernels::kDevicePieceBytes)
      place_.device->decommit(at + part);
  } else {
    if (place_.device) place_.device->unpin(at);
    range_.decommit(piece * piece_bytes(), piece_bytes());
  }
  committed_[piece] = 0;
  budget_.give_back(owner_, 1);
}

void Arena::fill(std::uint64_t offset, std::uint8_t value, std::uint64_t bytes) {
  if (place_.kind == Place::Kind::device) {
    const Status filled = place_.device->fill(base_ + offset, value, bytes);
    LODE_CHECK(filled.ok());
  } else {
    std::memset(base_ + offset, value, bytes);
  }
}

}  // namespace lode::memory
