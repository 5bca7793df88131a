// The inner loops of AVX2 attention over K and V in i16: scores, P in whole numbers, PV (docs/numerics.md, "K and V in
// i16"). Sums are whole and below 2^30 in any order, so that one vpmaddwd takes a pair of dims of 8 tokens (K) or a
// pair of tokens of 8 dims (V), twice what an fma takes. Owns nothing. Only for avx2/attention.cc.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/avx2/attention_kernels.h"
#include "kernels/cpu/generic/kv_i16.h"

namespace lode::kernels::avx2 {

using Int = std::int16_t;

static inline __m256i load_ints(const Int* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
// Two adjacent codes in every lane.
static inline __m256i pair_everywhere(const void* p) {
  std::int32_t pair;
  std::memcpy(&pair, p, 4);
  return _mm256_set1_epi32(pair);
}

// sum += a, in place: left to itself, the compiler first computes all products of a step and then adds them up, through
// spilled registers, or moves every sum once a step.
[[gnu::always_inline]] static inline void add_in_place(__m256i& sum, __m256i a) {
  asm volatile("vpaddd %1, %0, %0" : "+x"(sum) : "x"(a));
}
[[gnu::always_inline]] static inline void add_pairs(__m256i (&sums)[2], __m256i pairs, __m256i v0, __m256i v1) {
  add_in_place(sums[0], _mm256_madd_epi16(pairs, v0));
  add_in_place(sums[1], _mm256_madd_epi16(pairs, v1));
}

// s[r][t] = f32(sum over d of q[r][d] k[d][t]) * f32(q_scales[r] * k_scales[t]), for 16 tokens.
// q [pairs of dims, 6] pairs of codes, k and ahead [pairs, 32, 2], s [ROWS, 256].
// Not inlined: with a caller's variables about, the compiler keeps sums in memory.
template <int ROWS, Source SOURCE>
[[gnu::noinline]] static void scores_i16_kernel(const Int* q, const float* q_scales, const Int* k,
                                                const float* k_scales, const Int* ahead, std::int64_t pairs, float* s) {
  __m256i acc[ROWS][2];
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    if constexpr (SOURCE == Source::blocks) {
      prefetch(ahead);
      ahead += 2 * kBlockTokens;
    }
    const __m256i k0 = load_ints(k), k1 = load_ints(k + 16);
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) add_pairs(acc[r], pair_everywhere(q + 2 * r), k0, k1);
    q += 2 * kMicroRows;
    k += 2 * kBlockTokens;
  }
  const __m256 scale0 = _mm256_loadu_ps(k_scales), scale1 = _mm256_loadu_ps(k_scales + 8);
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
    const __m256 scale = _mm256_broadcast_ss(q_scales + r);
    float* to = s + r * kSpanTokens;
    _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_cvtepi32_ps(acc[r][0]), _mm256_mul_ps(scale, scale0)));
    _mm256_storeu_ps(to + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(acc[r][1]), _mm256_mul_ps(scale, scale1)));
  }
}

template <Source SOURCE>
static void scores_i16(int rows, const Int* q, const float* q_scales, const Int* k, const float* k_scales,
                       const Int* ahead, std::int64_t pairs, float* s) {
  switch (rows) {
    case 1: return scores_i16_kernel<1, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 2: return scores_i16_kernel<2, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 3: return scores_i16_kernel<3, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 4: return scores_i16_kernel<4, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    case 5: return scores_i16_kernel<5, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
    default: return scores_i16_kernel<6, SOURCE>(q, q_scales, k, k_scales, ahead, pairs, s);
  }
}

// Where a row of 256 floats of p has its codes (from its start, int16 [8 blocks, 32]) and its blocks' scales once
// weigh_i16_block passed over it: the codes lie where p was read before.
static constexpr std::int64_t kWeightScales = kSpanTokens / 2;

// p [256] of tokens [begin, end) times V's scales [32] of one block -> codes of the row; returns their scale. Tokens
// outside become 0. Blocks are passed in ascending order.
static inline float weigh_i16_block(float* p, const float* v_scales, std::int64_t block, std::int64_t begin,
                                    std::int64_t end) {
  const std::int64_t t = block * kBlockTokens;
  __m256 w[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) w[i] = _mm256_mul_ps(_mm256_loadu_ps(p + t + 8 * i), _mm256_loadu_ps(v_scales + 8 * i));
  if (t < begin || t + kBlockTokens > end) {
    for (int i = 0; i < 4; ++i) w[i] = _mm256_and_ps(w[i], lanes_in_range(t + 8 * i, begin, end));
  }
  const float sum = tree_sum(_mm256_add_ps(w[0], w[2]), _mm256_add_ps(w[1], w[3]));
  const float inverse = i16_weight_inverse(sum);
  __m256i codes[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, total = _mm256_setzero_si256();
  if (inverse != 0) {
    const __m256 inverse8 = _mm256_set1_ps(inverse);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(w[2 * i], inverse8));
      const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(w[2 * i + 1], inverse8));
      total = _mm256_add_epi32(total, _mm256_add_epi32(low, high));
      codes[i] = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    }
  }
  auto* row = reinterpret_cast<__m256i*>(p + t / 2);
  _mm256_storeu_si256(row, codes[0]);
  _mm256_storeu_si256(row + 1, codes[1]);
  // Whole numbers below 2^15: exact as floats in any order.
  return i16_weight_scale(sum, tree_sum(_mm256_cvtepi32_ps(total), _mm256_setzero_ps()));
}

// acc[r][x] = fma(f32(sum over the block's t of p[r][t] v[t][x]), the block's scale of r, acc[r][x]), for 16 dims x.
// p [ROWS, 256] as weigh_i16_block leaves it, v and ahead [16 pairs of tokens, stride], acc [ROWS, 16].
template <int ROWS, Source SOURCE>
[[gnu::noinline]] static void pv_i16_kernel(const float* p, std::int64_t block, const Int* v, const Int* ahead,
                                            std::int64_t stride, float* out) {
  __m256i acc[ROWS][2];
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
  const float* codes = p + block * kBlockTokens / 2;
  for (std::int64_t pair = 0; pair < kBlockTokens / 2; ++pair) {
    if constexpr (SOURCE == Source::blocks) {
      prefetch(ahead);
      ahead += stride;
    }
    const __m256i v0 = load_ints(v), v1 = load_ints(v + 16);
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) add_pairs(acc[r], pair_everywhere(codes + r * kSpanTokens + pair), v0, v1);
    v += stride;
  }
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
    const __m256 scale = _mm256_broadcast_ss(p + r * kSpanTokens + kWeightScales + block);
    float* to = out + r * kPanel;
    _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][0]), scale, _mm256_loadu_ps(to)));
    _mm256_storeu_ps(to + 8, _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r][1]), scale, _mm256_loadu_ps(to + 8)));
  }
}

template <Source SOURCE>
static void pv_i16(int rows, const float* p, std::int64_t block, const Int* v, const Int* ahead, std::int64_t stride,
                   float* out) {
  switch (rows) {
    case 1: return pv_i16_kernel<1, SOURCE>(p, block, v, ahead, stride, out);
    case 2: return pv_i16_kernel<2, SOURCE>(p, block, v, ahead, stride, out);
    case 3: return pv_i16_kernel<3, SOURCE>(p, block, v, ahead, stride, out);
    case 4: return pv_i16_kernel<4, SOURCE>(p, block, v, ahead, stride, out);
    case 5: return pv_i16_kernel<5, SOURCE>(p, block, v, ahead, stride, out);
    default: return pv_i16_kernel<6, SOURCE>(p, block, v, ahead, stride, out);
  }
}

}  // namespace lode::kernels::avx2
