#include "kernels/cpu/avx2/quantize.h"

#include <immintrin.h>

#include <bit>
#include <cstring>
#include <limits>

namespace lode::kernels::avx2 {
namespace {

__m256i load_magnitudes(const float* x) {
  return _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x)), _mm256_set1_epi32(0x7fffffff));
}

// The largest of 8 magnitudes, compared as integers.
float largest(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return std::bit_cast<float>(_mm_cvtsi128_si32(m));
}

// Rounds 32 values to int8, in order. Never called where a product could be outside [-127.5, 127.5].
__m256i round32(const float* x, __m256 inverse) {
  __m256i v[4];
  for (int i = 0; i < 4; ++i) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

struct Scale {
  float d;
  float inverse;  // 0: store zeros.
};
Scale scale_of(float amax) {
  if (amax >= kActTiny && amax <= std::numeric_limits<float>::max()) return {amax / 127.0f, 127.0f / amax};
  return {amax < kActTiny ? 0.0f : std::numeric_limits<float>::quiet_NaN(), 0.0f};
}

// int16 (sum over k % 4 in {0, 1}, sum over {2, 3}) of each half of 16 values, in the low 32 bits of each 128-bit lane.
__m256i pair_sums16(__m256i q) {
  __m256i p = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
  p = _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0x4e));
  return _mm256_add_epi16(p, _mm256_shuffle_epi32(p, 0xb1));
}

}  // namespace

void quantize_row_g32(const float* x, std::int64_t cols, const RowG32& out) {
  for (std::int64_t g = 0; g < cols / 32; ++g) {
    const float* v = x + 32 * g;
    const __m256i top = _mm256_max_epi32(_mm256_max_epi32(load_magnitudes(v), load_magnitudes(v + 8)),
                                         _mm256_max_epi32(load_magnitudes(v + 16), load_magnitudes(v + 24)));
    const Scale scale = scale_of(largest(top));
    const __m256i q = scale.inverse == 0 ? _mm256_setzero_si256() : round32(v, _mm256_set1_ps(scale.inverse));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + 32 * g), q);
    const __m256i p = pair_sums16(q);
    const std::int32_t pair =
        _mm_cvtsi128_si32(_mm_add_epi16(_mm256_castsi256_si128(p), _mm256_extracti128_si256(p, 1)));
    std::memcpy(out.p + 2 * g, &pair, 4);
    out.d[g] = scale.d;
    out.s[g] = out.p[2 * g] + out.p[2 * g + 1];
    out.t[g] = scale.d * static_cast<float>(out.s[g]);
  }
}

void quantize_row_g256(const float* x, std::int64_t cols, const RowG256& out) {
  for (std::int64_t g = 0; g < cols / 256; ++g) {
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 32; ++i) top = _mm256_max_epi32(top, load_magnitudes(x + 256 * g + 8 * i));
    const Scale scale = scale_of(largest(top));
    out.d[g] = scale.d;
    for (std::int64_t j = 8 * g; j < 8 * g + 8; ++j) {
      const __m256i q =
          scale.inverse == 0 ? _mm256_setzero_si256() : round32(x + 32 * j, _mm256_set1_ps(scale.inverse));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + 32 * j), q);
      const __m256i p = pair_sums16(q);
      const std::int32_t pairs[2] = {_mm_cvtsi128_si32(_mm256_castsi256_si128(p)),
                                     _mm_cvtsi128_si32(_mm256_extracti128_si256(p, 1))};
      std::memcpy(out.p + 4 * j, pairs, 8);
      out.s[2 * j] = static_cast<std::int16_t>(out.p[4 * j] + out.p[4 * j + 1]);
      out.s[2 * j + 1] = static_cast<std::int16_t>(out.p[4 * j + 2] + out.p[4 * j + 3]);
      out.u[j] = static_cast<std::int16_t>(out.s[2 * j] + out.s[2 * j + 1]);
    }
  }
}

}  // namespace lode::kernels::avx2
