// One owner's reserved address range, given memory piece by piece out of the Budget. Owns the range. Step thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/device.h"
#include "memory/budget.h"
#include "platform/virtual_range.h"

namespace lode::memory {

// What kind of memory an arena's pieces are. Without a device: the host's, pageable.
struct Place {
  enum class Kind : std::uint8_t {
    host,    // Pinned where there is a device, which can then use it in place.
    device,  // The device's own; only its operations and copies may touch it.
  } kind = Kind::host;
  kernels::Device* device = nullptr;  // Outlives the arena.
};

class Arena {
 public:
  // Reserves at least `bytes` of address space. `budget` outlives the arena; of a device, its pieces are multiples of
  // kDevicePieceBytes.
  static Result<std::unique_ptr<Arena>> create(Budget& budget, std::string name, std::uint64_t bytes, Place place = {});
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return base_; }
  std::uint64_t piece_bytes() const { return budget_.piece_bytes(); }
  std::uint64_t pieces() const { return committed_.size(); }
  bool committed(std::uint64_t piece) const { return committed_[piece] != 0; }
  std::uint64_t committed_bytes() const { return budget_.owner_bytes(owner_); }
  const Budget& budget() const { return budget_; }

  // Takes one piece from the budget and makes it usable: zeroed, or with arbitrary bytes on a device. False: the
  // budget, or the system, has none.
  [[nodiscard]] bool commit(std::uint64_t piece);
  void decommit(std::uint64_t piece);
  // Sets bytes of committed pieces.
  void fill(std::uint64_t offset, std::uint8_t value, std::uint64_t bytes);

 private:
  Arena(Budget& budget, OwnerId owner, Place place, std::uint64_t pieces);
  Status provide(std::uint64_t offset);
  Budget& budget_;
  const OwnerId owner_;
  const Place place_;
  platform::VirtualRange range_;  // Of the host.
  std::byte* base_ = nullptr;
  std::vector<std::uint8_t> committed_;  // [pieces]
};

}  // namespace lode::memory
