// 8 x 8 transposition of 32-bit lanes. Only for avx2/*.cc. Owns nothing.
#pragma once

#include <immintrin.h>

namespace lode::kernels::avx2 {

static inline void transpose8(__m256 (&r)[8]) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xEE);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

}  // namespace lode::kernels::avx2
