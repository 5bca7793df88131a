// Attention in 512 bits: tiles of query rows over absolute spans of 256 tokens, as a template over the vector type. Bit
// for bit the generic one. Owns nothing: works in the stream's per-thread scratch. For attention.cc and tests.
//
// A row is one (token, query head) of the heads that share a KV head; a tile is up to 192 consecutive rows of one run
// and KV head. For each span a tile converts a block of K, then 32 dims of V, to f32 panels, over which all micro-tiles
// of 8 rows pass; q, scores and o of the tile stay in the second-level cache. Tiles of few rows, as in decode, read K
// and V in their storage type where they lie. When there are fewer tiles than threads can use, every (tile, span) is a
// part of its own that leaves (o, m, l) in span_room, and a second pass merges rows.
#pragma once

#include "base/status.h"
#include "kernels/cpu/avx512/attention_i16.h"
#include "kernels/cpu/avx512/attention_kernels.h"
#include "kernels/cpu/generic/attention.h"

namespace lode::kernels::avx512 {

static constexpr std::int64_t kTileRows = 192;
static constexpr std::int64_t kDirectRows = 2 * kMicroRows;  // Up to here a panel is not used often enough to pay.
static constexpr std::int64_t kNumbers = kTileRows + 16;     // Floats of each number a row has.

static inline std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
static inline std::int64_t larger(std::int64_t a, std::int64_t b) {
  return a < b ? b : a;
}
static inline std::int64_t padded(std::int64_t dim) {
  return (dim + kPanel - 1) / kPanel * kPanel;
}

// Rows of a tile that fit what every instruction set has as scratch; under 8 rows: none do.
static inline std::int64_t tile_rows_max(const KvLayer& layer) {
  const auto bytes = static_cast<std::int64_t>(generic::attention_scratch_bytes(larger(layer.k_dim, layer.v_dim)));
  const std::int64_t v_pad = padded(layer.v_dim);
  const std::int64_t fixed = kPanel * layer.k_dim + kPanel * kSpanTokens + kDirectRows * v_pad + 9 * kNumbers;
  const std::int64_t rows = (bytes / 4 - fixed) / (layer.k_dim + v_pad + kSpanTokens);
  return smaller(rows < 0 ? 0 : rows / kMicroRows * kMicroRows, kTileRows);
}

// Whether this table has code for a layer.
static inline bool attends(const KvLayer& layer) {
  if (layer.k_type == KvType::q8_0 || layer.v_type == KvType::q8_0) return false;
  if (layer.v_type == KvType::i16 && layer.v_dim % 16 != 0) return false;
  return tile_rows_max(layer) >= kMicroRows;
}

struct Tile {
  const AttentionArgs* args;
  const KvRun* run;
  std::int64_t group;  // Query heads of a KV head.
  std::int64_t kv_head;
  std::int64_t row0;  // First row: token row0 / group of the run, query head kv_head * group + row0 % group.
  int rows;
  std::int64_t v_pad;      // v_dim rounded up to 32.
  std::int64_t last_span;  // The last that this tile goes on to on this thread.
  // In scratch:
  float* q;                        // [rows / 8, k_dim, 8], scaled; q_pairs
  float* s;                        // [rows, 256]
  float* o;                        // [rows, v_pad]
  float* k_panel;                  // [k_dim, 32]
  float* v_panel;                  // [256, 32]
  float* span_o;                   // [2, v_pad / 32, 8, 32]: o of the current span where V is read in its blocks
  float *m, *l;                    // [rows] running
  float *span_m, *span_l, *a, *b;  // [rows] of the current span; merge factors
  float* q_scales;                 // [rows] where K is i16
  std::int32_t *begin, *end;       // [rows] visible tokens of the current span; equal: none
};

// static, not members: a member is an inline function, and would be emitted under one name for every instruction set.
static inline std::int64_t position_of(const Tile& tile, int r) {
  return tile.run->first_position + (tile.row0 + r) / tile.group;
}
static inline std::int64_t head_of(const Tile& tile, int r) {
  return tile.kv_head * tile.group + (tile.row0 + r) % tile.group;
}
// Row of q and out, [n * heads].
static inline std::int64_t batch_row(const Tile& tile, int r) {
  return (tile.run->first_row + (tile.row0 + r) / tile.group) * tile.args->heads + head_of(tile, r);
}

static inline float* thread_scratch(const Stream& stream, int thread) {
  return reinterpret_cast<float*>(stream.scratch + static_cast<std::size_t>(thread) * stream.scratch_bytes_per_thread);
}

static inline Tile make_tile(const Stream& stream, int thread, const AttentionArgs& args, const KvRun& run,
                             std::int64_t kv_head, std::int64_t row0, std::int64_t rows) {
  Tile tile{};
  tile.args = &args;
  tile.run = &run;
  tile.group = args.heads / args.layer.kv_heads;
  tile.kv_head = kv_head;
  tile.row0 = row0;
  tile.rows = static_cast<int>(rows);
  tile.v_pad = padded(args.layer.v_dim);
  float* f = thread_scratch(stream, thread);
  const std::int64_t micro = (rows + kMicroRows - 1) / kMicroRows * kMicroRows;
  const auto take = [&f](std::int64_t count) {
    float* p = f;
    f += count;
    return p;
  };
  tile.k_panel = take(kPanel * args.layer.k_dim);
  tile.v_panel = take(kPanel * kSpanTokens);
  tile.span_o = take(kDirectRows * tile.v_pad);
  tile.s = take(micro * kSpanTokens);
  tile.o = take(micro * tile.v_pad);
  tile.q = take(micro * args.layer.k_dim);
  for (float** p : {&tile.m, &tile.l, &tile.span_m, &tile.span_l, &tile.a, &tile.b, &tile.q_scales})
    *p = take(kNumbers);
  tile.begin = reinterpret_cast<std::int32_t*>(take(kNumbers));
  tile.end = reinterpret_cast<std::int32_t*>(take(kNumbers));
  return tile;
}

// Where K is i16, in the place of q: [rows / 8, pairs of dims, 8] pairs of codes.
static inline Int* q_pairs(const Tile& tile, int r) {
  const std::int64_t pairs = kv_even(tile.args->layer.k_dim) / 2;
  return reinterpret_cast<Int*>(tile.q) + (r / kMicroRows * pairs * kMicroRows + r % kMicroRows) * 2;
}

template <typename V>
static void load_queries_i16(Tile& tile) {
  const std::int64_t k_dim = tile.args->layer.k_dim;
  float* row = tile.k_panel;  // Not in use.
  Int codes[kI16DimMax + 16];
  for (int r = 0; r < tile.rows; ++r) {
    const float* q = tile.args->q + batch_row(tile, r) * k_dim;
    for (std::int64_t d = 0; d < k_dim; ++d) row[d] = q[d] * tile.args->scale;
    tile.q_scales[r] = quantize_query<V>(row, k_dim, codes);
    Int* to = q_pairs(tile, r);
    for (std::int64_t d = 0; d < k_dim; d += 2) __builtin_memcpy(to + d * kMicroRows, codes + d, 4);
  }
}

template <typename V>
static void load_queries(Tile& tile) {
  if (tile.args->layer.k_type == KvType::i16) return load_queries_i16<V>(tile);
  const std::int64_t k_dim = tile.args->layer.k_dim;
  for (int r = 0; r < tile.rows; ++r) {
    const float* q = tile.args->q + batch_row(tile, r) * k_dim;
    float* to = tile.q + r / kMicroRows * k_dim * kMicroRows + r % kMicroRows;
    for (std::int64_t d = 0; d < k_dim; ++d) to[d * kMicroRows] = q[d] * tile.args->scale;
  }
}

// Rows [first, last) that see something of the span: consecutive, since both ends of a query's view only move forward.
struct SeeingRows {
  int first = 0, last = 0;
};
static inline bool none(SeeingRows rows) {
  return rows.first >= rows.last;
}

static inline SeeingRows find_rows(Tile& tile, std::int64_t span) {
  SeeingRows rows;
  for (int r = 0; r < tile.rows; ++r) {
    const SpanRange seen = visible_in_span(*tile.args, position_of(tile, r), span);
    tile.begin[r] = static_cast<std::int32_t>(seen.begin);
    tile.end[r] = static_cast<std::int32_t>(seen.end);
    if (seen.begin == seen.end) continue;
    if (none(rows)) rows.first = r;
    rows.last = r + 1;
  }
  return rows;
}

// Calls fn(r0, count) for the pieces of `rows` that lie in one micro-tile.
template <typename Fn>
static inline void for_micro_tiles(SeeingRows rows, Fn&& fn) {
  for (int r = rows.first; r < rows.last;) {
    const int next = static_cast<int>(smaller((r / kMicroRows + 1) * kMicroRows, rows.last));
    fn(r, next - r);
    r = next;
  }
}

template <typename T>
static inline const T* k_block(const Tile& tile, std::int64_t span, std::int64_t block) {
  const KvLayer& layer = tile.args->layer;
  return reinterpret_cast<const T*>(tile.run->blocks[span * kSpanBlocks + block] + layer.k_offset) +
         tile.kv_head * layer.k_dim * kBlockTokens;
}
template <typename T>
static inline const T* v_block(const Tile& tile, std::int64_t span, std::int64_t block) {
  const KvLayer& layer = tile.args->layer;
  return reinterpret_cast<const T*>(tile.run->blocks[span * kSpanBlocks + block] + layer.v_offset) +
         tile.kv_head * kBlockTokens * layer.v_dim;
}

static inline const float* queries(const Tile& tile, int r) {
  return tile.q + r / kMicroRows * tile.args->layer.k_dim * kMicroRows + r % kMicroRows;
}

template <typename V, typename T>
static void span_scores_direct(const Tile& tile, std::int64_t span, SeeingRows rows) {
  const std::int64_t k_dim = tile.args->layer.k_dim;
  const std::int64_t begin = tile.begin[rows.first], end = tile.end[rows.last - 1];
  const std::int64_t first = begin / kBlockTokens, last = (end - 1) / kBlockTokens;
  for (std::int64_t block = first; block <= last; ++block) {
    const T* k = k_block<T>(tile, span, block);
    // After the last block of K comes the first of V. Where its rows are narrower, this asks for a little more.
    const T* ahead = block < last ? k_block<T>(tile, span, block + 1) : v_block<T>(tile, span, first);
    for_micro_tiles(rows, [&](int r, int count) {
      scores<V, Source::blocks>(count, queries(tile, r), k, ahead, k_dim,
                                tile.s + r * kSpanTokens + block * kBlockTokens);
    });
  }
}

template <typename V, typename T>
static void span_scores_panels(const Tile& tile, std::int64_t span, SeeingRows rows) {
  const std::int64_t k_dim = tile.args->layer.k_dim;
  const std::int64_t begin = tile.begin[rows.first], end = tile.end[rows.last - 1];
  for (std::int64_t t = begin / kPanel * kPanel; t < end; t += kPanel) {
    const T* k = k_block<T>(tile, span, t / kBlockTokens);
    const float* panel = tile.k_panel;
    if constexpr (std::is_same_v<T, float>) {
      panel = k;  // A block of f32 is a panel.
    } else {
      for (std::int64_t i = 0; i < k_dim * kPanel; i += 16) V::store(tile.k_panel + i, load16<V>(k + i));
    }
    for_micro_tiles(rows, [&](int r, int count) {
      if (t >= tile.end[r + count - 1] || t + kPanel <= tile.begin[r]) return;
      scores<V, Source::panel>(count, queries(tile, r), panel, panel, k_dim, tile.s + r * kSpanTokens + t);
    });
  }
}

// V of 16 or 32 dims of consecutive tokens [begin, end), and what to fetch meanwhile.
template <typename T>
struct VPiece {
  const T* v;      // [end - begin, stride]
  const T* ahead;  // The same shape.
  std::int64_t width, stride, begin, end;
};

// Adds one piece's PV to acc [count, 32] of rows [r0, r0 + count) of one micro-tile. Tokens that all rows see go
// through the wide kernel; the ragged ends, at most a few tokens, row by row, so that no row ever multiplies a V that
// it can't see (0 * NaN is NaN).
template <typename V, Source SOURCE, typename T>
static void pv_piece(const Tile& tile, int r0, int count, const VPiece<T>& piece, float* acc) {
  const float* p = tile.s + r0 * kSpanTokens;
  const auto add = [&](int row, int rows, std::int64_t begin, std::int64_t end) {
    begin = larger(begin, piece.begin);
    end = smaller(end, piece.end);
    if (begin >= end) return;
    const std::int64_t skip = (begin - piece.begin) * piece.stride;
    pv<V, SOURCE>(rows, piece.width, p + row * kSpanTokens + begin, piece.v + skip, piece.ahead + skip, piece.stride,
                  end - begin, acc + row * kPanel);
  };
  const std::int64_t common_begin = tile.begin[r0 + count - 1];
  const std::int64_t common_end = larger(tile.end[r0], common_begin);
  if (tile.begin[r0] < common_begin) {
    for (int i = 0; i < count; ++i) add(i, 1, tile.begin[r0 + i], smaller(tile.end[r0 + i], common_begin));
  }
  add(0, count, common_begin, common_end);
  if (tile.end[r0 + count - 1] > common_end) {
    for (int i = 0; i < count; ++i) add(i, 1, larger(tile.begin[r0 + i], common_end), tile.end[r0 + i]);
  }
}

// Calls sink(row, x, acc, width) with the span's o of every row and of `width` dims from x. Block by block, so that V
// is read in the order it lies in; the sums wait in the first-level cache. v_dim is a multiple of 16.
template <typename V, typename T, typename Sink>
static void span_pv_direct(const Tile& tile, std::int64_t span, SeeingRows rows, const Sink& sink) {
  const std::int64_t v_dim = tile.args->layer.v_dim;
  const std::int64_t first = tile.begin[rows.first] / kBlockTokens, last = (tile.end[rows.last - 1] - 1) / kBlockTokens;
  const auto acc = [&](int r, std::int64_t x) {
    return tile.span_o + (r / kMicroRows * tile.v_pad + x) * kMicroRows + r % kMicroRows * kPanel;
  };
  fill<V>(tile.span_o, (tile.rows + kMicroRows - 1) / kMicroRows * kMicroRows * tile.v_pad, 0.0f);
  for (std::int64_t block = first; block <= last; ++block) {
    const T* v = v_block<T>(tile, span, block);
    // After the last block of V comes the next span's K, if this tile goes on to it.
    const T* ahead = block < last            ? v_block<T>(tile, span, block + 1)
                     : span < tile.last_span ? k_block<T>(tile, span + 1, 0)
                                             : v;
    const std::int64_t begin = block * kBlockTokens;
    for (std::int64_t x = 0; x < v_dim; x += kPanel) {
      const VPiece<T> piece{v + x, ahead + x, smaller(kPanel, v_dim - x), v_dim, begin, begin + kBlockTokens};
      for_micro_tiles(rows, [&](int r, int count) { pv_piece<V, Source::blocks>(tile, r, count, piece, acc(r, x)); });
    }
  }
  for (int r = rows.first; r < rows.last; ++r) {
    for (std::int64_t x = 0; x < v_dim; x += kPanel) sink(r, x, acc(r, x), smaller(kPanel, v_dim - x));
  }
}

template <typename V>
static inline typename V::F load_some(const float* p, std::int64_t count) {
  return V::load_first(p, count);
}
template <typename V>
static inline typename V::F load_some(const Half* p, std::int64_t count) {
  return V::load_half_first(p, count);
}

// Tokens [begin, end) of the span, dims [x, x + 32) with zeros after v_dim, to the panel.
template <typename V, typename T>
static void convert_v(const Tile& tile, std::int64_t span, std::int64_t begin, std::int64_t end, std::int64_t x) {
  const std::int64_t v_dim = tile.args->layer.v_dim, width = smaller(kPanel, v_dim - x);
  const std::int64_t low = smaller(width, 16), high = width - low;
  for (std::int64_t t = begin; t < end; ++t) {
    const T* v = v_block<T>(tile, span, t / kBlockTokens) + t % kBlockTokens * v_dim + x;
    float* to = tile.v_panel + t * kPanel;
    V::store(to, load_some<V>(v, low));
    if (high > 0) V::store(to + 16, load_some<V>(v + 16, high));
  }
}

template <typename V, typename T, typename Sink>
static void span_pv_panels(const Tile& tile, std::int64_t span, SeeingRows rows, const Sink& sink) {
  const std::int64_t begin = tile.begin[rows.first], end = tile.end[rows.last - 1], v_dim = tile.args->layer.v_dim;
  alignas(64) float acc[kMicroRows * kPanel];
  for (std::int64_t x = 0; x < v_dim; x += kPanel) {
    convert_v<V, T>(tile, span, begin, end, x);
    const std::int64_t width = v_dim - x <= 16 ? 16 : kPanel;
    const VPiece<float> piece{tile.v_panel, tile.v_panel, width, kPanel, 0, kSpanTokens};
    for_micro_tiles(rows, [&](int r, int count) {
      fill<V>(acc, count * kPanel, 0.0f);
      pv_piece<V, Source::panel>(tile, r, count, piece, acc);
      for (int i = 0; i < count; ++i) sink(r + i, x, acc + i * kPanel, width);
    });
  }
}

// ---- K or V in i16 ----

static inline I16Side i16_k_of(const Tile& tile, std::int64_t span, std::int64_t block) {
  return i16_k(tile.args->layer, tile.run->blocks[span * kSpanBlocks + block], tile.kv_head);
}
static inline I16Side i16_v_of(const Tile& tile, std::int64_t span, std::int64_t block) {
  return i16_v(tile.args->layer, tile.run->blocks[span * kSpanBlocks + block], tile.kv_head);
}

// Many rows or few: K's pairs are read where they lie, and serve all micro-tiles from the first-level cache.
template <typename V, Source SOURCE>
static void span_scores_i16(const Tile& tile, std::int64_t span, SeeingRows rows) {
  const std::int64_t pairs = kv_even(tile.args->layer.k_dim) / 2;
  const std::int64_t begin = tile.begin[rows.first], end = tile.end[rows.last - 1];
  const std::int64_t last = (end - 1) / kBlockTokens;
  for (std::int64_t block = begin / kBlockTokens; block <= last; ++block) {
    const std::int64_t t = block * kBlockTokens;
    const I16Side k = i16_k_of(tile, span, block);
    const Int* ahead = i16_k_of(tile, span, smaller(block + 1, last)).values;
    for_micro_tiles(rows, [&](int r, int count) {
      if (t >= tile.end[r + count - 1] || t + kBlockTokens <= tile.begin[r]) return;
      scores_i16<V, SOURCE>(count, q_pairs(tile, r), tile.q_scales + r, k.values, k.scales, ahead, pairs,
                            tile.s + r * kSpanTokens + t);
    });
  }
}

// Blocks of the span that rows [r, r + count) see something of.
struct SeenBlocks {
  std::int64_t first, last;
};
static inline SeenBlocks seen_blocks(const Tile& tile, int r, int count) {
  return {tile.begin[r] / kBlockTokens, (tile.end[r + count - 1] - 1) / kBlockTokens};
}

// p in tile.s to codes and scales (weigh_i16_block), for all blocks that any of the rows sees.
template <typename V>
static void weigh_i16(const Tile& tile, std::int64_t span, SeeingRows rows) {
  const SeenBlocks blocks = seen_blocks(tile, rows.first, rows.last - rows.first);
  const float* scales[kSpanBlocks];
  for (std::int64_t b = blocks.first; b <= blocks.last; ++b) scales[b] = i16_v_of(tile, span, b).scales;
  for (int r = rows.first; r < rows.last; ++r) {
    float* p = tile.s + r * kSpanTokens;
    float weights[kSpanBlocks] = {};
    for (std::int64_t b = blocks.first; b <= blocks.last; ++b)
      weights[b] = weigh_i16_block<V>(p, scales[b], b, tile.begin[r], tile.end[r]);
    for (std::int64_t b = 0; b < kSpanBlocks; ++b) p[kWeightScales + b] = weights[b];
  }
}

// As span_pv_direct.
template <typename V, typename Sink>
static void span_pv_i16_direct(const Tile& tile, std::int64_t span, SeeingRows rows, const Sink& sink) {
  const std::int64_t v_dim = tile.args->layer.v_dim;
  const SeenBlocks blocks = seen_blocks(tile, rows.first, rows.last - rows.first);
  const auto acc = [&](int r, std::int64_t x) {
    return tile.span_o + (r / kMicroRows * tile.v_pad + x) * kMicroRows + r % kMicroRows * kPanel;
  };
  fill<V>(tile.span_o, (tile.rows + kMicroRows - 1) / kMicroRows * kMicroRows * tile.v_pad, 0.0f);
  for (std::int64_t b = blocks.first; b <= blocks.last; ++b) {
    const Int* v = i16_v_of(tile, span, b).values;
    const Int* ahead = i16_v_of(tile, span, smaller(b + 1, blocks.last)).values;
    for (std::int64_t x = 0; x < v_dim; x += kPanel) {
      for_micro_tiles(rows, [&](int r, int count) {
        pv_i16<V, Source::blocks>(count, v_dim - x, tile.s + r * kSpanTokens, b, v + 2 * x, ahead + 2 * x, 2 * v_dim,
                                  acc(r, x));
      });
    }
  }
  for (int r = rows.first; r < rows.last; ++r) {
    for (std::int64_t x = 0; x < v_dim; x += kPanel) sink(r, x, acc(r, x), smaller(kPanel, v_dim - x));
  }
}

// As span_pv_panels; 32 dims of the span's V lie together in 16 KiB, since rows of V far apart would share few lines of
// the first-level cache.
template <typename V, typename Sink>
static void span_pv_i16_panels(const Tile& tile, std::int64_t span, SeeingRows rows, const Sink& sink) {
  constexpr std::int64_t kRow = 2 * kPanel, kBlock = kBlockTokens / 2 * kRow;  // Of a pair of tokens, of a block.
  const std::int64_t v_dim = tile.args->layer.v_dim;
  const SeenBlocks blocks = seen_blocks(tile, rows.first, rows.last - rows.first);
  Int* panel = reinterpret_cast<Int*>(tile.v_panel);  // [8 blocks, 16 pairs of tokens, 32 dims, 2]
  alignas(64) float acc[kMicroRows * kPanel];
  for (std::int64_t x = 0; x < v_dim; x += kPanel) {
    const std::int64_t width = smaller(kPanel, v_dim - x);
    for (std::int64_t b = blocks.first; b <= blocks.last; ++b) {
      const Int* v = i16_v_of(tile, span, b).values + 2 * x;
      for (std::int64_t pair = 0; pair < kBlockTokens / 2; ++pair) {
        Int* to = panel + b * kBlock + pair * kRow;
        for (std::int64_t d = 0; d < 2 * width; d += 32) V::istore(to + d, V::iload(v + pair * 2 * v_dim + d));
      }
    }
    for_micro_tiles(rows, [&](int r, int count) {
      fill<V>(acc, count * kPanel, 0.0f);
      const SeenBlocks seen = seen_blocks(tile, r, count);
      for (std::int64_t b = seen.first; b <= seen.last; ++b)
        pv_i16<V, Source::panel>(count, width, tile.s + r * kSpanTokens, b, panel + b * kBlock, panel, kRow, acc);
      for (int i = 0; i < count; ++i) sink(r + i, x, acc + i * kPanel, width);
    });
  }
}

// ----

template <typename V>
static void span_scores(const Tile& tile, std::int64_t span, SeeingRows rows) {
  if (tile.args->layer.k_type == KvType::i16) {
    if (tile.rows <= kDirectRows) return span_scores_i16<V, Source::blocks>(tile, span, rows);
    return span_scores_i16<V, Source::panel>(tile, span, rows);
  }
  const bool half = tile.args->layer.k_type == KvType::f16;
  if (tile.rows <= kDirectRows) {
    return half ? span_scores_direct<V, Half>(tile, span, rows) : span_scores_direct<V, float>(tile, span, rows);
  }
  return half ? span_scores_panels<V, Half>(tile, span, rows) : span_scores_panels<V, float>(tile, span, rows);
}

template <typename V, typename Sink>
static void span_pv(const Tile& tile, std::int64_t span, SeeingRows rows, const Sink& sink) {
  if (tile.args->layer.v_type == KvType::i16) {
    weigh_i16<V>(tile, span, rows);
    if (tile.rows <= kDirectRows) return span_pv_i16_direct<V>(tile, span, rows, sink);
    return span_pv_i16_panels<V>(tile, span, rows, sink);
  }
  const bool half = tile.args->layer.v_type == KvType::f16;
  if (tile.rows <= kDirectRows && tile.args->layer.v_dim % 16 == 0) {
    return half ? span_pv_direct<V, Half>(tile, span, rows, sink) : span_pv_direct<V, float>(tile, span, rows, sink);
  }
  return half ? span_pv_panels<V, Half>(tile, span, rows, sink) : span_pv_panels<V, float>(tile, span, rows, sink);
}

// Scores and softmax of one span: p in tile.s, (m, l) in span_m, span_l.
template <typename V>
static SeeingRows span_softmax(Tile& tile, std::int64_t span) {
  const SeeingRows rows = find_rows(tile, span);
  if (none(rows)) return rows;
  span_scores<V>(tile, span, rows);
  for (int r = rows.first; r < rows.last; ++r) {
    const Softmax x = softmax_row<V>(tile.s + r * kSpanTokens, tile.begin[r], tile.end[r], tile.args->softcap);
    tile.span_m[r] = x.m;
    tile.span_l[r] = x.l;
  }
  return rows;
}

// Factors a (running) and b (span) of the merge, and the merged m and l.
template <typename V>
static void merge_rows(Tile& tile, SeeingRows rows) {
  for (int r = rows.first; r < rows.last; r += 16) {
    const std::int64_t count = smaller(rows.last - r, 16);
    const typename V::F m = V::load_first(tile.m + r, count), span_m = V::load_first(tile.span_m + r, count);
    const typename V::F top = V::max(span_m, m);
    const typename V::F a = exp_nonpositive<V>(V::sub(m, top)), b = exp_nonpositive<V>(V::sub(span_m, top));
    const typename V::F scaled = V::mul(V::load_first(tile.span_l + r, count), b);
    V::store_first(tile.l + r, count, V::fma(V::load_first(tile.l + r, count), a, scaled));
    V::store_first(tile.m + r, count, top);
    V::store_first(tile.a + r, count, a);
    V::store_first(tile.b + r, count, b);
  }
}

// out = o / l, with the sink's weight in l where there are sinks.
template <typename V>
static void finish_row(const AttentionArgs& args, std::int64_t head, float m, float l, const float* o, float* out) {
  float a = 1;
  if (args.sinks != nullptr) {
    const float sink = args.sinks[head], top = sink > m ? sink : m;
    a = exp1<V>(m - top);
    l = fma1<V>(l, a, exp1<V>(sink - top));
  }
  const typename V::F a16 = V::set(a), l16 = V::set(l);
  const std::int64_t v_dim = args.layer.v_dim;
  for (std::int64_t x = 0; x < v_dim; x += 16) {
    const std::int64_t count = smaller(v_dim - x, 16);
    V::store_first(out + x, count, V::div(V::mul(V::load_first(o + x, count), a16), l16));
  }
}

// A whole tile: all its spans in ascending order, then the division.
template <typename V>
static void run_tile(Tile& tile) {
  load_queries<V>(tile);
  fill<V>(tile.m, tile.rows, -__builtin_inff());
  fill<V>(tile.l, tile.rows, 0.0f);
  fill<V>(tile.o, tile.rows * tile.v_pad, 0.0f);
  const std::int64_t first = first_visible(*tile.args, position_of(tile, 0)) / kSpanTokens;
  tile.last_span = position_of(tile, tile.rows - 1) / kSpanTokens;
  for (std::int64_t span = first; span <= tile.last_span; ++span) {
    const SeeingRows rows = span_softmax<V>(tile, span);
    if (none(rows)) continue;
    merge_rows<V>(tile, rows);
    span_pv<V>(tile, span, rows, [&](int r, std::int64_t x, const float* acc, std::int64_t width) {
      merge_values<V>(tile.o + r * tile.v_pad + x, tile.a[r], acc, tile.b[r], width);
    });
  }
  for (int r = 0; r < tile.rows; ++r) {
    finish_row<V>(*tile.args, head_of(tile, r), tile.m[r], tile.l[r], tile.o + r * tile.v_pad,
                  tile.args->out + batch_row(tile, r) * tile.args->layer.v_dim);
  }
}

// One span of a tile, left in room [run rows (token-major, all heads), spans, v_dim + 2] as o, m, l.
struct SpanRoom {
  float* base;
  std::int64_t first_span, spans;
};
static inline float* room_at(const SpanRoom& room, const AttentionArgs& args, std::int64_t token, std::int64_t head,
                             std::int64_t span) {
  return room.base + ((token * args.heads + head) * room.spans + span - room.first_span) * (args.layer.v_dim + 2);
}

template <typename V>
static void run_tile_span(Tile& tile, std::int64_t span, const SpanRoom& room) {
  if (none(find_rows(tile, span))) return;
  tile.last_span = span;
  load_queries<V>(tile);
  const SeeingRows rows = span_softmax<V>(tile, span);
  const std::int64_t v_dim = tile.args->layer.v_dim;
  const auto place = [&](int r) {
    return room_at(room, *tile.args, (tile.row0 + r) / tile.group, head_of(tile, r), span);
  };
  span_pv<V>(tile, span, rows, [&](int r, std::int64_t x, const float* acc, std::int64_t width) {
    copy<V>(acc, smaller(width, v_dim - x), place(r) + x);
  });
  for (int r = rows.first; r < rows.last; ++r) {
    place(r)[v_dim] = tile.span_m[r];
    place(r)[v_dim + 1] = tile.span_l[r];
  }
}

// Merges a row's spans in ascending order into `o`, which is then divided into the row's output.
template <typename V>
static void merge_spans(const AttentionArgs& args, const KvRun& run, std::int64_t token, std::int64_t head,
                        const SpanRoom& room, float* o) {
  const std::int64_t v_dim = args.layer.v_dim, position = run.first_position + token;
  float m = -__builtin_inff(), l = 0;
  fill<V>(o, v_dim, 0.0f);
  for (std::int64_t span = first_visible(args, position) / kSpanTokens; span <= position / kSpanTokens; ++span) {
    const float* part = room_at(room, args, token, head, span);
    const float span_m = part[v_dim], span_l = part[v_dim + 1], top = span_m > m ? span_m : m;
    const float a = exp1<V>(m - top), b = exp1<V>(span_m - top);
    m = top;
    l = fma1<V>(l, a, span_l * b);
    merge_values<V>(o, a, part, b, v_dim);
  }
  finish_row<V>(args, head, m, l, o, args.out + ((run.first_row + token) * args.heads + head) * v_dim);
}

// How a call is cut. Sizes change with the thread count; results do not.
struct Cut {
  std::int64_t group;
  std::int64_t tile_rows;
  std::int64_t tiles;       // Over all runs and KV heads.
  std::int64_t span_parts;  // The same, counted per span.
  std::size_t room_floats;  // What splitting by span needs.
};
static inline std::int64_t tiles_of(const Cut& cut, const KvRun& run) {
  return (run.count * cut.group + cut.tile_rows - 1) / cut.tile_rows;
}

static inline SpanRoom spans_of(const AttentionArgs& args, const KvRun& run, float* base) {
  const std::int64_t first = first_visible(args, run.first_position) / kSpanTokens;
  const std::int64_t last = (run.first_position + run.count - 1) / kSpanTokens;
  return {base, first, last - first + 1};
}

template <typename V>
static Cut plan_cut(const Stream& stream, const AttentionArgs& args) {
  Cut cut{};
  const KvLayer& layer = args.layer;
  cut.group = args.heads / layer.kv_heads;
  std::int64_t rows = 0;
  for (const KvRun& run : args.runs) rows += run.count * args.heads;
  // Four tiles a thread even out the causal triangle; under 24 rows the panels stop paying.
  const std::int64_t wanted = rows / (4 * stream.pool->size()) / kMicroRows * kMicroRows;
  cut.tile_rows = smaller(tile_rows_max(layer), larger(wanted, 3 * kMicroRows));
  for (const KvRun& run : args.runs) {
    const std::int64_t spans = spans_of(args, run, nullptr).spans;
    cut.tiles += tiles_of(cut, run) * layer.kv_heads;
    cut.span_parts += tiles_of(cut, run) * layer.kv_heads * spans;
    cut.room_floats += static_cast<std::size_t>(run.count * args.heads * spans * (layer.v_dim + 2));
  }
  return cut;
}

template <typename V>
static void run_tiles(Stream& stream, const AttentionArgs& args, const Cut& cut) {
  stream.pool->run(cut.tiles, [&](std::int64_t part, int thread) {
    for (const KvRun& run : args.runs) {
      const std::int64_t tiles = tiles_of(cut, run), parts = tiles * args.layer.kv_heads;
      if (part >= parts) {
        part -= parts;
        continue;
      }
      // The last rows see the most: they go first.
      const std::int64_t row0 = (tiles - 1 - part / args.layer.kv_heads) * cut.tile_rows;
      const std::int64_t rows = smaller(cut.tile_rows, run.count * cut.group - row0);
      Tile tile = make_tile(stream, thread, args, run, part % args.layer.kv_heads, row0, rows);
      return run_tile<V>(tile);
    }
  });
}

template <typename V>
static void run_spans(Stream& stream, const AttentionArgs& args, const Cut& cut) {
  const std::int64_t kv_heads = args.layer.kv_heads, v_dim = args.layer.v_dim;
  stream.pool->run(cut.span_parts, [&](std::int64_t part, int thread) {
    float* base = args.span_room;
    for (const KvRun& run : args.runs) {
      const SpanRoom room = spans_of(args, run, base);
      const std::int64_t parts = tiles_of(cut, run) * kv_heads * room.spans;
      if (part < parts) {
        const std::int64_t span = room.first_span + part % room.spans, piece = part / room.spans;
        const std::int64_t row0 = piece / kv_heads * cut.tile_rows;
        const std::int64_t rows = smaller(cut.tile_rows, run.count * cut.group - row0);
        Tile tile = make_tile(stream, thread, args, run, piece % kv_heads, row0, rows);
        return run_tile_span<V>(tile, span, room);
      }
      part -= parts;
      base += run.count * args.heads * room.spans * (v_dim + 2);
    }
  });
  float* base = args.span_room;
  for (const KvRun& run : args.runs) {
    const SpanRoom room = spans_of(args, run, base);
    const auto merge = [&](std::int64_t row, int thread) {
      merge_spans<V>(args, run, row / args.heads, row % args.heads, room, thread_scratch(stream, thread));
    };
    const std::int64_t rows = run.count * args.heads;
    if (rows * room.spans * v_dim < 65536) {  // About 10 us: not worth waking anyone.
      for (std::int64_t row = 0; row < rows; ++row) merge(row, 0);
    } else {
      stream.pool->run(rows, merge);
    }
    base += rows * room.spans * (v_dim + 2);
  }
}

// `other` attends where this table has no code for the layer.
template <typename V>
static void attention(Stream& stream, const AttentionArgs& args, void (*other)(Stream&, const AttentionArgs&)) {
  const KvLayer& layer = args.layer;
  if (!attends(layer)) return other(stream, args);
  LODE_CHECK(layer.kv_heads > 0 && args.heads % layer.kv_heads == 0);
  LODE_CHECK(stream.scratch_bytes_per_thread >= generic::attention_scratch_bytes(larger(layer.k_dim, layer.v_dim)));
  const Cut cut = plan_cut<V>(stream, args);
  const bool starved = stream.pool->size() > 1 && cut.tiles < 4 * stream.pool->size() && cut.span_parts > cut.tiles;
  if (starved && args.span_room != nullptr && cut.room_floats <= args.span_room_floats) {
    run_spans<V>(stream, args, cut);
  } else {
    run_tiles<V>(stream, args, cut);
  }
}

}  // namespace lode::kernels::avx512
