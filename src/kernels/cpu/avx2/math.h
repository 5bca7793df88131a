// Eight float lanes for the shared formulas of generic/math.h, and the fixed reductions. Only for avx2/*.cc, which are
// compiled with -mavx2 -mfma -mf16c; nothing here may be used elsewhere. Owns nothing.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/generic/math.h"

namespace lode::kernels::avx2 {

struct Lanes {
  using T = __m256;
  static inline T set(float x) { return _mm256_set1_ps(x); }
  static inline T add(T a, T b) { return _mm256_add_ps(a, b); }
  static inline T sub(T a, T b) { return _mm256_sub_ps(a, b); }
  static inline T mul(T a, T b) { return _mm256_mul_ps(a, b); }
  static inline T div(T a, T b) { return _mm256_div_ps(a, b); }
  static inline T fma(T a, T b, T c) { return _mm256_fmadd_ps(a, b, c); }
  static inline T less(T a, T b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static inline T select(T mask, T yes, T no) { return _mm256_blendv_ps(no, yes, mask); }
  static inline T exp2i(T shifted) {
    const __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(127 << 23)));
  }
};
struct DoubleLane {
  static inline double fma(double a, double b, double c) {
    return _mm_cvtsd_f64(_mm_fmadd_sd(_mm_set_sd(a), _mm_set_sd(b), _mm_set_sd(c)));
  }
};

// One lane, compiled for this instruction set (generic::Lane must not be instantiated here: its inline functions would
// be emitted with AVX2 code under a name that the generic kernels link to).
static inline float fma1(float a, float b, float c) {
  return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
}

// Lanes [0, count) all ones, the rest zero; 0 <= count <= 8.
static inline __m256i first_lanes(std::int64_t count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

// The tree over 16 virtual lanes: i + (i+8), then +4, +2, +1.
static inline float tree_sum(__m256 lanes_0_7, __m256 lanes_8_15) {
  const __m256 s8 = _mm256_add_ps(lanes_0_7, lanes_8_15);
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

static inline float sum_of_squares(const float* x, std::int64_t width) {
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + 8);
    low = _mm256_fmadd_ps(a, a, low);
    high = _mm256_fmadd_ps(b, b, high);
  }
  // The absent tail adds 0 * 0 to lanes that are sums of squares: a no-op.
  const std::int64_t left = width - i;
  if (left > 0) {
    const __m256 a = _mm256_maskload_ps(x + i, first_lanes(left < 8 ? left : 8));
    low = _mm256_fmadd_ps(a, a, low);
  }
  if (left > 8) {
    const __m256 b = _mm256_maskload_ps(x + i + 8, first_lanes(left - 8));
    high = _mm256_fmadd_ps(b, b, high);
  }
  return tree_sum(low, high);
}

}  // namespace lode::kernels::avx2
