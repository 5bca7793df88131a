// The one bound on run-time memory, counted in pieces that owners take and give back. Owns counts, no memory: an Arena
// holds the memory of the pieces that its owner took. Step thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"

namespace lode::memory {

// 2 MiB: a huge page, and what CUDA maps at once, so that memory can move between owners in the same unit everywhere.
inline constexpr std::uint64_t kPieceBytes = 2 * kMiB;

using OwnerId = Id<struct OwnerTag>;

class Budget {
 public:
  // Never more than `bytes_max` (rounded down to whole pieces) is committed. Other piece sizes are for tests; multiples
  // of the page size.
  explicit Budget(std::uint64_t bytes_max, std::uint64_t piece_bytes = kPieceBytes)
      : piece_bytes_(piece_bytes), pieces_max_(bytes_max / piece_bytes) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  OwnerId add_owner(std::string name);
  // All `pieces` or none.
  [[nodiscard]] bool take(OwnerId owner, std::uint64_t pieces);
  void give_back(OwnerId owner, std::uint64_t pieces);

  std::uint64_t piece_bytes() const { return piece_bytes_; }
  std::uint64_t pieces_max() const { return pieces_max_; }
  std::uint64_t pieces_left() const { return pieces_max_ - pieces_; }
  std::uint64_t bytes_max() const { return pieces_max_ * piece_bytes_; }
  std::uint64_t committed_bytes() const { return pieces_ * piece_bytes_; }
  std::uint64_t peak_bytes() const { return peak_ * piece_bytes_; }
  std::uint64_t owner_bytes(OwnerId owner) const { return owners_[owner.v].pieces * piece_bytes_; }
  const std::string& owner_name(OwnerId owner) const { return owners_[owner.v].name; }

 private:
  struct Owner {
    std::string name;
    std::uint64_t pieces = 0;
  };
  const std::uint64_t piece_bytes_, pieces_max_;
  std::uint64_t pieces_ = 0, peak_ = 0;
  std::vector<Owner> owners_;
};

}  // namespace lode::memory
