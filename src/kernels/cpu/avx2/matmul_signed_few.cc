// Products of one to four tokens with the formats of formats_signed.h, 8 rows at a time, as matmul_few.cc does. Weights
// are signed: |w| meets q with w's sign, so that a pair of products is at most 2 * 127 * 127 = 32,258 and fits int16.
// |scale| <= 32 and 8 such products a lane keep int32 far away: 8 * 2 * 32,258 * 32 = 16,516,096.
#include "kernels/cpu/avx2/formats_signed.h"
#include "kernels/cpu/avx2/matmul.h"
#include "kernels/cpu/avx2/rows.h"

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
inline __m256 row_scales(const Rows8& rows, std::int64_t offset, int part, int half) {
  float d[8];
  for (int r = 0; r < 8; ++r)
    d[r] = Signed32<Block>::scale(reinterpret_cast<const Block*>(rows.row[r] + offset), part, half);
  return _mm256_setr_ps(d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]);
}

// Adds one group's products to the sums of 8 rows.
template <bool kTwo>
inline __m256 add_group(const __m256i* part, const __m256* d, __m256 scale, __m256 acc) {
  const __m256i low = quad_add(pair_add(part[0], part[1]), pair_add(part[2], part[3]));
  const __m256i high = quad_add(pair_add(part[4], part[5]), pair_add(part[6], part[7]));
  // Lanes 0-3 of a row's partial sums are values 0-15, lanes 4-7 the others.
  const __m256i first = _mm256_permute2x128_si256(low, high, 0x20), last = _mm256_permute2x128_si256(low, high, 0x31);
  if (!kTwo) return _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(first, last)), _mm256_mul_ps(d[0], scale), acc);
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(first), _mm256_mul_ps(d[0], scale), acc);
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(last), _mm256_mul_ps(d[1], scale), acc);
}

template <typename Block, int kTokens>
void few_g32(const RowsTask& task) {
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 32, bytes = quant::row_bytes(task.w->type, x.cols);
  for (std::int64_t first = task.first; first < task.end; first += 8) {
    const Rows8 rows(*task.w, bytes, first);
    __m256 acc[kTokens];
    for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
    for (std::int64_t i = 0; i < groups; ++i) {
      const std::int64_t offset = i / kParts<Block> * static_cast<std::int64_t>(sizeof(Block));
      const int part = static_cast<int>(i % kParts<Block>);
      if (part == 0) prefetch_next<Block>(rows.row[0], bytes, i / kParts<Block>);
      __m256i sums[kTokens][8];
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) {
        const __m256i w = Signed32<Block>::weights(reinterpret_cast<const Block*>(rows.row[r] + offset), part);
        const __m256i magnitude = _mm256_abs_epi8(w);
        for (int t = 0; t < kTokens; ++t)
          sums[t][r] = _mm256_madd_epi16(pairs_of(magnitude, w, x.q32 + t * x.cols + 32 * i), _mm256_set1_epi16(1));
      }
      __m256 d[2] = {row_scales<Block>(rows, offset, part, 0)};
      if (kHalves<Block>) d[1] = row_scales<Block>(rows, offset, part, 1);
      for (int t = 0; t < kTokens; ++t)
        acc[t] = add_group<kHalves<Block>>(sums[t], d, _mm256_set1_ps(x.d32[t * groups + i]), acc[t]);
    }
    for (int t = 0; t < kTokens; ++t) store_rows(task, first, t, acc[t]);
  }
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
void few_g256(const RowsTask& task) {
  using F = Signed256<Block>;
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 256, bytes = quant::row_bytes(task.w->type, x.cols);
  for (std::int64_t first = task.first; first < task.end; first += 8) {
    const Rows8 rows(*task.w, bytes, first);
    __m256 acc[kTokens];
    for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
    for (std::int64_t i = 0; i < groups; ++i) {
      const std::int64_t offset = i * static_cast<std::int64_t>(sizeof(Block));
      prefetch_next<Block>(rows.row[0], bytes, i);
      const std::int8_t* q[kTokens];
      const std::int16_t* s[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        q[t] = x.q256 + t * x.cols + 256 * i;
        s[t] = x.s256 + t * (x.cols / 16) + 16 * i;
      }
      __m256i sums[kTokens][8], mins[kTokens][8];
      std::uint16_t halves[8], min_halves[8];
      for (int r = 0; r < 8; ++r) {
        const Block* block = reinterpret_cast<const Block*>(rows.row[r] + offset);
        row_g256<Block, kTokens>(block, q, s, r, sums, mins);
        halves[r] = F::half(block);
        if constexpr (kHasMin<Block>) min_halves[r] = block->dmin;
      }
      const __m256 d = _mm256_mul_ps(eight_halves(halves), _mm256_set1_ps(F::kUnit));
      for (int t = 0; t < kTokens; ++t) {
        const __m256 scale = _mm256_set1_ps(x.d256[t * groups + i]);
        acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(reduce8(sums[t])), _mm256_mul_ps(d, scale), acc[t]);
        if constexpr (kHasMin<Block>)
          acc[t] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(reduce8(mins[t])),
                                    _mm256_mul_ps(eight_halves(min_halves), scale), acc[t]);
      }
    }
    for (int t = 0; t < kTokens; ++t) store_rows(task, first, t, acc[t]);
  }
}

template <int kTokens>
RowsFn few_for(DType type) {
  switch (type) {
    case DType::iq4_nl: return few_g32<quant::BlockIQ4_NL, kTokens>;
    case DType::mxfp4: return few_g32<quant::BlockMXFP4, kTokens>;
    case DType::nvfp4: return few_g32<quant::BlockNVFP4, kTokens>;
    case DType::q1_0: return few_g32<quant::BlockQ1_0, kTokens>;
    case DType::q2_0: return few_g32<quant::BlockQ2_0, kTokens>;
    case DType::q2_k: return few_g256<quant::BlockQ2_K, kTokens>;
    case DType::q3_k: return few_g256<quant::BlockQ3_K, kTokens>;
    case DType::tq1_0: return few_g256<quant::BlockTQ1_0, kTokens>;
    case DType::tq2_0: return few_g256<quant::BlockTQ2_0, kTokens>;
    case DType::iq4_xs: return few_g256<quant::BlockIQ4_XS, kTokens>;
    case DType::iq3_s: return few_g256<quant::BlockIQ3_S, kTokens>;
    case DType::iq3_xxs: return few_g256<quant::BlockIQ3_XXS, kTokens>;
    case DType::iq2_xxs: return few_g256<quant::BlockIQ2_XXS, kTokens>;
    case DType::iq2_xs: return few_g256<quant::BlockIQ2_XS, kTokens>;
    case DType::iq2_s: return few_g256<quant::BlockIQ2_S, kTokens>;
    case DType::iq1_s: return few_g256<quant::BlockIQ1_S, kTokens>;
    case DType::iq1_m: return few_g256<quant::BlockIQ1_M, kTokens>;
    default: return nullptr;
  }
}

}  // namespace

RowsFn signed_few_function(DType type, std::int64_t tokens) {
  switch (tokens) {
    case 1: return few_for<1>(type);
    case 2: return few_for<2>(type);
    case 3: return few_for<3>(type);
    default: return few_for<4>(type);
  }
}

}  // namespace lode::kernels::avx2
