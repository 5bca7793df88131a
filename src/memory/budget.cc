#include "memory/budget.h"

#include <algorithm>
#include <utility>

namespace lode::memory {

OwnerId Budget::add_owner(std::string name) {
  owners_.push_back({std::move(name), 0});
  return OwnerId{static_cast<std::uint32_t>(owners_.size() - 1)};
}

bool Budget::take(OwnerId owner, std::uint64_t pieces) {
  if (pieces > pieces_left()) return false;
  owners_[owner.v].pieces += pieces;
  pieces_ += pieces;
  peak_ = std::max(peak_, pieces_);
  return true;
}

void Budget::give_back(OwnerId owner, std::uint64_t pieces) {
  LODE_CHECK(owners_[owner.v].pieces >= pieces);
  owners_[owner.v].pieces -= pieces;
  pieces_ -= pieces;
}

}  // namespace lode::memory
