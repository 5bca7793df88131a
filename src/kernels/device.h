// A device that runs the Table's functions on its own memory: a GPU. The interface every room uses; nothing here needs
// CUDA's headers, and a build without nvcc has it too (open_cuda then refuses). Owns the device's context, stream,
// scratch and every allocation. Step thread only, but for on_device and copy.
//
// A forward page runs on a device unchanged: weights, scratch, K, V and logits are device pointers. What a step's batch
// says (ids, positions, output rows, runs and their block tables) stays in host memory where the page's caller put
// it; begin_step copies all of it to the device at once, and operations find the copies by their host addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/kernels.h"

namespace lode::kernels {

// fast: cuBLAS for big products, tensor-core attention for chunks of a prompt; a token's bits may depend on how its
// step was cut. deterministic: kernels whose split is fixed, no cuBLAS; a token's bits depend on the tokens before it
// alone, as on the CPU (but they are other bits than the CPU's).
enum class DeviceNumerics : std::uint8_t { fast, deterministic };

struct DeviceOptions {
  int ordinal = 0;  // Which of the machine's devices.
  DeviceNumerics numerics = DeviceNumerics::fast;
  std::size_t staging_bytes = std::size_t{32} << 20;  // Pinned memory through which uploads pass, in two halves.
};

// What a step's operations will be given, by host address. Spans must stay as they are until the step's operations
// have been called.
struct StepInputs {
  std::span<const TokenId> ids;                  // [n]
  std::span<const std::int64_t> positions;       // [n]
  std::span<const std::int32_t> output_rows;     // [m]
  std::span<const std::span<const KvRun>> runs;  // One entry a cache group, as KvView::runs gives them.
  std::int64_t context = 0;                      // No position of this step or a later one reaches it.
};

struct DeviceMemory {
  std::uint64_t free = 0, total = 0;  // Bytes, as the driver counts them.
  // Of the bytes in use, what this process had once the device was open: the driver's context, cuBLAS, loaded code.
  // Where other processes can't be told apart, everything that was in use then.
  std::uint64_t context = 0;
};

// Bytes to copy; either side may be the device's memory or page-locked memory of the host.
struct DeviceCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
};

// What commit puts behind addresses at once: CUDA's granularity on every card so far.
inline constexpr std::uint64_t kDevicePieceBytes = std::uint64_t{2} << 20;

class Device {
 public:
  virtual ~Device() = default;

  virtual const Table& table() const = 0;
  virtual std::string_view description() const = 0;  // "NVIDIA H200, sm_90, 139.8 GiB"
  virtual DeviceMemory memory() const = 0;
  virtual Stream stream() { return {.ops = &table(), .device = this}; }

  // Memory of the device, 256-byte aligned; released with the device at the latest. `what` stands in the error.
  virtual Result<std::byte*> allocate(std::uint64_t bytes, std::string_view what) = 0;
  // Page-locked host memory that kernels can read in place (a token table that is only looked up).
  virtual Result<std::byte*> allocate_pinned(std::uint64_t bytes, std::string_view what) = 0;
  virtual void release(std::byte* memory) = 0;

  // Address space of the device, a multiple of kDevicePieceBytes and aligned to it; nothing is there before commit.
  // Given back with unreserve, when all of it has been decommitted.
  virtual Result<std::byte*> reserve(std::uint64_t bytes) = 0;
  virtual void unreserve(std::byte* range) = 0;
  // Puts memory (its bytes are arbitrary) behind one piece of kDevicePieceBytes of a reserved range, or takes it away.
  // No operation that uses the piece may be on its way. resource_exhausted: the card has no more.
  virtual Status commit(std::byte* piece) = 0;
  virtual void decommit(std::byte* piece) = 0;
  // Page-locks memory of the host, so that kernels can read and write it in place, at the same address, and copies need
  // no staging. One copy may not cross from one pinned part into another.
  virtual Status pin(std::byte* at, std::uint64_t bytes) = 0;
  virtual void unpin(std::byte* at) = 0;

  // Whether `at` lies in a range of reserve(). Any thread.
  virtual bool on_device(const std::byte* at) const = 0;
  // Copies at once, outside the stream's order, and returns when all bytes are there. Any thread.
  virtual Status copy(std::span<const DeviceCopy> parts) = 0;

  // In the stream's order. upload returns when `from` may change; download when `to` is filled.
  virtual Status upload(std::byte* to, const std::byte* from, std::uint64_t bytes) = 0;
  virtual Status download(std::byte* to, const std::byte* from, std::uint64_t bytes) = 0;
  virtual Status fill(std::byte* to, std::uint8_t value, std::uint64_t bytes) = 0;

  // Room for steps of up to so many rows, outputs, runs, cache groups and tokens of context: begin_step and replay then
  // take no memory of the host or the device, but for the graph of a shape that is new. Without it they grow as needed.
  struct StepBounds {
    std::int64_t rows = 0, outputs = 0, runs = 0, groups = 0, context = 0;
  };
  virtual Status plan_steps(const StepBounds& bounds) = 0;
  // Before the operations of every step.
  virtual Status begin_step(const StepInputs& inputs) = 0;
  // Calls `enqueue`, which calls the step's operations, or replays what an earlier call with an equal key and a step
  // of equal shape enqueued. The key names everything else that the operations' arguments depend on: model, scratch,
  // logits. Meant for decode steps: a graph is kept for every shape.
  virtual Status replay(std::span<const std::int64_t> key, const std::function<Status()>& enqueue) = 0;
  // Waits for all work and returns the first error of any operation since the last call.
  virtual Status finish() = 0;
};

// Errors say whether this build has no CUDA, the machine no device, or the driver refuses.
Result<std::unique_ptr<Device>> open_cuda(const DeviceOptions& options);

}  // namespace lode::kernels
