// Scratch memory of one step, cut once into named buffers. Owns its bytes. Step thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"

namespace lode::model {

// Cuts 64-byte aligned buffers from a region, or only counts when the region is null. Every buffer that step() uses
// is cut here when the engine starts; nothing is allocated later.
class Cutter {
 public:
  explicit Cutter(std::byte* base) : base_(base) {}

  template <typename T>
  T* take(std::int64_t count) {
    std::byte* at = base_ ? base_ + used_ : nullptr;
    used_ = align_up(used_ + static_cast<std::uint64_t>(count) * sizeof(T), 64);
    return reinterpret_cast<T*>(at);
  }
  std::uint64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::uint64_t used_ = 0;
};

// 64-byte aligned memory of a fixed size; pages are touched only when used.
class Workspace {
 public:
  explicit Workspace(std::uint64_t bytes)
      : bytes_(align_up(bytes ? bytes : 64, 64)),
        data_(static_cast<std::byte*>(std::aligned_alloc(64, bytes_)), &std::free) {
    if (!data_) throw std::bad_alloc();
  }
  std::byte* data() const { return data_.get(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  std::uint64_t bytes_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

}  // namespace lode::model
