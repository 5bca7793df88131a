// The inner loops of attention in 512 bits: scores, softmax of a row, PV, merging. Each works on a few query rows and
// keeps the order of docs/numerics.md; none knows of blocks' owners, threads or spans' masks. Templates over the vector
// type. Owns nothing. Only for avx512/attention.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cpu/generic/math.h"
#include "kernels/kernels.h"

namespace lode::kernels::avx512 {

using Half = std::uint16_t;  // An IEEE binary16.

// 8 rows x 32 lanes: 16 accumulators, 2 loaded vectors and a broadcast; 10 loads for 16 fmas keep both fma units fed.
static constexpr int kMicroRows = 8;
static constexpr int kPanel = 32;  // Tokens of K (a block), dims of V.
static_assert(kPanel == kBlockTokens);

template <typename V>
static inline typename V::F load16(const float* p) {
  return V::load(p);
}
template <typename V>
static inline typename V::F load16(const Half* p) {
  return V::load_half(p);
}

// Where K and V are read: in a converted panel that lies in the first-level cache, or in the blocks themselves. From
// blocks a kernel also asks for the bytes it is told come next, into the second level: few query rows wait for memory.
enum class Source : std::uint8_t { panel, blocks };

// One row of 32 values ahead.
template <typename V, typename T>
static inline void fetch_row(const T* p) {
  V::fetch_l2(p);
  if constexpr (sizeof(T) == 4) V::fetch_l2(p + 16);
}

// s[r][t] = sum over d, ascending, of q[d][r] k[d][t], for 32 tokens.
// q [k_dim, 8], k [k_dim, 32], ahead [k_dim, 32], s [ROWS, 256].
template <typename V, int ROWS, Source SOURCE, typename T>
static void score_kernel(const float* q, const T* k, const T* ahead, std::int64_t k_dim, float* s) {
  typename V::F acc[ROWS][2];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) acc[r][0] = acc[r][1] = V::zero();
  for (std::int64_t d = 0; d < k_dim; ++d) {
    if constexpr (SOURCE == Source::blocks) {
      fetch_row<V>(ahead);
      ahead += kPanel;
    }
    const typename V::F k0 = load16<V>(k), k1 = load16<V>(k + 16);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const typename V::F qr = V::set(q[r]);
      acc[r][0] = V::fma(qr, k0, acc[r][0]);
      acc[r][1] = V::fma(qr, k1, acc[r][1]);
    }
    q += kMicroRows;
    k += kPanel;
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
    V::store(s + r * kSpanTokens, acc[r][0]);
    V::store(s + r * kSpanTokens + 16, acc[r][1]);
  }
}

// acc[r][x] += sum over t in [0, count), ascending, of p[r][t] v[t][x], for 16 VECS dims x.
// p [ROWS, 256], v [count, v_stride], ahead [count, v_stride], out [ROWS, 32].
template <typename V, int ROWS, int VECS, Source SOURCE, typename T>
static void pv_kernel(const float* p, const T* v, const T* ahead, std::int64_t v_stride, std::int64_t count,
                      float* out) {
  typename V::F acc[ROWS][VECS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < VECS; ++i) acc[r][i] = V::load(out + r * kPanel + 16 * i);
  }
  for (std::int64_t t = 0; t < count; ++t) {
    if constexpr (SOURCE == Source::blocks) {
      V::fetch_l2(ahead);
      if constexpr (VECS * 16 * sizeof(T) > 64) V::fetch_l2(ahead + 16);
      ahead += v_stride;
    }
    typename V::F vv[VECS];
#pragma GCC unroll 2
    for (int i = 0; i < VECS; ++i) vv[i] = load16<V>(v + 16 * i);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const typename V::F pr = V::set(p[r * kSpanTokens + t]);
#pragma GCC unroll 2
      for (int i = 0; i < VECS; ++i) acc[r][i] = V::fma(pr, vv[i], acc[r][i]);
    }
    v += v_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < VECS; ++i) V::store(out + r * kPanel + 16 * i, acc[r][i]);
  }
}

template <typename V, Source SOURCE, typename T>
static void scores(int rows, const float* q, const T* k, const T* ahead, std::int64_t k_dim, float* s) {
  switch (rows) {
    case 1: return score_kernel<V, 1, SOURCE>(q, k, ahead, k_dim, s);
    case 2: return score_kernel<V, 2, SOURCE>(q, k, ahead, k_dim, s);
    case 3: return score_kernel<V, 3, SOURCE>(q, k, ahead, k_dim, s);
    case 4: return score_kernel<V, 4, SOURCE>(q, k, ahead, k_dim, s);
    case 5: return score_kernel<V, 5, SOURCE>(q, k, ahead, k_dim, s);
    case 6: return score_kernel<V, 6, SOURCE>(q, k, ahead, k_dim, s);
    case 7: return score_kernel<V, 7, SOURCE>(q, k, ahead, k_dim, s);
    default: return score_kernel<V, 8, SOURCE>(q, k, ahead, k_dim, s);
  }
}

template <typename V, int VECS, Source SOURCE, typename T>
static void pv_rows(int rows, const float* p, const T* v, const T* ahead, std::int64_t v_stride, std::int64_t count,
                    float* acc) {
  switch (rows) {
    case 1: return pv_kernel<V, 1, VECS, SOURCE>(p, v, ahead, v_stride, count, acc);
    case 2: return pv_kernel<V, 2, VECS, SOURCE>(p, v, ahead, v_stride, count, acc);
    case 3: return pv_kernel<V, 3, VECS, SOURCE>(p, v, ahead, v_stride, count, acc);
    case 4: return pv_kernel<V, 4, VECS, SOURCE>(p, v, ahead, v_stride, count, acc);
    case 5: return pv_kernel<V, 5, VECS, SOURCE>(p, v, ahead, v_stride, count, acc);
    case 6: return pv_kernel<V, 6, VECS, SOURCE>(p, v, ahead, v_stride, count, acc);
    case 7: return pv_kernel<V, 7, VECS, SOURCE>(p, v, ahead, v_stride, count, acc);
    default: return pv_kernel<V, 8, VECS, SOURCE>(p, v, ahead, v_stride, count, acc);
  }
}
// `width`: dims, 16 or 32.
template <typename V, Source SOURCE, typename T>
static void pv(int rows, std::int64_t width, const float* p, const T* v, const T* ahead, std::int64_t v_stride,
               std::int64_t count, float* acc) {
  if (width <= 16) return pv_rows<V, 1, SOURCE>(rows, p, v, ahead, v_stride, count, acc);
  return pv_rows<V, 2, SOURCE>(rows, p, v, ahead, v_stride, count, acc);
}

// Bits of the lanes i of 16 with begin <= first + i < end.
template <typename V>
static inline typename V::M lanes_in_range(std::int64_t first, std::int64_t begin, std::int64_t end) {
  const std::int64_t from = begin > first ? begin - first : 0, to = end - first < 16 ? end - first : 16;
  if (from >= to) return 0;
  return static_cast<typename V::M>(((1u << to) - 1u) & ~((1u << from) - 1u));
}

struct Softmax {
  float m, l;
};

// Turns the scores s [256] of tokens [begin, end) into exp(s - m) in place; masked tokens of the touched groups of 16
// become 0. `softcap` 0: off. The 16 lanes of the sum are t % 16, since spans begin at multiples of 256.
template <typename V>
static Softmax softmax_row(float* s, std::int64_t begin, std::int64_t end, float softcap) {
  const typename V::F lowest = V::set(-__builtin_inff()), cap = V::set(softcap);
  typename V::F top = lowest;
  for (std::int64_t t = begin / 16 * 16; t < end; t += 16) {
    typename V::F x = V::load(s + t);
    if (softcap > 0) {
      x = capped<V>(x, cap);
      V::store(s + t, x);
    }
    if (t < begin || t + 16 > end) x = V::select(lanes_in_range<V>(t, begin, end), x, lowest);
    top = V::max(x, top);  // A NaN score leaves `top`; it shows in l.
  }
  const float m = V::largest(top);
  const typename V::F m16 = V::set(m);
  typename V::F sum = V::zero();
  for (std::int64_t t = begin / 16 * 16; t < end; t += 16) {
    typename V::F p = exp_nonpositive<V>(V::sub(V::load(s + t), m16));
    if (t < begin || t + 16 > end) p = V::select(lanes_in_range<V>(t, begin, end), p, V::zero());
    V::store(s + t, p);
    sum = V::add(sum, p);
  }
  return {m, V::tree_sum(sum)};
}

// One lane's exp of a non-positive float and fma, in the vectors' arithmetic.
template <typename V>
static inline float exp1(float x) {
  return V::lane0(exp_nonpositive<V>(V::set(x)));
}
template <typename V>
static inline float fma1(float a, float b, float c) {
  return V::lane0(V::fma(V::set(a), V::set(b), V::set(c)));
}

// o[x] = fma(o[x], a, span_o[x] * b).
template <typename V>
static inline void merge_values(float* o, float a, const float* span_o, float b, std::int64_t count) {
  const typename V::F a16 = V::set(a), b16 = V::set(b);
  std::int64_t x = 0;
  for (; x + 16 <= count; x += 16) V::store(o + x, V::fma(V::load(o + x), a16, V::mul(V::load(span_o + x), b16)));
  if (const std::int64_t left = count - x; left > 0) {
    const typename V::F scaled = V::mul(V::load_first(span_o + x, left), b16);
    V::store_first(o + x, left, V::fma(V::load_first(o + x, left), a16, scaled));
  }
}

template <typename V>
static inline void fill(float* to, std::int64_t count, float x) {
  const typename V::F x16 = V::set(x);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) V::store(to + i, x16);
  if (i < count) V::store_first(to + i, count - i, x16);
}
template <typename V>
static inline void copy(const float* from, std::int64_t count, float* to) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) V::store(to + i, V::load(from + i));
  if (i < count) V::store_first(to + i, count - i, V::load_first(from + i, count - i));
}

}  // namespace lode::kernels::avx512
