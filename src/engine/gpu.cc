#include "engine/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "engine/packing.h"

namespace lode::engine {
namespace {

constexpr std::uint64_t kTensorAlign = 256;
// What the driver takes with the first steps, before it has been measured: code of the kernels and of cuBLAS, whose
// dequantized weights take 128 MiB beside.
constexpr std::uint64_t kGrowthFast = 160 * kMiB, kGrowthDeterministic = 64 * kMiB;

}  // namespace

// A view whose blocks of a group are all one and the same: what a step over garbage needs.
class Gpu::WarmUp final : public model::KvView {
 public:
  WarmUp(std::span<const model::CacheGroup> groups, const plan::Plan& plan) {
    for (const auto& g : groups) layouts_.push_back(model::block_layout(g, plan.k_type, plan.v_type));
    runs_.resize(layouts_.size());
    tables_.resize(layouts_.size());
  }
  Status open(memory::Budget& budget, kernels::Device& device, std::int64_t tokens) {
    using Kind = memory::Place::Kind;
    for (std::size_t g = 0; g < layouts_.size(); ++g) {
      const auto bytes = static_cast<std::uint64_t>(layouts_[g].block_bytes);
      auto arena = memory::Arena::create(budget, "warm-up", bytes, {Kind::device, &device});
      if (!arena.ok()) return arena.status();
      for (std::uint64_t piece = 0; piece < arena.value()->pieces(); ++piece)
        if (!arena.value()->commit(piece)) return Status::exhausted("no memory of the card for a first step");
      arena.value()->fill(0, 0, bytes);
      tables_[g].assign(static_cast<std::size_t>((tokens + kernels::kBlockTokens - 1) / kernels::kBlockTokens),
                        arena.value()->data());
      arenas_.push_back(std::move(arena).value());
    }
    return Status::success();
  }
  // `sequences` runs of `count` tokens each from position 0 on.
  void bind(std::int64_t sequences, std::int64_t count) {
    for (std::size_t g = 0; g < runs_.size(); ++g) {
      runs_[g].clear();
      for (std::int64_t s = 0; s < sequences; ++s)
        runs_[g].push_back({.first_row = s * count, .count = count, .first_position = 0, .blocks = tables_[g].data()});
    }
  }

  std::span<const kernels::KvRun> runs(LayerIndex layer) override { return runs_[find(layer).first]; }
  const kernels::KvLayer& layer(LayerIndex layer) override {
    const auto [g, s] = find(layer);
    return layouts_[g].slices[s].kv;
  }
  std::span<const kernels::StateRun> states(LayerIndex) override { return {}; }
  Status wait(LayerIndex) override { return Status::success(); }

 private:
  std::pair<std::size_t, std::size_t> find(LayerIndex layer) const {
    for (std::size_t g = 0; g < layouts_.size(); ++g)
      for (std::size_t s = 0; s < layouts_[g].slices.size(); ++s)
        if (layouts_[g].slices[s].layer == layer) return {g, s};
    LODE_CHECK(false && "a layer without a cache group");
    return {};
  }
  std::vector<model::BlockLayout> layouts_;
  std::vector<std::unique_ptr<memory::Arena>> arenas_;
  std::vector<std::vector<std::byte*>> tables_;    // [groups]
  std::vector<std::vector<kernels::KvRun>> runs_;  // [groups]
};

Gpu::Gpu(std::unique_ptr<kernels::Device> device) : device_(std::move(device)), at_open_(device_->memory()) {}

Gpu::~Gpu() {
  if (device_) static_cast<void>(device_->finish());
}

plan::Card Gpu::card() const {
  const bool fast = device_->table().numerics_id.find("deterministic") == std::string_view::npos;
  return {.name = std::string(device_->description()),
          .total_bytes = at_open_.total,
          .free_bytes = at_open_.free,
          .driver_bytes = at_open_.context,
          .growth_bytes = fast ? kGrowthFast : kGrowthDeterministic};
}

std::uint64_t Gpu::device_bytes(const gguf::File& file) {
  std::uint64_t bytes = 0;
  for (const gguf::Tensor& t : file.tensors())
    if (!only_looked_up(t, file)) bytes += align_up(t.bytes, kTensorAlign);
  return align_up(bytes, memory::kPieceBytes);
}

std::uint64_t Gpu::pinned_bytes(const gguf::File& file) {
  std::uint64_t bytes = 0;
  for (const gguf::Tensor& t : file.tensors())
    if (only_looked_up(t, file)) bytes += t.bytes;
  return bytes;
}

Status Gpu::open(const plan::Plan& plan, const gguf::File& file) {
  budget_ = std::make_unique<memory::Budget>(plan.vram_bytes);
  driver_ = budget_->add_owner("CUDA");
  margin_ = budget_->add_owner("margin");
  if (!budget_->take(driver_, plan.vram_driver_bytes / memory::kPieceBytes) ||
      !budget_->take(margin_, plan.vram_margin_bytes / memory::kPieceBytes))
    return Status::exhausted("the card's memory is smaller than planned");
  auto weights =
      memory::Arena::create(*budget_, "weights", device_bytes(file), {memory::Place::Kind::device, device_.get()});
  if (!weights.ok()) return weights.status();
  weights_ = std::move(weights).value();
  return Status::success();
}

Result<std::byte*> Gpu::place(const gguf::Tensor& tensor, const gguf::File& file) {
  if (only_looked_up(tensor, file)) {
    auto at = device_->allocate_pinned(tensor.bytes, tensor.name);
    if (at.ok()) std::memcpy(at.value(), tensor.data, tensor.bytes);
    return at;
  }
  const std::uint64_t end = align_up(weights_used_ + tensor.bytes, kTensorAlign);
  for (std::uint64_t piece = weights_used_ / memory::kPieceBytes; piece * memory::kPieceBytes < end; ++piece)
    if (!weights_->committed(piece) && !weights_->commit(piece))
      return Status::exhausted(fmt::format("{}: no memory left for tensor {}; other programs may use the card",
                                           device_->description(), tensor.name));
  std::byte* at = weights_->data() + weights_used_;
  weights_used_ = end;
  LODE_RETURN_IF_ERROR(device_->upload(at, tensor.data, tensor.bytes));
  return at;
}

model::Placer Gpu::placer(const gguf::File& file) {
  return [this, &file](const gguf::Tensor& tensor) -> Result<model::Placed> {
    auto at = place(tensor, file);
    if (!at.ok()) return at.status();
    return model::Placed{at.value()};
  };
}

// Memory that stays until the end.
Result<std::byte*> Gpu::room(std::unique_ptr<memory::Arena>& arena, const char* name, std::uint64_t bytes) {
  auto made = memory::Arena::create(*budget_, name, std::max<std::uint64_t>(bytes, 1),
                                    {memory::Place::Kind::device, device_.get()});
  if (!made.ok()) return made.status();
  arena = std::move(made).value();
  for (std::uint64_t piece = 0; piece < arena->pieces(); ++piece)
    if (!arena->commit(piece))
      return Status::exhausted(fmt::format("{}: no {} for {}; other programs may use the card", device_->description(),
                                           format_size(bytes), name));
  return arena->data();
}

Status Gpu::prepare(const model::Model& model, const model::StepLimits& limits, const plan::Plan& plan) {
  LODE_RETURN_IF_ERROR(device_->finish());  // The weights are there.
  auto scratch = room(scratch_, "scratch", model.scratch_bytes(limits));
  if (!scratch.ok()) return scratch.status();
  scratch_at_ = scratch.value();
  const auto vocab = static_cast<std::uint64_t>(model.facts().vocab);
  auto logits = room(logits_, "logits", vocab * sizeof(float) * static_cast<std::uint64_t>(limits.outputs));
  if (!logits.ok()) return logits.status();
  logits_at_ = logits.value();
  runs_.resize(model.groups().size());
  LODE_RETURN_IF_ERROR(device_->plan_steps({.rows = limits.rows,
                                            .outputs = limits.outputs,
                                            .runs = limits.runs,
                                            .groups = static_cast<std::int64_t>(model.groups().size()),
                                            .context = limits.context}));
  LODE_RETURN_IF_ERROR(warm_up(model, limits, plan));
  return account();
}

// A prompt chunk, then decode steps of one sequence and of all of them, each as often as a graph needs to be made and
// replayed.
Status Gpu::warm_up(const model::Model& model, const model::StepLimits& limits, const plan::Plan& plan) {
  const std::int64_t chunk = std::min(plan.chunk, limits.context);
  WarmUp view(model.groups(), plan);
  LODE_RETURN_IF_ERROR(view.open(*budget_, *device_, chunk));
  const auto vocab = static_cast<std::size_t>(model.facts().vocab);
  std::vector<float> logits(vocab * static_cast<std::size_t>(limits.outputs));
  std::vector<TokenId> ids;
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> outputs;
  const auto run = [&](std::int64_t sequences, std::int64_t count) {
    ids.assign(static_cast<std::size_t>(sequences * count), 0);
    positions.clear();
    outputs.clear();
    for (std::int64_t s = 0; s < sequences; ++s) {
      for (std::int64_t i = 0; i < count; ++i) positions.push_back(i);
      outputs.push_back(static_cast<std::int32_t>((s + 1) * count - 1));
    }
    view.bind(sequences, count);
    return step(model, {ids, positions, outputs}, view, limits,
                std::span(logits).first(vocab * static_cast<std::size_t>(sequences)));
  };
  LODE_RETURN_IF_ERROR(run(1, chunk));
  for (const std::int64_t sequences : {std::int64_t{1}, limits.runs})
    for (int i = 0; i < 3; ++i) LODE_RETURN_IF_ERROR(run(sequences, 1));
  return Status::success();
}

std::uint64_t Gpu::driver_bytes() const {
  return budget_->owner_bytes(driver_);
}

// What the driver counts now, less what was asked for, is its own.
std::uint64_t Gpu::count_driver() const {
  const kernels::DeviceMemory now = device_->memory();
  const std::uint64_t asked =
      budget_->committed_bytes() - budget_->owner_bytes(driver_) - budget_->owner_bytes(margin_);
  const std::uint64_t grown = at_open_.free - std::min(at_open_.free, now.free);
  return align_up(at_open_.context + grown - std::min(grown, asked), memory::kPieceBytes);
}

std::uint64_t Gpu::recount() {
  const std::uint64_t own = count_driver(), held = driver_bytes();
  if (own <= held || budget_->take(driver_, (own - held) / memory::kPieceBytes)) return 0;
  return own - held;
}

Status Gpu::account() {
  const std::uint64_t own = count_driver();
  budget_->give_back(driver_, budget_->owner_bytes(driver_) / memory::kPieceBytes);
  if (budget_->take(driver_, own / memory::kPieceBytes)) return Status::success();
  return Status::exhausted(fmt::format(
      "{}: the driver takes {} for itself, and nothing of {} is left for KV; give it more with --vram, or a smaller "
      "chunk with -ub",
      device_->description(), format_size(own), format_size(budget_->bytes_max())));
}

Status Gpu::enqueue(const model::Model& model, const model::Batch& batch, model::KvView& view,
                    const model::StepLimits& limits) {
  kernels::Stream stream = device_->stream();
  const auto groups = model.groups();
  for (std::size_t g = 0; g < groups.size(); ++g) runs_[g] = view.runs(groups[g].layers.front().layer);
  LODE_RETURN_IF_ERROR(device_->begin_step({batch.ids, batch.positions, batch.output_rows, runs_, limits.context}));
  const auto forward = [&] {
    return model.forward(stream, batch, view, limits, scratch_at_, reinterpret_cast<float*>(logits_at_));
  };
  const auto rows = static_cast<std::int64_t>(batch.ids.size());
  if (batch.output_rows.size() != batch.ids.size() || rows > limits.runs) return forward();
  // A replayed graph waits for nothing: what is still on its way from the disk comes first.
  for (const auto& group : groups)
    for (const auto& layer : group.layers) LODE_RETURN_IF_ERROR(view.wait(layer.layer));
  return device_->replay({}, forward);
}

Status Gpu::step(const model::Model& model, const model::Batch& batch, model::KvView& view,
                 const model::StepLimits& limits, std::span<float> logits) {
  const Status enqueued = enqueue(model, batch, view, limits);
  if (!enqueued.ok() || batch.output_rows.empty()) {
    const Status finished = device_->finish();
    return enqueued.ok() ? finished : enqueued;
  }
  return device_->download(reinterpret_cast<std::byte*>(logits.data()), logits_at_, logits.size_bytes());
}

}  // namespace lode::engine
