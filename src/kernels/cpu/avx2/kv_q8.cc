#include "kernels/cpu/avx2/kv_q8.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>

namespace lode::kernels::avx2 {
namespace {

constexpr std::int64_t kChunk = 64;  // Values that 8 registers hold: the first six stages work on them.

// One stage inside a vector: `swapped` holds each lane's partner, `minus` the sign bit in the lanes that subtract.
__m256 butterfly(__m256 x, __m256 swapped, __m256 minus) {
  return _mm256_add_ps(swapped, _mm256_xor_ps(x, minus));
}

// Stages 1, 2 and 4.
__m256 first_stages(__m256 x) {
  const __m256 minus1 = _mm256_setr_ps(0, -0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f);
  const __m256 minus2 = _mm256_setr_ps(0, 0, -0.0f, -0.0f, 0, 0, -0.0f, -0.0f);
  const __m256 minus4 = _mm256_setr_ps(0, 0, 0, 0, -0.0f, -0.0f, -0.0f, -0.0f);
  x = butterfly(x, _mm256_permute_ps(x, 0xB1), minus1);
  x = butterfly(x, _mm256_permute_ps(x, 0x4E), minus2);
  return butterfly(x, _mm256_permute2f128_ps(x, x, 0x01), minus4);
}

// All stages of 8 * VECS values, and the multiplication by `scale`.
template <int VECS>
void rotate_chunk(float* x, float scale) {
  __m256 v[VECS];
#pragma GCC unroll 8
  for (int i = 0; i < VECS; ++i) v[i] = first_stages(_mm256_loadu_ps(x + 8 * i));
#pragma GCC unroll 3
  for (int h = 1; h < VECS; h *= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < VECS; ++i) {
      if ((i & h) != 0) continue;
      const __m256 a = v[i], b = v[i + h];
      v[i] = _mm256_add_ps(a, b);
      v[i + h] = _mm256_sub_ps(a, b);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < VECS; ++i) _mm256_storeu_ps(x + 8 * i, _mm256_mul_ps(v[i], _mm256_set1_ps(scale)));
}

// A block of n > 64 values: chunks, then the stages between them.
void rotate_large(float* x, std::int64_t n, float scale) {
  for (std::int64_t i = 0; i < n; i += kChunk) rotate_chunk<8>(x + i, 1.0f);
  for (std::int64_t h = kChunk; h < n; h *= 2) {
    const __m256 factor = _mm256_set1_ps(2 * h == n ? scale : 1.0f);
    for (std::int64_t i = 0; i < n; i += 2 * h) {
      for (std::int64_t j = i; j < i + h; j += 8) {
        const __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + j + h);
        _mm256_storeu_ps(x + j, _mm256_mul_ps(_mm256_add_ps(a, b), factor));
        _mm256_storeu_ps(x + j + h, _mm256_mul_ps(_mm256_sub_ps(a, b), factor));
      }
    }
  }
}

// The largest magnitude of 32 values, compared as integers.
float largest32(const float* x) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i top = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    top = _mm256_max_epi32(top, _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 8 * i)), magnitude));
  }
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return std::bit_cast<float>(_mm_cvtsi128_si32(m));
}

// Rounds 32 products to int8, in order.
__m256i round32(const float* x, __m256 inverse) {
  __m256i v[4];
  for (int i = 0; i < 4; ++i) v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
  return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

}  // namespace

void rotate_blocks(float* x, std::int64_t count, std::int64_t n) {
  if (n < 8) return generic::rotate_blocks(x, count, n);
  const float scale = rotation_scale(n);
  for (std::int64_t i = 0; i < count; i += n) {
    switch (n) {
      case 8: rotate_chunk<1>(x + i, scale); break;
      case 16: rotate_chunk<2>(x + i, scale); break;
      case 32: rotate_chunk<4>(x + i, scale); break;
      case 64: rotate_chunk<8>(x + i, scale); break;
      default: rotate_large(x + i, n, scale);
    }
  }
}

void rotate(float* x, std::int64_t dim) {
  rotate_blocks(x, dim, rotation_block(dim));
}

std::uint16_t quantize_kv_group(const float* x, std::int64_t count, std::int8_t* codes) {
  if (count < kKvGroup) {
    float padded[kKvGroup] = {};
    std::int8_t padded_codes[kKvGroup];
    std::copy_n(x, count, padded);
    const std::uint16_t d = quantize_kv_group(padded, kKvGroup, padded_codes);
    std::copy_n(padded_codes, count, codes);
    return d;
  }
  const float amax = largest32(x), exact = amax / 127.0f;
  std::uint16_t d = 0;
  __m256i rounded = _mm256_setzero_si256();
  if (!(exact <= 65504.0f)) {
    d = kHalfNaN;
  } else if (amax >= kKvTiny) {
    const __m128i half = _mm_cvtps_ph(_mm_set_ss(exact), _MM_FROUND_TO_POS_INF);
    d = static_cast<std::uint16_t>(_mm_extract_epi16(half, 0));
    rounded = round32(x, _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_cvtph_ps(half))));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), rounded);
  return d;
}

}  // namespace lode::kernels::avx2
