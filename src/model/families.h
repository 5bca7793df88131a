// The loaders of every family, one a file. Only model.cc calls them.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/model.h"

namespace lode::model {

// One entry of `general.architecture`; a loader may serve several.
struct LoadContext {
  const gguf::File& file;
  std::string_view architecture;
  const LoadOptions& options;
};
Result<std::unique_ptr<Model>> load_llama(const LoadContext& context);
Result<std::unique_ptr<Model>> load_gemma3(const LoadContext& context);
Result<std::unique_ptr<Model>> load_qwen(const LoadContext& context);    // qwen2, qwen3, qwen3moe
Result<std::unique_ptr<Model>> load_qwen35(const LoadContext& context);  // qwen35, qwen35moe

// The facts that every family reads from its Config.
inline void fill_facts(Facts& facts, const Config& c) {
  facts.layers = c.layers;
  facts.width = c.width;
  facts.heads = c.heads;
  facts.ffn = c.ffn;
  facts.vocab = c.vocab;
  facts.context_trained = c.context;
  facts.cols_max = std::max({c.width, c.ffn, c.heads * c.v_dim});
  facts.head_dim_max = std::max(c.k_dim, c.v_dim);
}

// The same for a mixture of experts, after fill_facts.
inline void fill_expert_facts(Facts& facts, const ExpertConfig& e, std::span<const ExpertLayer> layers) {
  facts.experts = e.count;
  facts.experts_used = e.used;
  facts.expert_ffn = e.ffn;
  facts.expert_layers = static_cast<std::int64_t>(layers.size());
  facts.cols_max = std::max(facts.cols_max, e.ffn);
  for (const ExpertLayer& l : layers)
    for (const ExpertWeights& w : l.weights)
      for (const kernels::Matrix& m : {w.gate, w.up, w.down})
        facts.expert_bytes += static_cast<std::uint64_t>(m.rows * quant::row_bytes(m.type, m.cols));
}

// What every attention layer of a family with one head shape keeps.
inline CacheLayer cache_layer(std::int64_t layer, const Config& c) {
  return {LayerIndex{static_cast<std::uint32_t>(layer)}, static_cast<std::int32_t>(c.kv_heads),
          static_cast<std::int32_t>(c.k_dim), static_cast<std::int32_t>(c.v_dim)};
}

}  // namespace lode::model
