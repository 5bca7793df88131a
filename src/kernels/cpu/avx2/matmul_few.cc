// Products of one to four tokens: weights are read once, as they lie in the file, 8 rows at a time. Each row's integer
// sum of a group is spread over 8 lanes; reduce8 turns 8 such rows into one register with a row in each lane, where the
// group's f32 fma is done for all 8. Bound by memory: 15-20 bytes a cycle from cache on Zen 3, four times a core's
// share of DRAM (bench/matmul_bench).
#include <utility>

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/matmul.h"
#include "kernels/cpu/avx2/rows.h"

namespace lode::kernels::avx2 {
namespace {

using quant::DType;

// Eight partial sums of one row's 32 products with one token, exact for every byte a file can hold.
template <typename Block>
inline __m256i dot32(__m256i codes, __m256i q) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (std::is_same_v<Block, quant::BlockQ8_0>) {
    // Codes are the weights themselves here. |w| <= 128 unsigned times q with w's sign: 2 * 128 * 127 fits int16.
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(q, codes)), ones);
  } else {
    return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, q), ones);
  }
}
template <typename Block>
inline __m256i few_codes(const Block* b) {
  if constexpr (std::is_same_v<Block, quant::BlockQ8_0>) {
    return load256(b->qs);
  } else {
    return Format32<Block>::codes(b);
  }
}

template <typename Block, int kTokens>
void few_g32(const RowsTask& task) {
  using F = Format32<Block>;
  constexpr bool kSigned = std::is_same_v<Block, quant::BlockQ8_0>;
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 32, bytes = quant::row_bytes(task.w->type, x.cols);
  for (std::int64_t first = task.first; first < task.end; first += 8) {
    const Rows8 rows(*task.w, bytes, first);
    __m256 acc[kTokens];
    for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
    for (std::int64_t i = 0; i < groups; ++i) {
      const std::int64_t offset = i * static_cast<std::int64_t>(sizeof(Block));
      prefetch_next<Block>(rows.row[0], bytes, i);
      __m256i part[kTokens][8];
#pragma GCC unroll 8
      for (int r = 0; r < 8; ++r) {
        const __m256i codes = few_codes(reinterpret_cast<const Block*>(rows.row[r] + offset));
        for (int t = 0; t < kTokens; ++t) part[t][r] = dot32<Block>(codes, load256(x.q32 + t * x.cols + 32 * i));
      }
      const __m256 d = gather_f16(rows.row, offset);
      for (int t = 0; t < kTokens; ++t) {
        const std::int64_t at = t * groups + i;
        __m256i sum = reduce8(part[t]);
        if (F::kShift > 0 && !kSigned) sum = _mm256_sub_epi32(sum, _mm256_set1_epi32(x.s32[at] * (1 << F::kShift)));
        acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(x.d32[at])), acc[t]);
        if (F::kMin) acc[t] = _mm256_fmadd_ps(gather_f16(rows.row, offset + 2), _mm256_set1_ps(x.t32[at]), acc[t]);
      }
    }
    for (int t = 0; t < kTokens; ++t) store_rows(task, first, t, acc[t]);
  }
}

// Q4_K and Q5_K: sums of scale * code * q of one row's 256 values with each token, and of min * (sum of q) over 32.
template <typename Block, int kTokens>
inline void row_k45(const Block* b, const std::int8_t* const* q, const std::int16_t* const* u, int r,
                    __m256i (*sums)[8], __m128i (*mins)[8]) {
  std::uint8_t sc[16];
  quant::unpack_scales_k4(b->scales, sc);
  const __m256i both = _mm256_cvtepu8_epi16(load128(sc));  // [8 scales, 8 minimums] int16
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
void few_g256(const RowsTask& task) {
  using F = Format256<Block>;
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
      const std::int16_t *s[kTokens], *u[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        q[t] = x.q256 + t * x.cols + 256 * i;
        s[t] = x.s256 + t * (x.cols / 16) + 16 * i;
        u[t] = x.u256 + t * (x.cols / 32) + 8 * i;
      }
      __m256i sums[kTokens][8];
      __m128i mins[kTokens][8];
      for (int r = 0; r < 8; ++r) {
        const Block* block = reinterpret_cast<const Block*>(rows.row[r] + offset);
        if constexpr (F::kMin) {
          row_k45<Block, kTokens>(block, q, u, r, sums, mins);
        } else {
          row_k6<Block, kTokens>(block, q, s, r, sums);
        }
      }
      constexpr auto kD =
          static_cast<std::int64_t>(F::kMin ? 0 : sizeof(Block) - 2);  // d leads, but ends Q6_K's block.
      const __m256 d = gather_f16(rows.row, offset + kD);
      for (int t = 0; t < kTokens; ++t) {
        const __m256 scale = _mm256_set1_ps(x.d256[t * groups + i]);
        acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(reduce8(sums[t])), _mm256_mul_ps(d, scale), acc[t]);
        if constexpr (F::kMin) {
          const __m256 dmin = gather_f16(rows.row, offset + 2);
          acc[t] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(reduce8(mins[t])), _mm256_mul_ps(dmin, scale), acc[t]);
        }
      }
    }
    for (int t = 0; t < kTokens; ++t) store_rows(task, first, t, acc[t]);
  }
}

template <int kTokens>
RowsFn few_for(DType type) {
  switch (type) {
    case DType::q4_0: return few_g32<quant::BlockQ4_0, kTokens>;
    case DType::q4_1: return few_g32<quant::BlockQ4_1, kTokens>;
    case DType::q5_0: return few_g32<quant::BlockQ5_0, kTokens>;
    case DType::q5_1: return few_g32<quant::BlockQ5_1, kTokens>;
    case DType::q8_0: return few_g32<quant::BlockQ8_0, kTokens>;
    case DType::q4_k: return few_g256<quant::BlockQ4_K, kTokens>;
    case DType::q5_k: return few_g256<quant::BlockQ5_K, kTokens>;
    case DType::q6_k: return few_g256<quant::BlockQ6_K, kTokens>;
    default: return nullptr;
  }
}

}  // namespace

RowsFn few_function(DType type, std::int64_t tokens) {
  switch (tokens) {
    case 1: return few_for<1>(type);
    case 2: return few_for<2>(type);
    case 3: return few_for<3>(type);
    default: return few_for<4>(type);
  }
}

}  // namespace lode::kernels::avx2
