#include "model/config.h"

#include <algorithm>

#include <fmt/format.h>

namespace lode::model {

bool ConfigReader::has(std::string_view key) const {
  return file_.find(full(key)) != nullptr;
}

void ConfigReader::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

std::int64_t ConfigReader::require(std::string_view key, std::int64_t low, std::int64_t high) {
  if (!has(key)) {
    fail(Status::corrupt(fmt::format("{}: key '{}' is missing; the file does not describe a whole {} model",
                                     file_.path().string(), full(key), arch_)));
    return low;
  }
  return optional(key, low, low, high);
}

std::int64_t ConfigReader::optional(std::string_view key, std::int64_t fallback, std::int64_t low, std::int64_t high) {
  const auto found = file_.get_ints(full(key));
  if (!found.ok()) {
    fail(found.status());
    return fallback;
  }
  if (!found.value()) return fallback;
  const std::vector<std::int64_t>& values = *found.value();
  const bool array = file_.find(full(key))->type == gguf::ValueType::array;
  if (array && layers_ > 0 && static_cast<std::int64_t>(values.size()) != layers_) {
    fail(Status::corrupt(fmt::format("{}: key '{}': expected {} values, one a layer, found {}", file_.path().string(),
                                     full(key), layers_, values.size())));
    return fallback;
  }
  const bool same =
      !values.empty() && std::all_of(values.begin(), values.end(), [&](auto v) { return v == values[0]; });
  if (!same) {
    fail(Status::unsupported(fmt::format("{}: key '{}': expected one value for all layers, found {} that differ",
                                         file_.path().string(), full(key), values.size())));
    return fallback;
  }
  if (values[0] < low || values[0] > high) {
    fail(Status::corrupt(fmt::format("{}: key '{}': expected a value from {} to {}, found {}", file_.path().string(),
                                     full(key), low, high, values[0])));
    return fallback;
  }
  return values[0];
}

double ConfigReader::optional_float(std::string_view key, double fallback, double low, double high) {
  const auto found = file_.get_float(full(key));
  if (!found.ok()) {
    fail(found.status());
    return fallback;
  }
  if (!found.value()) return fallback;
  const double v = *found.value();
  if (!(v >= low && v <= high)) {
    fail(Status::corrupt(fmt::format("{}: key '{}': expected a value from {} to {}, found {}", file_.path().string(),
                                     full(key), low, high, v)));
    return fallback;
  }
  return v;
}

bool ConfigReader::optional_bool(std::string_view key, bool fallback) {
  const auto found = file_.get_bool(full(key));
  if (!found.ok()) fail(found.status());
  return found.ok() && found.value() ? *found.value() : fallback;
}

std::string ConfigReader::optional_string(std::string_view key, std::string_view fallback) {
  const auto found = file_.get_string(full(key));
  if (!found.ok()) fail(found.status());
  return std::string(found.ok() && found.value() ? *found.value() : fallback);
}

std::vector<std::int64_t> ConfigReader::per_layer(std::string_view key, std::int64_t layers,
                                                  std::optional<std::int64_t> fallback, std::int64_t low,
                                                  std::int64_t high) {
  std::vector<std::int64_t> out(static_cast<std::size_t>(layers), fallback.value_or(low));
  const auto found = file_.get_ints(full(key));
  if (!found.ok()) {
    fail(found.status());
    return out;
  }
  if (!found.value()) {
    if (!fallback) require(key, low, high);
    return out;
  }
  const gguf::Value* value = file_.find(full(key));
  const bool scalar = value->type != gguf::ValueType::array;
  if (!scalar && static_cast<std::int64_t>(found.value()->size()) != layers) {
    fail(Status::corrupt(fmt::format("{}: key '{}': expected {} values, one a layer, found {}", file_.path().string(),
                                     full(key), layers, found.value()->size())));
    return out;
  }
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::int64_t v = (*found.value())[scalar ? 0 : static_cast<std::size_t>(i)];
    if (v < low || v > high) {
      fail(Status::corrupt(fmt::format("{}: key '{}'[{}]: expected a value from {} to {}, found {}",
                                       file_.path().string(), full(key), i, low, high, v)));
      return out;
    }
    out[static_cast<std::size_t>(i)] = v;
  }
  return out;
}

Config read_config(ConfigReader& r, const gguf::File& file, FfnKey ffn) {
  Config c;
  const std::int64_t blocks = r.require("block_count", 1, 512);
  r.set_layers(blocks);
  c.mtp_layers = r.optional("nextn_predict_layers", 0, 0, blocks - 1);
  c.layers = blocks - c.mtp_layers;
  c.width = r.require("embedding_length", 1, 1 << 20);
  c.heads = r.require("attention.head_count", 1, 1024);
  c.kv_heads = r.optional("attention.head_count_kv", c.heads, 1, 1024);
  if (r.status().ok() && c.heads % c.kv_heads != 0)
    r.fail(Status::corrupt(
        fmt::format("{}: {} heads do not divide into {} KV heads", file.path().string(), c.heads, c.kv_heads)));
  c.k_dim = r.optional("attention.key_length", c.width / c.heads, 1, 8192);
  c.v_dim = r.optional("attention.value_length", c.width / c.heads, 1, 8192);
  if (r.status().ok() && (c.k_dim < 1 || c.v_dim < 1))
    r.fail(Status::corrupt(
        fmt::format("{}: {} heads are more than a width of {} has room for", file.path().string(), c.heads, c.width)));
  c.ffn = ffn == FfnKey::required ? r.require("feed_forward_length", 1, 1 << 22)
                                  : r.optional("feed_forward_length", 0, 0, 1 << 22);
  c.context = r.require("context_length", 1, 1 << 30);
  c.eps = static_cast<float>(r.optional_float("attention.layer_norm_rms_epsilon", 1e-6, 0, 1));
  c.rope_dims = r.optional("rope.dimension_count", c.k_dim, 2, 8192);
  c.rope_base = r.optional_float("rope.freq_base", 10000, 1, 1e12);
  if (r.status().ok() && (c.rope_dims > c.k_dim || c.rope_dims % 2 != 0))
    r.fail(Status::corrupt(fmt::format("{}: rope.dimension_count {}: expected an even number up to the head size {}",
                                       file.path().string(), c.rope_dims, c.k_dim)));
  const gguf::Tensor* embd = file.tensor("token_embd.weight");
  if (embd && embd->shape.size() == 2) c.vocab = embd->shape[1];
  return c;
}

ExpertConfig read_expert_config(ConfigReader& r, const Config& c) {
  ExpertConfig e;
  e.count = r.require("expert_count", 1, 4096);
  e.used = r.require("expert_used_count", 1, 4096);
  if (r.status().ok() && e.used > e.count)
    r.fail(Status::corrupt(fmt::format("{}: key '{}' is {}, but key '{}' says that a layer has {} experts",
                                       r.file().path().string(), r.full("expert_used_count"), e.used,
                                       r.full("expert_count"), e.count)));
  // Files without the key have experts whose widths add up to that of a dense layer.
  const std::int64_t fallback = c.ffn / std::max<std::int64_t>(1, e.used);
  e.ffn = fallback > 0 ? r.optional("expert_feed_forward_length", fallback, 1, 1 << 22)
                       : r.require("expert_feed_forward_length", 1, 1 << 22);
  const double scale = r.optional_float("expert_weights_scale", 0, 0, 1e6);
  e.weights_scale = scale > 0 ? static_cast<float>(scale) : 1.0f;  // 0 in files that do not scale.
  if (!r.optional_bool("expert_weights_norm", true)) e.norm = kernels::RouteArgs::Norm::none;
  const std::int64_t gating = r.optional("expert_gating_func", 1, 0, 255);
  if (r.status().ok() && gating > 1)
    r.fail(
        Status::unsupported(fmt::format("{}: key '{}' is {}: routers with another function than softmax are not "
                                        "supported; supported: 1",
                                        r.file().path().string(), r.full("expert_gating_func"), gating)));
  const std::int64_t groups = r.optional("expert_group_count", 1, 0, 4096);
  if (r.status().ok() && groups > 1)
    r.fail(
        Status::unsupported(fmt::format("{}: key '{}' is {}: experts chosen by groups are not supported; "
                                        "supported: 1",
                                        r.file().path().string(), r.full("expert_group_count"), groups)));
  return e;
}

DeltaConfig read_delta_config(ConfigReader& r) {
  DeltaConfig d;
  d.taps = r.require("ssm.conv_kernel", 2, kernels::kConvTapsMax);
  d.k_dim = r.require("ssm.state_size", 1, kernels::kDeltaKeyDimMax);
  d.k_heads = r.require("ssm.group_count", 1, 1024);
  d.v_heads = r.require("ssm.time_step_rank", 1, 1024);
  const std::int64_t inner = r.require("ssm.inner_size", 1, 1 << 20);
  d.interval = r.optional("full_attention_interval", 4, 1, 512);
  if (!r.status().ok()) return d;
  if (d.v_heads % d.k_heads != 0 || inner % d.v_heads != 0)
    r.fail(
        Status::corrupt(fmt::format("{}: ssm.time_step_rank {}: expected a multiple of ssm.group_count {} that "
                                    "divides ssm.inner_size {}",
                                    r.file().path().string(), d.v_heads, d.k_heads, inner)));
  d.v_dim = inner / d.v_heads;
  return d;
}

}  // namespace lode::model
