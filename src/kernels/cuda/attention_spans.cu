// Attention of single rows over blocks in f16 or q8_0 with heads of 64, 128 or 256, on the tensor cores: a block of
// four warps takes one absolute span of 256 tokens for up to eight query heads of one KV head, a warp 64 of the tokens.
// Scores are made as K Q^T and outputs as V^T P^T, so that K and V go from memory straight into the operand with 16
// rows: which token (or dimension) stands in which row of a product is free, and so a lane's 8- and 16-byte loads
// become rows of neighbouring products by pairing two of them. Q and P are f16, sums f32; codes of q8_0 are whole in
// f16, K's scales multiply the sum of a group, V's the codes. A row's bits depend on its tokens alone.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/kv_q8.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kHeads = 8, kPiece = 64;

// c [16, 8] += a [16, 16] b [16, 8].
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], const uint2& b) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.x), "r"(b.y));
#else
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(b.x));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[2]), "r"(a[3]), "r"(b.y));
#endif
}
__device__ __forceinline__ unsigned pack(float a, float b) {
  return bits_of(__floats2half2_rn(a, b));
}
// An 8x8 matrix of halves, row i in lanes 4 i .. 4 i + 3, turned around.
__device__ __forceinline__ unsigned transposed(unsigned x) {
  unsigned y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
// A warp asks for `bytes` from `from` to be brought into the L2; both are multiples of 16.
__device__ __forceinline__ void prefetch(const std::byte* from, int bytes, int lane) {
#if __CUDA_ARCH__ >= 900
  if (lane == 0)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes));
#else
  for (int i = lane * 128; i < bytes; i += 32 * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i));
#endif
}

__device__ __forceinline__ unsigned word_of(const uint2& v, int w) {
  return w == 0 ? v.x : v.y;
}
__device__ __forceinline__ unsigned word_of(const uint4& v, int w) {
  return w == 0 ? v.x : w == 1 ? v.y : w == 2 ? v.z : v.w;
}
// Word j of four rows of halves: the operand of product j.
__device__ __forceinline__ void operand_of_halves(const uint4 (&r)[4], int j, unsigned (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned first = word_of(r[2 * i], j), second = word_of(r[2 * i + 1], j);
    a[2 * i] = __byte_perm(first, second, 0x5410), a[2 * i + 1] = __byte_perm(first, second, 0x7632);
  }
}
// Four bytes of four rows of codes: the operands of products 2 w and 2 w + 1.
__device__ __forceinline__ void operands_of_codes(const unsigned (&r)[4], unsigned (&even)[4], unsigned (&odd)[4]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const unsigned a = r[2 * i] ^ 0x80808080u, b = r[2 * i + 1] ^ 0x80808080u;
    const unsigned low = __byte_perm(a, b, 0x5140), high = __byte_perm(a, b, 0x7362);
    even[2 * i] = bits_of(halves_of<0x4140>(low)), even[2 * i + 1] = bits_of(halves_of<0x4342>(low));
    odd[2 * i] = bits_of(halves_of<0x4140>(high)), odd[2 * i + 1] = bits_of(halves_of<0x4342>(high));
  }
}
__device__ __forceinline__ void scale_operand(unsigned (&a)[4], __half2 first, __half2 second) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = bits_of(__hmul2(*reinterpret_cast<const __half2*>(&a[i]), i < 2 ? first : second));
}

// Scores of the warp's 64 tokens: s[j][e] of token 8 eight + 2 j + e / 2 and head 2 quad + e % 2.
// A step of 16 dimensions is four loads a lane, of dimensions 4 i + quad and tokens 8 eight .. + 7.
template <int D, bool q8>
struct Scores;
template <int D>
struct Scores<D, false> {
  static constexpr int kSteps = D / 16, kAhead = 2;
  const __half* k;
  uint4 ahead[kAhead][4];
  __device__ __forceinline__ void load(int step) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ahead[step % kAhead][i] = *reinterpret_cast<const uint4*>(k + (16 * step + 4 * i) * kBlockTokens);
  }
  // The lane's first loads, from its block's K of the head.
  __device__ __forceinline__ void begin(const RowArgs& a, const std::byte* block, int kv_head, int quad, int eight) {
    k = reinterpret_cast<const __half*>(block + a.k_offset) +
        (static_cast<long long>(kv_head) * D + quad) * kBlockTokens + eight % 4 * 8;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load(i);
  }
  __device__ __forceinline__ void run(const uint2* q, float (&s)[4][4]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint4 now[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) now[i] = ahead[step % kAhead][i];
      if (step + kAhead < kSteps) load(step + kAhead);
      const uint2 b = q[4 * step];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        unsigned a[4];
        operand_of_halves(now, j, a);
        multiply(s[j], a, b);
      }
    }
  }
};
template <int D>
struct Scores<D, true> {
  static constexpr int kSteps = D / 16, kAhead = 4;
  const signed char* k;
  const __half* scales;
  uint2 ahead[kAhead][4];
  uint4 scale[3];
  __device__ __forceinline__ void load(int step) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      ahead[step % kAhead][i] = *reinterpret_cast<const uint2*>(k + (16 * step + 4 * i) * kBlockTokens);
    if (step % 2 == 0) scale[step / 2 % 3] = *reinterpret_cast<const uint4*>(scales + step / 2 * kBlockTokens);
  }
  __device__ __forceinline__ void begin(const RowArgs& a, const std::byte* block, int kv_head, int quad, int eight) {
    k = reinterpret_cast<const signed char*>(block + a.k_offset) +
        (static_cast<long long>(kv_head) * D + quad) * kBlockTokens + eight % 4 * 8;
    scales = reinterpret_cast<const __half*>(block + a.k_scales) +
             static_cast<long long>(kv_head) * (D / 32) * kBlockTokens + eight % 4 * 8;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load(i);
  }
  __device__ __forceinline__ void run(const uint2* q, float (&s)[4][4]) {
    float group[4][4];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (step % 2 == 0) {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) group[j][e] = 0;
      }
      const uint2 b = q[4 * step];
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        unsigned rows[4], even[4], odd[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[i] = word_of(ahead[step % kAhead][i], w);
        operands_of_codes(rows, even, odd);
        multiply(group[2 * w], even, b);
        multiply(group[2 * w + 1], odd, b);
      }
      if (step % 2 == 1) {
        const uint4 of = scale[step / 2 % 3];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const unsigned raw = word_of(of, j);
          const float2 d = __half22float2(*reinterpret_cast<const __half2*>(&raw));
#pragma unroll
          for (int e = 0; e < 4; ++e) s[j][e] = fmaf(e < 2 ? d.x : d.y, group[j][e], s[j][e]);
        }
      }
      if (step + kAhead < kSteps) load(step + kAhead);
    }
  }
};

// o += V^T P^T over the warp's 64 tokens. Product i has dimensions that out_word() below names in rows `eight` and
// `eight` + 8; step j has tokens 16 quad + 2 j and 8 further, and the ones after each.
template <int D, bool q8>
struct Mix;
template <int D>
struct Mix<D, false> {
  static constexpr int kParts = D / 64, kUnits = 4 * kParts, kAhead = 2;
  const __half* v;
  int lo, hi;  // Of the lane's 16 tokens it sees [lo, hi).
  uint4 ahead[kAhead][4];
  __device__ __forceinline__ void load(int unit) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 2 * (unit / kParts) + 8 * (i % 2) + i / 2;
      ahead[unit % kAhead][i] = *reinterpret_cast<const uint4*>(v + token * D + 64 * (unit % kParts));
      // What is not seen may be NaN; zero times it must be zero.
      if (token < lo || token >= hi) ahead[unit % kAhead][i] = make_uint4(0, 0, 0, 0);
    }
  }
  __device__ __forceinline__ void begin(const RowArgs& a, const std::byte* block, int kv_head, int quad, int eight,
                                        int first, int end) {
    v = reinterpret_cast<const __half*>(block + a.v_offset) +
        (static_cast<long long>(kv_head) * kBlockTokens + quad % 2 * 16) * D + 8 * eight;
    lo = first - 16 * quad, hi = end - 16 * quad;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load(i);
  }
  __device__ __forceinline__ void run(const uint2 (&p)[4], const __half*, int, float (&o)[D / 16][4]) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      uint4 now[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) now[i] = ahead[unit % kAhead][i];
      if (unit + kAhead < kUnits) load(unit + kAhead);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        unsigned a[4];
        operand_of_halves(now, w, a);
        multiply(o[4 * (unit % kParts) + w], a, p[unit / kParts]);
      }
    }
  }
};
template <int D>
struct Mix<D, true> {
  static constexpr int kBytes = D == 64 ? 8 : 16, kParts = D / 8 / kBytes, kUnits = 4 * kParts;
  static constexpr int kAhead = D == 64 ? 3 : 2;
  using Load = std::conditional_t<kBytes == 8, uint2, uint4>;
  const signed char* v;
  Load ahead[kAhead][4];
  __device__ __forceinline__ void load(int unit) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = 2 * (unit / kParts) + 8 * (i % 2) + i / 2;
      ahead[unit % kAhead][i] = *reinterpret_cast<const Load*>(v + token * D + 8 * kBytes * (unit % kParts));
    }
  }
  __device__ __forceinline__ void begin(const RowArgs& a, const std::byte* block, int kv_head, int quad, int eight, int,
                                        int) {
    v = reinterpret_cast<const signed char*>(block + a.v_offset) +
        (static_cast<long long>(kv_head) * kBlockTokens + quad % 2 * 16) * D + kBytes * eight;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) load(i);
  }
  // scales: of the lane's 16 tokens, D / 32 halves each, unseen ones zero.
  __device__ __forceinline__ void run(const uint2 (&p)[4], const __half* scales, int eight, float (&o)[D / 16][4]) {
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      const int part = unit % kParts, token = 2 * (unit / kParts);
      const __half* d = scales + token * (D / 32) + (8 * kBytes * part + kBytes * eight) / 32;
      const __half2 first = __halves2half2(d[0], d[8 * (D / 32)]), second = __halves2half2(d[D / 32], d[9 * (D / 32)]);
#pragma unroll
      for (int w = 0; w < kBytes / 4; ++w) {
        unsigned rows[4], even[4], odd[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) rows[i] = word_of(ahead[unit % kAhead][i], w);
        operands_of_codes(rows, even, odd);
        scale_operand(even, first, second), scale_operand(odd, first, second);
        multiply(o[kBytes / 2 * part + 2 * w], even, p[unit / kParts]);
        multiply(o[kBytes / 2 * part + 2 * w + 1], odd, p[unit / kParts]);
      }
      if (unit + kAhead < kUnits) load(unit + kAhead);
    }
  }
};

// Shared memory of a block. q: pairs of halves in the order of products, rows 32 bytes apart from a multiple of 128.
template <int D, bool k_q8, bool v_q8>
struct Room {
  static constexpr int kQRow = D / 4 + 4;  // Of uint2.
  static constexpr int kScaleRow = 16 * (D / 32) + 8;
  float part[kWarps][kHeads][D + 4];
  float2 piece[kWarps][kHeads];
  uint2 q[kHeads][kQRow];
  alignas(16) __half scales[v_q8 ? kWarps : 1][4 * kScaleRow];
};
// Where dimension x of o lies in `part`: products' rows `eight` beside one another, turned so that neither the writing
// warp nor the reading one meets itself in a bank.
template <int D, bool v_q8>
struct OutOrder {
  static constexpr int kWide = v_q8 && D > 64 ? 16 : 8;  // Neighbouring dimensions of a lane.
  static __device__ __forceinline__ int word(int i, int eight) {
    return 16 * i + 2 * (eight ^ (kWide == 16 ? (i >> 1 & 3) << 1 : (i >> 1 & 1) << 2));
  }
  static __device__ __forceinline__ int word_of_dim(int x) {
    const int part = x / (8 * kWide), eight = x % (8 * kWide) / kWide, i = part * (kWide / 2) + x % kWide / 2;
    return word(i, eight) + x % 2;
  }
};

// Q of the block's heads as halves, rotated where K is; a warp takes heads warp and warp + 4.
template <int D, bool rotated, typename R>
__device__ __forceinline__ void prepare_q(const RowArgs& a, R& room, long long row, int head0, int heads) {
  const int lane = threadIdx.x & 31;
  for (int h = threadIdx.x >> 5; h < kHeads; h += kWarps) {
    float x[D / 32];
#pragma unroll
    for (int i = 0; i < D / 32; ++i) x[i] = h < heads ? a.q[(row * a.heads + head0 + h) * D + 32 * i + lane] : 0.0f;
    if constexpr (rotated) rotate_piece(x, D);
    __half* to = reinterpret_cast<__half*>(room.q[h]);
#pragma unroll
    for (int i = 0; i < D / 32; ++i) {  // Of 16 dimensions the lane `quad` has those with d % 4 = quad, ascending.
      const int d = 32 * i + lane;
      to[d / 16 * 16 + d % 4 * 4 + d % 16 / 4] = __float2half_rn(x[i]);
    }
  }
}

template <int D, bool k_q8, bool v_q8>
__global__ void __launch_bounds__(kThreads, D == 256 ? 2 : 4) spans_kernel(const __grid_constant__ RowArgs a) {
  __shared__ Room<D, k_q8, v_q8> room;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, quad = lane & 3, eight = lane >> 2;
  const long long row = a.rows ? a.rows[blockIdx.z] : a.first_row + blockIdx.z;
  const long long position = a.positions[row], first = first_visible(a, position);
  const long long span = first / kSpanTokens + blockIdx.x;
  if (span > position / kSpanTokens) {
    wait_for_inputs();
    return;
  }
  const int parts = (a.group + kHeads - 1) / kHeads, kv_head = static_cast<int>(blockIdx.y) / parts;
  const int head0 = kv_head * a.group + static_cast<int>(blockIdx.y) % parts * kHeads;
  const int heads = min(kHeads, (kv_head + 1) * a.group - head0);
  // The warp's tokens [0, 64) from `start`, of which it sees [lo, hi).
  const long long start = span * kSpanTokens + warp * kPiece;
  const int lo = static_cast<int>(max(0ll, min(static_cast<long long>(kPiece), first - start)));
  const int hi = static_cast<int>(max(0ll, min(static_cast<long long>(kPiece), position + 1 - start)));
  const bool sees = lo < hi;

  const std::byte *block0 = nullptr, *block1 = nullptr;
  // Tokens that this step does not write: their K is on its way before the step's own inputs are there.
  const bool old = start + kPiece <= a.row_start[row];
  Scores<D, k_q8> scores;
  if (sees) {
    // Of two blocks of 32 tokens one may be out of sight: the other stands for it and is masked.
    std::byte* const* table = a.tables + a.row_run[row] * a.blocks + start / kBlockTokens;
    block0 = table[lo < 32 ? 0 : 1], block1 = table[hi > 32 ? 1 : 0];
    if (old) {
      scores.begin(a, eight < 4 ? block0 : block1, kv_head, quad, eight);
      constexpr int k_bytes = D * kBlockTokens * (k_q8 ? 1 : 2), v_bytes = D * kBlockTokens * (v_q8 ? 1 : 2);
      constexpr int scale_bytes = D / 32 * kBlockTokens * 2;
      const auto fetch = [&](const std::byte* block, long long at, int bytes) {
        prefetch(block + at + static_cast<long long>(kv_head) * bytes, bytes, lane);
      };
      fetch(block0, a.k_offset, k_bytes), fetch(block1, a.k_offset, k_bytes);
      if (k_q8) fetch(block0, a.k_scales, scale_bytes), fetch(block1, a.k_scales, scale_bytes);
      fetch(block0, a.v_offset, v_bytes), fetch(block1, a.v_offset, v_bytes);
      if (v_q8) fetch(block0, a.v_scales, scale_bytes), fetch(block1, a.v_scales, scale_bytes);
    }
  }
  wait_for_inputs();
  if (sees && !old) scores.begin(a, eight < 4 ? block0 : block1, kv_head, quad, eight);
  if constexpr (v_q8) {
    if (sees) {                               // Scales of V, zero where a token is out of sight, 16 bytes a lane.
      constexpr int per_lane = 8 / (D / 32);  // Tokens, of which D / 32 halves each.
      for (int at = lane; at < kPiece / per_lane; at += 32) {
        const int token = at * per_lane;
        uint4 raw = *reinterpret_cast<const uint4*>((token < 32 ? block0 : block1) + a.v_scales +
                                                    (static_cast<long long>(kv_head) * kBlockTokens + token % 32) *
                                                        (D / 32) * 2);
        __half* d = reinterpret_cast<__half*>(&raw);
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (token + i / (D / 32) < lo || token + i / (D / 32) >= hi) d[i] = __ushort_as_half(0);
        *reinterpret_cast<uint4*>(&room.scales[warp][token / 16 * room.kScaleRow + token % 16 * (D / 32)]) = raw;
      }
    }
  }
  prepare_q<D, k_q8>(a, room, row, head0, heads);
  __syncthreads();

  float o[D / 16][4] = {};
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {};  // Of heads 2 quad and 2 quad + 1.
  if (sees) {
    float s[4][4] = {};
    scores.run(&room.q[eight][quad], s);
    Mix<D, v_q8> mix;
    mix.begin(a, quad < 2 ? block0 : block1, kv_head, quad, eight, lo, hi);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int token = 8 * eight + 2 * j + e / 2;
        s[j][e] *= a.scale;
        if (a.softcap > 0) {  // tanh, to an absolute 1e-7.
          const float u = __expf(2.0f * s[j][e] / a.softcap);
          s[j][e] = a.softcap * (1.0f - 2.0f / (u + 1.0f));
        }
        if (token < lo || token >= hi) s[j][e] = -INFINITY;
        m[e % 2] = fmaxf(m[e % 2], s[j][e]);
      }
#pragma unroll
    for (int step = 4; step <= 16; step *= 2)
#pragma unroll
      for (int h = 0; h < 2; ++h) m[h] = fmaxf(m[h], __shfl_xor_sync(0xffffffffu, m[h], step));
    uint2 p[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[j][e] = s[j][e] == -INFINITY ? 0.0f : exp2f((s[j][e] - m[e % 2]) * 1.4426950408889634f);
        l[e % 2] += s[j][e];
      }
      p[j] = make_uint2(transposed(pack(s[j][0], s[j][1])), transposed(pack(s[j][2], s[j][3])));
    }
#pragma unroll
    for (int step = 4; step <= 16; step *= 2)
#pragma unroll
      for (int h = 0; h < 2; ++h) l[h] += __shfl_xor_sync(0xffffffffu, l[h], step);
    mix.run(p, &room.scales[v_q8 ? warp : 0][quad * room.kScaleRow], eight, o);
  }
  // Products' columns are heads 2 quad and 2 quad + 1; rows `eight` and `eight` + 8 neighbouring dimensions.
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const int word = OutOrder<D, v_q8>::word(i, eight);
    if (2 * quad < heads) *reinterpret_cast<float2*>(&room.part[warp][2 * quad][word]) = make_float2(o[i][0], o[i][2]);
    if (2 * quad + 1 < heads)
      *reinterpret_cast<float2*>(&room.part[warp][2 * quad + 1][word]) = make_float2(o[i][1], o[i][3]);
  }
  if (eight == 0)
    room.piece[warp][2 * quad] = make_float2(m[0], l[0]), room.piece[warp][2 * quad + 1] = make_float2(m[1], l[1]);
  __syncthreads();
  for (int at = threadIdx.x; at < heads * D; at += kThreads) {
    const int h = at / D, word = OutOrder<D, v_q8>::word_of_dim(at % D);
    float top = room.piece[0][h].x, sum = 0, value = 0;
#pragma unroll
    for (int w = 1; w < kWarps; ++w) top = fmaxf(top, room.piece[w][h].x);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float2 of = room.piece[w][h];
      const float factor = of.x == -INFINITY ? 0.0f : exp2f((of.x - top) * 1.4426950408889634f);
      sum = fmaf(of.y, factor, sum);
      value = fmaf(room.part[w][h][word], factor, value);
    }
    float* out = a.room + ((blockIdx.z * a.heads + head0 + h) * static_cast<long long>(a.spans) + blockIdx.x) * (D + 2);
    out[2 + at % D] = value;
    if (at % D == 0) out[0] = top, out[1] = sum;
  }
}

template <int D, bool k_q8, bool v_q8>
void launch_spans(CudaDevice& d, const RowArgs& a, std::int64_t rows) {
  const dim3 grid(static_cast<std::uint32_t>(a.spans),
                  static_cast<std::uint32_t>(a.kv_heads * ((a.group + kHeads - 1) / kHeads)),
                  static_cast<std::uint32_t>(rows));
  launch(d, "attention", spans_kernel<D, k_q8, v_q8>, grid, dim3(kThreads), 0, a);
}
template <int D>
void pick_types(CudaDevice& d, const RowArgs& a, std::int64_t rows) {
  const bool k_q8 = a.k_type == KvType::q8_0, v_q8 = a.v_type == KvType::q8_0;
  if (k_q8 && v_q8) launch_spans<D, true, true>(d, a, rows);
  else if (k_q8) launch_spans<D, true, false>(d, a, rows);
  else if (v_q8) launch_spans<D, false, true>(d, a, rows);
  else launch_spans<D, false, false>(d, a, rows);
}

}  // namespace

bool attention_spans(CudaDevice& d, const RowArgs& a, std::int64_t rows) {
  if (a.k_dim != a.v_dim || a.k_type == KvType::f32 || a.v_type == KvType::f32) return false;
  switch (a.k_dim) {
    case 64: pick_types<64>(d, a, rows); return true;
    case 128: pick_types<128>(d, a, rows); return true;
    case 256: pick_types<256>(d, a, rows); return true;
    default: return false;
  }
}

}  // namespace lode::kernels::cuda
