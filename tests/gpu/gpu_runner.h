// A model on a device with everything that a step needs, and K and V in plain device memory: what the GPU tests and
// measurements run. Needs no test framework, so that it builds on a machine with a card and little else.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "kernels/device.h"
#include "model/model.h"

namespace lode::gpu {

inline void must(const Status& status, const char* what) {
  if (status.ok()) return;
  std::printf("FAILED: %s: %s\n", what, status.message().c_str());
  std::exit(1);
}
template <typename T>
T must(Result<T> result, const char* what) {
  must(result.status(), what);
  return std::move(result).value();
}

// The types of K and V; both alike where one is given.
struct KvTypes {
  KvTypes(kernels::KvType both) : k(both), v(both) {}
  KvTypes(kernels::KvType k_type, kernels::KvType v_type) : k(k_type), v(v_type) {}
  kernels::KvType k, v;
};
inline std::string name_of(kernels::KvType type) {
  return type == kernels::KvType::f32 ? "f32" : type == kernels::KvType::f16 ? "f16" : "q8_0";
}
inline std::string name_of(KvTypes types) {
  return types.k == types.v ? name_of(types.k) : name_of(types.k) + "/" + name_of(types.v);
}

// A KvView whose blocks lie in one piece of device memory, all NaN until written; every sequence keeps every block.
// How the blocks of a group lie in memory. blocks: a block's layers one after another, as on disk. layers: a layer's
// blocks one after another, so that one layer's attention stays within few pages.
enum class KvPlacement { blocks, layers };

class DeviceKv final : public model::KvView {
 public:
  DeviceKv(kernels::Device& device, std::span<const model::CacheGroup> groups, KvTypes types, std::size_t sequences,
           std::int64_t tokens, KvPlacement placement)
      : device_(device), types_(types), placement_(placement), lengths_(sequences), tables_(sequences) {
    const std::int64_t blocks = (tokens + 31) / 32;
    for (const auto& g : groups) layouts_.push_back(model::block_layout(g, types.k, types.v));
    std::uint64_t bytes = 0;
    for (const auto& l : layouts_) bytes += static_cast<std::uint64_t>(l.block_bytes * blocks) * sequences;
    bytes_ = bytes;
    memory_ = must(device.allocate(bytes, "K and V"), "K and V");
    must(device.fill(memory_, 0xFF, bytes), "K and V");
    std::byte* at = memory_;
    for (auto& tables : tables_)
      for (const auto& l : layouts_) {
        tables.emplace_back();
        const std::int64_t stride = placement == KvPlacement::blocks ? l.block_bytes : l.slices.front().bytes;
        for (std::int64_t b = 0; b < blocks; ++b) tables.back().push_back(at + b * stride);
        at += blocks * l.block_bytes;
      }
    if (placement == KvPlacement::layers)
      for (auto& l : layouts_)
        for (auto& s : l.slices) {
          LODE_CHECK(s.bytes == l.slices.front().bytes);
          s.kv.k_offset += s.offset * (blocks - 1);
          s.kv.v_offset += s.offset * (blocks - 1);
        }
    for (const auto& l : layouts_)
      for (const auto& s : l.slices)
        if (s.layer.v >= where_.size()) where_.resize(s.layer.v + 1);
    for (std::size_t g = 0; g < layouts_.size(); ++g)
      for (std::size_t s = 0; s < layouts_[g].slices.size(); ++s) where_[layouts_[g].slices[s].layer.v] = {g, s};
  }
  ~DeviceKv() override { device_.release(memory_); }

  struct Part {
    std::size_t sequence;
    std::int64_t count;
  };
  void prepare(std::span<const Part> parts) {
    parts_.assign(parts.begin(), parts.end());
    runs_.assign(layouts_.size(), {});
    std::int64_t row = 0;
    for (const Part& p : parts_) {
      for (std::size_t g = 0; g < layouts_.size(); ++g)
        runs_[g].push_back({row, p.count, lengths_[p.sequence], tables_[p.sequence][g].data()});
      row += p.count;
    }
    spans_.clear();
    for (const auto& r : runs_) spans_.push_back(r);
  }
  void advance() {
    for (const Part& p : parts_) lengths_[p.sequence] += p.count;
  }
  std::byte* memory() const { return memory_; }
  std::uint64_t bytes() const { return bytes_; }
  KvTypes types() const { return types_; }
  KvPlacement placement() const { return placement_; }
  std::int64_t length(std::size_t sequence) const { return lengths_[sequence]; }
  void set_length(std::size_t sequence, std::int64_t tokens) { lengths_[sequence] = tokens; }
  std::span<const std::span<const kernels::KvRun>> all_runs() const { return spans_; }

  std::span<const kernels::KvRun> runs(LayerIndex layer) override { return runs_[where_[layer.v].first]; }
  const kernels::KvLayer& layer(LayerIndex layer) override {
    const auto [g, s] = where_[layer.v];
    return layouts_[g].slices[s].kv;
  }
  std::span<const kernels::StateRun> states(LayerIndex) override { std::abort(); }
  Status wait(LayerIndex) override { return Status::success(); }

 private:
  kernels::Device& device_;
  KvTypes types_;
  KvPlacement placement_;
  std::byte* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::vector<model::BlockLayout> layouts_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::vector<std::vector<std::byte*>>> tables_;  // [sequence][group][block]
  std::vector<std::pair<std::size_t, std::size_t>> where_;    // [layer] group and slice
  std::vector<Part> parts_;
  std::vector<std::vector<kernels::KvRun>> runs_;  // [group][part]
  std::vector<std::span<const kernels::KvRun>> spans_;
};

class Runner {
 public:
  Runner(const std::filesystem::path& path, kernels::DeviceNumerics numerics, model::StepLimits limits)
      : limits_(limits) {
    device_ = must(kernels::open_cuda({.numerics = numerics}), "the device");
    file_ = must(gguf::File::open(path, {}), "the file");
    const bool tied = file_->tensor("output.weight") == nullptr;
    model_ =
        must(model::Model::load(*file_, {.place = [&](const gguf::Tensor& t) { return place(t, tied); }}), "the model");
    scratch_ = must(device_->allocate(model_->scratch_bytes(limits), "scratch"), "scratch");
    logits_ = must(device_->allocate(static_cast<std::uint64_t>(limits.outputs * vocab()) * 4, "logits"), "logits");
    stream_ = device_->stream();
    must(device_->finish(), "the weights' upload");
  }

  kernels::Device& device() { return *device_; }
  const model::Model& model() const { return *model_; }
  std::int64_t vocab() const { return model_->facts().vocab; }
  std::unique_ptr<DeviceKv> make_kv(KvTypes types, std::size_t sequences, std::int64_t tokens,
                                    KvPlacement placement = KvPlacement::blocks) {
    return std::make_unique<DeviceKv>(*device_, model_->groups(), types, sequences, tokens, placement);
  }

  // Enqueues one step; `ids` for all parts one after another. Logits of `outputs` rows stay on the device.
  void step(DeviceKv& kv, std::span<const DeviceKv::Part> parts, std::span<const TokenId> ids,
            std::span<const std::int32_t> outputs, bool graph) {
    positions_.clear();
    for (const auto& p : parts)
      for (std::int64_t i = 0; i < p.count; ++i) positions_.push_back(kv.length(p.sequence) + i);
    kv.prepare(parts);
    must(device_->begin_step({ids, positions_, outputs, kv.all_runs(), limits_.context}), "a step's inputs");
    const auto forward = [&] {
      return model_->forward(stream_, {ids, positions_, outputs}, kv, limits_, scratch_,
                             reinterpret_cast<float*>(logits_));
    };
    const std::int64_t key[] = {static_cast<std::int64_t>(kv.types().k), static_cast<std::int64_t>(kv.types().v),
                                static_cast<std::int64_t>(kv.placement())};
    must(graph ? device_->replay(key, forward) : forward(), "a step");
    kv.advance();
  }
  std::vector<float> logits(std::size_t rows) {
    std::vector<float> out(rows * static_cast<std::size_t>(vocab()));
    must(device_->download(reinterpret_cast<std::byte*>(out.data()), logits_, out.size() * 4), "logits");
    return out;
  }
  void download_logits(std::span<float> out) {
    must(device_->download(reinterpret_cast<std::byte*>(out.data()), logits_, out.size_bytes()), "logits");
  }
  // All logits of one sequence, in chunks.
  std::vector<float> run(std::span<const TokenId> ids, std::int64_t chunk, KvTypes types, bool graph) {
    auto kv = make_kv(types, 1, static_cast<std::int64_t>(ids.size()));
    std::vector<float> out;
    for (std::size_t at = 0; at < ids.size(); at += static_cast<std::size_t>(chunk)) {
      const auto part = ids.subspan(at, std::min(static_cast<std::size_t>(chunk), ids.size() - at));
      std::vector<std::int32_t> rows;
      for (std::size_t i = 0; i < part.size(); ++i) rows.push_back(static_cast<std::int32_t>(i));
      const DeviceKv::Part one[] = {{0, static_cast<std::int64_t>(part.size())}};
      step(*kv, one, part, rows, graph);
      const auto got = logits(part.size());
      out.insert(out.end(), got.begin(), got.end());
    }
    return out;
  }

 private:
  // A table that is only looked up stays in page-locked RAM; a tied one is the output too.
  Result<model::Placed> place(const gguf::Tensor& t, bool tied) {
    if (t.name == "token_embd.weight" && !tied) {
      auto room = device_->allocate_pinned(t.bytes, t.name);
      if (!room.ok()) return room.status();
      std::memcpy(room.value(), t.data, t.bytes);
      return model::Placed{static_cast<const std::byte*>(room.value())};
    }
    auto room = device_->allocate(t.bytes, t.name);
    if (!room.ok()) return room.status();
    LODE_RETURN_IF_ERROR(device_->upload(room.value(), t.data, t.bytes));
    return model::Placed{static_cast<const std::byte*>(room.value())};
  }

  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<gguf::File> file_;
  std::unique_ptr<model::Model> model_;
  model::StepLimits limits_;
  std::byte *scratch_ = nullptr, *logits_ = nullptr;
  kernels::Stream stream_;
  std::vector<std::int64_t> positions_;
};

inline double nmse(std::span<const float> got, std::span<const float> want) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    error += d * d;
    power += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  return power > 0 ? error / power : error;
}

}  // namespace lode::gpu
