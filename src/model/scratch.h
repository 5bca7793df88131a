// The buffers of one step of a dense transformer, cut from the Workspace. Owns nothing. Step thread only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/kernels.h"
#include "model/model.h"
#include "model/workspace.h"

namespace lode::model {

struct TransformerShape {
  std::int64_t width = 0, heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0, ffn = 0, rope_pairs = 0, rope_tables = 1;
  std::int64_t widest_input = 0;  // Of a product that is none of the transformer's own.
};

struct TransformerScratch {
  float* x;              // [n, width] the residual
  float* h;              // [n, width] normed, then a product's output
  float* q;              // [n, heads, k_dim]
  float* k;              // [n, kv_heads, k_dim]
  float* v;              // [n, kv_heads, v_dim]
  float* att;            // [n, heads, v_dim]
  float* gate;           // [n, ffn]
  float* up;             // [n, ffn]
  float* cos_sin[2];     // [n, pairs, 2] a table; unused ones are nullptr
  std::byte* acts_room;  // acts_bytes(n, widest input)
  float* span_room;      // attention_span_room of the decode rows
  std::size_t span_room_floats;
  float* out;  // [m, width] output rows before the last product
};

inline TransformerScratch cut_scratch(Cutter& cut, const TransformerShape& t, const StepLimits& limits) {
  const std::int64_t n = limits.rows;
  TransformerScratch s{};
  s.x = cut.take<float>(n * t.width);
  s.h = cut.take<float>(n * t.width);
  s.q = cut.take<float>(n * t.heads * t.k_dim);
  s.k = cut.take<float>(n * t.kv_heads * t.k_dim);
  s.v = cut.take<float>(n * t.kv_heads * t.v_dim);
  s.att = cut.take<float>(n * t.heads * t.v_dim);
  s.gate = cut.take<float>(n * t.ffn);
  s.up = cut.take<float>(n * t.ffn);
  for (std::int64_t i = 0; i < t.rope_tables; ++i) s.cos_sin[i] = cut.take<float>(n * t.rope_pairs * 2);
  const std::int64_t widest = std::max({t.width, t.ffn, t.heads * t.v_dim, t.widest_input});
  s.acts_room = cut.take<std::byte>(static_cast<std::int64_t>(kernels::acts_bytes(n, widest)));
  s.span_room_floats = kernels::attention_span_room(limits.runs, t.heads, t.v_dim, limits.context);
  s.span_room = cut.take<float>(static_cast<std::int64_t>(s.span_room_floats));
  s.out = cut.take<float>(limits.outputs * t.width);
  return s;
}

inline std::uint64_t scratch_size(const TransformerShape& t, const StepLimits& limits) {
  Cutter count(nullptr);
  cut_scratch(count, t, limits);
  return count.used();
}

}  // namespace lode::model
