// Page-locked RAM through which blocks of a device's memory pass on their way from and to the disk. Owns the memory.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/device.h"
#include "model/kv_view.h"
#include "platform/virtual_range.h"

namespace lode::kv {

// What a disk tier's reads and writes stage, for given layouts.
struct StagingSizes {
  std::uint64_t read_bytes = 0;   // Of one buffer: a slice of all blocks of an extent.
  std::size_t reads = 0;          // Buffers: reads in flight or being checked.
  std::uint64_t write_bytes = 0;  // An extent.
  std::uint64_t total() const { return read_bytes * reads + write_bytes; }
};
StagingSizes staging_sizes(std::span<const model::BlockLayout> layouts);

class Staging {
 public:
  // `count` buffers of `bytes`, a multiple of 4096. The device outlives it.
  static Result<std::unique_ptr<Staging>> create(kernels::Device& device, std::uint64_t bytes, std::size_t count);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  std::byte* take();  // nullptr: all are in use.
  void give(std::byte* buffer);

 private:
  Staging(kernels::Device& device, platform::VirtualRange range) : device_(device), range_(std::move(range)) {}

  kernels::Device& device_;
  platform::VirtualRange range_;
  bool pinned_ = false;
  std::mutex mutex_;
  std::vector<std::byte*> free_;  // Guarded by mutex_.
};

}  // namespace lode::kv
