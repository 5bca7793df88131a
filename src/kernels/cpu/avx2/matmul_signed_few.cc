// Products of few tokens with the formats of formats_signed.h, 8 rows at a time, as matmul_few.cc does. Weights
// are signed: |w| meets q with w's sign, so that a pair of products is at most 2 * 127 * 127 = 32,258 and fits int16.
// |scale| <= 32 and 8 such products a lane keep int32 far away: 8 * 2 * 32,258 * 32 = 16,516,096.
#include "kernels/cpu/avx2/few.h"
#include "kernels/cpu/avx2/formats_signed.h"
#include "kernels/cpu/avx2/matmul.h"

namespace lode::kernels::avx2 {
namespace {

using quant::DType;
using quant::kHasMin;
using quant::kParts;

inline __m256i pairs_of(__m256i magnitude, __m256i w, const std::int8_t* q) {
  return _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(load256(q), w));
}

// ---- g32 formats ----

// NVFP4 has a scale for 16 values: its two halves are groups of their own.
template <typename Block>
constexpr bool kHalves = std::is_same_v<Block, quant::BlockNVFP4>;

template <typename Block>
inline __m256 row_scales(const std::byte* const* row, std::int64_t offset, int part, int half) {
  // A block of these is one group and begins with its binary16 scale.
  if constexpr (std::is_same_v<Block, quant::BlockIQ4_NL> || std::is_same_v<Block, quant::BlockQ8_0>) {
    return gather_f16(row, offset);
  } else {
    float d[8];
    for (int r = 0; r < 8; ++r)
      d[r] = Signed32<Block>::scale(reinterpret_cast<const Block*>(row[r] + offset), part, half);
    return _mm256_setr_ps(d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]);
  }
}

// Adds one group's products to the sums of 8 rows.
template <bool kTwo>
inline __m256 add_group(const __m256i* part, const __m256* d, __m256 scale, __m256 acc) {
  __m256i first, last;  // Lanes 0-3 of a row's partial sums are values 0-15, lanes 4-7 the others.
  reduce8_halves(part, first, last);
  if (!kTwo) return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(first, last)), _mm256_mul_ps(d[0], scale), acc);
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), _mm256_mul_ps(d[0], scale), acc);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(last), _mm256_mul_ps(d[1], scale), acc);
}

template <typename Block, int kTokens>
void few_g32(const RowsTask& task, FewPass pass) {
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Block));
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 32;
  __m256 acc[kTokens];
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int64_t offset = i / kParts<Block> * kBytes;
    const int part = static_cast<int>(i % kParts<Block>);
    if (part == 0) prefetch_ahead<8 * kBytes>(pass);
    __m256i w[8], sums[8];
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r)
      w[r] = Signed32<Block>::weights(reinterpret_cast<const Block*>(pass.row[r] + offset), part);
    __m256 d[2] = {row_scales<Block>(pass.row, offset, part, 0)};
    if (kHalves<Block>) d[1] = row_scales<Block>(pass.row, offset, part, 1);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const std::int64_t at = (pass.token + t) * groups + i;
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r)
        sums[r] = _mm256_madd_epi16(pairs_of(_mm256_abs_epi8(w[r]), w[r], x.q32 + 32 * at), _mm256_set1_epi16(1));
      acc[t] = add_group<kHalves<Block>>(sums, d, _mm256_set1_ps(x.d32[at]), acc[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) store_rows(task, pass.first, pass.token + t, acc[t]);
}

// ---- g256 formats ----

// Sums of scale * w * q of one row's 256 values with each token, and of min * (sum of q) over 16.
template <typename Block, int kTokens>
inline void row_g256(const Block* b, const std::int8_t* const* q, const std::int16_t* const* s, int r,
                     __m256i (*sums)[8], __m256i (*mins)[8]) {
  using F = Signed256<Block>;
  const __m256i scales = F::scales(b);
  const __m256i low = _mm256_permute2x128_si256(scales, scales, 0x00);   // Scales 0-7, twice.
  const __m256i high = _mm256_permute2x128_si256(scales, scales, 0x11);  // Scales 8-15, twice.
  __m256i sum[kTokens];
  for (int t = 0; t < kTokens; ++t) sum[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const __m256i w = F::weights(b, j), magnitude = _mm256_abs_epi8(w);
    const int e = 2 * j % 8;
    const __m256i scale = _mm256_shuffle_epi8(j < 4 ? low : high, _mm256_blend_epi32(pick16(e), pick16(e + 1), 0xf0));
    for (int t = 0; t < kTokens; ++t)
      sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(pairs_of(magnitude, w, q[t] + 32 * j), scale));
  }
  for (int t = 0; t < kTokens; ++t) sums[t][r] = sum[t];
  if constexpr (kHasMin<Block>) {
    const __m256i min = F::mins(b);
    for (int t = 0; t < kTokens; ++t) mins[t][r] = _mm256_madd_epi16(min, load256(s[t]));
  }
}

template <typename Block, int kTokens>
void few_g256(const RowsTask& task, FewPass pass) {
  using F = Signed256<Block>;
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Block));
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 256;
  __m256 acc[kTokens];
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < groups; ++i) {
    const std::int8_t* q[kTokens];
    const std::int16_t* s[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      const std::int64_t at = (pass.token + t) * groups + i;
      q[t] = x.q256 + 256 * at;
      s[t] = x.s256 + 16 * at;
    }
    __m256i sums[kTokens][8], mins[kTokens][8];
    std::uint16_t halves[8], min_halves[8];
    for (int r = 0; r < 8; ++r) {
      prefetch_ahead<kBytes>(pass);
      const auto* block = reinterpret_cast<const Block*>(pass.row[r] + i * kBytes);
      row_g256<Block, kTokens>(block, q, s, r, sums, mins);
      halves[r] = F::half(block);
      if constexpr (kHasMin<Block>) min_halves[r] = block->dmin;
    }
    const __m256 d = _mm256_mul_ps(eight_halves(halves), _mm256_set1_ps(F::kUnit));
    for (int t = 0; t < kTokens; ++t) {
      const __m256 scale = _mm256_set1_ps(x.d256[(pass.token + t) * groups + i]);
      acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(reduce8(sums[t])), _mm256_mul_ps(d, scale), acc[t]);
      if constexpr (kHasMin<Block>)
        acc[t] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(reduce8(mins[t])), _mm256_mul_ps(eight_halves(min_halves), scale),
                                  acc[t]);
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

RowsFn signed_few_function(DType type) {
  switch (type) {
    case DType::q8_0: return all_g32<quant::BlockQ8_0>;
    case DType::iq4_nl: return all_g32<quant::BlockIQ4_NL>;
    case DType::mxfp4: return all_g32<quant::BlockMXFP4>;
    case DType::nvfp4: return all_g32<quant::BlockNVFP4>;
    case DType::q1_0: return all_g32<quant::BlockQ1_0>;
    case DType::q2_0: return all_g32<quant::BlockQ2_0>;
    case DType::q2_k: return all_g256<quant::BlockQ2_K>;
    case DType::q3_k: return all_g256<quant::BlockQ3_K>;
    case DType::tq1_0: return all_g256<quant::BlockTQ1_0>;
    case DType::tq2_0: return all_g256<quant::BlockTQ2_0>;
    case DType::iq4_xs: return all_g256<quant::BlockIQ4_XS>;
    case DType::iq3_s: return all_g256<quant::BlockIQ3_S>;
    case DType::iq3_xxs: return all_g256<quant::BlockIQ3_XXS>;
    case DType::iq2_xxs: return all_g256<quant::BlockIQ2_XXS>;
    case DType::iq2_xs: return all_g256<quant::BlockIQ2_XS>;
    case DType::iq2_s: return all_g256<quant::BlockIQ2_S>;
    case DType::iq1_s: return all_g256<quant::BlockIQ1_S>;
    case DType::iq1_m: return all_g256<quant::BlockIQ1_M>;
    default: return nullptr;
  }
}

}  // namespace lode::kernels::avx2
