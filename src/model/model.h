// A model: config, weights and one forward page. Immutable after load; forward runs on the step thread.
//
// A family is a file beside this one (llama.cc, gemma3.cc, qwen.cc, qwen35.cc): it reads its config, names its tensors,
// declares its cache groups, and computes. What families share lives in config.h, tensors.h, rope.h, scratch.h,
// blocks.h and experts.h. docs/adding-a-model.md says how to add one.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"
#include "model/expert_source.h"
#include "model/kv_view.h"
#include "model/placer.h"
#include "model/workspace.h"

namespace lode::model {

// The tokens of one step. Rows are grouped in runs, one a sequence, as KvView::runs gives them.
struct Batch {
  std::span<const TokenId> ids;               // [n]
  std::span<const std::int64_t> positions;    // [n], absolute.
  std::span<const std::int32_t> output_rows;  // [m], ascending: rows whose logits are wanted.
  // Where a mixture of experts gets its matrices; nullptr: straight from the file, as Model::experts() lists them.
  ExpertSource* experts = nullptr;
};

// The most that one step can hold; sizes the scratch.
struct StepLimits {
  std::int64_t rows = 0;     // n
  std::int64_t outputs = 0;  // m
  std::int64_t runs = 0;     // Sequences in a step.
  std::int64_t context = 0;  // Longest sequence.
};

// What the planner and `info` need to know.
struct Facts {
  std::string architecture, name, type_summary;  // "gemma3", "Gemma 3 270m", "Q5_0 81, Q4_K 27, ..."
  std::int64_t layers = 0, width = 0, heads = 0, ffn = 0, vocab = 0, context_trained = 0, parameters = 0;
  std::int64_t cols_max = 0, head_dim_max = 0;  // For scratch_bytes_per_thread.
  // Weights by class, each tensor in one. Attention includes recurrent layers' ssm tensors, ffn all experts.
  std::uint64_t embedding_bytes = 0, output_bytes = 0, attention_bytes = 0, ffn_bytes = 0, other_bytes = 0;
  // Mixtures of experts; zeros elsewhere. expert_bytes is the part of ffn_bytes that routed experts take.
  std::int64_t experts = 0, experts_used = 0, expert_ffn = 0, expert_layers = 0;
  std::uint64_t expert_bytes = 0;
};

struct LoadOptions {
  // The configured length of a sequence in tokens; 0: as long as trained. Only longrope looks at it (rope.h). The
  // resolved factors are in rope_id(), so models loaded for two contexts share no KV where it matters.
  std::int64_t context = 0;
  // Puts weights somewhere else. In a device's memory: forward() then runs on that device's Stream, with scratch,
  // logits and KV there; refused for families that have no device kernels yet. In memory: packed rows, for any family.
  Placer place;
  enum class Where : std::uint8_t { device, memory } where = Where::device;
};

class Model {
 public:
  // Reads config and weights of a supported architecture. The File must outlive the Model. Errors name the key or
  // tensor, expected and found; an unknown architecture lists those supported.
  static Result<std::unique_ptr<Model>> load(const gguf::File& file, const LoadOptions& options = {});
  virtual ~Model() = default;

  const Facts& facts() const { return facts_; }
  std::span<const CacheGroup> groups() const { return groups_; }
  // The resolved rope factors in a fixed form: part of the KV root key.
  const std::string& rope_id() const { return rope_id_; }

  // Every layer with routed experts and its matrices as they lie in the file, ascending; empty for dense models.
  std::span<const ExpertLayer> experts() const { return experts_; }

  virtual std::uint64_t scratch_bytes(const StepLimits& limits) const = 0;
  // Computes the batch: writes K and V of every row, and logits [m, vocab] for the output rows. `scratch` has
  // scratch_bytes(limits). An error (a restored block or an expert that could not be read) leaves no row's result
  // valid; the same batch may be run again.
  virtual Status forward(kernels::Stream& s, const Batch& batch, KvView& kv, const StepLimits& limits,
                         std::byte* scratch, float* logits) const = 0;

 protected:
  Facts facts_;
  std::vector<CacheGroup> groups_;
  std::string rope_id_;
  std::vector<ExpertLayer> experts_;
};

// Whether a family's forward page runs where a Placer puts its weights.
bool placeable(std::string_view architecture);
// Names of the architectures that load() knows, comma-separated.
std::string_view architecture_names();

}  // namespace lode::model
