// Attention in plain C++: the reference that every instruction set equals bit for bit. One part is one token of one
// run and one KV head; its spans are computed and merged in ascending order. Owns nothing. Step thread only.
#include "kernels/cpu/generic/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/status.h"
#include "kernels/cpu/generic/kv_i16.h"
#include "kernels/cpu/generic/kv_q8.h"
#include "kernels/cpu/generic/math.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels {

std::size_t attention_span_room(std::int64_t n, std::int64_t heads, std::int64_t v_dim, std::int64_t context) {
  return static_cast<std::size_t>(n * heads * ((context + kSpanTokens - 1) / kSpanTokens) * (v_dim + 2));
}

namespace generic {

std::size_t attention_scratch_bytes(std::int64_t head_dim_max) {
  const auto dim = static_cast<std::size_t>((head_dim_max + 15) / 16 * 16);
  // generic: one span of K and of V, q, o, a span's o and its scores, in f32.
  const std::size_t generic = (2 * kSpanTokens * dim + 3 * dim + kSpanTokens) * sizeof(float);
  // avx2: a tile's q, scores and o, at most 320 KiB except for enormous heads (6 rows), a panel of K and of V, 12 rows
  // of o, the scales of a block's head, and 8 numbers a row (avx2/attention.cc).
  const std::size_t six_rows = 6 * (2 * dim + kSpanTokens) * sizeof(float);
  const std::size_t tile = six_rows > 320 * 1024 ? six_rows : 320 * 1024;
  const std::size_t avx2 = tile + (16 * dim + 16 * kSpanTokens + 12 * dim + dim + kKvGroup) * sizeof(float) + 16 * 1024;
  return ((generic > avx2 ? generic : avx2) + 63) / 64 * 64;
}

namespace {

float load_half(const std::byte* base, std::int64_t index) {
  std::uint16_t half;
  std::memcpy(&half, base + index * 2, 2);
  return quant::f16_to_f32(half);
}

// Value `index` of a side; `scale` is the index of its q8_0 scale. All are exact in f32: a code has 7 bits, a scale 11.
float load(KvType type, const std::byte* values, std::int64_t index, const std::byte* scales, std::int64_t scale) {
  switch (type) {
    case KvType::f32: {
      float value;
      std::memcpy(&value, values + index * 4, 4);
      return value;
    }
    case KvType::f16: return load_half(values, index);
    case KvType::q8_0: return static_cast<float>(static_cast<std::int8_t>(values[index])) * load_half(scales, scale);
    case KvType::i16: break;  // Never in f32: scores_i16, pv_i16.
  }
  return 0;
}

// Scratch of one part.
struct Room {
  float* k;       // [k_dim, 256]
  float* v;       // [256, v_dim]
  float* q;       // [k_dim], scaled, and rotated where K is
  float* o;       // [v_dim]
  float* span_o;  // [v_dim]
  float* s;       // [256]
  // Where K is i16: q in codes, in the place of `k`, and their scale.
  std::int16_t* q_codes;  // [k_dim]
  float q_scale;
};

// Copies the visible tokens of one span and KV head to f32, but for sides in i16. The rest of the room keeps what it
// held and is not read.
void gather_span(const AttentionArgs& args, const KvRun& run, std::int64_t kv_head, std::int64_t span, SpanRange seen,
                 const Room& room) {
  const KvLayer& layer = args.layer;
  const std::int64_t k_groups = kv_groups(layer.k_dim), v_groups = kv_groups(layer.v_dim);
  for (std::int64_t t = seen.begin; t < seen.end; ++t) {
    const std::byte* block = run.blocks[span * kSpanBlocks + t / kBlockTokens];
    const std::byte *k = block + layer.k_offset, *v = block + layer.v_offset;
    const std::byte* k_scales = k + kv_scales_offset(layer.kv_heads, layer.k_dim);
    const std::byte* v_scales = v + kv_scales_offset(layer.kv_heads, layer.v_dim);
    const std::int64_t in_block = t % kBlockTokens, v_row = kv_head * kBlockTokens + in_block;
    for (std::int64_t d = 0; layer.k_type != KvType::i16 && d < layer.k_dim; ++d) {
      room.k[d * kSpanTokens + t] = load(layer.k_type, k, (kv_head * layer.k_dim + d) * kBlockTokens + in_block,
                                         k_scales, (kv_head * k_groups + d / kKvGroup) * kBlockTokens + in_block);
    }
    for (std::int64_t d = 0; layer.v_type != KvType::i16 && d < layer.v_dim; ++d) {
      room.v[t * layer.v_dim + d] =
          load(layer.v_type, v, v_row * layer.v_dim + d, v_scales, v_row * v_groups + d / kKvGroup);
    }
  }
}

struct Softmax {
  float m = -std::numeric_limits<float>::infinity(), l = 0;
};

// One query, KV head and span.
struct SpanOf {
  const AttentionArgs& args;
  const KvRun& run;
  std::int64_t kv_head, span;
  SpanRange seen;
};

void scores(const SpanOf& x, const Room& room) {
  for (std::int64_t t = x.seen.begin; t < x.seen.end; ++t) room.s[t] = 0;
  for (std::int64_t d = 0; d < x.args.layer.k_dim; ++d) {
    for (std::int64_t t = x.seen.begin; t < x.seen.end; ++t) {
      room.s[t] = std::fma(room.q[d], room.k[d * kSpanTokens + t], room.s[t]);
    }
  }
}

void scores_i16(const SpanOf& x, const Room& room) {
  for (std::int64_t t = x.seen.begin; t < x.seen.end; ++t) {
    const std::int64_t in_block = t % kBlockTokens;
    const I16Side k = i16_k(x.args.layer, x.run.blocks[x.span * kSpanBlocks + t / kBlockTokens], x.kv_head);
    std::int32_t sum = 0;
    for (std::int64_t d = 0; d < x.args.layer.k_dim; ++d) sum += room.q_codes[d] * k.values[i16_k_at(d, in_block)];
    room.s[t] = static_cast<float>(sum) * (room.q_scale * k.scales[in_block]);
  }
}

void pv(const SpanOf& x, const Room& room) {
  const std::int64_t v_dim = x.args.layer.v_dim;
  for (std::int64_t t = x.seen.begin; t < x.seen.end; ++t) {
    for (std::int64_t d = 0; d < v_dim; ++d) {
      room.span_o[d] = std::fma(room.s[t], room.v[t * v_dim + d], room.span_o[d]);
    }
  }
}

// Block by block: p times V's scales in codes that share a scale, then whole sums.
void pv_i16(const SpanOf& x, const Room& room) {
  const std::int64_t v_dim = x.args.layer.v_dim;
  for (std::int64_t first = x.seen.begin / kBlockTokens * kBlockTokens; first < x.seen.end; first += kBlockTokens) {
    const I16Side v = i16_v(x.args.layer, x.run.blocks[x.span * kSpanBlocks + first / kBlockTokens], x.kv_head);
    float w[kBlockTokens] = {}, lane[16];
    for (std::int64_t t = 0; t < kBlockTokens; ++t) {
      if (first + t >= x.seen.begin && first + t < x.seen.end) w[t] = room.s[first + t] * v.scales[t];
    }
    for (int i = 0; i < 16; ++i) lane[i] = w[i] + w[i + 16];
    for (int step = 8; step >= 1; step /= 2) {
      for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
    }
    const float inverse = i16_weight_inverse(lane[0]);
    std::int32_t codes[kBlockTokens] = {}, total = 0;
    for (int t = 0; inverse != 0 && t < kBlockTokens; ++t) {
      codes[t] = static_cast<std::int32_t>(std::lrintf(w[t] * inverse));
      total += codes[t];
    }
    const float scale = i16_weight_scale(lane[0], static_cast<float>(total));
    for (std::int64_t d = 0; d < v_dim; ++d) {
      std::int32_t sum = 0;
      for (std::int64_t t = 0; t < kBlockTokens; ++t) {
        if (codes[t] != 0) sum += codes[t] * v.values[i16_v_at(v_dim, t, d)];  // Others may not be written yet.
      }
      room.span_o[d] = std::fma(static_cast<float>(sum), scale, room.span_o[d]);
    }
  }
}

// (m, l) returned, o in room.span_o.
Softmax span_result(const SpanOf& x, const Room& room) {
  const AttentionArgs& args = x.args;
  const SpanRange seen = x.seen;
  if (args.layer.k_type == KvType::i16) scores_i16(x, room);
  else scores(x, room);
  Softmax result;
  for (std::int64_t t = seen.begin; t < seen.end; ++t) {
    if (args.softcap > 0) room.s[t] = capped<Lane>(room.s[t], args.softcap);
    result.m = room.s[t] > result.m ? room.s[t] : result.m;
  }
  float lane[16] = {};
  for (std::int64_t t = seen.begin; t < seen.end; ++t) {
    room.s[t] = exp_nonpositive<Lane>(room.s[t] - result.m);
    lane[t % 16] += room.s[t];
  }
  for (int step = 8; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  result.l = lane[0];
  for (std::int64_t d = 0; d < args.layer.v_dim; ++d) room.span_o[d] = 0;
  if (args.layer.v_type == KvType::i16) pv_i16(x, room);
  else pv(x, room);
  return result;
}

void merge(Softmax& running, float* o, const Softmax& span, const float* span_o, std::int64_t v_dim) {
  const float m = span.m > running.m ? span.m : running.m;
  const float a = exp_nonpositive<Lane>(running.m - m), b = exp_nonpositive<Lane>(span.m - m);
  running.m = m;
  running.l = std::fma(running.l, a, span.l * b);
  for (std::int64_t d = 0; d < v_dim; ++d) o[d] = std::fma(o[d], a, span_o[d] * b);
}

void finish(const AttentionArgs& args, std::int64_t head, const Softmax& running, const float* o, float* out) {
  float l = running.l, a = 1;
  if (args.sinks != nullptr) {
    const float sink = args.sinks[head], m = sink > running.m ? sink : running.m;
    a = exp_nonpositive<Lane>(running.m - m);
    l = std::fma(l, a, exp_nonpositive<Lane>(sink - m));
  }
  for (std::int64_t d = 0; d < args.layer.v_dim; ++d) out[d] = (o[d] * a) / l;
}

void one_head(const AttentionArgs& args, const KvRun& run, std::int64_t token, std::int64_t head, Room room) {
  const KvLayer& layer = args.layer;
  const std::int64_t position = run.first_position + token, row = (run.first_row + token) * args.heads + head;
  const std::int64_t kv_head = head / (args.heads / layer.kv_heads);
  for (std::int64_t d = 0; d < layer.k_dim; ++d) room.q[d] = args.q[row * layer.k_dim + d] * args.scale;
  if (layer.k_type == KvType::q8_0) rotate(room.q, layer.k_dim);
  if (layer.k_type == KvType::i16) {
    room.q_codes = reinterpret_cast<std::int16_t*>(room.k);
    room.q_scale = quantize_k_i16(room.q, layer.k_dim, room.q_codes);
  }
  for (std::int64_t d = 0; d < layer.v_dim; ++d) room.o[d] = 0;
  Softmax running;
  for (std::int64_t span = first_visible(args, position) / kSpanTokens; span <= position / kSpanTokens; ++span) {
    const SpanRange seen = visible_in_span(args, position, span);
    gather_span(args, run, kv_head, span, seen, room);
    const Softmax result = span_result({args, run, kv_head, span, seen}, room);
    merge(running, room.o, result, room.span_o, layer.v_dim);
  }
  finish(args, head, running, room.o, args.out + row * layer.v_dim);
  if (layer.v_type == KvType::q8_0) rotate(args.out + row * layer.v_dim, layer.v_dim);
}

}  // namespace

void attention(Stream& stream, const AttentionArgs& args) {
  const KvLayer& layer = args.layer;
  LODE_CHECK(layer.kv_heads > 0 && args.heads % layer.kv_heads == 0);
  const std::int64_t dim_max = layer.k_dim > layer.v_dim ? layer.k_dim : layer.v_dim;
  LODE_CHECK(stream.scratch_bytes_per_thread >= attention_scratch_bytes(dim_max));
  for (const KvRun& run : args.runs) {
    stream.pool->run(run.count * args.heads, [&](std::int64_t part, int thread) {
      auto* f =
          reinterpret_cast<float*>(stream.scratch + static_cast<std::size_t>(thread) * stream.scratch_bytes_per_thread);
      Room room{};
      room.k = f;
      room.v = room.k + kSpanTokens * layer.k_dim;
      room.q = room.v + kSpanTokens * layer.v_dim;
      room.o = room.q + layer.k_dim;
      room.span_o = room.o + layer.v_dim;
      room.s = room.span_o + layer.v_dim;
      // The last tokens see the most: they go first.
      one_head(args, run, run.count - 1 - part / args.heads, part % args.heads, room);
    });
  }
}

}  // namespace generic
}  // namespace lode::kernels
