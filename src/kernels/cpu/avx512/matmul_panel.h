// Products of many tokens: 32 rows x up to 512 columns are unpacked once into a panel that stays in the first-level
// cache, and every tile of six tokens runs over it. A panel holds, for each 4 columns, [2][16 rows][4 codes]: four
// bytes of a token, broadcast, meet 64 codes of 16 rows in one vpdpbusd, which adds them to 16 int32 sums.
//
// Sums are exact: no product of an unsigned byte and an activation leaves 16 bits, nothing saturates, and int32 holds
// a group's sum of codes (at most 32 * 255 * 127) as well as a block's of scaled codes (256 * 63 * 127 * 128). Where
// codes are above the weights, a sum begins at -offset * (sum of q). Templates over the vector type. Owns nothing.
#pragma once

#include "kernels/cpu/avx512/formats.h"
#include "kernels/cpu/split.h"
#include "quant/types.h"

namespace lode::kernels::avx512 {

static constexpr std::int64_t kPanelRows = 32;
static constexpr std::int64_t kPanelCols = 512;
// Tokens: 12 int32 sums, 12 f32 sums, 2 codes, 2 scales and a broadcast use 29 of the 32 registers.
static constexpr int kTile = 6;
static constexpr std::int64_t kStep = kPanelRows * 4;  // Bytes of 4 columns of a panel.

// 16 rows x 32 codes to [8][16 rows][4 codes]. codes[i], i < 4: rows i and i + 4; i >= 4: rows i + 4 and i + 8.
template <typename V>
static inline void transpose_store(const typename V::I* codes, std::uint8_t* out) {
  typename V::I quad[2][4];  // [rows 0-7, rows 8-15][column of 4]; lanes: columns 0-3, 4-7 of rows 0-3, then of 4-7
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const typename V::I* c = codes + 4 * h;
    const typename V::I a = V::low32(c[0], c[1]), b = V::high32(c[0], c[1]);
    const typename V::I d = V::low32(c[2], c[3]), e = V::high32(c[2], c[3]);
    quad[h][0] = V::low64(a, d);
    quad[h][1] = V::high64(a, d);
    quad[h][2] = V::low64(b, e);
    quad[h][3] = V::high64(b, e);
  }
#pragma GCC unroll 4
  for (int s = 0; s < 4; ++s) {
    V::istore(out + s * kStep, V::even_quads(quad[0][s], quad[1][s]));
    V::istore(out + (s + 4) * kStep, V::odd_quads(quad[0][s], quad[1][s]));
  }
}

// Rows i and i + 4 of the first eight, then of the last eight (transpose_store).
static constexpr int kPairRow[8] = {0, 1, 2, 3, 8, 9, 10, 11};

// Where a tile's sums go: y [tokens, rows], at the panel's first row, with the number of rows that exist.
struct Output {
  float* y;
  std::int64_t stride;
  std::int64_t rows;
  bool begins;  // The first columns: start from zero, not from y.
};
// Unrolled by force: sums that a loop indexes would live in memory.
template <typename V, int kTokens>
static inline void load_sums(const Output& out, typename V::F (*acc)[2]) {
  const std::int64_t low = least(out.rows, 16), high = out.rows - low;
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    const float* from = out.y + t * out.stride;
    acc[t][0] = out.begins ? V::zero() : V::load_first(from, low);
    acc[t][1] = out.begins || high == 0 ? V::zero() : V::load_first(from + 16, high);
  }
}
template <typename V, int kTokens>
static inline void store_sums(const Output& out, const typename V::F (*acc)[2]) {
  const std::int64_t low = least(out.rows, 16), high = out.rows - low;
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    float* to = out.y + t * out.stride;
    V::store_first(to, low, acc[t][0]);
    if (high > 0) V::store_first(to + 16, high, acc[t][1]);
  }
}

// Adds 4 * kSteps columns to the int32 sums of a tile.
template <typename V, int kTokens, int kSteps>
static inline void multiply(const std::uint8_t* codes, const std::int8_t* const* q, typename V::I (*sum)[2]) {
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) {
    const typename V::I w0 = V::iload(codes + s * kStep), w1 = V::iload(codes + s * kStep + 64);
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      const typename V::I a = V::broadcast32(q[t] + 4 * s);
      sum[t][0] = V::dot_u8s8(sum[t][0], w0, a);
      sum[t][1] = V::dot_u8s8(sum[t][1], w1, a);
      V::pin(sum[t][0]);
      V::pin(sum[t][1]);
    }
  }
}

// ---- Formats of 32 ----

struct Panel32 {
  std::uint8_t codes[kPanelCols * kPanelRows];  // [cols/4][2][16 rows][4]
  float d[kPanelCols / 32][kPanelRows];
  float m[kPanelCols / 32][kPanelRows];
};
static_assert(sizeof(Panel32) <= kMatmulScratch);

// Asks for as much of the same half of the next panel as block `i` of these 16 rows takes: a step of 8 tokens would
// wait for memory most of its time.
template <typename V, typename Block>
static inline void fetch_next_panel(const Rows16& rows, std::int64_t i) {
  fetch_next_rows<V, Block>(rows.row[0] + (kPanelRows - 16) * rows.bytes, rows.bytes, i, 1);
}

template <typename V, typename Block>
static void unpack32(const Rows16* rows, std::int64_t first, std::int64_t groups, Panel32& panel) {
  using Format = Format32<V, Block>;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t at = (first + g) * static_cast<std::int64_t>(sizeof(Block));
    for (int v = 0; v < 2; ++v) {
      const auto block = [&](int r) { return reinterpret_cast<const Block*>(rows[v].row[r] + at); };
      fetch_next_panel<V, Block>(rows[v], first + g);
      typename V::I codes[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) codes[i] = Format::codes(block(kPairRow[i]), block(kPairRow[i] + 4));
      transpose_store<V>(codes, panel.codes + g * 8 * kStep + v * 64);
      V::store(panel.d[g] + 16 * v, row_halves<V>(rows[v], at));
      if constexpr (Format::kMin) V::store(panel.m[g] + 16 * v, row_halves<V>(rows[v], at + 2));
    }
  }
}

// What panel_g32 and panel_g256 take: a format, where rows lie, and how groups [first, first + groups) of 32 of them
// get into a panel.
struct FromRows {
  using Rows = Rows16;
  static Rows at(const Matrix& w, std::int64_t bytes, std::int64_t first) { return rows_at(w, bytes, first); }
};
template <typename V, typename Block>
struct Unpack32 : FromRows {
  using Format = Format32<V, Block>;
  static void run(const Rows16* rows, std::int64_t first, std::int64_t groups, Panel32& panel) {
    unpack32<V, Block>(rows, first, groups, panel);
  }
};

// Tokens [token, token + kTokens) against a panel whose columns begin at group `first`.
template <typename V, typename Format, int kTokens>
static void tile32(const Panel32& panel, const Acts& x, std::int64_t token, std::int64_t first, std::int64_t groups,
                   const Output& out) {
  const std::int64_t row_groups = x.cols / 32;
  const std::int8_t* q[kTokens];
  std::int64_t at[kTokens];  // Of the group in d32, s32 and t32.
  typename V::F acc[kTokens][2];
  for (int t = 0; t < kTokens; ++t) {
    at[t] = (token + t) * row_groups + first;
    q[t] = x.q32 + at[t] * 32;
  }
  load_sums<V, kTokens>(out, acc);
  for (std::int64_t g = 0; g < groups; ++g) {
    typename V::I sum[kTokens][2];
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t)
      sum[t][0] = sum[t][1] = Format::kOffset != 0 ? V::set32(x.s32[at[t] + g] * -Format::kOffset) : V::izero();
    multiply<V, kTokens, 8>(panel.codes + g * 8 * kStep, q, sum);
    const typename V::F d0 = V::load(panel.d[g]), d1 = V::load(panel.d[g] + 16);
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      q[t] += 32;
      const typename V::F d = V::set(x.d32[at[t] + g]);
      acc[t][0] = V::fma(V::to_f32(sum[t][0]), V::mul(d0, d), acc[t][0]);
      acc[t][1] = V::fma(V::to_f32(sum[t][1]), V::mul(d1, d), acc[t][1]);
    }
    if constexpr (Format::kMin) {
      const typename V::F m0 = V::load(panel.m[g]), m1 = V::load(panel.m[g] + 16);
#pragma GCC unroll 6
      for (int t = 0; t < kTokens; ++t) {
        const typename V::F s = V::set(x.t32[at[t] + g]);
        acc[t][0] = V::fma(m0, s, acc[t][0]);
        acc[t][1] = V::fma(m1, s, acc[t][1]);
      }
    }
  }
  store_sums<V, kTokens>(out, acc);
}

// Runs tile<kTokens>(first token, out) over all n tokens: sixes, then 4, 2, 1.
template <typename V, typename Tile6, typename Tile4, typename Tile2, typename Tile1>
static inline void for_tiles(std::int64_t n, Output out, const Tile6& six, const Tile4& four, const Tile2& two,
                             const Tile1& one) {
  std::int64_t t = 0;
  const auto step = [&](const auto& tile, std::int64_t tokens) {
    tile(t, out);
    t += tokens;
    out.y += tokens * out.stride;
  };
  while (n - t >= kTile) step(six, kTile);
  if (n - t >= 4) step(four, 4);
  if (n - t >= 2) step(two, 2);
  if (n - t >= 1) step(one, 1);
}

template <typename V, typename Unpack>
static void panel_g32(const RowsTask& task) {
  const Acts& x = *task.x;
  const std::int64_t bytes = quant::row_bytes(task.w->type, x.cols), row_groups = x.cols / 32;
  Panel32& panel = *reinterpret_cast<Panel32*>(task.scratch);
  for (std::int64_t first = task.first; first < task.end; first += kPanelRows) {
    const typename Unpack::Rows rows[2] = {Unpack::at(*task.w, bytes, first), Unpack::at(*task.w, bytes, first + 16)};
    for (std::int64_t g = 0; g < row_groups; g += kPanelCols / 32) {
      const std::int64_t groups = least(kPanelCols / 32, row_groups - g);
      Unpack::run(rows, g, groups, panel);
      for_tiles<V>(
          x.n, {task.y + first, task.y_stride, least(kPanelRows, task.end - first), g == 0},
          [&](std::int64_t t, const Output& out) {
            tile32<V, typename Unpack::Format, kTile>(panel, x, t, g, groups, out);
          },
          [&](std::int64_t t, const Output& out) {
            tile32<V, typename Unpack::Format, 4>(panel, x, t, g, groups, out);
          },
          [&](std::int64_t t, const Output& out) {
            tile32<V, typename Unpack::Format, 2>(panel, x, t, g, groups, out);
          },
          [&](std::int64_t t, const Output& out) {
            tile32<V, typename Unpack::Format, 1>(panel, x, t, g, groups, out);
          });
    }
  }
}

// ---- Formats of 256 ----

struct Panel256 {
  static constexpr std::int64_t kBlocks = kPanelCols / 256;
  std::uint8_t codes[kPanelCols * kPanelRows];
  std::int32_t scale[kBlocks][16][kPanelRows];  // [sub-block]
  std::uint32_t min[kBlocks][8][kPanelRows];    // Minimums of sub-blocks 2j and 2j + 1, as int16.
  float d[kBlocks][kPanelRows];
  float dmin[kBlocks][kPanelRows];
};
static_assert(sizeof(Panel256) <= kMatmulScratch);

// Scales (and minimums) of one row's block, at column r of the panel.
template <typename V, typename Block>
static inline void unpack_scales(const Block* block, std::int64_t g, std::int64_t r, Panel256& panel) {
  if constexpr (Format256<V, Block>::kMin) {
    const ScalesK4 s = scales_k4<V>(block->scales);
    for (int j = 0; j < 8; ++j) panel.scale[g][j][r] = static_cast<std::int32_t>((s.scales >> (8 * j)) & 255);
    for (int j = 0; j < 4; ++j) {
      const auto two = static_cast<std::uint32_t>((s.mins >> (16 * j)) & 0xffff);
      panel.min[g][j][r] = (two & 255) | (two >> 8) << 16;
    }
  } else {
    for (int j = 0; j < 16; ++j) panel.scale[g][j][r] = block->scales[j];
  }
}

template <typename V, typename Block>
static void unpack256(const Rows16* rows, std::int64_t first, std::int64_t groups, Panel256& panel) {
  using Format = Format256<V, Block>;
  // d leads a block, but ends one of Q6_K.
  constexpr auto kD = static_cast<std::int64_t>(Format::kMin ? 0 : sizeof(Block) - 2);
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t at = (first + g) * static_cast<std::int64_t>(sizeof(Block));
    for (int v = 0; v < 2; ++v) {
      const auto block = [&](int r) { return reinterpret_cast<const Block*>(rows[v].row[r] + at); };
      fetch_next_panel<V, Block>(rows[v], first + g);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
        typename V::I codes[8];
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) codes[i] = Format::two(block(kPairRow[i]), block(kPairRow[i] + 4), j);
        transpose_store<V>(codes, panel.codes + (8 * g + j) * 8 * kStep + v * 64);
      }
      for (int r = 0; r < 16; ++r) unpack_scales<V>(block(r), g, 16 * v + r, panel);
      V::store(panel.d[g] + 16 * v, row_halves<V>(rows[v], at + kD));
      if constexpr (Format::kMin) V::store(panel.dmin[g] + 16 * v, row_halves<V>(rows[v], at + 2));
    }
  }
}

template <typename V, typename Block>
struct Unpack256 : FromRows {
  using Format = Format256<V, Block>;
  static void run(const Rows16* rows, std::int64_t first, std::int64_t groups, Panel256& panel) {
    unpack256<V, Block>(rows, first, groups, panel);
  }
};

// One block of 256 columns: int32 sums of scale * weight * q. s: the block's sums of q over 16, per token.
template <typename V, typename Format, int kTokens>
static inline void group256(const Panel256& panel, std::int64_t g, const std::int8_t* const* q,
                            const std::int16_t* const* s, typename V::I (*isum)[2]) {
  constexpr int kSub = Format::kSub;
  const std::int8_t* at[kTokens];
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
    isum[t][0] = isum[t][1] = V::izero();
    at[t] = q[t];
  }
  for (int j = 0; j < 256 / kSub; ++j) {
    typename V::I sum[kTokens][2];
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t)
      sum[t][0] = sum[t][1] = Format::kOffset != 0 ? V::set32(s[t][j] * -Format::kOffset) : V::izero();
    multiply<V, kTokens, kSub / 4>(panel.codes + (g * 64 + j * (kSub / 4)) * kStep, at, sum);
    const typename V::I scale0 = V::iload(panel.scale[g][j]), scale1 = V::iload(panel.scale[g][j] + 16);
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      at[t] += kSub;
      isum[t][0] = V::add32(isum[t][0], V::mul32(sum[t][0], scale0));
      isum[t][1] = V::add32(isum[t][1], V::mul32(sum[t][1], scale1));
    }
  }
}

template <typename V, typename Format, int kTokens>
static void tile256(const Panel256& panel, const Acts& x, std::int64_t token, std::int64_t first, std::int64_t groups,
                    const Output& out) {
  const std::int64_t row_groups = x.cols / 256;
  typename V::F acc[kTokens][2];
  load_sums<V, kTokens>(out, acc);
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int8_t* q[kTokens];
    const std::int16_t* s[kTokens];
    std::int64_t at[kTokens];  // Of the block.
    for (int t = 0; t < kTokens; ++t) {
      at[t] = (token + t) * row_groups + first + g;
      q[t] = x.q256 + at[t] * 256;
      s[t] = x.s256 + at[t] * 16;
    }
    typename V::I isum[kTokens][2];
    group256<V, Format, kTokens>(panel, g, q, s, isum);
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      const typename V::F d = V::set(x.d256[at[t]]);
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v) {
        acc[t][v] = V::fma(V::to_f32(isum[t][v]), V::mul(V::load(panel.d[g] + 16 * v), d), acc[t][v]);
        if constexpr (Format::kMin) {
          constexpr int kPairs = 128 / Format::kMinSub;  // Of sub-blocks.
          const std::int16_t* sums = Format::kMinSub == 32 ? x.u256 + at[t] * 8 : s[t];
          typename V::I mins = V::izero();
#pragma GCC unroll 8
          for (int j = 0; j < kPairs; ++j)
            mins = V::dot_s16(mins, V::iload(panel.min[g][j] + 16 * v), V::broadcast32(sums + 2 * j));
          acc[t][v] = V::fnma(V::to_f32(mins), V::mul(V::load(panel.dmin[g] + 16 * v), d), acc[t][v]);
        }
      }
    }
  }
  store_sums<V, kTokens>(out, acc);
}

template <typename V, typename Unpack>
static void panel_g256(const RowsTask& task) {
  const Acts& x = *task.x;
  const std::int64_t bytes = quant::row_bytes(task.w->type, x.cols), row_groups = x.cols / 256;
  Panel256& panel = *reinterpret_cast<Panel256*>(task.scratch);
  for (std::int64_t first = task.first; first < task.end; first += kPanelRows) {
    const typename Unpack::Rows rows[2] = {Unpack::at(*task.w, bytes, first), Unpack::at(*task.w, bytes, first + 16)};
    for (std::int64_t g = 0; g < row_groups; g += Panel256::kBlocks) {
      const std::int64_t groups = least(Panel256::kBlocks, row_groups - g);
      Unpack::run(rows, g, groups, panel);
      for_tiles<V>(
          x.n, {task.y + first, task.y_stride, least(kPanelRows, task.end - first), g == 0},
          [&](std::int64_t t, const Output& out) {
            tile256<V, typename Unpack::Format, kTile>(panel, x, t, g, groups, out);
          },
          [&](std::int64_t t, const Output& out) {
            tile256<V, typename Unpack::Format, 4>(panel, x, t, g, groups, out);
          },
          [&](std::int64_t t, const Output& out) {
            tile256<V, typename Unpack::Format, 2>(panel, x, t, g, groups, out);
          },
          [&](std::int64_t t, const Output& out) {
            tile256<V, typename Unpack::Format, 1>(panel, x, t, g, groups, out);
          });
    }
  }
}

}  // namespace lode::kernels::avx512
