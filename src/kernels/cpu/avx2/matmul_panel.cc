// Products of many tokens: 16 rows x up to 1024 columns are unpacked once into a panel that stays in the first-level
// cache, and every tile of four tokens runs over it. A panel holds, for each 4 columns, [2][8 rows][4 codes]: four
// bytes of a token, broadcast, meet 32 codes of 8 rows in one maddubs.
//
// Sums are exact in int16 though codes are unsigned: adds wrap around modulo 2^16, the surplus (offset * sum of q) is
// subtracted modulo 2^16 as well, and the true sum of a lane fits: 16 products of |w| <= 16 (g32), 16 of w <= 15
// (Q4_K), 8 of w <= 31 (Q5_K), 8 of |w| <= 32 (Q6_K), 8 of |w| <= 4 (Q2_K, Q3_K), each at most 32,512. A single maddubs
// cannot saturate: 2 * 63 * 127.
#include <algorithm>

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/matmul.h"
#include "kernels/cpu/avx2/packed.h"
#include "kernels/cpu/avx2/rows.h"

namespace lode::kernels::avx2 {
namespace {

using quant::DType;

constexpr std::int64_t kPanelCols = 1024;

constexpr std::int64_t kStep = kPanelRows * 4;  // Bytes of 4 columns of a panel.

// Adds 4 * kSteps columns to the int16 sums of a tile. The first products begin the sums, less `surplus` where the
// codes are above the weights.
enum class Begin { zero, surplus };
template <int kTokens, int kSteps, Begin kBegin>
inline void multiply(const std::uint8_t* codes, const std::int8_t* const* q, const __m256i* surplus,
                     __m256i (*sum)[2]) {
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) {
    const __m256i w0 = load256(codes + s * kStep), w1 = load256(codes + s * kStep + 32);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256i a = broadcast32(q[t] + 4 * s);
      const __m256i p0 = _mm256_maddubs_epi16(w0, a), p1 = _mm256_maddubs_epi16(w1, a);
      if (s > 0) {
        sum[t][0] = _mm256_add_epi16(sum[t][0], p0);
        sum[t][1] = _mm256_add_epi16(sum[t][1], p1);
      } else if (kBegin == Begin::surplus) {
        sum[t][0] = _mm256_sub_epi16(p0, surplus[t]);
        sum[t][1] = _mm256_sub_epi16(p1, surplus[t]);
      } else {
        sum[t][0] = p0;
        sum[t][1] = p1;
      }
      pin(sum[t][0]);
      pin(sum[t][1]);
    }
  }
}

// Two times 8 packed rows from row `first` on; where there are only 8, they stand in for the others too.
struct Packed16 {
  const std::byte* eight[2];
  Packed16(const Matrix& w, std::int64_t bytes, std::int64_t first)
      : eight{w.data + first * bytes, w.data + std::min(first + 8, w.rows - 8) * bytes} {}
};

// ---- g32 formats ----

// Q8_0's codes take two planes of 4 bits: weight = 16 * (high - 8) + low.
template <typename Block>
constexpr int kPlanes = std::is_same_v<Block, quant::BlockQ8_0> ? 2 : 1;

struct Panel32 {
  std::uint8_t codes[2][kPanelCols * kPanelRows];  // [plane][cols/4][2][8 rows][4]; one plane but for Q8_0
  float d[kPanelCols / 32][kPanelRows];
  float m[kPanelCols / 32][kPanelRows];
};
static_assert(sizeof(Panel32) <= kMatmulScratch);

template <typename Block>
inline void store_scales(const std::byte* const* rows, std::int64_t at, float* d) {
  if constexpr (std::is_same_v<Block, quant::BlockMXFP4>) {
    for (int r = 0; r < 8; ++r) d[r] = quant::kHalfE8m0[std::to_integer<std::uint8_t>(rows[r][at])];
  } else {
    _mm256_storeu_ps(d, gather_f16(rows, at));
  }
}

template <typename Block>
void unpack32(const Rows16& rows, std::int64_t first, std::int64_t groups, Panel32& panel) {
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t at = (first + g) * static_cast<std::int64_t>(sizeof(Block));
    for (int v = 0; v < 2; ++v) {
      __m256i codes[8];
      for (int r = 0; r < 8; ++r) {
        rows.prefetch_next(at, 8 * v + r, sizeof(Block));
        codes[r] = Format32<Block>::codes(reinterpret_cast<const Block*>(rows.row[8 * v + r] + at));
      }
      const std::int64_t to = g * 8 * kStep + v * 32;
      if constexpr (kPlanes<Block> == 2) {
        __m256i high[8];
        for (int r = 0; r < 8; ++r) {
          high[r] = _mm256_and_si256(_mm256_srli_epi16(codes[r], 4), _mm256_set1_epi8(15));
          codes[r] = _mm256_and_si256(codes[r], _mm256_set1_epi8(15));
        }
        transpose_store(high, panel.codes[1] + to, kStep);
      }
      transpose_store(codes, panel.codes[0] + to, kStep);
      store_scales<Block>(rows.row + 8 * v, at, panel.d[g] + 8 * v);
      if (Format32<Block>::kMin) _mm256_storeu_ps(panel.m[g] + 8 * v, gather_f16(rows.row + 8 * v, at + 2));
    }
  }
}

// The same from packed rows, which lie as the panel wants them: `first` is the panel's first group in its row.
template <typename Block>
void unpack32(const Packed16& rows, std::int64_t first, std::int64_t groups, Panel32& panel) {
  for (std::int64_t g = 0; g < groups; ++g) {
    for (int v = 0; v < 2; ++v) {
      const auto* p = packed_block<Block>(rows.eight[v], first + g);
      std::uint8_t* to = panel.codes[0] + g * 8 * kStep + v * 32;
#pragma GCC unroll 8
      for (int c = 0; c < 8; ++c) {
        if constexpr (kPlanes<Block> == 2) {
          const __m256i codes = _mm256_xor_si256(packed_codes(p, c), _mm256_set1_epi8(-128));
          store256(to + c * kStep, low_nibbles(codes));
          store256(panel.codes[1] + g * 8 * kStep + v * 32 + c * kStep, high_nibbles(codes));
        } else {
          store256(to + c * kStep, packed_codes(p, c));
        }
      }
      _mm256_storeu_ps(panel.d[g] + 8 * v, packed_halves(p->d));
      if constexpr (Format32<Block>::kMin) _mm256_storeu_ps(panel.m[g] + 8 * v, packed_halves(p->m));
    }
  }
}

// One group of 32 columns: int32 sums of weight * q.
template <typename Block, int kTokens>
inline void group32(const Panel32& panel, std::int64_t g, const std::int8_t* const* q, const std::int16_t* const* p,
                    __m256i (*isum)[2]) {
  // 5-bit codes of a format with a minimum are treated as signed ones, 16 below, and the sum of q is added back.
  constexpr bool kFiveMin = std::is_same_v<Block, quant::BlockQ5_1>;
  constexpr int kShift = kPlanes<Block> == 2 ? 3 : kFiveMin ? 4 : Format32<Block>::kShift;
  __m256i surplus[kTokens], sum[kTokens][2];
  const __m256i ones = _mm256_set1_epi16(1);
  if (kShift > 0)
    for (int t = 0; t < kTokens; ++t) surplus[t] = _mm256_slli_epi16(broadcast32(p[t]), kShift);
  if constexpr (kPlanes<Block> == 2) {
    __m256i high[kTokens][2];
    multiply<kTokens, 8, Begin::surplus>(panel.codes[1] + g * 8 * kStep, q, surplus, high);
    for (int t = 0; t < kTokens; ++t)
      for (int v = 0; v < 2; ++v) isum[t][v] = _mm256_madd_epi16(high[t][v], _mm256_set1_epi16(16));
    multiply<kTokens, 8, Begin::zero>(panel.codes[0] + g * 8 * kStep, q, nullptr, sum);
    for (int t = 0; t < kTokens; ++t)
      for (int v = 0; v < 2; ++v) isum[t][v] = _mm256_add_epi32(isum[t][v], _mm256_madd_epi16(sum[t][v], ones));
  } else {
    multiply<kTokens, 8, kShift != 0 ? Begin::surplus : Begin::zero>(panel.codes[0] + g * 8 * kStep, q, surplus, sum);
    for (int t = 0; t < kTokens; ++t)
      for (int v = 0; v < 2; ++v) isum[t][v] = _mm256_madd_epi16(sum[t][v], ones);
    if (kFiveMin)
      for (int t = 0; t < kTokens; ++t) {
        const __m256i back = _mm256_madd_epi16(surplus[t], ones);
        for (int v = 0; v < 2; ++v) isum[t][v] = _mm256_add_epi32(isum[t][v], back);
      }
  }
}

// Tokens [token, token + kTokens) against a panel whose columns begin at group `first`.
template <typename Block, int kTokens>
void tile32(const Panel32& panel, const Acts& x, std::int64_t token, std::int64_t first, std::int64_t groups,
            const Output& out) {
  const std::int64_t row_groups = x.cols / 32;
  const std::int8_t* q[kTokens];
  const std::int16_t* p[kTokens];
  const std::int64_t at = token * row_groups + first;
  for (int t = 0; t < kTokens; ++t) {
    q[t] = x.q32 + (at + t * row_groups) * 32;
    p[t] = x.p32 + (at + t * row_groups) * 2;
  }
  __m256 acc[kTokens][2];
  out.load<kTokens>(acc);
  for (std::int64_t g = 0; g < groups; ++g) {
    __m256i isum[kTokens][2];
    group32<Block, kTokens>(panel, g, q, p, isum);
    for (int t = 0; t < kTokens; ++t) {
      q[t] += 32;
      p[t] += 2;
      const __m256 d = _mm256_set1_ps(x.d32[at + t * row_groups + g]);
      for (int v = 0; v < 2; ++v)
        acc[t][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[t][v]),
                                    _mm256_mul_ps(_mm256_loadu_ps(panel.d[g] + 8 * v), d), acc[t][v]);
      if (!Format32<Block>::kMin) continue;
      const __m256 m = _mm256_set1_ps(x.t32[at + t * row_groups + g]);
      for (int v = 0; v < 2; ++v) acc[t][v] = _mm256_fmadd_ps(_mm256_loadu_ps(panel.m[g] + 8 * v), m, acc[t][v]);
    }
  }
  out.store<kTokens>(acc);
}

template <typename Block, typename Rows>
void panel_g32(const RowsTask& task) {
  const Acts& x = *task.x;
  const std::int64_t bytes = quant::row_bytes(task.w->type, x.cols), row_groups = x.cols / 32;
  Panel32& panel = *reinterpret_cast<Panel32*>(task.scratch);
  for (std::int64_t first = task.first; first < task.end; first += kPanelRows) {
    const Rows rows(*task.w, bytes, first);
    for (std::int64_t g = 0; g < row_groups; g += kPanelCols / 32) {
      const std::int64_t groups = std::min(kPanelCols / 32, row_groups - g);
      unpack32<Block>(rows, g, groups, panel);
      Output out{task.y + first, task.y_stride, std::min(kPanelRows, task.end - first), g == 0};
      std::int64_t t = 0;
      for (; t + kTile <= x.n; t += kTile, out.y += kTile * out.stride)
        tile32<Block, kTile>(panel, x, t, g, groups, out);
      switch (x.n - t) {
        case 3: tile32<Block, 3>(panel, x, t, g, groups, out); break;
        case 2: tile32<Block, 2>(panel, x, t, g, groups, out); break;
        case 1: tile32<Block, 1>(panel, x, t, g, groups, out); break;
        default: break;
      }
    }
  }
}

// ---- g256 formats ----

struct Panel256 {
  static constexpr std::int64_t kBlocks = kPanelCols / 256;
  std::uint8_t codes[kPanelCols * kPanelRows];
  std::uint32_t scale[kBlocks][16][kPanelRows];  // [sub-block]: the scale twice, as int16
  std::uint32_t min[kBlocks][8][kPanelRows];     // Minimums of sub-blocks 2j and 2j+1, as int16
  float d[kBlocks][kPanelRows];
  float dmin[kBlocks][kPanelRows];
};
static_assert(sizeof(Panel256) <= kMatmulScratch);

// Sub-blocks in a block of 256.
template <typename Block>
constexpr int kSubs = 256 / Format256<Block>::kSub;

// One block's integer scales and minimums, one byte each.
inline void unpack_scales(const quant::BlockQ2_K* b, std::int8_t* scale, std::uint8_t* min) {
  for (int j = 0; j < 16; ++j) {
    scale[j] = static_cast<std::int8_t>(b->scales[j] & 15);
    min[j] = static_cast<std::uint8_t>(b->scales[j] >> 4);
  }
}
inline void unpack_scales(const quant::BlockQ3_K* b, std::int8_t* scale, std::uint8_t*) {
  std::uint8_t sc[16];
  quant::unpack_scales_k3(b->scales, sc);
  for (int j = 0; j < 16; ++j) scale[j] = static_cast<std::int8_t>(sc[j] - 32);
}
template <typename Block>
inline void unpack_scales(const Block* b, std::int8_t* scale, std::uint8_t* min) {
  if constexpr (Format256<Block>::kMin) {
    std::uint8_t sc[16];
    quant::unpack_scales_k4(b->scales, sc);
    std::memcpy(scale, sc, 8);
    std::memcpy(min, sc + 8, 8);
  } else {
    std::memcpy(scale, b->scales, 16);
  }
}

// Row r's scales and minimums, as the panel keeps them.
template <typename Block>
inline void store_scales(const Block* b, int r, std::uint32_t (*scale)[kPanelRows], std::uint32_t (*min)[kPanelRows]) {
  std::int8_t scales[16];
  std::uint8_t mins[16];
  unpack_scales(b, scales, mins);
  for (int j = 0; j < kSubs<Block>; ++j)
    scale[j][r] = static_cast<std::uint16_t>(static_cast<std::int16_t>(scales[j])) * 0x10001u;
  if constexpr (Format256<Block>::kMin)
    for (int j = 0; j < kSubs<Block> / 2; ++j)
      min[j][r] = mins[2 * j] | (static_cast<std::uint32_t>(mins[2 * j + 1]) << 16);
}

template <typename Block>
void unpack256(const Rows16& rows, std::int64_t first, std::int64_t groups, Panel256& panel) {
  constexpr auto kD = static_cast<std::int64_t>(offsetof(Block, d));
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t at = (first + g) * static_cast<std::int64_t>(sizeof(Block));
    for (int v = 0; v < 2; ++v) {
      const std::byte* const* eight = rows.row + 8 * v;
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        __m256i codes[8];
        for (int r = 0; r < 8; ++r)
          codes[r] = Format256<Block>::codes(reinterpret_cast<const Block*>(eight[r] + at), j);
        transpose_store(codes, panel.codes + (g * 64 + j * 8) * kStep + v * 32, kStep);
      }
      for (int r = 0; r < 8; ++r) {
        rows.prefetch_next(at, 8 * v + r, sizeof(Block));
        store_scales(reinterpret_cast<const Block*>(eight[r] + at), 8 * v + r, panel.scale[g], panel.min[g]);
      }
      _mm256_storeu_ps(panel.d[g] + 8 * v, gather_f16(eight, at + kD));
      if (Format256<Block>::kMin) _mm256_storeu_ps(panel.dmin[g] + 8 * v, gather_f16(eight, at + kD + 2));
    }
  }
}

// Scales and minimums of 8 packed rows.
template <typename Packed>
inline void store_packed_scales(const Packed* p, int v, std::uint32_t (*scale)[kPanelRows],
                                std::uint32_t (*min)[kPanelRows]) {
  PackedScales s;
  packed_scales(p->scales, s);
  for (int j = 0; j < 8; ++j) store256(scale[j] + 8 * v, twice_unsigned(load64(s.scale[j])));
  for (int j = 0; j < 8; j += 2) store256(min[j / 2] + 8 * v, pair_unsigned(load64(s.min[j]), load64(s.min[j + 1])));
}
inline void store_packed_scales(const quant::PackedQ6_K* p, int v, std::uint32_t (*scale)[kPanelRows],
                                std::uint32_t (*)[kPanelRows]) {
  for (int j = 0; j < 16; ++j) store256(scale[j] + 8 * v, twice_signed(load64(p->scales[j])));
}

template <typename Block>
void unpack256(const Packed16& rows, std::int64_t first, std::int64_t groups, Panel256& panel) {
  for (std::int64_t g = 0; g < groups; ++g) {
    for (int v = 0; v < 2; ++v) {
      const auto* p = packed_block<Block>(rows.eight[v], first + g);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j)
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c)
          store256(panel.codes + (g * 64 + j * 8 + c) * kStep + v * 32, packed_codes(p, j, c));
      store_packed_scales(p, v, panel.scale[g], panel.min[g]);
      _mm256_storeu_ps(panel.d[g] + 8 * v, packed_halves(p->d));
      if constexpr (Format256<Block>::kMin) _mm256_storeu_ps(panel.dmin[g] + 8 * v, packed_halves(p->dmin));
    }
  }
}

// One group of 256 columns: int32 sums of scale * weight * q.
template <typename Block, int kTokens>
inline void group256(const Panel256& panel, std::int64_t g, const std::int8_t* const* q, const std::int16_t* const* p,
                     __m256i (*isum)[2]) {
  using F = Format256<Block>;
  // Columns between two drains of the int16 sums: all of a sub-block where 16 products fit.
  constexpr int kDrain = std::is_same_v<Block, quant::BlockQ4_K> ? 32 : 16;
  for (int t = 0; t < kTokens; ++t) isum[t][0] = isum[t][1] = _mm256_setzero_si256();
  const std::int8_t* at[kTokens];
  for (int t = 0; t < kTokens; ++t) at[t] = q[t];
  for (int j = 0; j < 256 / kDrain; ++j) {
    __m256i surplus[kTokens], sum[kTokens][2];
    if (F::kShift > 0)
      for (int t = 0; t < kTokens; ++t) surplus[t] = _mm256_slli_epi16(broadcast32(p[t] + 2 * j), F::kShift);
    multiply<kTokens, kDrain / 4, F::kShift != 0 ? Begin::surplus : Begin::zero>(
        panel.codes + (g * 64 + j * (kDrain / 4)) * kStep, at, surplus, sum);
    const std::uint32_t* scale = panel.scale[g][j * kDrain / F::kSub];
    for (int t = 0; t < kTokens; ++t) {
      at[t] += kDrain;
      for (int v = 0; v < 2; ++v)
        isum[t][v] = _mm256_add_epi32(isum[t][v], _mm256_madd_epi16(sum[t][v], load256(scale + 8 * v)));
    }
  }
}

template <typename Block, int kTokens>
void tile256(const Panel256& panel, const Acts& x, std::int64_t token, std::int64_t first, std::int64_t groups,
             const Output& out) {
  const std::int64_t row_groups = x.cols / 256, at = token * row_groups + first;
  __m256 acc[kTokens][2];
  out.load<kTokens>(acc);
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int8_t* q[kTokens];
    const std::int16_t* p[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      q[t] = x.q256 + (at + t * row_groups + g) * 256;
      p[t] = x.p256 + (at + t * row_groups + g) * 32;
    }
    __m256i isum[kTokens][2];
    group256<Block, kTokens>(panel, g, q, p, isum);
    for (int t = 0; t < kTokens; ++t) {
      const __m256 d = _mm256_set1_ps(x.d256[at + t * row_groups + g]);
      for (int v = 0; v < 2; ++v)
        acc[t][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(isum[t][v]),
                                    _mm256_mul_ps(_mm256_loadu_ps(panel.d[g] + 8 * v), d), acc[t][v]);
      if (!Format256<Block>::kMin) continue;
      const std::int64_t block = at + t * row_groups + g;
      const std::int16_t* u = kSubs<Block> == 16 ? x.s256 + 16 * block : x.u256 + 8 * block;
      for (int v = 0; v < 2; ++v) {
        __m256i mins = _mm256_setzero_si256();
        for (int j = 0; j < kSubs<Block> / 2; ++j)
          mins = _mm256_add_epi32(mins, _mm256_madd_epi16(load256(panel.min[g][j] + 8 * v), broadcast32(u + 2 * j)));
        acc[t][v] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(mins), _mm256_mul_ps(_mm256_loadu_ps(panel.dmin[g] + 8 * v), d),
                                     acc[t][v]);
      }
    }
  }
  out.store<kTokens>(acc);
}

template <typename Block, typename Rows>
void panel_g256(const RowsTask& task) {
  const Acts& x = *task.x;
  const std::int64_t bytes = quant::row_bytes(task.w->type, x.cols), row_groups = x.cols / 256;
  Panel256& panel = *reinterpret_cast<Panel256*>(task.scratch);
  for (std::int64_t first = task.first; first < task.end; first += kPanelRows) {
    const Rows rows(*task.w, bytes, first);
    for (std::int64_t g = 0; g < row_groups; g += Panel256::kBlocks) {
      const std::int64_t groups = std::min(Panel256::kBlocks, row_groups - g);
      unpack256<Block>(rows, g, groups, panel);
      Output out{task.y + first, task.y_stride, std::min(kPanelRows, task.end - first), g == 0};
      std::int64_t t = 0;
      for (; t + kTile <= x.n; t += kTile, out.y += kTile * out.stride)
        tile256<Block, kTile>(panel, x, t, g, groups, out);
      switch (x.n - t) {
        case 3: tile256<Block, 3>(panel, x, t, g, groups, out); break;
        case 2: tile256<Block, 2>(panel, x, t, g, groups, out); break;
        case 1: tile256<Block, 1>(panel, x, t, g, groups, out); break;
        default: break;
      }
    }
  }
}

}  // namespace

RowsFn panel_function(DType type) {
  switch (type) {
    case DType::q4_0: return panel_g32<quant::BlockQ4_0, Rows16>;
    case DType::q4_1: return panel_g32<quant::BlockQ4_1, Rows16>;
    case DType::q5_0: return panel_g32<quant::BlockQ5_0, Rows16>;
    case DType::q5_1: return panel_g32<quant::BlockQ5_1, Rows16>;
    case DType::q8_0: return panel_g32<quant::BlockQ8_0, Rows16>;
    case DType::mxfp4: return panel_g32<quant::BlockMXFP4, Rows16>;
    case DType::q2_k: return panel_g256<quant::BlockQ2_K, Rows16>;
    case DType::q3_k: return panel_g256<quant::BlockQ3_K, Rows16>;
    case DType::q4_k: return panel_g256<quant::BlockQ4_K, Rows16>;
    case DType::q5_k: return panel_g256<quant::BlockQ5_K, Rows16>;
    case DType::q6_k: return panel_g256<quant::BlockQ6_K, Rows16>;
    default: return nullptr;
  }
}

RowsFn packed_panel_function(DType type) {
  switch (type) {
    case DType::q4_0: return panel_g32<quant::BlockQ4_0, Packed16>;
    case DType::q4_1: return panel_g32<quant::BlockQ4_1, Packed16>;
    case DType::q5_0: return panel_g32<quant::BlockQ5_0, Packed16>;
    case DType::q5_1: return panel_g32<quant::BlockQ5_1, Packed16>;
    case DType::q8_0: return panel_g32<quant::BlockQ8_0, Packed16>;
    case DType::q4_k: return panel_g256<quant::BlockQ4_K, Packed16>;
    case DType::q5_k: return panel_g256<quant::BlockQ5_K, Packed16>;
    case DType::q6_k: return panel_g256<quant::BlockQ6_K, Packed16>;
    default: return nullptr;
  }
}

}  // namespace lode::kernels::avx2
