#include "kernels/cpu/avx2/kv_i16.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/avx2/math.h"
#include "kernels/cpu/avx2/transpose.h"

namespace lode::kernels::avx2 {
namespace {

std::int16_t code1(float x, float inverse) {
  return static_cast<std::int16_t>(_mm_cvtss_si32(_mm_set_ss(x * inverse)));
}

// Codes of x[0, 16).
__m256i codes16(const float* x, __m256 inverse) {
  const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
  const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), inverse));
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
}

void round_all(const float* x, std::int64_t dim, float inverse, std::int16_t* codes) {
  if (inverse == 0) {  // x may not be finite.
    std::fill_n(codes, dim, std::int16_t{0});
    return;
  }
  const __m256 inverse8 = _mm256_set1_ps(inverse);
  std::int64_t d = 0;
  for (; d + 16 <= dim; d += 16) _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + d), codes16(x + d, inverse8));
  for (; d < dim; ++d) codes[d] = code1(x[d], inverse);
}

}  // namespace

I16Scale k_scale_i16(const float* x, std::int64_t dim) {
  return i16_norm_scale(sum_of_squares(x, dim));
}

float quantize_k_i16(const float* x, std::int64_t dim, std::int16_t* codes) {
  const I16Scale to = k_scale_i16(x, dim);
  round_all(x, dim, to.inverse, codes);
  return to.scale;
}

I16Scale v_scale_i16(const float* x, std::int64_t dim) {
  // Magnitudes compare as integers, so that a NaN wins whatever the order.
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i top = _mm256_setzero_si256();
  std::int64_t d = 0;
  for (; d + 8 <= dim; d += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + d));
    top = _mm256_max_epu32(top, _mm256_and_si256(bits, magnitude));
  }
  if (d < dim) {
    const __m256i bits = _mm256_castps_si256(_mm256_maskload_ps(x + d, first_lanes(dim - d)));
    top = _mm256_max_epu32(top, _mm256_and_si256(bits, magnitude));
  }
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return i16_top_scale(_mm_cvtss_f32(_mm_castsi128_ps(m)));
}

float quantize_v_i16(const float* x, std::int64_t dim, std::int16_t* codes) {
  const I16Scale to = v_scale_i16(x, dim);
  round_all(x, dim, to.inverse, codes);
  return to.scale;
}

void write_k_i16(const float* k, std::int64_t stride, std::int64_t count, std::int64_t k_dim, I16Side to,
                 std::int64_t t) {
  std::int64_t i = 0;
  for (; k_dim % 16 == 0 && i + 8 <= count; i += 8) {
    __m256 inverse[8];
    bool zeros[8];
    for (int j = 0; j < 8; ++j) {
      const I16Scale scale = k_scale_i16(k + (i + j) * stride, k_dim);
      to.scales[t + i + j] = scale.scale;
      inverse[j] = _mm256_set1_ps(scale.inverse);
      zeros[j] = scale.inverse == 0;
    }
    for (std::int64_t d = 0; d < k_dim; d += 16) {
      __m256 pairs[8];  // Row j: 8 pairs of dims of token j.
      for (int j = 0; j < 8; ++j) {
        const __m256i codes = zeros[j] ? _mm256_setzero_si256() : codes16(k + (i + j) * stride + d, inverse[j]);
        pairs[j] = _mm256_castsi256_ps(codes);
      }
      transpose8(pairs);
      for (int p = 0; p < 8; ++p)
        _mm256_storeu_ps(reinterpret_cast<float*>(to.values + i16_k_at(d + 2 * p, t + i)), pairs[p]);
    }
  }
  for (; i < count; ++i) {
    std::int16_t codes[kI16DimMax + 1];
    to.scales[t + i] = quantize_k_i16(k + i * stride, k_dim, codes);
    codes[k_dim] = 0;  // The partner of an odd dim's last.
    for (std::int64_t d = 0; d < k_dim; d += 2) std::memcpy(to.values + i16_k_at(d, t + i), codes + d, 4);
  }
}

void write_v_i16(const float* v, std::int64_t stride, std::int64_t count, std::int64_t v_dim, I16Side to,
                 std::int64_t t) {
  std::int16_t first[kI16DimMax], second[kI16DimMax];
  for (std::int64_t i = 0; i < count; ++i) {
    to.scales[t + i] = quantize_v_i16(v + i * stride, v_dim, first);
    std::int16_t* row = to.values + i16_v_at(v_dim, t + i, 0);
    if ((t + i) % 2 != 0 || i + 1 == count) {  // Its partner is written at another time.
      for (std::int64_t d = 0; d < v_dim; ++d) row[2 * d] = first[d];
      continue;
    }
    ++i;
    to.scales[t + i] = quantize_v_i16(v + i * stride, v_dim, second);
    std::int64_t d = 0;
    for (; d + 16 <= v_dim; d += 16) {
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first + d));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second + d));
      const __m256i low = _mm256_unpacklo_epi16(a, b), high = _mm256_unpackhi_epi16(a, b);
      auto* pairs = reinterpret_cast<__m256i*>(row + 2 * d);
      _mm256_storeu_si256(pairs, _mm256_permute2x128_si256(low, high, 0x20));
      _mm256_storeu_si256(pairs + 1, _mm256_permute2x128_si256(low, high, 0x31));
    }
    for (; d < v_dim; ++d) row[2 * d] = first[d], row[2 * d + 1] = second[d];
  }
}

}  // namespace lode::kernels::avx2
