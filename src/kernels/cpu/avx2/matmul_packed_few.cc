// Products of few tokens with packed rows: a register holds 4 columns of 8 rows, four bytes of a token are broadcast to
// meet them, and a group's whole-number sum of each row ends up in a lane of its own without any reduction. One run of
// memory feeds a thread, which is what its prefetchers follow: 22 GB/s a core where 8 rows side by side gave 15.7.
//
// Sums of two products a byte pair stay 16 bits wide while they fit: 16 products of codes below 16 are at most 16 * 15
// * 127 = 30,480, 8 of codes below 32 at most 31,496. Q6_K's, up to 63, wrap around modulo 2^16 and 32 * (sum of q) is
// subtracted modulo 2^16 as well: 8 products of |w| <= 32 fit (32,512).
#include "kernels/cpu/avx2/matmul.h"
#include "kernels/cpu/avx2/packed.h"
#include "kernels/cpu/avx2/rows.h"

namespace lode::kernels::avx2 {
namespace {

using quant::DType;

// One kernel's work: 8 packed rows with tokens `token` and on.
struct PackedPass {
  const std::byte* rows;
  std::int64_t first;  // Row.
  std::int64_t token;
};
using PackedFn = void (*)(const RowsTask&, PackedPass);

// Bytes ahead at which a block asks for memory: the hardware follows one run, but stops at each page of 4 KiB.
constexpr std::int64_t kAhead = 2048;
template <std::int64_t kBytes>
[[gnu::always_inline]] inline void ask_ahead(const void* at) {
  for (std::int64_t i = 0; i < kBytes; i += 64) _mm_prefetch(static_cast<const char*>(at) + kAhead + i, _MM_HINT_T0);
}

// ---- Groups of 32 ----

// The whole-number sums of 8 rows with one group of each token; q[t] [32].
template <typename Packed, int kTokens>
[[gnu::always_inline]] inline void group_sums(const Packed* p, const std::int8_t* const* q, __m256i* sum) {
  constexpr bool kFive = std::is_same_v<Packed, quant::PackedQ5_0> || std::is_same_v<Packed, quant::PackedQ5_1>;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i part[kTokens];
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) {
    const __m256i w = packed_codes(p, c);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256i a = broadcast32(q[t] + 4 * c);
      if constexpr (std::is_same_v<Packed, quant::PackedQ8_0>) {
        const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
        const __m256i four = _mm256_madd_epi16(pairs, ones);
        sum[t] = c == 0 ? four : _mm256_add_epi32(sum[t], four);
      } else {
        const __m256i pairs = _mm256_maddubs_epi16(w, a);
        part[t] = c == 0 || (kFive && c == 4) ? pairs : _mm256_add_epi16(part[t], pairs);
        if (kFive && c == 3) sum[t] = _mm256_madd_epi16(part[t], ones);
        if (c == 7)
          sum[t] =
              kFive ? _mm256_add_epi32(sum[t], _mm256_madd_epi16(part[t], ones)) : _mm256_madd_epi16(part[t], ones);
      }
    }
  }
}

template <typename Block, int kTokens>
void packed_g32(const RowsTask& task, PackedPass pass) {
  using Packed = typename PackedOf<Block>::Type;
  using F = Format32<Block>;
  constexpr bool kSigned = std::is_same_v<Block, quant::BlockQ8_0>;
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 32;
  __m256 acc[kTokens];
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < groups; ++i) {
    const Packed* p = packed_block<Block>(pass.rows, i);
    ask_ahead<sizeof(Packed)>(p);
    const std::int8_t* q[kTokens];
    for (int t = 0; t < kTokens; ++t) q[t] = x.q32 + 32 * ((pass.token + t) * groups + i);
    __m256i sum[kTokens];
    group_sums<Packed, kTokens>(p, q, sum);
    const __m256 d = packed_halves(p->d);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const std::int64_t at = (pass.token + t) * groups + i;
      if constexpr (!kSigned && F::kShift > 0)
        sum[t] = _mm256_sub_epi32(sum[t], _mm256_set1_epi32(x.s32[at] * (1 << F::kShift)));
      acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[t]), _mm256_mul_ps(d, _mm256_set1_ps(x.d32[at])), acc[t]);
      if constexpr (F::kMin) acc[t] = _mm256_fmadd_ps(packed_halves(p->m), _mm256_set1_ps(x.t32[at]), acc[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) store_rows(task, pass.first, pass.token + t, acc[t]);
}

// ---- Groups of 256 ----

// Columns of one block that a token needs beside its codes.
struct Token256 {
  const std::int8_t* q;   // [256]
  const std::int16_t* u;  // [8] sums of q over 32
  const std::int16_t* p;  // [16, 2] sums of q over 16, as Acts::p256
};

// Q4_K and Q5_K: sums of scale * code * q, and of min * (sum of q).
template <typename Packed, int kTokens>
[[gnu::always_inline]] inline void block_sums(const Packed* p, const Token256* x, __m256i* sum, __m256i* mins) {
  constexpr bool kFive = std::is_same_v<Packed, quant::PackedQ5_K>;
  PackedScales scales;
  packed_scales(p->scales, scales);
  for (int t = 0; t < kTokens; ++t) sum[t] = _mm256_setzero_si256();
#pragma GCC unroll 1
  for (int j = 0; j < 8; j += 2) {
    __m256i part[2][kTokens];
    const __m256i scale[2] = {twice_unsigned(load64(scales.scale[j])), twice_unsigned(load64(scales.scale[j + 1]))};
    const __m256i shift = _mm256_set1_epi8(16);
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      const __m256i v = load256(p->qs[4 * j + c]);
      __m256i w[2] = {low_nibbles(v), high_nibbles(v)};
      if constexpr (kFive) {  // Bits j and j + 1, moved to bit 4: j is no constant here.
        const __m256i bits = _mm256_srl_epi16(load256(p->qh[c]), _mm_cvtsi32_si128(j));
        w[0] = _mm256_or_si256(w[0], _mm256_and_si256(_mm256_slli_epi16(bits, 4), shift));
        w[1] = _mm256_or_si256(w[1], _mm256_and_si256(_mm256_slli_epi16(bits, 3), shift));
      }
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t)
        for (int s = 0; s < 2; ++s) {
          const __m256i pairs = _mm256_maddubs_epi16(w[s], broadcast32(x[t].q + 32 * (j + s) + 4 * c));
          part[s][t] = c == 0 || (kFive && c == 4) ? pairs : _mm256_add_epi16(part[s][t], pairs);
          if (c == 7 || (kFive && c == 3)) sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(part[s][t], scale[s]));
        }
    }
  }
  for (int t = 0; t < kTokens; ++t) mins[t] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int j = 0; j < 8; j += 2) {
    const __m256i pair = pair_unsigned(load64(scales.min[j]), load64(scales.min[j + 1]));
    for (int t = 0; t < kTokens; ++t)
      mins[t] = _mm256_add_epi32(mins[t], _mm256_madd_epi16(pair, broadcast32(x[t].u + j)));
  }
}

// Q6_K: sums of scale * (code - 32) * q.
template <int kTokens>
[[gnu::always_inline]] inline void block_sums(const quant::PackedQ6_K* p, const Token256* x, __m256i* sum) {
  const __m256i two = _mm256_set1_epi8(48);
  for (int t = 0; t < kTokens; ++t) sum[t] = _mm256_setzero_si256();
#pragma GCC unroll 2
  for (int piece = 0; piece < 8; ++piece) {  // A half of the block, 16 of 32 columns, low or high 32 of 64 ql bytes.
    const int half = piece / 4, sixteen = piece / 2 % 2, side = piece % 2;
    __m256i part[2][kTokens];  // Parts `side` and `side + 2` of the half.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const __m256i ql = load256(p->ql[16 * half + 8 * side + 4 * sixteen + c]);
      const __m256i qh = load256(p->qh[8 * half + 4 * sixteen + c]);
      const __m256i low = side == 0 ? _mm256_slli_epi16(qh, 4) : _mm256_slli_epi16(qh, 2);
      const __m256i high = side == 0 ? qh : _mm256_srli_epi16(qh, 2);
      const __m256i w[2] = {_mm256_or_si256(low_nibbles(ql), _mm256_and_si256(low, two)),
                            _mm256_or_si256(high_nibbles(ql), _mm256_and_si256(high, two))};
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t)
        for (int s = 0; s < 2; ++s) {
          const std::int8_t* q = x[t].q + 128 * half + 32 * (side + 2 * s) + 16 * sixteen + 4 * c;
          const __m256i pairs = _mm256_maddubs_epi16(w[s], broadcast32(q));
          part[s][t] = c == 0 ? pairs : _mm256_add_epi16(part[s][t], pairs);
        }
    }
    for (int s = 0; s < 2; ++s) {
      const int sub = 8 * half + 2 * (side + 2 * s) + sixteen;
      const __m256i scale = twice_signed(load64(p->scales[sub]));
      for (int t = 0; t < kTokens; ++t) {
        const __m256i surplus = _mm256_slli_epi16(broadcast32(x[t].p + 2 * sub), 5);
        sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(_mm256_sub_epi16(part[s][t], surplus), scale));
      }
    }
  }
}

template <typename Block, int kTokens>
void packed_g256(const RowsTask& task, PackedPass pass) {
  using Packed = typename PackedOf<Block>::Type;
  using F = Format256<Block>;
  const Acts& x = *task.x;
  const std::int64_t groups = x.cols / 256;
  __m256 acc[kTokens];
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < groups; ++i) {
    const Packed* p = packed_block<Block>(pass.rows, i);
    ask_ahead<sizeof(Packed)>(p);
    Token256 token[kTokens];
    for (int t = 0; t < kTokens; ++t) {
      const std::int64_t at = (pass.token + t) * groups + i;
      token[t] = {x.q256 + 256 * at, x.u256 + 8 * at, x.p256 + 32 * at};
    }
    __m256i sum[kTokens], mins[kTokens];
    if constexpr (F::kMin) block_sums<Packed, kTokens>(p, token, sum, mins);
    else block_sums<kTokens>(p, token, sum);
    const __m256 d = packed_halves(p->d);
    for (int t = 0; t < kTokens; ++t) {
      const __m256 scale = _mm256_set1_ps(x.d256[(pass.token + t) * groups + i]);
      acc[t] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[t]), _mm256_mul_ps(d, scale), acc[t]);
      if constexpr (F::kMin)
        acc[t] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(mins[t]), _mm256_mul_ps(packed_halves(p->dmin), scale), acc[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) store_rows(task, pass.first, pass.token + t, acc[t]);
}

// ---- All rows of a task, up to 4 tokens at a time ----

// pass[n - 1] takes n tokens.
void run_packed(const RowsTask& task, const PackedFn (&pass)[4]) {
  const std::int64_t bytes = quant::row_bytes(task.w->type, task.x->cols);
  for (std::int64_t first = task.first; first < task.end; first += quant::kPackedRows)
    for (std::int64_t token = 0; token < task.x->n; token += 4)
      pass[std::min<std::int64_t>(4, task.x->n - token) - 1](task, {task.w->data + first * bytes, first, token});
}
template <typename Block>
void all_g32(const RowsTask& task) {
  run_packed(task, {packed_g32<Block, 1>, packed_g32<Block, 2>, packed_g32<Block, 3>, packed_g32<Block, 4>});
}
template <typename Block>
void all_g256(const RowsTask& task) {
  run_packed(task, {packed_g256<Block, 1>, packed_g256<Block, 2>, packed_g256<Block, 3>, packed_g256<Block, 4>});
}

}  // namespace

RowsFn packed_few_function(DType type) {
  switch (type) {
    case DType::q4_0: return all_g32<quant::BlockQ4_0>;
    case DType::q4_1: return all_g32<quant::BlockQ4_1>;
    case DType::q5_0: return all_g32<quant::BlockQ5_0>;
    case DType::q5_1: return all_g32<quant::BlockQ5_1>;
    case DType::q8_0: return all_g32<quant::BlockQ8_0>;
    case DType::q4_k: return all_g256<quant::BlockQ4_K>;
    case DType::q5_k: return all_g256<quant::BlockQ5_K>;
    case DType::q6_k: return all_g256<quant::BlockQ6_K>;
    default: return nullptr;
  }
}

}  // namespace lode::kernels::avx2
