// CudaDevice: the card's stream, memory, the copy of a step's batch, and graphs of decode steps.
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "kernels/cuda/ops.h"
#include "platform/shared_library.h"

namespace lode::kernels {

Result<std::unique_ptr<Device>> open_cuda(const DeviceOptions& options) {
  return cuda::CudaDevice::open(options);
}

namespace cuda {
namespace {

// Part of every numerics id: raised whenever a kernel's arithmetic changes.
constexpr int kKernelRevision = 3;
// Room of cuBLAS, as NVIDIA recommends for Hopper; smaller cards use less of it.
constexpr std::uint64_t kCublasBytes = std::uint64_t{32} << 20;
// int8 forms that kernels make on the way: up to kMatvecRows rows of 64 Ki columns, two at a time.
constexpr std::int64_t kQ8Values = 8 * 65536;
constexpr int kQ8Slots = 3;

// The card's free bytes by NVML, which needs no context; 0: unknown.
std::uint64_t driver_free(int ordinal) {
  const auto library = platform::SharedLibrary::open("libnvidia-ml.so.1");
  if (!library.ok()) return 0;
  struct Memory {
    unsigned long long total, free, used;
  } memory{};
  void* card = nullptr;
  const auto init = library->function<int()>("nvmlInit_v2");
  const auto handle = library->function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  const auto info = library->function<int(void*, Memory*)>("nvmlDeviceGetMemoryInfo");
  const auto shutdown = library->function<int()>("nvmlShutdown");
  if (!init || !handle || !info || !shutdown || init() != 0) return 0;
  char bus[32] = {};
  const bool known = cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal) == cudaSuccess && handle(bus, &card) == 0 &&
                     info(card, &memory) == 0;
  cudaGetLastError();
  shutdown();
  return known ? memory.free : 0;
}

std::string gib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

}  // namespace

Result<std::unique_ptr<Device>> CudaDevice::open(const DeviceOptions& options) {
  std::unique_ptr<CudaDevice> device(new CudaDevice);
  LODE_RETURN_IF_ERROR(device->start(options));
  return std::unique_ptr<Device>(std::move(device));
}

Status CudaDevice::refuse(cudaError_t error, std::string what) const {
  const std::string reason = cudaGetErrorString(error);
  cudaGetLastError();
  return {Code::unavailable, "CUDA device " + std::to_string(options_.ordinal) + ": " + what + ": " + reason};
}

Status CudaDevice::start(const DeviceOptions& options) {
  options_ = options;
  graphs_.reserve(kGraphsMax);
  const std::uint64_t free_before = driver_free(options.ordinal);
  int count = 0;
  if (const auto e = cudaGetDeviceCount(&count); e != cudaSuccess)
    return refuse(e, "the driver finds no card; run on the CPU or look at nvidia-smi");
  if (options.ordinal < 0 || options.ordinal >= count)
    return Status::invalid("CUDA device " + std::to_string(options.ordinal) + ": this machine has " +
                           std::to_string(count) + ", numbered from 0");
  if (const auto e = cudaSetDevice(options.ordinal); e != cudaSuccess) return refuse(e, "cannot be opened");
  cudaDeviceProp card{};
  if (const auto e = cudaGetDeviceProperties(&card, options.ordinal); e != cudaSuccess) return refuse(e, "properties");
  sm_ = card.major * 10 + card.minor;
  processors_ = card.multiProcessorCount;
  description_ = std::string(card.name) + ", sm_" + std::to_string(sm_) + ", " + gib(card.totalGlobalMem);
  if (const auto e = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking); e != cudaSuccess)
    return refuse(e, "no stream");
  int version = 0;
  if (!deterministic()) {
    if (cublasCreate(&cublas_) != CUBLAS_STATUS_SUCCESS)
      return {Code::unavailable, "CUDA device " + std::to_string(options.ordinal) + ": cuBLAS does not start"};
    cublasGetVersion(cublas_, &version);
    auto room = allocate(kCublasBytes, "cuBLAS");
    if (!room.ok()) return room.status();
    cublas_room_ = room.value();
    cublasSetStream(cublas_, stream_);
    cublasSetWorkspace(cublas_, cublas_room_, kCublasBytes);
  }
  numerics_id_ = "cuda-sm" + std::to_string(sm_) + "-rt" + std::to_string(CUDART_VERSION) +
                 (deterministic() ? std::string("-deterministic") : "-cublas" + std::to_string(version) + "-fast") +
                 "-r" + std::to_string(kKernelRevision);
  table_ = make_table(numerics_id_);

  staging_half_ = std::max<std::size_t>(options.staging_bytes / 2, 1 << 16);
  auto staging = allocate_pinned(2 * staging_half_, "staging");
  if (!staging.ok()) return staging.status();
  staging_ = staging.value();
  q8_bytes_ = align_up(static_cast<std::uint64_t>(kQ8Values + kQ8Values / 32 * 8), 256);
  auto q8 = allocate(q8_bytes_ * kQ8Slots, "activations");
  if (!q8.ok()) return q8.status();
  q8_room_ = q8.value();
  for (cudaEvent_t* event : {&staged_[0], &staged_[1], &step_sent_})
    if (const auto e = cudaEventCreateWithFlags(event, cudaEventDisableTiming); e != cudaSuccess)
      return refuse(e, "no event");
  measure_context(free_before);
  return Status::success();
}

CudaDevice::~CudaDevice() {
  if (stream_) cudaStreamSynchronize(stream_);
  drop_graphs();
  while (!pieces_.empty()) decommit(pieces_.begin()->first);
  while (!ranges_.empty()) unreserve(ranges_.back().at);
  for (auto& [at, pinned] : memory_) pinned ? cudaFreeHost(at) : cudaFree(at);
  for (cudaEvent_t event : {staged_[0], staged_[1], step_sent_})
    if (event) cudaEventDestroy(event);
  if (cublas_) cublasDestroy(cublas_);
  if (stream_) cudaStreamDestroy(stream_);
}

// What the context, cuBLAS and the rooms above have taken: the difference of the card's free bytes, or (without NVML,
// or where others gave memory back meanwhile) all that is in use.
void CudaDevice::measure_context(std::uint64_t free_before) {
  const DeviceMemory now = memory();
  context_bytes_ = free_before > now.free ? free_before - now.free : now.total - now.free;
}

DeviceMemory CudaDevice::memory() const {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return {free, total, context_bytes_};
}

Result<std::byte*> CudaDevice::allocate(std::uint64_t bytes, std::string_view what) {
  void* at = nullptr;
  const auto e = cudaMalloc(&at, std::max<std::uint64_t>(bytes, 256));
  if (e != cudaSuccess) {
    const DeviceMemory now = memory();
    cudaGetLastError();
    return Status::exhausted(description_ + ": no " + gib(bytes) + " for " + std::string(what) + ", " + gib(now.free) +
                             " of " + gib(now.total) + " are free; use a smaller context or fewer layers here");
  }
  memory_[static_cast<std::byte*>(at)] = false;
  return static_cast<std::byte*>(at);
}

Result<std::byte*> CudaDevice::allocate_pinned(std::uint64_t bytes, std::string_view what) {
  void* at = nullptr;
  const auto e = cudaHostAlloc(&at, std::max<std::uint64_t>(bytes, 256), cudaHostAllocDefault);
  if (e != cudaSuccess) {
    cudaGetLastError();
    return Status::exhausted("no " + gib(bytes) + " of page-locked memory for " + std::string(what) + ": " +
                             cudaGetErrorString(e));
  }
  memory_[static_cast<std::byte*>(at)] = true;
  return static_cast<std::byte*>(at);
}

void CudaDevice::release(std::byte* memory) {
  const auto found = memory_.find(memory);
  if (found == memory_.end()) return;
  cudaStreamSynchronize(stream_);
  found->second ? cudaFreeHost(memory) : cudaFree(memory);
  memory_.erase(found);
}

Status CudaDevice::upload(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += staging_half_) {
    const std::size_t now = static_cast<std::size_t>(std::min<std::uint64_t>(staging_half_, bytes - at));
    if (const auto e = cudaEventSynchronize(staged_[turn_]); e != cudaSuccess) return refuse(e, "an upload");
    std::byte* half = staging_ + static_cast<std::size_t>(turn_) * staging_half_;
    std::memcpy(half, from + at, now);
    if (const auto e = cudaMemcpyAsync(to + at, half, now, cudaMemcpyHostToDevice, stream_); e != cudaSuccess)
      return refuse(e, "an upload");
    cudaEventRecord(staged_[turn_], stream_);
    turn_ ^= 1;
  }
  return Status::success();
}

Status CudaDevice::download(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  flush();
  if (bytes > staging_half_) {
    if (const auto e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_); e != cudaSuccess)
      return refuse(e, "a download");
    return finish();
  }
  // Logits: through pinned memory.
  std::byte* half = staging_ + static_cast<std::size_t>(turn_) * staging_half_;
  if (const auto e = cudaMemcpyAsync(half, from, bytes, cudaMemcpyDeviceToHost, stream_); e != cudaSuccess)
    return refuse(e, "a download");
  LODE_RETURN_IF_ERROR(finish());
  std::memcpy(to, half, bytes);
  return Status::success();
}

Status CudaDevice::fill(std::byte* to, std::uint8_t value, std::uint64_t bytes) {
  if (const auto e = cudaMemsetAsync(to, value, bytes, stream_); e != cudaSuccess) return refuse(e, "a fill");
  return Status::success();
}

void CudaDevice::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}
bool CudaDevice::check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  fail(refuse(error, what));
  return false;
}
bool CudaDevice::check(cublasStatus_t error, const char* what) {
  if (error == CUBLAS_STATUS_SUCCESS) return true;
  fail({Code::internal, std::string("cuBLAS: ") + what + ": status " + std::to_string(static_cast<int>(error))});
  return false;
}

const void* CudaDevice::find(const void* host, const char* what) {
  for (const Mirror& m : mirrors_)
    if (m.host == host) return m.device;
  fail({Code::internal, std::string(what) + " of this operation are not those that begin_step was given"});
  return nullptr;
}

std::byte* const* CudaDevice::tables(std::span<const KvRun> runs) {
  return static_cast<std::byte* const*>(find(runs.data(), "the runs"));
}

const void* CudaDevice::constant(const void* host, std::size_t bytes) {
  Constant& c = constants_[host];
  if (c.content.size() == bytes && std::memcmp(c.content.data(), host, bytes) == 0) return c.device;
  if (capturing_) {
    fail({Code::internal, "a constant changed inside a graph"});
    return nullptr;
  }
  auto room = allocate(bytes, "constants");
  if (!room.ok()) {
    fail(room.status());
    return nullptr;
  }
  if (c.device) release(c.device);
  c.device = room.value();
  c.content.assign(static_cast<const std::byte*>(host), static_cast<const std::byte*>(host) + bytes);
  if (const Status sent = upload(c.device, c.content.data(), bytes); !sent.ok()) fail(sent);
  return c.device;
}

std::byte* CudaDevice::workspace(std::uint64_t bytes) {
  if (bytes <= workspace_bytes_) return workspace_;
  if (capturing_) {
    fail({Code::internal, "the products' scratch would grow inside a graph"});
    return nullptr;
  }
  if (workspace_) release(workspace_);
  workspace_ = nullptr, workspace_bytes_ = 0;
  auto room = allocate(bytes, "dequantized weights");
  if (!room.ok()) {
    fail(room.status());
    return nullptr;
  }
  workspace_ = room.value(), workspace_bytes_ = bytes;
  return workspace_;
}

Q8 CudaDevice::offer_q8(std::int64_t n, std::int64_t cols) {
  if (cols % 32 != 0 || n > kMatvecPass || n * cols > kQ8Values) return {};
  std::byte* room = q8_room_ + static_cast<std::size_t>(q8_turn_) * q8_bytes_;
  q8_turn_ = (q8_turn_ + 1) % kQ8Slots;
  return {reinterpret_cast<std::int8_t*>(room), reinterpret_cast<float2*>(room + kQ8Values)};
}

// Cuts the step's rows: those of short runs one by one, those of longer ones in tiles.
Status CudaDevice::split(const StepInputs& in) {
  const auto n = static_cast<std::int64_t>(in.ids.size());
  const std::span<const KvRun> first = in.runs.empty() ? std::span<const KvRun>{} : in.runs.front();
  row_run_.resize(static_cast<std::size_t>(n));
  row_start_.resize(static_cast<std::size_t>(n));
  short_rows_.clear();
  tiles_.clear();
  std::int64_t covered = 0;
  for (std::size_t r = 0; r < first.size(); ++r) {
    const KvRun& run = first[r];
    if (run.first_row != covered || run.count < 1 || covered + run.count > n)
      return {Code::internal, "a step's runs do not cover its rows one after another"};
    covered += run.count;
    for (std::int64_t i = 0; i < run.count; ++i) {
      row_run_[static_cast<std::size_t>(run.first_row + i)] = static_cast<std::int32_t>(r);
      row_start_[static_cast<std::size_t>(run.first_row + i)] = run.first_position;
    }
    if (run.count < kTileRunMin) {
      for (std::int64_t i = 0; i < run.count; ++i) short_rows_.push_back(static_cast<std::int32_t>(run.first_row + i));
      continue;
    }
    for (std::int64_t i = 0; i < run.count; i += kTileRows)
      tiles_.push_back({static_cast<std::int32_t>(r), static_cast<std::int32_t>(run.first_row + i),
                        static_cast<std::int32_t>(std::min(kTileRows, run.count - i)), 0});
  }
  if (covered != n) return {Code::internal, "a step's runs do not cover its rows"};
  return Status::success();
}

// Room for steps whose inputs take so many bytes. Graphs hold the old room's addresses: they go.
Status CudaDevice::size_step(std::size_t bytes) {
  if (bytes <= step_bytes_) return Status::success();
  if (step_host_) release(step_host_);
  if (step_device_) release(step_device_);
  drop_graphs();
  step_bytes_ = 0, step_host_ = step_device_ = nullptr;
  auto host = allocate_pinned(bytes, "a step");
  if (!host.ok()) return host.status();
  step_host_ = host.value();
  auto device = allocate(bytes, "a step");
  if (!device.ok()) return device.status();
  step_device_ = device.value();
  step_bytes_ = bytes;
  return Status::success();
}

Status CudaDevice::plan_steps(const StepBounds& b) {
  const auto rows = static_cast<std::size_t>(b.rows), runs = static_cast<std::size_t>(b.runs);
  const std::size_t tiles = rows / kTileRunMin + runs;
  const auto blocks = static_cast<std::size_t>((b.context + kBlockTokens - 1) / kBlockTokens + 16);
  row_run_.reserve(rows), short_rows_.reserve(rows), row_start_.reserve(rows), tiles_.reserve(tiles);
  mirrors_.reserve(static_cast<std::size_t>(b.groups) + 3);
  // Every part is rounded up to 256 bytes.
  const std::size_t parts = 7 + static_cast<std::size_t>(b.groups);
  return size_step(rows * (4 + 8 + 4 + 8 + 4) + static_cast<std::size_t>(b.outputs) * 4 + tiles * sizeof(Tile) +
                   static_cast<std::size_t>(b.groups) * runs * blocks * sizeof(std::byte*) + parts * 256);
}

void CudaDevice::drop_graphs() {
  for (Graph& graph : graphs_)
    if (graph.exec) cudaGraphExecDestroy(graph.exec);
  graphs_.clear();
}

// Lays the step out in pinned memory and sends it in one copy. Equal shapes lie alike, so that a graph finds its
// inputs.
Status CudaDevice::stage(const StepInputs& in) {
  LODE_RETURN_IF_ERROR(split(in));
  const std::int64_t n = static_cast<std::int64_t>(in.ids.size());
  const std::int64_t runs = in.runs.empty() ? 0 : static_cast<std::int64_t>(in.runs.front().size());
  std::int64_t longest = 0;
  for (std::int64_t r = 0; r < runs; ++r) {
    const KvRun& run = in.runs.front()[static_cast<std::size_t>(r)];
    longest = std::max(longest, run.first_position + run.count);
  }
  const auto &row_run = row_run_, &rows = short_rows_;
  const auto& row_start = row_start_;
  const auto& tiles = tiles_;
  // Tables grow by doubling, so that a sequence changes its graph a dozen times in its life; never past the context.
  const auto blocks_of = [](std::int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; };
  std::int64_t blocks = 16;
  while (blocks < blocks_of(longest)) blocks *= 2;
  if (in.context >= longest) blocks = std::min(blocks, blocks_of(in.context));

  step_shape_ = {n,
                 static_cast<std::int64_t>(in.output_rows.size()),
                 runs,
                 blocks,
                 static_cast<std::int64_t>(in.runs.size()),
                 static_cast<std::int64_t>(rows.size()),
                 static_cast<std::int64_t>(tiles.size())};
  std::size_t used = 0;
  const auto take = [&](std::size_t bytes) {
    const std::size_t at = used;
    used = static_cast<std::size_t>(align_up(used + bytes, 256));
    return at;
  };
  const std::size_t ids_at = take(in.ids.size_bytes()), positions_at = take(in.positions.size_bytes()),
                    outputs_at = take(in.output_rows.size_bytes()), row_run_at = take(row_run.size() * 4),
                    row_start_at = take(row_start.size() * 8), rows_at = take(rows.size() * 4),
                    tiles_at = take(tiles.size() * sizeof(Tile));
  const std::size_t tables_at = used, table_bytes = static_cast<std::size_t>(runs * blocks) * sizeof(std::byte*);
  for (std::size_t g = 0; g < in.runs.size(); ++g) take(table_bytes);
  if (used > step_bytes_) LODE_RETURN_IF_ERROR(size_step(std::max<std::size_t>(used * 2, 1 << 18)));
  // The copy before may still be reading.
  if (const auto e = cudaEventSynchronize(step_sent_); e != cudaSuccess) return refuse(e, "a step");
  const auto put = [&](std::size_t at, const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(step_host_ + at, from, bytes);
  };
  put(ids_at, in.ids.data(), in.ids.size_bytes());
  put(positions_at, in.positions.data(), in.positions.size_bytes());
  put(outputs_at, in.output_rows.data(), in.output_rows.size_bytes());
  put(row_run_at, row_run.data(), row_run.size() * 4);
  put(row_start_at, row_start.data(), row_start.size() * 8);
  put(rows_at, rows.data(), rows.size() * 4);
  put(tiles_at, tiles.data(), tiles.size() * sizeof(Tile));
  mirrors_.clear();
  mirrors_.push_back({in.ids.data(), step_device_ + ids_at});
  mirrors_.push_back({in.positions.data(), step_device_ + positions_at});
  mirrors_.push_back({in.output_rows.data(), step_device_ + outputs_at});
  for (std::size_t g = 0; g < in.runs.size(); ++g) {
    if (static_cast<std::int64_t>(in.runs[g].size()) != runs)
      return {Code::internal, "the groups of a step have different runs"};
    const std::size_t at = tables_at + g * static_cast<std::size_t>(align_up(table_bytes, 256));
    for (std::int64_t r = 0; r < runs; ++r) {
      const KvRun& run = in.runs[g][static_cast<std::size_t>(r)];
      put(at + static_cast<std::size_t>(r * blocks) * sizeof(std::byte*), run.blocks,
          static_cast<std::size_t>(blocks_of(run.first_position + run.count)) * sizeof(std::byte*));
    }
    mirrors_.push_back({in.runs[g].data(), step_device_ + at});
  }
  if (const auto e = cudaMemcpyAsync(step_device_, step_host_, used, cudaMemcpyHostToDevice, stream_); e != cudaSuccess)
    return refuse(e, "a step's copy");
  cudaEventRecord(step_sent_, stream_);
  step_ = {.n = n,
           .runs = runs,
           .table_blocks = blocks,
           .row_list = static_cast<std::int64_t>(rows.size()),
           .tiles = static_cast<std::int64_t>(tiles.size()),
           .row_run = reinterpret_cast<const std::int32_t*>(step_device_ + row_run_at),
           .positions = reinterpret_cast<const std::int64_t*>(step_device_ + positions_at),
           .row_start = reinterpret_cast<const std::int64_t*>(step_device_ + row_start_at),
           .rows = reinterpret_cast<const std::int32_t*>(step_device_ + rows_at),
           .tile = reinterpret_cast<const Tile*>(step_device_ + tiles_at)};
  return Status::success();
}

Status CudaDevice::begin_step(const StepInputs& inputs) {
  flush();
  ready = {};
  LODE_RETURN_IF_ERROR(status_);
  if (inputs.positions.size() != inputs.ids.size())
    return {Code::internal, "a step has " + std::to_string(inputs.ids.size()) + " ids and " +
                                std::to_string(inputs.positions.size()) + " positions"};
  return stage(inputs);
}

Status CudaDevice::replay(std::span<const std::int64_t> key, const std::function<Status()>& enqueue) {
  LODE_CHECK(key.size() <= kGraphKeyMax);
  Graph wanted;
  std::copy(step_shape_.begin(), step_shape_.end(), std::copy(key.begin(), key.end(), wanted.name.begin()));
  auto found = std::find_if(graphs_.begin(), graphs_.end(), [&](const Graph& g) { return g.name == wanted.name; });
  if (found == graphs_.end()) {  // The first time as it comes: scratch and constants find their places.
    if (graphs_.size() == kGraphsMax) {
      found = std::min_element(graphs_.begin(), graphs_.end(),
                               [](const Graph& a, const Graph& b) { return a.used < b.used; });
      if (found->exec) cudaGraphExecDestroy(found->exec);  // The driver waits for one that is on its way.
    } else {
      found = graphs_.insert(graphs_.end(), Graph{});
    }
    wanted.used = ++replays_;
    *found = wanted;
    LODE_RETURN_IF_ERROR(enqueue());
    flush();
    return status_;
  }
  Graph& graph = *found;
  graph.used = ++replays_;
  if (!graph.exec) {
    if (const auto e = cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal); e != cudaSuccess)
      return refuse(e, "a graph's start");
    capturing_ = true;
    const Status done = enqueue();
    flush();
    capturing_ = false;
    cudaGraph_t captured = nullptr;
    const auto e = cudaStreamEndCapture(stream_, &captured);
    LODE_RETURN_IF_ERROR(done);
    LODE_RETURN_IF_ERROR(status_);
    if (e != cudaSuccess) return refuse(e, "a graph");
    const auto made = cudaGraphInstantiate(&graph.exec, captured, 0);
    cudaGraphDestroy(captured);
    if (made != cudaSuccess) return refuse(made, "a graph");
  }
  ready = {};
  if (const auto e = cudaGraphLaunch(graph.exec, stream_); e != cudaSuccess) return refuse(e, "a graph's launch");
  return Status::success();
}

Status CudaDevice::finish() {
  flush();
  const auto e = cudaStreamSynchronize(stream_);
  Status status = std::move(status_);
  status_ = {};
  if (status.ok() && e != cudaSuccess) status = refuse(e, "a kernel failed");
  return status;
}

}  // namespace cuda
}  // namespace lode::kernels
