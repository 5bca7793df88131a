// A device that computes the engine's steps, and what the engine keeps in its memory: weights, scratch, logits. Owns
// the device, the budget of its memory (which the KV store draws on too) and those three. Step thread only, once
// loaded.
//
// Everything the driver counts for this process stays under the budget: its own share (context, code, cuBLAS, room of
// big products) is measured after a first prompt chunk and a first decode step, and taken from the budget before KV
// gets what is left. It grows later, with shapes not seen before, graphs and page tables: it is counted again between
// steps, KV makes room for what is new, and until then a margin holds it. Where other programs begin to use the card
// meanwhile, their bytes count as the driver's: KV makes room for them too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/device.h"
#include "memory/arena.h"
#include "memory/budget.h"
#include "model/model.h"
#include "plan/plan.h"

namespace lode::engine {

class Gpu {
 public:
  explicit Gpu(std::unique_ptr<kernels::Device> device);
  ~Gpu();

  kernels::Device& device() { return *device_; }
  // What the planner needs to know; before anything is loaded.
  plan::Card card() const;
  // Which of the file's weights a step multiplies by, and which it only looks up.
  static std::uint64_t device_bytes(const gguf::File& file);
  static std::uint64_t pinned_bytes(const gguf::File& file);

  // The budget, and in it the driver's share as planned and the place for the weights.
  Status open(const plan::Plan& plan, const gguf::File& file);
  // Puts a tensor where kernels will read it.
  model::Placer placer(const gguf::File& file);
  // Scratch and logits for steps of these limits; then runs steps over garbage, so that all that the driver takes with
  // the first ones is taken, and accounts for it. resource_exhausted: nothing is left for KV. unsupported: the model
  // has weights or types that the device has no kernels for.
  Status prepare(const model::Model& model, const model::StepLimits& limits, const plan::Plan& plan);

  // Counts the driver's share again; between steps. Bytes that the budget lacks for it now: let the store yield so
  // many, and call it again.
  std::uint64_t recount();

  memory::Budget& budget() { return *budget_; }
  std::uint64_t driver_bytes() const;

  // One step. `logits` gets the output rows' [outputs, vocab]. Decode steps, of one row a sequence, are replayed from
  // graphs. corrupt: a restored block is damaged, the step may be repeated after a repair; anything else is for good.
  Status step(const model::Model& model, const model::Batch& batch, model::KvView& view,
              const model::StepLimits& limits, std::span<float> logits);

 private:
  class WarmUp;
  Result<std::byte*> place(const gguf::Tensor& tensor, const gguf::File& file);
  Result<std::byte*> room(std::unique_ptr<memory::Arena>& arena, const char* name, std::uint64_t bytes);
  Status warm_up(const model::Model& model, const model::StepLimits& limits, const plan::Plan& plan);
  Status account();
  std::uint64_t count_driver() const;
  Status enqueue(const model::Model& model, const model::Batch& batch, model::KvView& view,
                 const model::StepLimits& limits);

  std::unique_ptr<kernels::Device> device_;
  const kernels::DeviceMemory at_open_;
  std::unique_ptr<memory::Budget> budget_;
  memory::OwnerId driver_, margin_;
  std::unique_ptr<memory::Arena> weights_, scratch_, logits_;
  std::uint64_t weights_used_ = 0;
  std::byte *scratch_at_ = nullptr, *logits_at_ = nullptr;
  std::vector<std::span<const kernels::KvRun>> runs_;  // [groups] of the step.
};

}  // namespace lode::engine
