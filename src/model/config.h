// Reads a family's hyperparameters from GGUF metadata, with bounds: what a file says never sizes anything unchecked.
// Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kernels.h"

namespace lode::model {

// Keys of one architecture: "block_count" -> "gemma3.block_count". The first error sticks, later reads return
// defaults; check status() once at the end.
class ConfigReader {
 public:
  ConfigReader(const gguf::File& file, std::string architecture) : file_(file), arch_(std::move(architecture)) {}

  // Per-layer arrays must have this many entries from now on; every other array is refused as too short or too long.
  void set_layers(std::int64_t layers) { layers_ = layers; }
  // A required integer within [low, high].
  std::int64_t require(std::string_view key, std::int64_t low, std::int64_t high);
  std::int64_t optional(std::string_view key, std::int64_t fallback, std::int64_t low, std::int64_t high);
  double optional_float(std::string_view key, double fallback, double low, double high);
  bool optional_bool(std::string_view key, bool fallback);
  std::string optional_string(std::string_view key, std::string_view fallback);
  // A scalar repeated for every layer, or an array with exactly one entry a layer.
  std::vector<std::int64_t> per_layer(std::string_view key, std::int64_t layers, std::optional<std::int64_t> fallback,
                                      std::int64_t low, std::int64_t high);
  bool has(std::string_view key) const;
  const gguf::File& file() const { return file_; }
  std::string full(std::string_view key) const { return arch_ + "." + std::string(key); }
  void fail(Status status);
  const Status& status() const { return status_; }

 private:
  const gguf::File& file_;
  std::string arch_;
  std::int64_t layers_ = 0;  // 0: not known yet.
  Status status_;
};

// Hyperparameters that all present families share.
struct Config {
  std::int64_t layers = 0;      // Of the trunk: block_count without the layers that predict further tokens.
  std::int64_t mtp_layers = 0;  // nextn_predict_layers: their tensors follow the trunk's and are not read yet.
  std::int64_t width = 0, heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0, ffn = 0, vocab = 0, context = 0;
  float eps = 1e-6f;
  std::int64_t rope_dims = 0;
  double rope_base = 10000;
};
// Whether a family's files must have feed_forward_length; where no layer is dense it may be absent (ffn is 0 then).
enum class FfnKey : std::uint8_t { required, optional };
// Bounds: 1 to 512 layers, width to 1 Mi, head counts to 1,024, and so on: far above any model, far below a number that
// could exhaust memory.
Config read_config(ConfigReader& r, const gguf::File& file, FfnKey ffn = FfnKey::required);

// Hyperparameters of a mixture of experts.
struct ExpertConfig {
  std::int64_t count = 0, used = 0;  // 1 <= used <= count.
  std::int64_t ffn = 0;              // Width of one expert.
  float weights_scale = 1;
  // Whether a token's weights are divided by their sum: expert_weights_norm, true where the file does not say.
  kernels::RouteArgs::Norm norm = kernels::RouteArgs::Norm::sum;
};
// Missing or contradictory keys are errors: never a silent dense load.
ExpertConfig read_expert_config(ConfigReader& r, const Config& c);

// Hyperparameters of gated delta-net layers (the keys' names come from state-space models).
struct DeltaConfig {
  std::int64_t taps = 0;      // Of the causal convolution: ssm.conv_kernel.
  std::int64_t k_heads = 0;   // ssm.group_count
  std::int64_t v_heads = 0;   // ssm.time_step_rank; a multiple of k_heads.
  std::int64_t k_dim = 0;     // ssm.state_size
  std::int64_t v_dim = 0;     // ssm.inner_size / v_heads
  std::int64_t interval = 0;  // Layers i with (i + 1) % interval == 0 have full attention.
  std::int64_t inner() const { return v_heads * v_dim; }
  std::int64_t channels() const { return 2 * k_heads * k_dim + inner(); }  // Of the convolution: Q, K and V.
};
DeltaConfig read_delta_config(ConfigReader& r);

}  // namespace lode::model
