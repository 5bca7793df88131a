// What the products of quantized rows share: 8 or 16 rows at a time, sums across lanes, outputs with ragged ends. For
// cpu/avx2/matmul*.cc only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/matmul.h"

namespace lode::kernels::avx2 {

// ---- 8 rows, few tokens ----

// Adjacent sums of the 32-bit lanes of two registers, without the slow hadd.
[[gnu::always_inline]] inline __m256i pair_add(__m256i a, __m256i b) {
  return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
[[gnu::always_inline]] inline __m256i quad_add(__m256i ab, __m256i cd) {
  return _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
}
// Lane r of `first` is the sum of the lanes 0-3 of v[r], of `last` that of the lanes 4-7.
[[gnu::always_inline]] inline void reduce8_halves(const __m256i* v, __m256i& first, __m256i& last) {
  const __m256i low = quad_add(pair_add(v[0], v[1]), pair_add(v[2], v[3]));
  const __m256i high = quad_add(pair_add(v[4], v[5]), pair_add(v[6], v[7]));
  first = _mm256_permute2x128_si256(low, high, 0x20);
  last = _mm256_permute2x128_si256(low, high, 0x31);
}
// Lane r of the result is the sum of the 8 lanes of v[r].
[[gnu::always_inline]] inline __m256i reduce8(const __m256i* v) {
  __m256i first, last;
  reduce8_halves(v, first, last);
  return _mm256_add_epi32(first, last);
}

inline void store_rows(const RowsTask& task, std::int64_t first, std::int64_t t, __m256 acc) {
  float* y = task.y + t * task.y_stride + first;
  if (first + 8 <= task.end) {
    _mm256_storeu_ps(y, acc);
  } else {
    float lanes[8];
    _mm256_storeu_ps(lanes, acc);
    std::copy(lanes, lanes + (task.end - first), y);
  }
}

// Lane r of the result is the sum of the 4 lanes of v[r].
inline __m256i reduce8(const __m128i* v) {
  __m256i two[4];
  for (int r = 0; r < 4; ++r) two[r] = _mm256_set_m128i(v[r + 4], v[r]);
  return quad_add(pair_add(two[0], two[1]), pair_add(two[2], two[3]));
}

// Lanes 2j and 2j+1 of a byte shuffle that copies 16-bit element j of each 128-bit half everywhere in that half.
inline __m256i pick16(int j) {
  return _mm256_set1_epi16(static_cast<short>((2 * j) | ((2 * j + 1) << 8)));
}

// ---- 16 rows, panels ----

// Tokens of a tile; 8 sums, 2 registers of codes and 1 broadcast use 11 of the 16 registers.
inline constexpr int kTile = 4;

// 8 x 8 transposition of 32-bit lanes: out[s * step] lane r = rows[r] lane s.
inline void transpose_store(const __m256i* rows, std::uint8_t* out, std::int64_t step) {
  __m256i pair[8], quad[8];
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    pair[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_unpacklo_epi64(pair[i], pair[i + 2]);
    quad[i + 1] = _mm256_unpackhi_epi64(pair[i], pair[i + 2]);
    quad[i + 2] = _mm256_unpacklo_epi64(pair[i + 1], pair[i + 3]);
    quad[i + 3] = _mm256_unpackhi_epi64(pair[i + 1], pair[i + 3]);
  }
  for (int s = 0; s < 4; ++s) {
    store256(out + s * step, _mm256_permute2x128_si256(quad[s], quad[s + 4], 0x20));
    store256(out + (s + 4) * step, _mm256_permute2x128_si256(quad[s], quad[s + 4], 0x31));
  }
}

// The 16 rows that begin at `first`; rows past the end repeat the last one and are not stored.
struct Rows16 {
  const std::byte* row[kPanelRows];
  const std::byte* next;  // The 16 rows behind these.
  Rows16(const Matrix& w, std::int64_t bytes, std::int64_t first) : next(w.data + (first + kPanelRows) * bytes) {
    for (int r = 0; r < kPanelRows; ++r) row[r] = w.data + std::min(first + r, w.rows - 1) * bytes;
  }
  // For block r of `bytes` bytes, `at` in its row, asks for as much of the next 16 rows, in the order in which they
  // lie: a step of 8 tokens would wait for memory half of its time.
  void prefetch_next(std::int64_t at, int r, std::int64_t bytes) const {
    const std::byte* piece = next + kPanelRows * at + r * bytes;
    for (std::int64_t i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(piece + i), _MM_HINT_T0);
  }
};

// Where a tile's sums go: y [tokens, rows], at the panel's first row, with the number of rows that exist.
struct Output {
  float* y;
  std::int64_t stride;
  std::int64_t rows;
  bool begins;  // The first columns: start from zero, not from y.

  // Unrolled by force: sums that a loop indexes would live in memory.
  template <int kTokens>
  void load(__m256 (*acc)[2]) const {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const float* from = y + t * stride;
      float lanes[kPanelRows] = {};
      if (rows < kPanelRows && !begins) {
        std::copy(from, from + rows, lanes);
        from = lanes;
      }
      acc[t][0] = begins ? _mm256_setzero_ps() : _mm256_loadu_ps(from);
      acc[t][1] = begins ? _mm256_setzero_ps() : _mm256_loadu_ps(from + 8);
    }
  }
  template <int kTokens>
  void store(const __m256 (*acc)[2]) const {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      float* to = y + t * stride;
      if (rows == kPanelRows) {
        _mm256_storeu_ps(to, acc[t][0]);
        _mm256_storeu_ps(to + 8, acc[t][1]);
      } else {
        float lanes[kPanelRows];
        _mm256_storeu_ps(lanes, acc[t][0]);
        _mm256_storeu_ps(lanes + 8, acc[t][1]);
        std::copy(lanes, lanes + rows, to);
      }
    }
  }
};

// Keeps a sum in its register here: left alone, the compiler first computes all products of a group and then adds them
// up, through 50 spilled registers.
inline void pin(__m256i& sum) {
  asm volatile("" : "+x"(sum));
}

}  // namespace lode::kernels::avx2
