// Panels (matmul_panel.h) of every other format, through the scalar reference's integers (quant/unpack.h): weights are
// signed bytes, so that codes are 128 above them. Unpacking takes 1-2 cycles a weight, which many tokens share; for
// fewer the table this one builds on is as fast. Templates over the vector type. Owns nothing.
#pragma once

#include "kernels/cpu/avx512/matmul_panel.h"
#include "quant/unpack.h"

namespace lode::kernels::avx512 {

// From here on a product of many tokens gains: the reference's 400 cycles a block of 256 against 8 fewer a token.
static constexpr std::int64_t kManyTokens = 64;

struct AnyFormat32 {
  static constexpr int kOffset = 128;
  static constexpr bool kMin = false;
};
template <bool kHasMin>
struct AnyFormat256 {
  static constexpr int kOffset = 128, kSub = 16, kMinSub = 16;
  static constexpr bool kMin = kHasMin;
};

// 32 signed weights of two rows as codes.
template <typename V>
static inline typename V::I two_rows(const std::int8_t* a, const std::int8_t* b) {
  return V::xor_(V::pair(a, b), V::set8(-128));
}

template <typename V, typename Block>
struct AnyUnpack32 : FromRows {
  using Format = AnyFormat32;
  static void run(const Rows16* rows, std::int64_t first, std::int64_t groups, Panel32& panel) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t block = (first + g) / quant::kParts<Block> * static_cast<std::int64_t>(sizeof(Block));
      const int part = static_cast<int>((first + g) % quant::kParts<Block>);
      for (int v = 0; v < 2; ++v) {
        quant::Group32 row[16];
        for (int r = 0; r < 16; ++r) {
          quant::unpack(*reinterpret_cast<const Block*>(rows[v].row[r] + block), part, row[r]);
          panel.d[g][16 * v + r] = row[r].d[0];
        }
        typename V::I codes[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) codes[i] = two_rows<V>(row[kPairRow[i]].w, row[kPairRow[i] + 4].w);
        transpose_store<V>(codes, panel.codes + g * 8 * kStep + v * 64);
      }
    }
  }
};

template <typename V, typename Block>
struct AnyUnpack256 : FromRows {
  using Format = AnyFormat256<quant::kHasMin<Block>>;
  static void run(const Rows16* rows, std::int64_t first, std::int64_t groups, Panel256& panel) {
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t block = (first + g) * static_cast<std::int64_t>(sizeof(Block));
      for (int v = 0; v < 2; ++v) {
        quant::Group256 row[16];
        for (int r = 0; r < 16; ++r) {
          quant::unpack(*reinterpret_cast<const Block*>(rows[v].row[r] + block), row[r]);
          store_numbers(row[r], g, 16 * v + r, panel);
        }
        for (int j = 0; j < 8; ++j) {
          typename V::I codes[8];
#pragma GCC unroll 8
          for (int i = 0; i < 8; ++i)
            codes[i] = two_rows<V>(row[kPairRow[i]].w + 32 * j, row[kPairRow[i] + 4].w + 32 * j);
          transpose_store<V>(codes, panel.codes + (8 * g + j) * 8 * kStep + v * 64);
        }
      }
    }
  }

 private:
  static void store_numbers(const quant::Group256& row, std::int64_t g, std::int64_t r, Panel256& panel) {
    for (int j = 0; j < 16; ++j) panel.scale[g][j][r] = row.scale[j];
    panel.d[g][r] = row.d;
    if constexpr (Format::kMin) {
      for (int j = 0; j < 8; ++j)
        panel.min[g][j][r] = static_cast<std::uint32_t>(row.min[2 * j] | row.min[2 * j + 1] << 16);
      panel.dmin[g][r] = row.dmin;
    }
  }
};

// nullptr where the format has panels of its own, is not quantized, or is not whole in groups of 32 (NVFP4).
template <typename V>
static RowsFn any_panel_function(quant::DType type) {
  switch (type) {
    case quant::DType::iq4_nl: return panel_g32<V, AnyUnpack32<V, quant::BlockIQ4_NL>>;
    case quant::DType::mxfp4: return panel_g32<V, AnyUnpack32<V, quant::BlockMXFP4>>;
    case quant::DType::q1_0: return panel_g32<V, AnyUnpack32<V, quant::BlockQ1_0>>;
    case quant::DType::q2_0: return panel_g32<V, AnyUnpack32<V, quant::BlockQ2_0>>;
    case quant::DType::q2_k: return panel_g256<V, AnyUnpack256<V, quant::BlockQ2_K>>;
    case quant::DType::q3_k: return panel_g256<V, AnyUnpack256<V, quant::BlockQ3_K>>;
    case quant::DType::tq1_0: return panel_g256<V, AnyUnpack256<V, quant::BlockTQ1_0>>;
    case quant::DType::tq2_0: return panel_g256<V, AnyUnpack256<V, quant::BlockTQ2_0>>;
    case quant::DType::iq4_xs: return panel_g256<V, AnyUnpack256<V, quant::BlockIQ4_XS>>;
    case quant::DType::iq3_s: return panel_g256<V, AnyUnpack256<V, quant::BlockIQ3_S>>;
    case quant::DType::iq3_xxs: return panel_g256<V, AnyUnpack256<V, quant::BlockIQ3_XXS>>;
    case quant::DType::iq2_xxs: return panel_g256<V, AnyUnpack256<V, quant::BlockIQ2_XXS>>;
    case quant::DType::iq2_xs: return panel_g256<V, AnyUnpack256<V, quant::BlockIQ2_XS>>;
    case quant::DType::iq2_s: return panel_g256<V, AnyUnpack256<V, quant::BlockIQ2_S>>;
    case quant::DType::iq1_s: return panel_g256<V, AnyUnpack256<V, quant::BlockIQ1_S>>;
    case quant::DType::iq1_m: return panel_g256<V, AnyUnpack256<V, quant::BlockIQ1_M>>;
    default: return nullptr;
  }
}

}  // namespace lode::kernels::avx512
