// The inner loops of 512-bit attention over K and V in i16: rounding a query, scores, P in whole numbers, PV
// (docs/numerics.md, "K and V in i16"). One vpdpwssd adds 32 products, twice what an fma does; sums are whole and below
// 2^30 in any order. Templates over the vector type. Owns nothing. Only for avx512/attention.h.
#pragma once

#include <cstdint>

#include "kernels/cpu/avx512/attention_kernels.h"
#include "kernels/cpu/generic/kv_i16.h"

namespace lode::kernels::avx512 {

using Int = std::int16_t;

// A query times its scale, x [dim], to codes with zeros up to a multiple of 16; returns their scale.
template <typename V>
static float quantize_query(const float* x, std::int64_t dim, Int* codes) {
  typename V::F sum = V::zero();
  for (std::int64_t d = 0; d < dim; d += 16) {
    const typename V::F x16 = V::load_first(x + d, dim - d < 16 ? dim - d : 16);
    sum = V::fma(x16, x16, sum);  // Absent columns add 0 to a sum of squares: a no-op.
  }
  const I16Scale to = i16_norm_scale(V::tree_sum(sum));
  for (std::int64_t d = 0; d < dim; d += 16) {
    const typename V::F x16 = V::load_first(x + d, dim - d < 16 ? dim - d : 16);
    // x may not be finite where inverse is 0.
    V::store_s16(codes + d, to.inverse == 0 ? V::zero() : V::mul(x16, V::set(to.inverse)));
  }
  return to.scale;
}

// s[r][t] = f32(sum over d of q[r][d] k[d][t]) * f32(q_scales[r] * k_scales[t]), for 32 tokens.
// q [pairs of dims, 8] pairs of codes, k and ahead [pairs, 32, 2], s [ROWS, 256].
template <typename V, int ROWS, Source SOURCE>
static void scores_i16_kernel(const Int* q, const float* q_scales, const Int* k, const float* k_scales,
                              const Int* ahead, std::int64_t pairs, float* s) {
  typename V::I acc[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) acc[r][0] = acc[r][1] = V::izero();
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    if constexpr (SOURCE == Source::blocks) {
      V::fetch_l2(ahead);
      V::fetch_l2(ahead + 32);
      ahead += 2 * kPanel;
    }
    const typename V::I k0 = V::iload(k), k1 = V::iload(k + 32);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const typename V::I qr = V::broadcast32(q + 2 * r);
      acc[r][0] = V::dot_s16(acc[r][0], qr, k0);
      acc[r][1] = V::dot_s16(acc[r][1], qr, k1);
    }
    q += 2 * kMicroRows;
    k += 2 * kPanel;
  }
  const typename V::F scale0 = V::load(k_scales), scale1 = V::load(k_scales + 16);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    const typename V::F scale = V::set(q_scales[r]);
    V::store(s + r * kSpanTokens, V::mul(V::to_f32(acc[r][0]), V::mul(scale, scale0)));
    V::store(s + r * kSpanTokens + 16, V::mul(V::to_f32(acc[r][1]), V::mul(scale, scale1)));
  }
}

template <typename V, Source SOURCE>
static void scores_i16(int rows, const Int* q, const float* q_scales, const Int* k, const float* k_scales,
                       const Int* ahead, std::int64_t pairs, float* s) {
  switch (rows) {
    case 1: return scores_i16_kernel<V, 1, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 2: return scores_i16_kernel<V, 2, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 3: return scores_i16_kernel<V, 3, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 4: return scores_i16_kernel<V, 4, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 5: return scores_i16_kernel<V, 5, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 6: return scores_i16_kernel<V, 6, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 7: return scores_i16_kernel<V, 7, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    default: return scores_i16_kernel<V, 8, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
  }
}

// Where a row of 256 floats of p has its codes (from its start, int16 [8 blocks, 32]) and its blocks' scales once
// weigh_i16_block passed over it: the codes lie where p was read before.
static constexpr std::int64_t kWeightScales = kSpanTokens / 2;

// p [256] of tokens [begin, end) times V's scales [32] of one block -> codes of the row; returns their scale. Tokens
// outside become 0. Blocks are passed in ascending order.
template <typename V>
static inline float weigh_i16_block(float* p, const float* v_scales, std::int64_t block, std::int64_t begin,
                                    std::int64_t end) {
  const std::int64_t t = block * kBlockTokens;
  typename V::F w0 = V::mul(V::load(p + t), V::load(v_scales));
  typename V::F w1 = V::mul(V::load(p + t + 16), V::load(v_scales + 16));
  if (t < begin || t + kBlockTokens > end) {
    w0 = V::select(lanes_in_range<V>(t, begin, end), w0, V::zero());
    w1 = V::select(lanes_in_range<V>(t + 16, begin, end), w1, V::zero());
  }
  const float sum = V::tree_sum(V::add(w0, w1)), inverse = i16_weight_inverse(sum);
  auto* codes = reinterpret_cast<Int*>(p) + t;
  if (inverse == 0) {
    V::istore(codes, V::izero());
    return i16_weight_scale(sum, 0);
  }
  const typename V::F c0 = V::store_s16(codes, V::mul(w0, V::set(inverse)));
  const typename V::F c1 = V::store_s16(codes + 16, V::mul(w1, V::set(inverse)));
  return i16_weight_scale(sum, V::tree_sum(V::add(c0, c1)));  // Whole numbers below 2^15: exact in any order.
}

// acc[r][x] = fma(f32(sum over the block's t of p[r][t] v[t][x]), the block's scale of r, acc[r][x]), for 16 VECS dims
// x. p [ROWS, 256] as weigh_i16_block leaves it, v and ahead [16 pairs of tokens, stride], out [ROWS, 32].
template <typename V, int ROWS, int VECS, Source SOURCE>
static void pv_i16_kernel(const float* p, std::int64_t block, const Int* v, const Int* ahead, std::int64_t stride,
                          float* out) {
  typename V::I acc[ROWS][VECS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < VECS; ++i) acc[r][i] = V::izero();
  }
  const float* codes = p + block * kBlockTokens / 2;
  for (std::int64_t pair = 0; pair < kBlockTokens / 2; ++pair) {
    if constexpr (SOURCE == Source::blocks) {
      V::fetch_l2(ahead);
      if constexpr (VECS == 2) V::fetch_l2(ahead + 32);
      ahead += stride;
    }
    typename V::I vv[VECS];
#pragma GCC unroll 2
    for (int i = 0; i < VECS; ++i) vv[i] = V::iload(v + 32 * i);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const typename V::I pr = V::broadcast32(codes + r * kSpanTokens + pair);
#pragma GCC unroll 2
      for (int i = 0; i < VECS; ++i) acc[r][i] = V::dot_s16(acc[r][i], pr, vv[i]);
    }
    v += stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    const typename V::F scale = V::set(p[r * kSpanTokens + kWeightScales + block]);
#pragma GCC unroll 2
    for (int i = 0; i < VECS; ++i) {
      float* to = out + r * kPanel + 16 * i;
      V::store(to, V::fma(V::to_f32(acc[r][i]), scale, V::load(to)));
    }
  }
}

template <typename V, int VECS, Source SOURCE>
static void pv_i16_rows(int rows, const float* p, std::int64_t block, const Int* v, const Int* ahead,
                        std::int64_t stride, float* out) {
  switch (rows) {
    case 1: return pv_i16_kernel<V, 1, VECS, SOURCE>(p, block, v, ahead, stride, out);
    case 2: return pv_i16_kernel<V, 2, VECS, SOURCE>(p, block, v, ahead, stride, out);
    case 3: return pv_i16_kernel<V, 3, VECS, SOURCE>(p, block, v, ahead, stride, out);
    case 4: return pv_i16_kernel<V, 4, VECS, SOURCE>(p, block, v, ahead, stride, out);
    case 5: return pv_i16_kernel<V, 5, VECS, SOURCE>(p, block, v, ahead, stride, out);
    case 6: return pv_i16_kernel<V, 6, VECS, SOURCE>(p, block, v, ahead, stride, out);
    case 7: return pv_i16_kernel<V, 7, VECS, SOURCE>(p, block, v, ahead, stride, out);
    default: return pv_i16_kernel<V, 8, VECS, SOURCE>(p, block, v, ahead, stride, out);
  }
}
// `width`: dims, 16 or 32.
template <typename V, Source SOURCE>
static void pv_i16(int rows, std::int64_t width, const float* p, std::int64_t block, const Int* v, const Int* ahead,
                   std::int64_t stride, float* out) {
  if (width <= 16) return pv_i16_rows<V, 1, SOURCE>(rows, p, block, v, ahead, stride, out);
  return pv_i16_rows<V, 2, SOURCE>(rows, p, block, v, ahead, stride, out);
}

}  // namespace lode::kernels::avx512
