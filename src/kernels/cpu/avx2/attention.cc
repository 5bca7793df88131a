// Attention with AVX2: tiles of query rows over absolute spans of 256 tokens. Bit for bit the generic one.
// Owns nothing: works in the stream's per-thread scratch. Step thread only.
//
// A row is one (token, query head) of the heads that share a KV head; a tile is up to 192 consecutive rows of one run
// and KV head. For each span a tile converts 16 tokens of K, then 16 dims of V, to f32 panels of 16 KiB (they stay in
// L1 while all micro-tiles of 6 rows pass over them); q, scores and o of the tile stay in L2. Tiles of few rows, as in
// decode, read K and V in their storage type where they lie. When there are fewer tiles than threads can use, every
// (tile, span) is a part of its own that leaves (o, m, l) in span_room, and a second pass merges rows.
#include "kernels/cpu/generic/attention.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "kernels/cpu/avx2/attention_i16.h"
#include "kernels/cpu/avx2/attention_kernels.h"
#include "kernels/cpu/avx2/kv_i16.h"
#include "kernels/cpu/avx2/kv_q8.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {
namespace {

constexpr std::int64_t kTileBytes = 320 * 1024;  // q, scores and o of a tile: most of a 512 KiB L2.
constexpr std::int64_t kTileRows = 192;
constexpr std::int64_t kDirectRows = 2 * kMicroRows;  // Up to here a panel would not be used often enough to pay.

std::int64_t padded(std::int64_t dim) {
  return (dim + kPanel - 1) / kPanel * kPanel;
}

struct Tile {
  const AttentionArgs* args;
  const KvRun* run;
  std::int64_t group;  // Query heads of a KV head.
  std::int64_t kv_head;
  std::int64_t row0;  // First row: token row0 / group of the run, query head kv_head * group + row0 % group.
  int rows;
  std::int64_t v_pad;      // v_dim rounded up to 16.
  std::int64_t last_span;  // The last that this tile goes on to on this thread.
  // In scratch:
  float* q;                        // [rows / 6, k_dim, 6], scaled, and rotated where K is; q_pairs
  float* s;                        // [rows, 256]
  float* o;                        // [rows, v_pad]
  float* k_panel;                  // [k_dim, 16]
  float* v_panel;                  // [256, 16]
  float* span_o;                   // [12, v_pad]: o of the current span where V is read in its blocks
  float* scales;                   // [groups of 32 dims, 32]: the scales of one block's q8_0 K or V
  float *m, *l;                    // [rows] running
  float *span_m, *span_l, *a, *b;  // [rows] of the current span; merge factors
  float* q_scales;                 // [rows] where K is i16
  std::int32_t *begin, *end;       // [rows] visible tokens of the current span; equal: none

  // Where K is i16, in the place of q: [rows / 6, pairs of dims, 6] pairs of codes.
  Int* q_pairs(int r) const {
    const std::int64_t pairs = kv_even(args->layer.k_dim) / 2;
    return reinterpret_cast<Int*>(q) + (r / kMicroRows * pairs * kMicroRows + r % kMicroRows) * 2;
  }
  std::int64_t position(int r) const { return run->first_position + (row0 + r) / group; }
  std::int64_t head(int r) const { return kv_head * group + (row0 + r) % group; }
  // Row of q and out, [n * heads].
  std::int64_t batch_row(int r) const { return (run->first_row + (row0 + r) / group) * args->heads + head(r); }
};

std::int64_t tile_rows_max(const KvLayer& layer) {
  const std::int64_t per_row = (padded(layer.k_dim) + padded(layer.v_dim) + kSpanTokens) * 4;
  return std::clamp(kTileBytes / per_row / kMicroRows * kMicroRows, std::int64_t{kMicroRows}, kTileRows);
}

Tile make_tile(const Stream& stream, int thread, const AttentionArgs& args, const KvRun& run, std::int64_t kv_head,
               std::int64_t row0, std::int64_t rows) {
  Tile tile{};
  tile.args = &args;
  tile.run = &run;
  tile.group = args.heads / args.layer.kv_heads;
  tile.kv_head = kv_head;
  tile.row0 = row0;
  tile.rows = static_cast<int>(rows);
  tile.v_pad = padded(args.layer.v_dim);
  auto* f =
      reinterpret_cast<float*>(stream.scratch + static_cast<std::size_t>(thread) * stream.scratch_bytes_per_thread);
  const std::int64_t micro = (rows + kMicroRows - 1) / kMicroRows * kMicroRows;
  const auto take = [&f](std::int64_t count) {
    float* p = f;
    f += count;
    return p;
  };
  tile.k_panel = take(kPanel * args.layer.k_dim);
  tile.v_panel = take(kPanel * kSpanTokens);
  tile.span_o = take(kDirectRows * tile.v_pad);
  tile.scales = take(kv_groups(std::max(args.layer.k_dim, args.layer.v_dim)) * kKvGroup);
  tile.s = take(micro * kSpanTokens);
  tile.o = take(micro * tile.v_pad);
  tile.q = take(micro * args.layer.k_dim);  // Of pairs of an odd dim, half as much and a little: at least one dim.
  constexpr std::int64_t kNumbers = kTileRows + 8;  // Vectors may run past the last row.
  for (float** p : {&tile.m, &tile.l, &tile.span_m, &tile.span_l, &tile.a, &tile.b, &tile.q_scales})
    *p = take(kNumbers);
  tile.begin = reinterpret_cast<std::int32_t*>(take(kNumbers));
  tile.end = reinterpret_cast<std::int32_t*>(take(kNumbers));
  return tile;
}

// `row`: a query times its scale.
void load_query_i16(Tile& tile, int r, const float* row) {
  const std::int64_t k_dim = tile.args->layer.k_dim;
  Int codes[kI16DimMax + 1];
  tile.q_scales[r] = quantize_k_i16(row, k_dim, codes);
  codes[k_dim] = 0;  // The partner of an odd dim's last.
  Int* to = tile.q_pairs(r);
  for (std::int64_t d = 0; d < k_dim; d += 2) std::memcpy(to + d * kMicroRows, codes + d, 4);
}

void load_queries(Tile& tile) {
  const std::int64_t k_dim = tile.args->layer.k_dim;
  float* row = tile.k_panel;  // Not in use yet.
  for (int r = 0; r < tile.rows; ++r) {
    const float* q = tile.args->q + tile.batch_row(r) * k_dim;
    for (std::int64_t d = 0; d < k_dim; ++d) row[d] = q[d] * tile.args->scale;
    if (tile.args->layer.k_type == KvType::i16) {
      load_query_i16(tile, r, row);
      continue;
    }
    if (tile.args->layer.k_type == KvType::q8_0) rotate(row, k_dim);
    float* to = tile.q + r / kMicroRows * k_dim * kMicroRows + r % kMicroRows;
    for (std::int64_t d = 0; d < k_dim; ++d) to[d * kMicroRows] = row[d];
  }
}

// Rows [first, last) that see something of the span: consecutive, since both ends of a query's view only move forward.
struct Rows {
  int first = 0, last = 0;
  bool empty() const { return first >= last; }
};

Rows find_rows(Tile& tile, std::int64_t span) {
  Rows rows;
  for (int r = 0; r < tile.rows; ++r) {
    const SpanRange seen = visible_in_span(*tile.args, tile.position(r), span);
    tile.begin[r] = static_cast<std::int32_t>(seen.begin);
    tile.end[r] = static_cast<std::int32_t>(seen.end);
    if (seen.begin == seen.end) continue;
    if (rows.empty()) rows.first = r;
    rows.last = r + 1;
  }
  return rows;
}

// Calls fn(r0, count) for the pieces of `rows` that lie in one micro-tile.
template <typename Fn>
void for_micro_tiles(Rows rows, Fn&& fn) {
  for (int r = rows.first; r < rows.last;) {
    const int next = std::min((r / kMicroRows + 1) * kMicroRows, rows.last);
    fn(r, next - r);
    r = next;
  }
}

// Calls fn with a value of the type that stores a side, one that is read as f32.
template <typename Fn>
void with_type(KvType type, Fn&& fn) {
  switch (type) {
    case KvType::f32: return fn(float{});
    case KvType::f16: return fn(Half{});
    case KvType::q8_0: return fn(Code{});
    case KvType::i16: LODE_CHECK(false);  // span_scores_i16, span_pv_i16.
  }
}

// Where the tile's KV head lies in a block.
template <typename T>
const T* k_block(const Tile& tile, std::int64_t span, std::int64_t block) {
  const KvLayer& layer = tile.args->layer;
  return reinterpret_cast<const T*>(tile.run->blocks[span * kSpanBlocks + block] + layer.k_offset) +
         tile.kv_head * layer.k_dim * kBlockTokens;
}
template <typename T>
const T* v_block(const Tile& tile, std::int64_t span, std::int64_t block) {
  const KvLayer& layer = tile.args->layer;
  return reinterpret_cast<const T*>(tile.run->blocks[span * kSpanBlocks + block] + layer.v_offset) +
         tile.kv_head * kBlockTokens * layer.v_dim;
}
// q8_0 only: [k_groups, 32] and [32, v_groups].
const Half* k_scales(const Tile& tile, std::int64_t span, std::int64_t block) {
  const KvLayer& layer = tile.args->layer;
  const std::byte* k = tile.run->blocks[span * kSpanBlocks + block] + layer.k_offset;
  return reinterpret_cast<const Half*>(k + kv_scales_offset(layer.kv_heads, layer.k_dim)) +
         tile.kv_head * kv_groups(layer.k_dim) * kBlockTokens;
}
const Half* v_scales(const Tile& tile, std::int64_t span, std::int64_t block) {
  const KvLayer& layer = tile.args->layer;
  const std::byte* v = tile.run->blocks[span * kSpanBlocks + block] + layer.v_offset;
  return reinterpret_cast<const Half*>(v + kv_scales_offset(layer.kv_heads, layer.v_dim)) +
         tile.kv_head * kBlockTokens * kv_groups(layer.v_dim);
}

// The scales of one block to f32 in tile.scales, fetching those `ahead`. A head has a multiple of 32 of them.
void convert_scales(const Tile& tile, const Half* from, const Half* ahead, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += 32) {
    prefetch(ahead + i);
    for (std::int64_t j = i; j < i + 32; j += 8) _mm256_storeu_ps(tile.scales + j, load8(from + j));
  }
}

template <typename T>
void span_scores_direct(const Tile& tile, std::int64_t span, Rows rows) {
  const std::int64_t k_dim = tile.args->layer.k_dim;
  const std::int64_t begin = tile.begin[rows.first], end = tile.end[rows.last - 1];
  const std::int64_t first = begin / kBlockTokens, last = (end - 1) / kBlockTokens;
  for (std::int64_t block = first; block <= last; ++block) {
    const T* k = k_block<T>(tile, span, block);
    // After the last block of K comes the first of V.
    const T* ahead = block < last ? k_block<T>(tile, span, block + 1) : v_block<T>(tile, span, first);
    if constexpr (std::is_same_v<T, Code>) {
      convert_scales(tile, k_scales(tile, span, block), k_scales(tile, span, std::min(block + 1, last)),
                     kv_groups(k_dim) * kBlockTokens);
    }
    for_micro_tiles(rows, [&](int r, int count) {
      const float* q = tile.q + r / kMicroRows * k_dim * kMicroRows + r % kMicroRows;
      scores_block(count, q, k, tile.scales, ahead, k_dim, tile.s + r * kSpanTokens + block * kBlockTokens);
    });
  }
}

// 16 tokens of K in f32, in tile.k_panel. k [k_dim, 32]; of codes, scales [k_groups, 32].
template <typename T>
void convert_k(const Tile& tile, const T* k, const Half* scales) {
  const std::int64_t k_dim = tile.args->layer.k_dim;
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (std::int64_t d = 0; d < k_dim; ++d) {
    if constexpr (std::is_same_v<T, Code>) {
      if (d % kKvGroup == 0) {
        low = load8(scales + d), high = load8(scales + d + 8);  // Group d / 32 has 32 scales.
      }
    }
    _mm256_storeu_ps(tile.k_panel + d * kPanel, load8(k + d * kBlockTokens, low));
    _mm256_storeu_ps(tile.k_panel + d * kPanel + 8, load8(k + d * kBlockTokens + 8, high));
  }
}

template <typename T>
void span_scores_panels(const Tile& tile, std::int64_t span, Rows rows) {
  const std::int64_t k_dim = tile.args->layer.k_dim;
  const std::int64_t begin = tile.begin[rows.first], end = tile.end[rows.last - 1];
  for (std::int64_t t = begin / kPanel * kPanel; t < end; t += kPanel) {
    const std::int64_t block = t / kBlockTokens, in_block = t % kBlockTokens;
    convert_k(tile, k_block<T>(tile, span, block) + in_block, k_scales(tile, span, block) + in_block);
    for_micro_tiles(rows, [&](int r, int count) {
      if (t >= tile.end[r + count - 1] || t + kPanel <= tile.begin[r]) return;
      const float* q = tile.q + r / kMicroRows * k_dim * kMicroRows + r % kMicroRows;
      scores_panel(count, q, tile.k_panel, k_dim, tile.s + r * kSpanTokens + t);
    });
  }
}

// V of 16 dims of tokens [begin, end).
template <typename T>
struct VPiece {
  VRows<T> rows;  // Of token `begin` and on.
  std::int64_t begin, end;

  VRows<T> from(std::int64_t token) const {
    VRows<T> r = rows;
    r.v += (token - begin) * r.stride;
    r.ahead += (token - begin) * r.stride;
    r.scales += (token - begin) * r.scale_stride;
    return r;
  }
};

// Adds one piece's PV to acc [count, 16] of rows [r0, r0 + count) of one micro-tile. Tokens that all rows see go
// through the wide kernel; the ragged ends, at most a few tokens, row by row, so that no row ever multiplies a V that
// it can't see (0 * NaN is NaN).
template <Source SOURCE, typename T>
void pv_piece(const Tile& tile, int r0, int count, const VPiece<T>& piece, float* acc) {
  const float* p = tile.s + r0 * kSpanTokens;
  const auto add = [&](int row, int rows, std::int64_t begin, std::int64_t end) {
    begin = std::max(begin, piece.begin);
    end = std::min(end, piece.end);
    if (begin >= end) return;
    pv<SOURCE>(rows, p + row * kSpanTokens + begin, piece.from(begin), end - begin, acc + row * kPanel);
  };
  const std::int64_t common_begin = tile.begin[r0 + count - 1];
  const std::int64_t common_end = std::max<std::int64_t>(tile.end[r0], common_begin);
  if (tile.begin[r0] < common_begin) {
    for (int i = 0; i < count; ++i) {
      add(i, 1, tile.begin[r0 + i], std::min<std::int64_t>(tile.end[r0 + i], common_begin));
    }
  }
  add(0, count, common_begin, common_end);
  if (tile.end[r0 + count - 1] > common_end) {
    for (int i = 0; i < count; ++i) add(i, 1, std::max<std::int64_t>(tile.begin[r0 + i], common_end), tile.end[r0 + i]);
  }
}

// Calls sink(row, x, acc [16]) with the span's o of every row and every 16 dims starting at x. Block by block, so that
// V is read in the order it lies in; the sums wait in L1.
template <typename T, typename Sink>
void span_pv_direct(const Tile& tile, std::int64_t span, Rows rows, Sink&& sink) {
  const std::int64_t v_dim = tile.args->layer.v_dim;
  const std::int64_t first = tile.begin[rows.first] / kBlockTokens, last = (tile.end[rows.last - 1] - 1) / kBlockTokens;
  const auto acc = [&](int r, std::int64_t x) {
    return tile.span_o + (r / kMicroRows * v_dim + x) * kMicroRows + r % kMicroRows * kPanel;
  };
  std::fill_n(tile.span_o, (tile.rows + kMicroRows - 1) / kMicroRows * kMicroRows * v_dim, 0.0f);
  for (std::int64_t block = first; block <= last; ++block) {
    const T* v = v_block<T>(tile, span, block);
    // After the last block of V comes the next span's K, if this tile goes on to it.
    const T* ahead = block < last            ? v_block<T>(tile, span, block + 1)
                     : span < tile.last_span ? k_block<T>(tile, span + 1, 0)
                                             : v;
    if constexpr (std::is_same_v<T, Code>) {
      convert_scales(tile, v_scales(tile, span, block), v_scales(tile, span, std::min(block + 1, last)),
                     kv_groups(v_dim) * kBlockTokens);
    }
    const std::int64_t begin = block * kBlockTokens;
    for (std::int64_t x = 0; x < v_dim; x += kPanel) {
      const VRows<T> v_rows{v + x, ahead + x, tile.scales + x / kKvGroup, v_dim, kv_groups(v_dim)};
      const VPiece<T> piece{v_rows, begin, begin + kBlockTokens};
      for_micro_tiles(rows, [&](int r, int count) { pv_piece<Source::blocks>(tile, r, count, piece, acc(r, x)); });
    }
  }
  for (int r = rows.first; r < rows.last; ++r) {
    for (std::int64_t x = 0; x < v_dim; x += kPanel) sink(r, x, acc(r, x));
  }
}

// 16 dims of V of tokens [begin, end) in f32, in tile.v_panel.
template <typename T>
void convert_v(const Tile& tile, std::int64_t span, std::int64_t begin, std::int64_t end, std::int64_t x) {
  const std::int64_t v_dim = tile.args->layer.v_dim, width = std::min<std::int64_t>(kPanel, v_dim - x);
  __m256 scale = _mm256_setzero_ps();
  for (std::int64_t t = begin; t < end; ++t) {
    const std::int64_t block = t / kBlockTokens, in_block = t % kBlockTokens;
    const T* v = v_block<T>(tile, span, block) + in_block * v_dim + x;
    if constexpr (std::is_same_v<T, Code>) {
      const Half half = v_scales(tile, span, block)[in_block * kv_groups(v_dim) + x / kKvGroup];
      scale = _mm256_cvtph_ps(_mm_set1_epi16(static_cast<short>(half)));
    }
    T part[kPanel] = {};
    if (width < kPanel) {
      std::copy_n(v, width, part);
      v = part;
    }
    float* to = tile.v_panel + t * kPanel;
    _mm256_storeu_ps(to, load8(v, scale));
    _mm256_storeu_ps(to + 8, load8(v + 8, scale));
  }
}

template <typename T, typename Sink>
void span_pv_panels(const Tile& tile, std::int64_t span, Rows rows, Sink&& sink) {
  const std::int64_t begin = tile.begin[rows.first], end = tile.end[rows.last - 1];
  const VPiece<float> piece{{tile.v_panel, tile.v_panel, tile.scales, kPanel, 0}, 0, kSpanTokens};
  alignas(32) float acc[kMicroRows * kPanel];
  for (std::int64_t x = 0; x < tile.args->layer.v_dim; x += kPanel) {
    convert_v<T>(tile, span, begin, end, x);
    for_micro_tiles(rows, [&](int r, int count) {
      std::fill_n(acc, count * kPanel, 0.0f);
      pv_piece<Source::panel>(tile, r, count, piece, acc);
      for (int i = 0; i < count; ++i) sink(r + i, x, acc + i * kPanel);
    });
  }
}

// ---- K or V in i16 ----

I16Side i16_k(const Tile& tile, std::int64_t span, std::int64_t block) {
  return i16_k(tile.args->layer, tile.run->blocks[span * kSpanBlocks + block], tile.kv_head);
}
I16Side i16_v(const Tile& tile, std::int64_t span, std::int64_t block) {
  return i16_v(tile.args->layer, tile.run->blocks[span * kSpanBlocks + block], tile.kv_head);
}

// Many rows or few: K's pairs are read where they lie, and serve all micro-tiles from L1.
template <Source SOURCE>
void span_scores_i16(const Tile& tile, std::int64_t span, Rows rows) {
  const std::int64_t pairs = kv_even(tile.args->layer.k_dim) / 2;
  const std::int64_t begin = tile.begin[rows.first], end = tile.end[rows.last - 1];
  const std::int64_t last = (end - 1) / kBlockTokens;
  for (std::int64_t t = begin / kPanel * kPanel; t < end; t += kPanel) {
    const std::int64_t block = t / kBlockTokens, in_block = t % kBlockTokens;
    const I16Side k = i16_k(tile, span, block);
    const Int* ahead = i16_k(tile, span, std::min(block + 1, last)).values;
    for_micro_tiles(rows, [&](int r, int count) {
      if (t >= tile.end[r + count - 1] || t + kPanel <= tile.begin[r]) return;
      scores_i16<SOURCE>(count, tile.q_pairs(r), tile.q_scales + r, k.values + 2 * in_block, k.scales + in_block,
                         ahead + 2 * in_block, pairs, tile.s + r * kSpanTokens + t);
    });
  }
}

// Blocks of the span that rows [r, r + count) see something of.
struct Blocks {
  std::int64_t first, last;
};
Blocks seen_blocks(const Tile& tile, int r, int count) {
  return {tile.begin[r] / kBlockTokens, (tile.end[r + count - 1] - 1) / kBlockTokens};
}

// p in tile.s to codes and scales (weigh_i16_block), for all blocks that any of the rows sees.
void weigh_i16(const Tile& tile, std::int64_t span, Rows rows) {
  const Blocks blocks = seen_blocks(tile, rows.first, rows.last - rows.first);
  const float* scales[kSpanBlocks];
  for (std::int64_t b = blocks.first; b <= blocks.last; ++b) scales[b] = i16_v(tile, span, b).scales;
  for (int r = rows.first; r < rows.last; ++r) {
    float* p = tile.s + r * kSpanTokens;
    alignas(32) float weights[kSpanBlocks] = {};
    for (std::int64_t b = blocks.first; b <= blocks.last; ++b)
      weights[b] = weigh_i16_block(p, scales[b], b, tile.begin[r], tile.end[r]);
    _mm256_storeu_ps(p + kWeightScales, _mm256_load_ps(weights));
  }
}

// As span_pv_direct.
template <typename Sink>
void span_pv_i16_direct(const Tile& tile, std::int64_t span, Rows rows, Sink&& sink) {
  const std::int64_t v_dim = tile.args->layer.v_dim;
  const Blocks blocks = seen_blocks(tile, rows.first, rows.last - rows.first);
  const auto acc = [&](int r, std::int64_t x) {
    return tile.span_o + (r / kMicroRows * v_dim + x) * kMicroRows + r % kMicroRows * kPanel;
  };
  std::fill_n(tile.span_o, (tile.rows + kMicroRows - 1) / kMicroRows * kMicroRows * v_dim, 0.0f);
  for (std::int64_t b = blocks.first; b <= blocks.last; ++b) {
    const Int* v = i16_v(tile, span, b).values;
    const Int* ahead = i16_v(tile, span, std::min(b + 1, blocks.last)).values;
    for (std::int64_t x = 0; x < v_dim; x += kPanel) {
      for_micro_tiles(rows, [&](int r, int count) {
        pv_i16<Source::blocks>(count, tile.s + r * kSpanTokens, b, v + 2 * x, ahead + 2 * x, 2 * v_dim, acc(r, x));
      });
    }
  }
  for (int r = rows.first; r < rows.last; ++r) {
    for (std::int64_t x = 0; x < v_dim; x += kPanel) sink(r, x, acc(r, x));
  }
}

// As span_pv_panels; 16 dims of the span's V lie together in 8 KiB, since rows of V far apart would share few lines of
// L1.
template <typename Sink>
void span_pv_i16_panels(const Tile& tile, std::int64_t span, Rows rows, Sink&& sink) {
  constexpr std::int64_t kRow = 2 * kPanel, kBlock = kBlockTokens / 2 * kRow;  // Of a pair of tokens, of a block.
  const std::int64_t v_dim = tile.args->layer.v_dim;
  const Blocks blocks = seen_blocks(tile, rows.first, rows.last - rows.first);
  Int* panel = reinterpret_cast<Int*>(tile.v_panel);  // [8 blocks, 16 pairs of tokens, 16 dims, 2]
  alignas(32) float acc[kMicroRows * kPanel];
  for (std::int64_t x = 0; x < v_dim; x += kPanel) {
    for (std::int64_t b = blocks.first; b <= blocks.last; ++b) {
      const Int* v = i16_v(tile, span, b).values + 2 * x;
      for (std::int64_t pair = 0; pair < kBlockTokens / 2; ++pair)
        std::memcpy(panel + b * kBlock + pair * kRow, v + pair * 2 * v_dim, kRow * sizeof(Int));
    }
    for_micro_tiles(rows, [&](int r, int count) {
      std::fill_n(acc, count * kPanel, 0.0f);
      const Blocks seen = seen_blocks(tile, r, count);
      for (std::int64_t b = seen.first; b <= seen.last; ++b)
        pv_i16<Source::panel>(count, tile.s + r * kSpanTokens, b, panel + b * kBlock, nullptr, kRow, acc);
      for (int i = 0; i < count; ++i) sink(r + i, x, acc + i * kPanel);
    });
  }
}

// ----

void span_scores(const Tile& tile, std::int64_t span, Rows rows) {
  if (tile.args->layer.k_type == KvType::i16) {
    if (tile.rows <= kDirectRows) return span_scores_i16<Source::blocks>(tile, span, rows);
    return span_scores_i16<Source::panel>(tile, span, rows);
  }
  with_type(tile.args->layer.k_type, [&]<typename T>(T) {
    if (tile.rows <= kDirectRows) return span_scores_direct<T>(tile, span, rows);
    return span_scores_panels<T>(tile, span, rows);
  });
}

template <typename Sink>
void span_pv(const Tile& tile, std::int64_t span, Rows rows, Sink&& sink) {
  if (tile.args->layer.v_type == KvType::i16) {
    weigh_i16(tile, span, rows);
    if (tile.rows <= kDirectRows) return span_pv_i16_direct(tile, span, rows, sink);
    return span_pv_i16_panels(tile, span, rows, sink);
  }
  with_type(tile.args->layer.v_type, [&]<typename T>(T) {
    if (tile.rows <= kDirectRows && tile.args->layer.v_dim % kPanel == 0) {
      return span_pv_direct<T>(tile, span, rows, sink);
    }
    return span_pv_panels<T>(tile, span, rows, sink);
  });
}

// Scores and softmax of one span: p in tile.s, (m, l) in span_m, span_l.
Rows span_softmax(Tile& tile, std::int64_t span) {
  const Rows rows = find_rows(tile, span);
  if (rows.empty()) return rows;
  span_scores(tile, span, rows);
  for (int r = rows.first; r < rows.last; ++r) {
    const Softmax x = softmax_row(tile.s + r * kSpanTokens, tile.begin[r], tile.end[r], tile.args->softcap);
    tile.span_m[r] = x.m;
    tile.span_l[r] = x.l;
  }
  return rows;
}

// Factors a (running) and b (span) of the merge, and the merged m and l.
void merge_rows(Tile& tile, Rows rows) {
  for (int r = rows.first; r < rows.last; r += 8) {
    const __m256i mask = first_lanes(std::min(rows.last - r, 8));
    const __m256 m = _mm256_loadu_ps(tile.m + r), span_m = _mm256_loadu_ps(tile.span_m + r);
    const __m256 top = _mm256_max_ps(span_m, m);
    const __m256 a = exp_nonpositive<Lanes>(_mm256_sub_ps(m, top));
    const __m256 b = exp_nonpositive<Lanes>(_mm256_sub_ps(span_m, top));
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(tile.span_l + r), b);
    _mm256_maskstore_ps(tile.l + r, mask, _mm256_fmadd_ps(_mm256_loadu_ps(tile.l + r), a, scaled));
    _mm256_maskstore_ps(tile.m + r, mask, top);
    _mm256_maskstore_ps(tile.a + r, mask, a);
    _mm256_maskstore_ps(tile.b + r, mask, b);
  }
}

// out = o / l, with the sink's weight in l where there are sinks; rotated back where V is rotated.
void finish_row(const AttentionArgs& args, std::int64_t head, float m, float l, const float* o, float* out) {
  float a = 1;
  if (args.sinks != nullptr) {
    const float sink = args.sinks[head], top = sink > m ? sink : m;
    a = exp1(m - top);
    l = fma1(l, a, exp1(sink - top));
  }
  const __m256 a8 = _mm256_set1_ps(a), l8 = _mm256_set1_ps(l);
  std::int64_t x = 0;
  const std::int64_t v_dim = args.layer.v_dim;
  for (; x + 8 <= v_dim; x += 8) {
    _mm256_storeu_ps(out + x, _mm256_div_ps(_mm256_mul_ps(_mm256_loadu_ps(o + x), a8), l8));
  }
  for (; x < v_dim; ++x) out[x] = (o[x] * a) / l;
  if (args.layer.v_type == KvType::q8_0) rotate(out, v_dim);
}

// A whole tile: all its spans in ascending order, then the division.
void run_tile(Tile& tile) {
  load_queries(tile);
  std::fill_n(tile.m, tile.rows, -__builtin_inff());
  std::fill_n(tile.l, tile.rows, 0.0f);
  std::fill_n(tile.o, tile.rows * tile.v_pad, 0.0f);
  const std::int64_t first = first_visible(*tile.args, tile.position(0)) / kSpanTokens;
  tile.last_span = tile.position(tile.rows - 1) / kSpanTokens;
  for (std::int64_t span = first; span <= tile.last_span; ++span) {
    const Rows rows = span_softmax(tile, span);
    if (rows.empty()) continue;
    merge_rows(tile, rows);
    span_pv(tile, span, rows, [&](int r, std::int64_t x, const float* acc) {
      merge_values(tile.o + r * tile.v_pad + x, tile.a[r], acc, tile.b[r], kPanel);
    });
  }
  for (int r = 0; r < tile.rows; ++r) {
    finish_row(*tile.args, tile.head(r), tile.m[r], tile.l[r], tile.o + r * tile.v_pad,
               tile.args->out + tile.batch_row(r) * tile.args->layer.v_dim);
  }
}

// One span of a tile, left in room [run rows (token-major, all heads), spans, v_dim + 2] as o, m, l.
struct SpanRoom {
  float* base = nullptr;
  std::int64_t first_span = 0, spans = 0;
  float* at(const AttentionArgs& args, std::int64_t token, std::int64_t head, std::int64_t span) const {
    return base + ((token * args.heads + head) * spans + span - first_span) * (args.layer.v_dim + 2);
  }
};

void run_tile_span(Tile& tile, std::int64_t span, const SpanRoom& room) {
  const Rows rows = find_rows(tile, span);
  if (rows.empty()) return;
  tile.last_span = span;
  load_queries(tile);
  span_softmax(tile, span);
  const std::int64_t v_dim = tile.args->layer.v_dim;
  const auto place = [&](int r) { return room.at(*tile.args, (tile.row0 + r) / tile.group, tile.head(r), span); };
  span_pv(tile, span, rows, [&](int r, std::int64_t x, const float* acc) {
    std::copy_n(acc, std::min<std::int64_t>(kPanel, v_dim - x), place(r) + x);
  });
  for (int r = rows.first; r < rows.last; ++r) {
    place(r)[v_dim] = tile.span_m[r];
    place(r)[v_dim + 1] = tile.span_l[r];
  }
}

// Merges a row's spans in ascending order into `o`, which is then divided into `out`.
void merge_spans(const AttentionArgs& args, const KvRun& run, std::int64_t token, std::int64_t head,
                 const SpanRoom& room, float* o) {
  const std::int64_t v_dim = args.layer.v_dim, position = run.first_position + token;
  float m = -__builtin_inff(), l = 0;
  std::fill_n(o, v_dim, 0.0f);
  for (std::int64_t span = first_visible(args, position) / kSpanTokens; span <= position / kSpanTokens; ++span) {
    const float* part = room.at(args, token, head, span);
    const float span_m = part[v_dim], span_l = part[v_dim + 1], top = span_m > m ? span_m : m;
    const float a = exp1(m - top), b = exp1(span_m - top);
    m = top;
    l = fma1(l, a, span_l * b);
    merge_values(o, a, part, b, v_dim);
  }
  finish_row(args, head, m, l, o, args.out + ((run.first_row + token) * args.heads + head) * v_dim);
}

// How a call is cut. Sizes change with the thread count; results do not.
struct Cut {
  std::int64_t group;
  std::int64_t tile_rows;
  std::int64_t tiles;       // Over all runs and KV heads.
  std::int64_t span_parts;  // The same, counted per span.
  std::size_t room_floats;  // What splitting by span needs.

  std::int64_t tiles_of(const KvRun& run) const { return (run.count * group + tile_rows - 1) / tile_rows; }
};

SpanRoom spans_of(const AttentionArgs& args, const KvRun& run, float* base) {
  const std::int64_t first = first_visible(args, run.first_position) / kSpanTokens;
  const std::int64_t last = (run.first_position + run.count - 1) / kSpanTokens;
  return {base, first, last - first + 1};
}

Cut plan_cut(const Stream& stream, const AttentionArgs& args) {
  Cut cut{};
  const KvLayer& layer = args.layer;
  cut.group = args.heads / layer.kv_heads;
  std::int64_t rows = 0;
  for (const KvRun& run : args.runs) rows += run.count * args.heads;
  // Four tiles a thread even out the causal triangle; under 24 rows the panels stop paying.
  const std::int64_t wanted = rows / (4 * stream.pool->size()) / kMicroRows * kMicroRows;
  cut.tile_rows = std::min(tile_rows_max(layer), std::max<std::int64_t>(wanted, 4 * kMicroRows));
  for (const KvRun& run : args.runs) {
    const std::int64_t spans = spans_of(args, run, nullptr).spans;
    cut.tiles += cut.tiles_of(run) * layer.kv_heads;
    cut.span_parts += cut.tiles_of(run) * layer.kv_heads * spans;
    cut.room_floats += static_cast<std::size_t>(run.count * args.heads * spans * (layer.v_dim + 2));
  }
  return cut;
}

void run_tiles(Stream& stream, const AttentionArgs& args, const Cut& cut) {
  stream.pool->run(cut.tiles, [&](std::int64_t part, int thread) {
    for (const KvRun& run : args.runs) {
      const std::int64_t tiles = cut.tiles_of(run), parts = tiles * args.layer.kv_heads;
      if (part >= parts) {
        part -= parts;
        continue;
      }
      // The last rows see the most: they go first.
      const std::int64_t row0 = (tiles - 1 - part / args.layer.kv_heads) * cut.tile_rows;
      const std::int64_t rows = std::min(cut.tile_rows, run.count * cut.group - row0);
      Tile tile = make_tile(stream, thread, args, run, part % args.layer.kv_heads, row0, rows);
      return run_tile(tile);
    }
  });
}

void run_spans(Stream& stream, const AttentionArgs& args, const Cut& cut) {
  const std::int64_t kv_heads = args.layer.kv_heads, v_dim = args.layer.v_dim;
  stream.pool->run(cut.span_parts, [&](std::int64_t part, int thread) {
    float* base = args.span_room;
    for (const KvRun& run : args.runs) {
      const SpanRoom room = spans_of(args, run, base);
      const std::int64_t parts = cut.tiles_of(run) * kv_heads * room.spans;
      if (part < parts) {
        const std::int64_t span = room.first_span + part % room.spans, piece = part / room.spans;
        const std::int64_t row0 = piece / kv_heads * cut.tile_rows;
        const std::int64_t rows = std::min(cut.tile_rows, run.count * cut.group - row0);
        Tile tile = make_tile(stream, thread, args, run, piece % kv_heads, row0, rows);
        return run_tile_span(tile, span, room);
      }
      part -= parts;
      base += run.count * args.heads * room.spans * (v_dim + 2);
    }
  });
  float* base = args.span_room;
  for (const KvRun& run : args.runs) {
    const SpanRoom room = spans_of(args, run, base);
    const auto merge = [&](std::int64_t row, int thread) {
      auto* o =
          reinterpret_cast<float*>(stream.scratch + static_cast<std::size_t>(thread) * stream.scratch_bytes_per_thread);
      merge_spans(args, run, row / args.heads, row % args.heads, room, o);
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

}  // namespace

void attention(Stream& stream, const AttentionArgs& args) {
  const KvLayer& layer = args.layer;
  LODE_CHECK(layer.kv_heads > 0 && args.heads % layer.kv_heads == 0);
  LODE_CHECK(stream.scratch_bytes_per_thread >= generic::attention_scratch_bytes(std::max(layer.k_dim, layer.v_dim)));
  // No model has such heads.
  if (layer.v_type == KvType::i16 && layer.v_dim % kPanel != 0) return generic::attention(stream, args);
  const Cut cut = plan_cut(stream, args);
  const bool starved = stream.pool->size() > 1 && cut.tiles < 4 * stream.pool->size() && cut.span_parts > cut.tiles;
  if (starved && args.span_room != nullptr && cut.room_floats <= args.span_room_floats) {
    run_spans(stream, args, cut);
  } else {
    run_tiles(stream, args, cut);
  }
}

}  // namespace lode::kernels::avx2
