// Products of few tokens with the formats whose codes are unsigned bytes: one maddubs for 32 products. Rows come 8 at a
// time (few.h); a group's whole-number sum of each row ends up in a lane of its own, where the group's f32 fma is done
// for all 8.
#include "kernels/cpu/avx2/few.h"
#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/matmul.h"

namespace lode::kernels::avx2 {
namespace {

using quant::DType;

// ---- Groups of 32 ----

// Two rows share a register, one in each half, and sums stay 16 bits wide while they fit: four products of codes below
// 32 are at most 4 * 31 * 127 = 15,748, eight 31,496.

inline int load_word(const void* p) {
  int v;
  std::memcpy(&v, p, 4);
  return v;
}
// 16 bytes of two blocks each.
inline __m256i two_loads(const void* low, const void* high) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(low)), load128(high), 1);
}
// 16 wherever bits 0-15 (kFirst 0) or 16-31 (2) of each half's word are set.
template <int kFirst>
inline __m256i sixteen_where(__m256i words) {
  constexpr long long kByte = 0x0101010101010101, kLow = kFirst * kByte, kHigh = kLow + kByte;
  const __m256i bytes = _mm256_setr_epi64x(kLow, kHigh, kLow, kHigh);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(words, bytes), bit), bit);
  return _mm256_and_si256(set, _mm256_set1_epi8(16));
}
// Codes 0-15 and 16-31 of two blocks.
template <typename Block>
inline void two_codes(const Block* a, const Block* b, __m256i& low, __m256i& high) {
  const __m256i bytes = two_loads(a->qs, b->qs), nibble = _mm256_set1_epi8(15);
  low = _mm256_and_si256(bytes, nibble);
  high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
  if constexpr (std::is_same_v<Block, quant::BlockQ5_0> || std::is_same_v<Block, quant::BlockQ5_1>) {
    const __m256i words = _mm256_blend_epi32(broadcast32(a->qh), broadcast32(b->qh), 0xf0);
    low = _mm256_or_si256(low, sixteen_where<0>(words));
    high = _mm256_or_si256(high, sixteen_where<2>(words));
  }
}
// The sums of 8 rows with one token's group q [32]. pair i holds the codes of rows i and i + 4.
[[gnu::always_inline]] inline __m256i sum_rows(const __m256i* low, const __m256i* high, const std::int8_t* q) {
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i q_low = _mm256_broadcastsi128_si256(load128(q)), q_high = _mm256_broadcastsi128_si256(load128(q + 16));
  const auto four_rows = [&](int i) {  // Rows i, i + 1 and i + 4, i + 5: lanes i, i + 1, i, i + 1 of each half.
    const auto products = [&](int j) {
      return _mm256_add_epi16(_mm256_maddubs_epi16(low[j], q_low), _mm256_maddubs_epi16(high[j], q_high));
    };
    const __m256i a = products(i), b = products(i + 1);
    return _mm256_madd_epi16(_mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)), ones);
  };
  return quad_add(four_rows(0), four_rows(2));
}

// The two binary16 numbers at `offset` of each row, as f32. Word by word: gcc would put pairs of them together in
// memory and then wait for it.
inline void two_halves(const std::byte* const* row, std::int64_t offset, __m256& first, __m256& second) {
  const auto four = [&](int r) {
    __m128i v = _mm_cvtsi32_si128(load_word(row[r] + offset));
    v = _mm_insert_epi32(v, load_word(row[r + 1] + offset), 1);
    v = _mm_insert_epi32(v, load_word(row[r + 2] + offset), 2);
    return _mm_insert_epi32(v, load_word(row[r + 3] + offset), 3);
  };
  const __m256i v = _mm256_set_m128i(four(4), four(0));
  const __m256i halves = _mm256_packus_epi32(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(v, 16));
  const __m256i sides = _mm256_permute4x64_epi64(halves, 0xd8);
  first = _mm256_cvtph_ps(_mm256_castsi256_si128(sides));
  second = _mm256_cvtph_ps(_mm256_extracti128_si256(sides, 1));
}

template <typename Block, int kTokens>
void few_g32(const RowsTask& task, FewPass pass) {
  using F = Format32<Block>;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Block));
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 32;
  __m256 acc[kTokens];
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < groups; ++i) {
    prefetch_ahead<8 * kBytes>(pass);
    __m256i low[4], high[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r)
      two_codes(reinterpret_cast<const Block*>(pass.row[r] + i * kBytes),
                reinterpret_cast<const Block*>(pass.row[r + 4] + i * kBytes), low[r], high[r]);
    __m256 d, m;
    if constexpr (F::kMin) two_halves(pass.row, i * kBytes, d, m);
    else d = gather_f16(pass.row, i * kBytes);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const std::int64_t at = (pass.token + t) * groups + i;
      __m256i sum = sum_rows(low, high, x.q32 + 32 * at);
      if constexpr (F::kShift > 0) sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(x.s32[at] * (1 << F::kShift)));
      acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(x.d32[at])), acc[t]);
      if constexpr (F::kMin) acc[t] = _mm256_fmadd_ps(m, _mm256_set1_ps(x.t32[at]), acc[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) store_rows(task, pass.first, pass.token + t, acc[t]);
}

// ---- Groups of 256 ----

// Q4_K and Q5_K: sums of scale * code * q of one row's 256 values with each token, and of min * (sum of q) over 32.
template <typename Block, int kTokens>
inline void row_k45(const Block* b, const std::int8_t* const* q, const std::int16_t* const* u, int r,
                    __m256i (*sums)[8], __m128i (*mins)[8]) {
  const __m256i both = _mm256_cvtepu8_epi16(scales_k4(b->scales));  // [8 scales, 8 minimums] int16
  const __m256i scales = _mm256_permute2x128_si256(both, both, 0x00);
  const __m128i min = _mm256_extracti128_si256(both, 1);
  __m256i sum[kTokens];
  for (int t = 0; t < kTokens; ++t) {
    sum[t] = _mm256_setzero_si256();
    mins[t][r] = _mm_madd_epi16(min, load128(u[t]));
  }
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m256i codes = Format256<Block>::codes(b, j);
    const __m256i scale = _mm256_shuffle_epi8(scales, pick16(j));
    for (int t = 0; t < kTokens; ++t) {
      const __m256i pairs = _mm256_maddubs_epi16(codes, load256(q[t] + 32 * j));
      sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(pairs, scale));
    }
  }
  for (int t = 0; t < kTokens; ++t) sums[t][r] = sum[t];
}

// Q6_K: codes are 32 above the weights; the surplus is 32 * sum over sub-blocks of scale * (sum of q).
template <typename Block, int kTokens>
inline void row_k6(const Block* b, const std::int8_t* const* q, const std::int16_t* const* s, int r,
                   __m256i (*sums)[8]) {
  const __m256i scales = _mm256_cvtepi8_epi16(load128(b->scales));
  const __m256i low = _mm256_permute2x128_si256(scales, scales, 0x00);   // Scales 0-7, twice.
  const __m256i high = _mm256_permute2x128_si256(scales, scales, 0x11);  // Scales 8-15, twice.
  __m256i sum[kTokens];
  for (int t = 0; t < kTokens; ++t)
    sum[t] = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(_mm256_madd_epi16(scales, load256(s[t])), 5));
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m256i codes = Format256<Block>::codes(b, j);
    const int e = 2 * j % 8;
    const __m256i scale = _mm256_shuffle_epi8(j < 4 ? low : high, _mm256_blend_epi32(pick16(e), pick16(e + 1), 0xf0));
    for (int t = 0; t < kTokens; ++t) {
      const __m256i pairs = _mm256_maddubs_epi16(codes, load256(q[t] + 32 * j));
      sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(pairs, scale));
    }
  }
  for (int t = 0; t < kTokens; ++t) sums[t][r] = sum[t];
}

template <typename Block, int kTokens>
void few_g256(const RowsTask& task, FewPass pass) {
  using F = Format256<Block>;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Block));
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 256;
  __m256 acc[kTokens];
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int8_t* q[kTokens];
    const std::int16_t *s[kTokens], *u[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      const std::int64_t at = (pass.token + t) * groups + i;
      q[t] = x.q256 + 256 * at;
      s[t] = x.s256 + 16 * at;
      u[t] = x.u256 + 8 * at;
    }
    __m256i sums[kTokens][8];
    __m128i mins[kTokens][8];
    for (int r = 0; r < 8; ++r) {
      prefetch_ahead<kBytes>(pass);
      const auto* block = reinterpret_cast<const Block*>(pass.row[r] + i * kBytes);
      if constexpr (F::kMin) row_k45<Block, kTokens>(block, q, u, r, sums, mins);
      else row_k6<Block, kTokens>(block, q, s, r, sums);
    }
    __m256 d, dmin;
    if constexpr (F::kMin) two_halves(pass.row, i * kBytes, d, dmin);
    else d = gather_f16(pass.row, i * kBytes + kBytes - 2);  // It ends Q6_K's block.
    for (int t = 0; t < kTokens; ++t) {
      const __m256 scale = _mm256_set1_ps(x.d256[(pass.token + t) * groups + i]);
      acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(reduce8(sums[t])), _mm256_mul_ps(d, scale), acc[t]);
      if constexpr (F::kMin)
        acc[t] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(reduce8(mins[t])), _mm256_mul_ps(dmin, scale), acc[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) store_rows(task, pass.first, pass.token + t, acc[t]);
}

template <typename Block>
void all_g32(const RowsTask& task) {
  run_few(task, {few_g32<Block, 1>, few_g32<Block, 2>, few_g32<Block, 3>, few_g32<Block, 4>});
}
template <typename Block>
void all_g256(const RowsTask& task) {
  run_few(task, {few_g256<Block, 1>, few_g256<Block, 2>, few_g256<Block, 3>, few_g256<Block, 4>});
}

}  // namespace

RowsFn few_function(DType type) {
  switch (type) {
    case DType::q4_0: return all_g32<quant::BlockQ4_0>;
    case DType::q4_1: return all_g32<quant::BlockQ4_1>;
    case DType::q5_0: return all_g32<quant::BlockQ5_0>;
    case DType::q5_1: return all_g32<quant::BlockQ5_1>;
    case DType::q4_k: return all_g256<quant::BlockQ4_K>;
    case DType::q5_k: return all_g256<quant::BlockQ5_K>;
    case DType::q6_k: return all_g256<quant::BlockQ6_K>;
    default: return nullptr;
  }
}

}  // namespace lode::kernels::avx2
