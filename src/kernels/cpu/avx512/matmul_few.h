// Products of one to four tokens: weights are read once, as they lie in the file, 16 rows at a time, 64 codes of a row
// in one register. A row's integer sums are spread over 16 lanes; a tree of adds turns 16 such rows into one register
// with a row in each lane, where the group's f32 fma is done for all 16. Bound by memory.
//
// Sums are exact: a lane holds four products of an unsigned code and an activation, at most 4 * 63 * 127 = 32,004 in
// the formats of 256, so that it fits the int16 that vpdpwssd multiplies by the scale. Templates over the vector type.
// Owns nothing.
#pragma once

#include "kernels/cpu/avx512/formats.h"
#include "quant/types.h"

namespace lode::kernels::avx512 {

// In each 128-bit lane: the sums of the four int32 of a, b, c, d.
template <typename V>
static inline typename V::I add_quads(typename V::I a, typename V::I b, typename V::I c, typename V::I d) {
  const typename V::I ab = V::add32(V::low32(a, b), V::high32(a, b)), cd = V::add32(V::low32(c, d), V::high32(c, d));
  return V::add32(V::low64(ab, cd), V::high64(ab, cd));
}

// Of 16 rows' lanes, as four registers of add_quads (rows 0-3, 4-7, ...): lane r of `low` is the sum of row r's lanes
// 0-7, lane r of `high` of its lanes 8-15.
template <typename V>
struct Halves {
  typename V::I low, high;
};
template <typename V>
static inline Halves<V> half_sums(const typename V::I* part) {
  const typename V::I a = V::add32(V::even_quads(part[0], part[1]), V::odd_quads(part[0], part[1]));
  const typename V::I b = V::add32(V::even_quads(part[2], part[3]), V::odd_quads(part[2], part[3]));
  return {V::even_quads(a, b), V::odd_quads(a, b)};
}
template <typename V>
static inline typename V::I whole_sums(const typename V::I* part) {
  const Halves<V> halves = half_sums<V>(part);
  return V::add32(halves.low, halves.high);
}

template <typename V, typename Block, int kTokens>
static inline void add_group32(const Rows16& rows, std::int64_t offset, const Acts& x, std::int64_t group,
                               const typename V::I* sum, typename V::F* acc) {
  using Format = Format32<V, Block>;
  const typename V::F d = row_halves<V>(rows, offset);
  const std::int64_t groups = x.cols / 32;
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    const std::int64_t at = t * groups + group;
    typename V::I isum = sum[t];
    if constexpr (Format::kOffset != 0) isum = V::add32(isum, V::set32(x.s32[at] * -Format::kOffset));
    acc[t] = V::fma(V::to_f32(isum), V::mul(d, V::set(x.d32[at])), acc[t]);
  }
  if constexpr (Format::kMin) {
    const typename V::F m = row_halves<V>(rows, offset + 2);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) acc[t] = V::fma(m, V::set(x.t32[t * groups + group]), acc[t]);
  }
}

// Two groups of 16 rows, at `offset` bytes of each; where there is only one, the second's activations are zeros.
template <typename V, typename Block, int kTokens>
static inline void two_groups(const Rows16& rows, std::int64_t offset, const Acts& x, std::int64_t group, bool both,
                              typename V::F* acc) {
  const std::int64_t next = both ? static_cast<std::int64_t>(sizeof(Block)) : 0;
  typename V::I q[kTokens], part[kTokens][4];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    const std::int8_t* at = x.q32 + t * x.cols + 32 * group;
    q[t] = both ? V::iload(at) : V::low_half(at);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    typename V::I sum[kTokens][4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const std::byte* block = rows.row[4 * k + r] + offset;
      const typename V::I codes = Format32<V, Block>::codes(reinterpret_cast<const Block*>(block),
                                                            reinterpret_cast<const Block*>(block + next));
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) sum[t][r] = V::dot_u8s8(V::izero(), codes, q[t]);
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) part[t][k] = add_quads<V>(sum[t][0], sum[t][1], sum[t][2], sum[t][3]);
  }
  typename V::I low[kTokens], high[kTokens];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    const Halves<V> halves = half_sums<V>(part[t]);
    low[t] = halves.low;
    high[t] = halves.high;
  }
  add_group32<V, Block, kTokens>(rows, offset, x, group, low, acc);
  if (both) add_group32<V, Block, kTokens>(rows, offset + next, x, group + 1, high, acc);
}

template <typename V, typename Block, int kTokens>
static void few_g32(const RowsTask& task) {
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 32, bytes = quant::row_bytes(task.w->type, x.cols);
  for (std::int64_t first = task.first; first < task.end; first += 16) {
    const Rows16 rows = rows_at(*task.w, bytes, first);
    typename V::F acc[kTokens];
    for (int t = 0; t < kTokens; ++t) acc[t] = V::zero();
    std::int64_t i = 0;
    for (; i + 2 <= groups; i += 2) {
      fetch_next_rows<V, Block>(rows.row[0], bytes, i, 2);
      two_groups<V, Block, kTokens>(rows, i * static_cast<std::int64_t>(sizeof(Block)), x, i, true, acc);
    }
    if (i < groups) two_groups<V, Block, kTokens>(rows, i * static_cast<std::int64_t>(sizeof(Block)), x, i, false, acc);
    for (int t = 0; t < kTokens; ++t)
      V::store_first(task.y + t * task.y_stride + first, least(16, task.end - first), acc[t]);
  }
}

// What a token brings to a block of 256 columns.
template <typename V>
struct Token256 {
  const std::int8_t* q;  // [256]
  typename V::I sums;    // Q4_K, Q5_K: lanes 8-15 the sums of q over 32. Q6_K: lane j -32 * the sum over 16.
};

// Q4_K, Q5_K: lanes that add up to the sum of scale * code * q of one row's block, and of min * (sum of q).
template <typename V, typename Block, int kTokens>
static inline void row_k45(const Block* b, const Token256<V>* token, int r, typename V::I (*sums)[4],
                           typename V::I (*mins)[4]) {
  const ScalesK4 packed = scales_k4<V>(b->scales);
  const typename V::I scales = V::widen_u8(packed.scales, packed.mins);  // Lanes: 8 scales, 8 minimums.
  const typename V::I at[4] = {V::template lane_index<0, 8>(), V::template lane_index<2, 8>(),
                               V::template lane_index<4, 8>(), V::template lane_index<6, 8>()};
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    sums[t][r] = V::izero();
    mins[t][r] = V::dot_s16(V::izero(), scales, token[t].sums);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const typename V::I codes = Format256<V, Block>::run(b, j), scale = V::permute32(at[j], scales);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t)
      sums[t][r] = V::dot_s16(sums[t][r], V::dot_u8s8(V::izero(), codes, V::iload(token[t].q + 64 * j)), scale);
  }
}

// Q6_K: codes are 32 above the weights; what that adds, sum over sub-blocks of scale * 32 * (sum of q), goes off first.
template <typename V, typename Block, int kTokens>
static inline void row_k6(const Block* b, const Token256<V>* token, int r, typename V::I (*sums)[4]) {
  const typename V::I wide = V::widen_s8(b->scales);
  // As (scale, 0) in int16: the upper half of a sum of codes, its sign, meets the zero.
  const typename V::I scales = V::and_(wide, V::set32(0xffff));
  const typename V::I at[4] = {V::template lane_index<0, 4>(), V::template lane_index<4, 4>(),
                               V::template lane_index<8, 4>(), V::template lane_index<12, 4>()};
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) sums[t][r] = V::mul32(wide, token[t].sums);
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const typename V::I codes = Format256<V, Block>::run(b, j), scale = V::permute32(at[j], scales);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t)
      sums[t][r] = V::dot_s16(sums[t][r], V::dot_u8s8(V::izero(), codes, V::iload(token[t].q + 64 * j)), scale);
  }
}

template <typename V, typename Block, int kTokens>
static inline void block_sums(const Rows16& rows, std::int64_t offset, const Token256<V>* token, typename V::I* isum,
                              typename V::I* msum) {
  typename V::I part[kTokens][4], min_part[kTokens][4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    typename V::I sums[kTokens][4], mins[kTokens][4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const Block* block = reinterpret_cast<const Block*>(rows.row[4 * k + r] + offset);
      if constexpr (Format256<V, Block>::kMin) {
        row_k45<V, Block, kTokens>(block, token, r, sums, mins);
      } else {
        row_k6<V, Block, kTokens>(block, token, r, sums);
      }
    }
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      part[t][k] = add_quads<V>(sums[t][0], sums[t][1], sums[t][2], sums[t][3]);
      if constexpr (Format256<V, Block>::kMin)
        min_part[t][k] = add_quads<V>(mins[t][0], mins[t][1], mins[t][2], mins[t][3]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    isum[t] = whole_sums<V>(part[t]);
    if constexpr (Format256<V, Block>::kMin) msum[t] = whole_sums<V>(min_part[t]);
  }
}

template <typename V, typename Block, int kTokens>
static void few_g256(const RowsTask& task) {
  constexpr bool kMin = Format256<V, Block>::kMin;
  constexpr auto kD = static_cast<std::int64_t>(kMin ? 0 : sizeof(Block) - 2);  // Q6_K's d ends its block.
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 256, bytes = quant::row_bytes(task.w->type, x.cols);
  for (std::int64_t first = task.first; first < task.end; first += 16) {
    const Rows16 rows = rows_at(*task.w, bytes, first);
    typename V::F acc[kTokens];
    for (int t = 0; t < kTokens; ++t) acc[t] = V::zero();
    for (std::int64_t i = 0; i < groups; ++i) {
      const std::int64_t offset = i * static_cast<std::int64_t>(sizeof(Block));
      fetch_next_rows<V, Block>(rows.row[0], bytes, i, 1);
      Token256<V> token[kTokens];
      for (int t = 0; t < kTokens; ++t) {
        const std::int64_t block = t * groups + i;
        token[t].q = x.q256 + block * 256;
        token[t].sums =
            kMin ? V::widen_s16_high(x.u256 + block * 8) : V::mul32(V::widen_s16(x.s256 + block * 16), V::set32(-32));
      }
      typename V::I isum[kTokens], msum[kTokens];
      block_sums<V, Block, kTokens>(rows, offset, token, isum, msum);
      const typename V::F d = row_halves<V>(rows, offset + kD);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const typename V::F scale = V::set(x.d256[t * groups + i]);
        acc[t] = V::fma(V::to_f32(isum[t]), V::mul(d, scale), acc[t]);
        if constexpr (kMin)
          acc[t] = V::fnma(V::to_f32(msum[t]), V::mul(row_halves<V>(rows, offset + 2), scale), acc[t]);
      }
    }
    for (int t = 0; t < kTokens; ++t)
      V::store_first(task.y + t * task.y_stride + first, least(16, task.end - first), acc[t]);
  }
}

}  // namespace lode::kernels::avx512
