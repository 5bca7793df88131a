// The CUDA side of Device: what every operation in this folder shares. Only files of this folder include it.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/device.h"

namespace lode::kernels::cuda {

// Rows up to which a product with quantized weights reads them in place, 8 rows a pass; more go through bf16 and
// cuBLAS. Three passes over 4 bits a weight cost as much as writing and reading 16.
inline constexpr std::int64_t kMatvecRows = 24;
inline constexpr std::int64_t kMatvecPass = 8;
// A run of at least so many tokens is cut into tiles for the tensor cores; shorter ones go row by row, split by spans:
// a lone tile keeps one multiprocessor a head busy, and takes as long as 24 rows whatever its depth.
inline constexpr std::int64_t kTileRows = 64, kTileRunMin = 24;

// Rows of one run and one tile of attention.
struct Tile {
  std::int32_t run, first_row, rows, pad;
};

// A step's batch on the device. Tables are [runs, table_blocks] block bases, one set a group.
struct StepOnDevice {
  std::int64_t n = 0, runs = 0, table_blocks = 0, row_list = 0, tiles = 0;
  const std::int32_t* row_run = nullptr;    // [n]
  const std::int64_t* positions = nullptr;  // [n]
  const std::int64_t* row_start = nullptr;  // [n] first position that the step computes of the row's sequence
  const std::int32_t* rows = nullptr;       // [row_list] rows of short runs
  const Tile* tile = nullptr;               // [tiles]
};

// int8 activations in groups of 32: q [n, cols]; scale [n, cols / 32] holds (d, d * sum of q).
struct Q8 {
  std::int8_t* q = nullptr;
  float2* scale = nullptr;
};

class CudaDevice final : public Device {
 public:
  static Result<std::unique_ptr<Device>> open(const DeviceOptions& options);
  ~CudaDevice() override;

  const Table& table() const override { return table_; }
  std::string_view description() const override { return description_; }
  DeviceMemory memory() const override;
  Result<std::byte*> allocate(std::uint64_t bytes, std::string_view what) override;
  Result<std::byte*> allocate_pinned(std::uint64_t bytes, std::string_view what) override;
  void release(std::byte* memory) override;
  Result<std::byte*> reserve(std::uint64_t bytes) override;
  void unreserve(std::byte* range) override;
  Status commit(std::byte* piece) override;
  void decommit(std::byte* piece) override;
  Status pin(std::byte* at, std::uint64_t bytes) override;
  void unpin(std::byte* at) override;
  bool on_device(const std::byte* at) const override;
  Status copy(std::span<const DeviceCopy> parts) override;
  Status upload(std::byte* to, const std::byte* from, std::uint64_t bytes) override;
  Status download(std::byte* to, const std::byte* from, std::uint64_t bytes) override;
  Status fill(std::byte* to, std::uint8_t value, std::uint64_t bytes) override;
  Status plan_steps(const StepBounds& bounds) override;
  Status begin_step(const StepInputs& inputs) override;
  Status replay(std::span<const std::int64_t> key, const std::function<Status()>& enqueue) override;
  Status finish() override;

  // For operations. The first error sticks until finish().
  void fail(Status status);
  bool check(cudaError_t error, const char* what);
  bool check(cublasStatus_t error, const char* what);
  // The device's copy of something that begin_step uploaded; fails and returns nullptr where it was not.
  template <typename T>
  const T* on_device(const T* host, const char* what) {
    return static_cast<const T*>(find(host, what));
  }
  // The block tables of the group whose runs lie at `runs`.
  std::byte* const* tables(std::span<const KvRun> runs);
  // A constant array of the host (inverse frequencies): uploaded once, again when its content has changed.
  const void* constant(const void* host, std::size_t bytes);
  // Device scratch of the products: grows outside of graphs only. nullptr after an error.
  std::byte* workspace(std::uint64_t bytes);

  const StepOnDevice& step() const { return step_; }
  bool deterministic() const { return options_.numerics == DeviceNumerics::deterministic; }
  // Programmatic launches (sm_90 and later): a kernel's prologue overlaps the end of the one before.
  bool overlaps() const { return sm_ >= 90; }
  int processors() const { return processors_; }
  cudaStream_t cuda_stream() const { return stream_; }
  cublasHandle_t cublas() const { return cublas_; }

  // Work that waits to be joined with what follows it; every operation calls flush() or takes it over (fuse.h).
  struct PendingAdd {
    float* y = nullptr;
    const float* x = nullptr;
    std::int64_t count = 0;
  } pending_add;
  struct PendingHeads {  // rms_norm in place over heads and / or rope, of one tensor.
    float* x = nullptr;
    const float* weight = nullptr;
    float eps = 0;
    bool norm = false, ones = false, rope = false;
    std::int64_t n = 0, heads = 0, dim = 0, pairs = 0, vectors = 0;  // vectors = n * heads
    RopeStyle style = RopeStyle::neox;
    const float* cos_sin = nullptr;
  } pending_heads[2];
  int heads_waiting = 0;
  void flush();
  void flush_add();
  void flush_heads();

  // The int8 form of a few rows that the kernel writing them made on the way: of x, or of nothing.
  struct Ready {
    const float* x = nullptr;
    std::int64_t n = 0, cols = 0;
    Q8 q8;
  } ready;
  // Room for the form of [n, cols], or {} where it is not worth while.
  Q8 offer_q8(std::int64_t n, std::int64_t cols);
  void made_q8(const float* x, std::int64_t n, std::int64_t cols, Q8 q8) { ready = {x, n, cols, q8}; }
  void forget_q8(const float* written) {
    if (ready.x == written) ready = {};
  }

 private:
  CudaDevice() = default;
  Status start(const DeviceOptions& options);
  const void* find(const void* host, const char* what);
  Status split(const StepInputs& inputs);
  Status stage(const StepInputs& inputs);
  Status size_step(std::size_t bytes);
  Status refuse(cudaError_t error, std::string what) const;
  void measure_context(std::uint64_t free_before);
  void drop_graphs();

  DeviceOptions options_;
  Table table_;
  std::string description_, numerics_id_;
  int sm_ = 0, processors_ = 0;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t cublas_ = nullptr;
  Status status_;
  std::unordered_map<std::byte*, bool> memory_;  // Pinned or not.
  struct Range {
    std::byte* at;
    std::uint64_t bytes;
  };
  mutable std::shared_mutex ranges_mutex_;
  std::vector<Range> ranges_;                                  // Reserved; guarded by ranges_mutex_.
  std::unordered_map<std::byte*, unsigned long long> pieces_;  // Committed: the driver's handles.
  std::uint64_t context_bytes_ = 0;
  std::byte* staging_ = nullptr;  // Pinned, [2, staging_half_]
  std::size_t staging_half_ = 0;
  cudaEvent_t staged_[2] = {};
  int turn_ = 0;
  std::byte* workspace_ = nullptr;
  std::uint64_t workspace_bytes_ = 0;
  std::byte *cublas_room_ = nullptr, *q8_room_ = nullptr;
  std::size_t q8_bytes_ = 0;
  int q8_turn_ = 0;
  bool capturing_ = false;

  std::byte *step_host_ = nullptr, *step_device_ = nullptr;  // [step_bytes_] pinned, and its copy.
  std::size_t step_bytes_ = 0;
  cudaEvent_t step_sent_ = nullptr;
  struct Mirror {
    const void* host;
    const std::byte* device;
  };
  std::vector<Mirror> mirrors_;
  static constexpr std::size_t kShape = 7;
  std::array<std::int64_t, kShape> step_shape_{};
  StepOnDevice step_;
  // How the step's rows are cut; sized by plan_steps.
  std::vector<std::int32_t> row_run_, short_rows_;
  std::vector<std::int64_t> row_start_;
  std::vector<Tile> tiles_;
  struct Constant {
    std::vector<std::byte> content;
    std::byte* device = nullptr;
  };
  std::unordered_map<const void*, Constant> constants_;
  // A graph of a step's shape; the one that was used longest ago makes room. 64: four slots and tables of 16 to 32,768
  // blocks.
  static constexpr std::size_t kGraphsMax = 64, kGraphKeyMax = 8;
  struct Graph {
    std::array<std::int64_t, kGraphKeyMax + kShape> name{};
    cudaGraphExec_t exec = nullptr;  // nullptr: its step was run once, as it comes.
    std::uint64_t used = 0;
  };
  std::vector<Graph> graphs_;  // At most kGraphsMax.
  std::uint64_t replays_ = 0;
};

inline CudaDevice& device_of(Stream& s) {
  return *static_cast<CudaDevice*>(static_cast<Device*>(s.device));
}

}  // namespace lode::kernels::cuda
