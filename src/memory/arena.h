// One owner's reserved address range, given memory piece by piece out of the Budget. Owns the range. Step thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/budget.h"
#include "platform/virtual_range.h"

namespace lode::memory {

class Arena {
 public:
  // Reserves at least `bytes` of address space. `budget` outlives the arena.
  static Result<std::unique_ptr<Arena>> create(Budget& budget, std::string name, std::uint64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return range_.data(); }
  std::uint64_t piece_bytes() const { return budget_.piece_bytes(); }
  std::uint64_t pieces() const { return committed_.size(); }
  bool committed(std::uint64_t piece) const { return committed_[piece] != 0; }
  std::uint64_t committed_bytes() const { return budget_.owner_bytes(owner_); }
  const Budget& budget() const { return budget_; }

  // Takes one piece from the budget and makes it usable, zeroed. False: the budget, or the system, has none.
  [[nodiscard]] bool commit(std::uint64_t piece);
  void decommit(std::uint64_t piece);

 private:
  Arena(Budget& budget, OwnerId owner, platform::VirtualRange range, std::uint64_t pieces);
  Budget& budget_;
  const OwnerId owner_;
  platform::VirtualRange range_;
  std::vector<std::uint8_t> committed_;  // [pieces]
};

}  // namespace lode::memory
