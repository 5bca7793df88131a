// The inner loops of AVX2 attention: scores, softmax of a row, PV, merging. Each works on a few query rows and keeps
// the order of docs/numerics.md; none knows of blocks' owners, threads or spans' masks. Owns nothing. Only for
// avx2/attention.cc.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/avx2/math.h"
#include "kernels/kernels.h"

namespace lode::kernels::avx2 {

using Half = std::uint16_t;  // An IEEE binary16.
using Code = std::int8_t;    // A value of q8_0, to be multiplied by its group's scale.

// 6 rows x 16 lanes: 12 accumulators, 2 loaded vectors and a broadcast fill the 16 registers.
inline constexpr int kMicroRows = 6;
inline constexpr int kPanel = 16;

static inline __m256 load8(const float* p) {
  return _mm256_loadu_ps(p);
}
static inline __m256 load8(const Half* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
// 8 stored values as f32. `scale` is read for codes only; their products are exact (7 + 11 bits).
template <typename T>
static inline __m256 load8(const T* p, __m256 scale) {
  if constexpr (std::is_same_v<T, Code>) {
    const __m256i codes = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(codes), scale);
  } else {
    return load8(p);
  }
}

template <typename T>
static inline void prefetch(const T* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);  // Into L2: a block ahead may exceed what L1 can hold.
}

// Where K and V are read: in a converted panel that lies in L1, or in the blocks themselves. From blocks a kernel also
// asks for the bytes it is told come next, one row per row it reads: few query rows wait for memory, and neither the
// halves of V rows nor the jump to another block is a pattern that the processor's own prefetcher follows.
enum class Source : std::uint8_t { panel, blocks };

// One dim of a score kernel: acc[v][r] += q[r] k[8 v ..].
template <int ROWS, int VECS, typename T>
static inline void score_dim(const float* q, const T* k, const float* scales, __m256 (&acc)[VECS][ROWS]) {
  const auto load = [&](int v) {
    if constexpr (std::is_same_v<T, Code>) return load8(k + 8 * v, _mm256_loadu_ps(scales + 8 * v));
    else return load8(k + 8 * v);
  };
  if constexpr (VECS <= 2) {  // K in registers, one q after another.
    __m256 kv[VECS];
#pragma GCC unroll 2
    for (int v = 0; v < VECS; ++v) kv[v] = load(v);
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) {
      const __m256 qr = _mm256_broadcast_ss(q + r);
#pragma GCC unroll 2
      for (int v = 0; v < VECS; ++v) acc[v][r] = _mm256_fmadd_ps(qr, kv[v], acc[v][r]);
    }
  } else {  // q in registers, one vector of K after another.
    __m256 qr[ROWS];
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) qr[r] = _mm256_broadcast_ss(q + r);
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) {
      const __m256 kv = load(v);
#pragma GCC unroll 6
      for (int r = 0; r < ROWS; ++r) acc[v][r] = _mm256_fmadd_ps(qr[r], kv, acc[v][r]);
    }
  }
}

// s[r][t] = sum over d, ascending, of q[d][r] k[d][t], for 8 VECS tokens.
// q [k_dim, 6], k [k_dim, k_stride], ahead [k_dim, k_stride], s [ROWS, 256]; of codes, scales [k_dim / 32, k_stride].
template <int ROWS, int VECS, Source SOURCE, typename T>
static void score_kernel(const float* q, const T* k, const float* scales, const T* ahead, std::int64_t k_stride,
                         std::int64_t k_dim, float* s) {
  constexpr bool kCodes = std::is_same_v<T, Code>;
  __m256 acc[VECS][ROWS];
#pragma GCC unroll 4
  for (int v = 0; v < VECS; ++v) {
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) acc[v][r] = _mm256_setzero_ps();
  }
  for (std::int64_t d = 0; d < k_dim;) {
    const std::int64_t end = kCodes && k_dim - d > kKvGroup ? d + kKvGroup : k_dim;
    for (; d < end; ++d) {
      if constexpr (SOURCE == Source::blocks) {
        prefetch(ahead);
        if constexpr (VECS * 8 * sizeof(T) > 64) prefetch(ahead + kPanel);
        ahead += k_stride;
      }
      score_dim<ROWS, VECS>(q, k, scales, acc);
      q += kMicroRows;
      k += k_stride;
    }
    if constexpr (kCodes) scales += k_stride;
  }
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) _mm256_storeu_ps(s + r * kSpanTokens + 8 * v, acc[v][r]);
  }
}

// V of 16 dims of consecutive tokens, what to fetch meanwhile and, of codes, each token's scale.
template <typename T>
struct VRows {
  const T* v;           // [tokens, stride]
  const T* ahead;       // The same shape.
  const float* scales;  // [tokens, scale_stride]
  std::int64_t stride, scale_stride;
};

// acc[r][x] += sum over t in [0, count), ascending, of p[r][t] v[t][x], for 16 dims x.
// p [ROWS, 256], acc [ROWS, 16].
template <int ROWS, Source SOURCE, typename T>
static void pv_kernel(const float* p, VRows<T> rows, std::int64_t count, float* out) {
  __m256 acc[ROWS][2];
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
    acc[r][0] = _mm256_loadu_ps(out + r * kPanel);
    acc[r][1] = _mm256_loadu_ps(out + r * kPanel + 8);
  }
  for (std::int64_t t = 0; t < count; ++t) {
    if constexpr (SOURCE == Source::blocks) {
      prefetch(rows.ahead);
      rows.ahead += rows.stride;
    }
    __m256 v0, v1;
    if constexpr (std::is_same_v<T, Code>) {
      const __m256 scale = _mm256_broadcast_ss(rows.scales);
      rows.scales += rows.scale_stride;
      v0 = load8(rows.v, scale), v1 = load8(rows.v + 8, scale);
    } else {
      v0 = load8(rows.v), v1 = load8(rows.v + 8);
    }
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; ++r) {
      const __m256 pr = _mm256_broadcast_ss(p + r * kSpanTokens + t);
      acc[r][0] = _mm256_fmadd_ps(pr, v0, acc[r][0]);
      acc[r][1] = _mm256_fmadd_ps(pr, v1, acc[r][1]);
    }
    rows.v += rows.stride;
  }
#pragma GCC unroll 6
  for (int r = 0; r < ROWS; ++r) {
    _mm256_storeu_ps(out + r * kPanel, acc[r][0]);
    _mm256_storeu_ps(out + r * kPanel + 8, acc[r][1]);
  }
}

// Scores of a panel of 16 tokens, converted to f32.
static inline void scores_panel(int rows, const float* q, const float* k, std::int64_t k_dim, float* s) {
  switch (rows) {
    case 1: return score_kernel<1, 2, Source::panel>(q, k, nullptr, k, kPanel, k_dim, s);
    case 2: return score_kernel<2, 2, Source::panel>(q, k, nullptr, k, kPanel, k_dim, s);
    case 3: return score_kernel<3, 2, Source::panel>(q, k, nullptr, k, kPanel, k_dim, s);
    case 4: return score_kernel<4, 2, Source::panel>(q, k, nullptr, k, kPanel, k_dim, s);
    case 5: return score_kernel<5, 2, Source::panel>(q, k, nullptr, k, kPanel, k_dim, s);
    default: return score_kernel<6, 2, Source::panel>(q, k, nullptr, k, kPanel, k_dim, s);
  }
}

template <int ROWS, typename T>
static void scores_halves(const float* q, const T* k, const float* scales, const T* ahead, std::int64_t k_dim,
                          float* s) {
  score_kernel<ROWS, 2, Source::blocks>(q, k, scales, ahead, kBlockTokens, k_dim, s);
  score_kernel<ROWS, 2, Source::blocks>(q, k + kPanel, scales + kPanel, ahead + kPanel, kBlockTokens, k_dim,
                                        s + kPanel);
}

// Scores of a whole block of 32 tokens where it lies, fetching the block `ahead`. scales [k_dim / 32, 32] of codes.
template <typename T>
static void scores_block(int rows, const float* q, const T* k, const float* scales, const T* ahead, std::int64_t k_dim,
                         float* s) {
  switch (rows) {
    case 1: return score_kernel<1, 4, Source::blocks>(q, k, scales, ahead, kBlockTokens, k_dim, s);
    case 2: return score_kernel<2, 4, Source::blocks>(q, k, scales, ahead, kBlockTokens, k_dim, s);
    case 3: return score_kernel<3, 4, Source::blocks>(q, k, scales, ahead, kBlockTokens, k_dim, s);
    case 4: return scores_halves<4>(q, k, scales, ahead, k_dim, s);
    case 5: return scores_halves<5>(q, k, scales, ahead, k_dim, s);
    default: return scores_halves<6>(q, k, scales, ahead, k_dim, s);
  }
}

template <Source SOURCE, typename T>
static void pv(int rows, const float* p, const VRows<T>& v, std::int64_t count, float* acc) {
  switch (rows) {
    case 1: return pv_kernel<1, SOURCE>(p, v, count, acc);
    case 2: return pv_kernel<2, SOURCE>(p, v, count, acc);
    case 3: return pv_kernel<3, SOURCE>(p, v, count, acc);
    case 4: return pv_kernel<4, SOURCE>(p, v, count, acc);
    case 5: return pv_kernel<5, SOURCE>(p, v, count, acc);
    default: return pv_kernel<6, SOURCE>(p, v, count, acc);
  }
}

// All ones in the lanes i with begin <= first + i < end.
static inline __m256 lanes_in_range(std::int64_t first, std::int64_t begin, std::int64_t end) {
  const __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(begin - first)), i);
  const __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(end - first)), i);
  return _mm256_castsi256_ps(_mm256_andnot_si256(low, high));
}

static inline float max_of(__m256 x) {
  const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
  return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
}

struct Softmax {
  float m, l;
};

// Calls fn(t, half, inside) for every 8 tokens of the groups of 16 that [begin, end) touches, `half` 0 or 1 in turns;
// inside: all 8 lie in it. Those are most of them, four in a row without a question.
template <typename Fn>
[[gnu::always_inline]] static inline void for_vectors(std::int64_t begin, std::int64_t end, Fn&& fn) {
  std::int64_t t = begin / 16 * 16;
  const auto cut = [&](std::int64_t to) {
    for (; t < to; t += 16) {
      fn(t, 0, t >= begin && t + 8 <= end);
      fn(t + 8, 1, t + 8 >= begin && t + 16 <= end);
    }
  };
  cut((begin + 15) / 16 * 16);
  for (; t + 32 <= end; t += 32) {
    fn(t, 0, true);
    fn(t + 8, 1, true);
    fn(t + 16, 0, true);
    fn(t + 24, 1, true);
  }
  cut(end);
}

// Turns the scores s [256] of tokens [begin, end) into exp(s - m) in place; masked tokens of the touched groups of 16
// become 0. `softcap` 0: off.
static Softmax softmax_row(float* s, std::int64_t begin, std::int64_t end, float softcap) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff()), cap = _mm256_set1_ps(softcap);
  if (softcap > 0)
    for (std::int64_t t = begin / 8 * 8; t < end; t += 8)
      _mm256_storeu_ps(s + t, capped<Lanes>(_mm256_loadu_ps(s + t), cap));
  __m256 top[2] = {lowest, lowest};
  for_vectors(begin, end, [&](std::int64_t t, int half, bool inside) {
    __m256 x = _mm256_loadu_ps(s + t);
    if (!inside) x = _mm256_blendv_ps(lowest, x, lanes_in_range(t, begin, end));
    top[half] = _mm256_max_ps(x, top[half]);  // A NaN score leaves `top`; it shows in l.
  });
  const float m = max_of(_mm256_max_ps(top[0], top[1]));
  const __m256 m8 = _mm256_set1_ps(m);
  __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for_vectors(begin, end, [&](std::int64_t t, int half, bool inside) {
    __m256 p = exp_nonpositive<Lanes>(_mm256_sub_ps(_mm256_loadu_ps(s + t), m8));
    if (!inside) p = _mm256_and_ps(p, lanes_in_range(t, begin, end));
    _mm256_storeu_ps(s + t, p);
    sum[half] = _mm256_add_ps(sum[half], p);
  });
  return {m, tree_sum(sum[0], sum[1])};
}

// exp of one non-positive float, in the lanes' arithmetic.
static inline float exp1(float x) {
  return _mm256_cvtss_f32(exp_nonpositive<Lanes>(_mm256_set1_ps(x)));
}

// o[x] = fma(o[x], a, span_o[x] * b).
static inline void merge_values(float* o, float a, const float* span_o, float b, std::int64_t count) {
  const __m256 a8 = _mm256_set1_ps(a), b8 = _mm256_set1_ps(b);
  std::int64_t x = 0;
  for (; x + 8 <= count; x += 8) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(span_o + x), b8);
    _mm256_storeu_ps(o + x, _mm256_fmadd_ps(_mm256_loadu_ps(o + x), a8, scaled));
  }
  for (; x < count; ++x) o[x] = fma1(o[x], a, span_o[x] * b);
}

}  // namespace lode::kernels::avx2
