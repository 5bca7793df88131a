// Everything that is constant after load, in the order it is made: file, tokenizer, model, kernels, plan, KV store.
// Owned by the engine; the store and scratch are used by the step thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/gpu.h"
#include "engine/packing.h"
#include "experts/cache.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "kv/store.h"
#include "model/model.h"
#include "model/workspace.h"
#include "plan/plan.h"
#include "text/tokenizer.h"

namespace lode::engine {

struct Runtime {
  std::unique_ptr<gguf::File> file;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<Gpu> gpu;               // nullptr: the CPU computes.
  std::unique_ptr<PackedWeights> packed;  // nullptr: the model reads its weights where the file or the card has them.
  std::unique_ptr<model::Model> model;
  std::unique_ptr<experts::Cache> experts;  // nullptr: all experts are where the model reads its weights.
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<model::Workspace> thread_scratch;  // [threads, scratch_bytes_per_thread]
  kernels::Stream stream;
  model::StepLimits limits;
  std::unique_ptr<model::Workspace> scratch;  // Model::scratch_bytes(limits)
  std::unique_ptr<model::Workspace> logits;   // [outputs, vocab]
  std::unique_ptr<kv::Store> store;
  EngineInfo info;
};

// Opens the file and reads the model; the tokenizer, the plan and the store are left out. A second call replaces the
// first's: the plan is made over a mapped file, so that nothing is read into memory before it has been found to fit.
Status load_model(const EngineOptions& options, gguf::LoadMode mode, Runtime& rt);
// Threads, scratch and logits for the given limits.
void make_workspace(Runtime& rt, int threads, const model::StepLimits& limits);
// Opens the card that is to compute, if one is: rt.gpu stays empty where options say the CPU, or say nothing and no
// card can be used (info.notes says why, where somebody may wonder). The model is loaded.
Status open_gpu(const EngineOptions& options, Runtime& rt);
// Plans with what the machine has. The model is loaded, in whatever way.
Result<plan::Plan> plan_for(const EngineOptions& options, const Runtime& rt);
// Makes the workspace and opens the KV store as planned.
Status open_planned(const plan::Plan& plan, const EngineOptions& options, Runtime& rt);
// The whole chain for a server.
Result<std::unique_ptr<Runtime>> make_runtime(const EngineOptions& options);

}  // namespace lode::engine
