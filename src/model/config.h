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

namespace lode::model {

// Keys of one architecture: "block_count" -> "gemma3.block_count". The first error sticks, later reads return
// defaults; check status() once at the end.
class ConfigReader {
 public:
  ConfigReader(const gguf::File& file, std::string architecture) : file_(file), arch_(std::move(architecture)) {}

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
  std::string full(std::string_view key) const { return arch_ + "." + std::string(key); }
  void fail(Status status);
  const Status& status() const { return status_; }

 private:
  const gguf::File& file_;
  std::string arch_;
  Status status_;
};

// Hyperparameters that all present families share.
struct Config {
  std::int64_t layers = 0, width = 0, heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0, ffn = 0, vocab = 0, context = 0;
  float eps = 1e-6f;
  std::int64_t rope_dims = 0;
  double rope_base = 10000;
};
// Bounds: 1 to 512 layers, width to 1 Mi, head counts to 1,024, and so on: far above any model, far below a number that
// could exhaust memory.
Config read_config(ConfigReader& r, const gguf::File& file);

}  // namespace lode::model
