// The loaders of every family, one a file. Only model.cc calls them.
#pragma once

#include <algorithm>
#include <memory>

#include "base/status.h"
#include "gguf/gguf.h"
#include "model/config.h"
#include "model/model.h"

namespace lode::model {

Result<std::unique_ptr<Model>> load_llama(const gguf::File& file);
Result<std::unique_ptr<Model>> load_gemma3(const gguf::File& file);

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

}  // namespace lode::model
