// Products of many tokens with the formats of formats_signed.h: 16 rows x up to 512 columns are unpacked into a panel
// of int16 weights, already multiplied by their integer scales, and every tile of four tokens runs over it. A panel
// holds, for each 2 columns, [16 rows][2]: two int16 values of a token, broadcast, meet 8 rows in one madd.
//
// Half as many products an instruction as matmul_panel.cc, and nothing to prove: |scale * w| <= 127 * 32 = 4,064 fits
// int16 (IQ4_XS; all others are smaller), a madd is at most 2 * 4,064 * 127 and all 256 columns 132,128,768.
#include <algorithm>

#include "kernels/cpu/avx2/formats_signed.h"
#include "kernels/cpu/avx2/matmul.h"
#include "kernels/cpu/avx2/rows.h"

namespace lode::kernels::avx2 {
namespace {

using quant::DType;
using quant::kParts;

constexpr std::int64_t kCols = 512;             // 16 KiB of weights: half of a small first-level cache.
constexpr std::int64_t kStep = kPanelRows * 4;  // Bytes of 2 columns of a panel.

struct Panel {
  std::uint8_t w[kCols / 2 * kStep];  // [cols/2][16 rows][2] int16
  float d[kCols / 16][kPanelRows];    // [group]
  std::int16_t q[kTile][kCols];       // The current tile's tokens.
};
static_assert(sizeof(Panel) <= kMatmulScratch);

// Weights times scales of 32 columns of 8 rows, as two registers of 16 int16 a row, go to the panel.
inline void store_columns(const __m256i (*w)[8], std::uint8_t* to) {
  transpose_store(w[0], to, kStep);
  transpose_store(w[1], to + 8 * kStep, kStep);
}

// ---- g32 formats ----

// Columns under one f32 scale.
template <typename Block>
constexpr int kGroup32 = std::is_same_v<Block, quant::BlockNVFP4> ? 16 : 32;

template <typename Block>
struct Unpack32 {
  static constexpr int kGroup = kGroup32<Block>;
  static void run(const Rows16& rows, std::int64_t first, std::int64_t cols, Panel& panel) {
    for (std::int64_t g = 0; g < cols / 32; ++g) {
      const std::int64_t i = first / 32 + g;
      const std::int64_t offset = i / kParts<Block> * static_cast<std::int64_t>(sizeof(Block));
      const int part = static_cast<int>(i % kParts<Block>);
      for (int v = 0; v < 2; ++v) {
        __m256i w[2][8];
        for (int r = 0; r < 8; ++r) {
          const Block* b = reinterpret_cast<const Block*>(rows.row[8 * v + r] + offset);
          if (part == 0) rows.prefetch_next(offset, 8 * v + r, sizeof(Block));
          const __m256i bytes = Signed32<Block>::weights(b, part);
          w[0][r] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes));
          w[1][r] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(bytes, 1));
          for (int h = 0; h < 32 / kGroup; ++h)
            panel.d[g * (32 / kGroup) + h][8 * v + r] = Signed32<Block>::scale(b, part, h);
        }
        store_columns(w, panel.w + g * 16 * kStep + v * 32);
      }
    }
  }
};

// ---- g256 formats ----

template <typename Block>
struct Unpack256 {
  using F = Signed256<Block>;
  static constexpr int kGroup = 256;
  static void run(const Rows16& rows, std::int64_t first, std::int64_t cols, Panel& panel) {
    for (std::int64_t g = 0; g < cols / 256; ++g) {
      const std::int64_t offset = (first / 256 + g) * static_cast<std::int64_t>(sizeof(Block));
      for (int r = 0; r < kPanelRows; ++r) rows.prefetch_next(offset, r, sizeof(Block));
      for (int v = 0; v < 2; ++v) unpack8(rows.row + 8 * v, offset, g, v, panel);
    }
  }

 private:
  static void unpack8(const std::byte* const* rows, std::int64_t offset, std::int64_t g, int v, Panel& panel) {
    std::int16_t scales[8][16];
    std::uint16_t halves[8];
    for (int r = 0; r < 8; ++r) {
      const Block* b = reinterpret_cast<const Block*>(rows[r] + offset);
      store256(scales[r], F::scales(b));
      halves[r] = F::half(b);
    }
    _mm256_storeu_ps(panel.d[g] + 8 * v, _mm256_mul_ps(eight_halves(halves), _mm256_set1_ps(F::kUnit)));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      __m256i w[2][8];
      for (int r = 0; r < 8; ++r) {
        const __m256i bytes = F::weights(reinterpret_cast<const Block*>(rows[r] + offset), j);
        const __m256i low = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(bytes));
        const __m256i high = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(bytes, 1));
        w[0][r] = _mm256_mullo_epi16(low, _mm256_set1_epi16(scales[r][2 * j]));
        w[1][r] = _mm256_mullo_epi16(high, _mm256_set1_epi16(scales[r][2 * j + 1]));
      }
      store_columns(w, panel.w + (g * 128 + j * 16) * kStep + v * 32);
    }
  }
};

// ---- products ----

// int32 sums of weight * q over the kGroup columns whose weights begin at `w`.
template <int kGroup, int kTokens>
inline void multiply(const std::uint8_t* w, const std::int16_t* const* q, __m256i (*sum)[2]) {
  for (int t = 0; t < kTokens; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int c = 0; c < kGroup; c += 2) {
    const __m256i w0 = load256(w + c / 2 * kStep), w1 = load256(w + c / 2 * kStep + 32);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256i a = broadcast32(q[t] + c);
      sum[t][0] = _mm256_add_epi32(sum[t][0], _mm256_madd_epi16(w0, a));
      sum[t][1] = _mm256_add_epi32(sum[t][1], _mm256_madd_epi16(w1, a));
      pin(sum[t][0]);
      pin(sum[t][1]);
    }
  }
}

// Tokens [token, token + kTokens) against a panel of `cols` columns that begins at column `first`.
template <int kGroup, int kTokens>
void tile(Panel& panel, const Acts& x, std::int64_t token, std::int64_t first, std::int64_t cols, const Output& out) {
  constexpr int kActs = kGroup == 256 ? 256 : 32;  // Columns under one scale of the activations.
  const std::int8_t* bytes = kGroup == 256 ? x.q256 : x.q32;
  const float* scales = kGroup == 256 ? x.d256 : x.d32;
  for (int t = 0; t < kTokens; ++t)
    for (std::int64_t c = 0; c < cols; c += 16)
      store256(panel.q[t] + c, _mm256_cvtepi8_epi16(load128(bytes + (token + t) * x.cols + first + c)));
  __m256 acc[kTokens][2];
  out.load<kTokens>(acc);
  for (std::int64_t g = 0; g < cols / kGroup; ++g) {
    const std::int16_t* q[kTokens];
    for (int t = 0; t < kTokens; ++t) q[t] = panel.q[t] + g * kGroup;
    __m256i sum[kTokens][2];
    multiply<kGroup, kTokens>(panel.w + g * (kGroup / 2) * kStep, q, sum);
    for (int t = 0; t < kTokens; ++t) {
      const __m256 d = _mm256_set1_ps(scales[((token + t) * x.cols + first + g * kGroup) / kActs]);
      for (int v = 0; v < 2; ++v)
        acc[t][v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[t][v]),
                                    _mm256_mul_ps(_mm256_loadu_ps(panel.d[g] + 8 * v), d), acc[t][v]);
    }
  }
  out.store<kTokens>(acc);
}

template <int kGroup>
void all_tokens(Panel& panel, const Acts& x, std::int64_t first, std::int64_t cols, Output out) {
  std::int64_t t = 0;
  for (; t + kTile <= x.n; t += kTile, out.y += kTile * out.stride) tile<kGroup, kTile>(panel, x, t, first, cols, out);
  switch (x.n - t) {
    case 3: return tile<kGroup, 3>(panel, x, t, first, cols, out);
    case 2: return tile<kGroup, 2>(panel, x, t, first, cols, out);
    case 1: return tile<kGroup, 1>(panel, x, t, first, cols, out);
    default: return;
  }
}

template <typename Unpack>
void panels(const RowsTask& task) {
  const Acts& x = *task.x;
  const std::int64_t bytes = quant::row_bytes(task.w->type, x.cols);
  Panel& panel = *reinterpret_cast<Panel*>(task.scratch);
  for (std::int64_t row = task.first; row < task.end; row += kPanelRows) {
    const Rows16 rows(*task.w, bytes, row);
    for (std::int64_t c = 0; c < x.cols; c += kCols) {
      const std::int64_t cols = std::min(kCols, x.cols - c);
      Unpack::run(rows, c, cols, panel);
      all_tokens<Unpack::kGroup>(panel, x, c, cols,
                                 {task.y + row, task.y_stride, std::min(kPanelRows, task.end - row), c == 0});
    }
  }
}

}  // namespace

RowsFn signed_panel_function(DType type) {
  switch (type) {
    case DType::iq4_nl: return panels<Unpack32<quant::BlockIQ4_NL>>;
    case DType::nvfp4: return panels<Unpack32<quant::BlockNVFP4>>;
    case DType::q1_0: return panels<Unpack32<quant::BlockQ1_0>>;
    case DType::q2_0: return panels<Unpack32<quant::BlockQ2_0>>;
    case DType::tq1_0: return panels<Unpack256<quant::BlockTQ1_0>>;
    case DType::tq2_0: return panels<Unpack256<quant::BlockTQ2_0>>;
    case DType::iq4_xs: return panels<Unpack256<quant::BlockIQ4_XS>>;
    case DType::iq3_s: return panels<Unpack256<quant::BlockIQ3_S>>;
    case DType::iq3_xxs: return panels<Unpack256<quant::BlockIQ3_XXS>>;
    case DType::iq2_xxs: return panels<Unpack256<quant::BlockIQ2_XXS>>;
    case DType::iq2_xs: return panels<Unpack256<quant::BlockIQ2_XS>>;
    case DType::iq2_s: return panels<Unpack256<quant::BlockIQ2_S>>;
    case DType::iq1_s: return panels<Unpack256<quant::BlockIQ1_S>>;
    case DType::iq1_m: return panels<Unpack256<quant::BlockIQ1_M>>;
    default: return nullptr;
  }
}

}  // namespace lode::kernels::avx2
