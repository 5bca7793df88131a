// A reserved stretch of address space whose parts are given memory and lose it again. Owns the reservation. One thread
// at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace lode::platform {

class VirtualRange {
 public:
  VirtualRange() = default;
  VirtualRange(VirtualRange&& other) noexcept;
  VirtualRange& operator=(VirtualRange&& other) noexcept;
  ~VirtualRange();

  // Address space only: touching it before commit() is a fault. The base is a multiple of 2 MiB. `bytes` > 0.
  static Result<VirtualRange> reserve(std::uint64_t bytes);

  // Makes [offset, offset + bytes) readable, writable and zero. Multiples of the page size, inside the reservation, not
  // committed yet.
  Status commit(std::uint64_t offset, std::uint64_t bytes);
  // Gives the memory of a committed part back to the system; touching it faults again.
  void decommit(std::uint64_t offset, std::uint64_t bytes);

  std::byte* data() const { return base_; }
  std::uint64_t capacity() const { return capacity_; }  // Bytes reserved, a multiple of 2 MiB.
  static std::uint64_t page_bytes();

 private:
  std::byte* mapping_ = nullptr;  // As the system gave it; base_ is its first multiple of 2 MiB.
  std::uint64_t mapping_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::uint64_t capacity_ = 0;
};

}  // namespace lode::platform
