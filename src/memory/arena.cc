#include "memory/arena.h"

#include <algorithm>
#include <utility>

namespace lode::memory {

Arena::Arena(Budget& budget, OwnerId owner, platform::VirtualRange range, std::uint64_t pieces)
    : budget_(budget), owner_(owner), range_(std::move(range)), committed_(pieces, 0) {}

Arena::~Arena() {
  budget_.give_back(owner_, committed_bytes() / piece_bytes());
}

Result<std::unique_ptr<Arena>> Arena::create(Budget& budget, std::string name, std::uint64_t bytes) {
  const std::uint64_t pieces = (bytes + budget.piece_bytes() - 1) / budget.piece_bytes();
  auto range = platform::VirtualRange::reserve(std::max<std::uint64_t>(pieces, 1) * budget.piece_bytes());
  if (!range.ok()) return range.status();
  return std::unique_ptr<Arena>(new Arena(budget, budget.add_owner(std::move(name)), std::move(range).value(), pieces));
}

bool Arena::commit(std::uint64_t piece) {
  LODE_CHECK(!committed_[piece]);
  if (!budget_.take(owner_, 1)) return false;
  if (!range_.commit(piece * piece_bytes(), piece_bytes()).ok()) {
    budget_.give_back(owner_, 1);
    return false;
  }
  committed_[piece] = 1;
  return true;
}

void Arena::decommit(std::uint64_t piece) {
  LODE_CHECK(committed_[piece]);
  range_.decommit(piece * piece_bytes(), piece_bytes());
  committed_[piece] = 0;
  budget_.give_back(owner_, 1);
}

}  // namespace lode::memory
