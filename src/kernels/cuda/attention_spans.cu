// Attention of single rows over f16 blocks with heads of 64, 128 or 256, on the tensor cores: a block of four warps
// takes one absolute span of 256 tokens for up to eight query heads of one KV head, a warp 64 of the tokens. K and V go
// from memory straight into operands: which token stands in which column of a product is free, so a lane's 16-byte
// loads become columns of eight products by pairing two rows. Q and P are f16, sums f32. A row's bits depend on its
// tokens alone.
#include <algorithm>

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kHeads = 8, kPiece = 64;

// c [16, 8] += a [16, 16] b [16, 8], of which rows 8 to 15 of a are zero.
__device__ __forceinline__ void multiply(float (&c)[4], unsigned a0, unsigned a2, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %5}, {%7, %8}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(0), "r"(b0));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a2), "r"(0), "r"(b1));
#endif
}
__device__ __forceinline__ unsigned pack(float a, float b) {
  const __half2 h = __floats2half2_rn(a, b);
  return *reinterpret_cast<const unsigned*>(&h);
}
// Half j (0 to 7) of both, the first's below.
__device__ __forceinline__ unsigned pair_of(const uint4& first, const uint4& second, int j) {
  const unsigned a = j < 2 ? first.x : j < 4 ? first.y : j < 6 ? first.z : first.w;
  const unsigned b = j < 2 ? second.x : j < 4 ? second.y : j < 6 ? second.z : second.w;
  return __byte_perm(a, b, j % 2 ? 0x7632 : 0x5410);
}
__device__ __forceinline__ uint4 load16(const __half* p) {
  return *reinterpret_cast<const uint4*>(p);
}

template <int D>
__global__ void __launch_bounds__(kThreads) spans_kernel(const __grid_constant__ RowArgs a) {
  __shared__ float part[kWarps][kHeads][D + 4];
  __shared__ float2 piece[kWarps][kHeads];
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

  float o[D / 8][4] = {};
  float m = -INFINITY, l = 0;
  const __half *k = nullptr, *v = nullptr;
  if (sees) {
    // Of two blocks of 32 tokens one may be out of sight: the other stands for it and is masked.
    std::byte* const* table = a.tables + a.row_run[row] * a.blocks + start / kBlockTokens;
    const auto block = [&](int which) { return table[which == 0 ? (lo < 32 ? 0 : 1) : (hi > 32 ? 1 : 0)]; };
    // K: token 8 eight + j in column `eight` of product j. V: tokens 16 quad + 0..15, dimensions 8 eight + j.
    k = reinterpret_cast<const __half*>(block(eight / 4) + a.k_offset) +
        static_cast<long long>(kv_head) * D * kBlockTokens + eight % 4 * 8;
    v = reinterpret_cast<const __half*>(block(quad / 2) + a.v_offset) +
        (static_cast<long long>(kv_head) * kBlockTokens + quad % 2 * 16) * D + 8 * eight;
    if (start + kPiece <= a.row_start[row]) {  // Nothing of it is written by this step: on its way already.
#pragma unroll
      for (int i = 0; i < D / 32; ++i)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(k + (8 * (4 * i + eight % 4) + 2 * quad) * kBlockTokens));
      const __half* tokens = v - 8 * eight;
#pragma unroll
      for (int i = 0; i < D / 32; ++i)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(tokens + (eight + 8 * (i % 2)) * D + 64 * (i / 2)));
    }
  }
  wait_for_inputs();
  if (sees) {
    float s[8][4] = {};
    const float* q = a.q + (row * a.heads + head0 + min(eight, heads - 1)) * D + 2 * quad;
#pragma unroll 4
    for (int d = 0; d < D; d += 16) {
      const __half* at = k + (d + 2 * quad) * kBlockTokens;
      const uint4 k0 = load16(at), k1 = load16(at + kBlockTokens);
      const uint4 k2 = load16(at + 8 * kBlockTokens), k3 = load16(at + 9 * kBlockTokens);
      const float2 qa = *reinterpret_cast<const float2*>(q + d), qb = *reinterpret_cast<const float2*>(q + d + 8);
      const unsigned a0 = pack(qa.x, qa.y), a2 = pack(qb.x, qb.y);
#pragma unroll
      for (int j = 0; j < 8; ++j) multiply(s[j], a0, a2, pair_of(k0, k1, j), pair_of(k2, k3, j));
    }
    // The lane has head `eight` and tokens 16 quad + 8 e + j.
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int token = 16 * quad + 8 * e + j;
        s[j][e] *= a.scale;
        if (token < lo || token >= hi) s[j][e] = -INFINITY;
      }
    if (a.softcap > 0) {
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) {  // tanh, to an absolute 1e-7.
          const float u = __expf(2.0f * s[j][e] / a.softcap);
          if (s[j][e] != -INFINITY) s[j][e] = a.softcap * (1.0f - 2.0f / (u + 1.0f));
        }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) m = fmaxf(m, fmaxf(s[j][0], s[j][1]));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[j][e] = s[j][e] == -INFINITY ? 0.0f : exp2f((s[j][e] - m) * 1.4426950408889634f);
        l += s[j][e];
      }
    l += __shfl_xor_sync(0xffffffffu, l, 1);
    l += __shfl_xor_sync(0xffffffffu, l, 2);
    const bool whole = lo == 0 && hi == kPiece;
#pragma unroll
    for (int t = 0; t < 16; t += 4) {  // Tokens 16 quad + t .. t + 3.
      const unsigned a0 = pack(s[t % 8][t / 8], s[t % 8 + 1][t / 8]),
                     a2 = pack(s[t % 8 + 2][t / 8], s[t % 8 + 3][t / 8]);
#pragma unroll
      for (int half = 0; half < D / 64; ++half) {
        uint4 x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = load16(v + (t + i) * D + 64 * half);
        if (!whole) {  // What is not seen may be NaN; zero times it must be zero.
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int token = 16 * quad + t + i;
            if (token < lo || token >= hi) x[i] = make_uint4(0, 0, 0, 0);
          }
        }
#pragma unroll
        for (int j = 0; j < 8; ++j) multiply(o[8 * half + j], a0, a2, pair_of(x[0], x[1], j), pair_of(x[2], x[3], j));
      }
    }
  }
  // The lane has head `eight`, dimensions 64 half + 16 quad + 8 e + j.
#pragma unroll
  for (int i = 0; i < D / 8; ++i)
#pragma unroll
    for (int e = 0; e < 2; ++e) part[warp][eight][64 * (i / 8) + 16 * quad + 8 * e + i % 8] = o[i][e];
  if (quad == 0) piece[warp][eight] = make_float2(m, l);
  __syncthreads();
  for (int at = threadIdx.x; at < heads * D; at += kThreads) {
    const int h = at / D;
    float top = piece[0][h].x, sum = 0, value = 0;
#pragma unroll
    for (int w = 1; w < kWarps; ++w) top = fmaxf(top, piece[w][h].x);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = piece[w][h].x == -INFINITY ? 0.0f : exp2f((piece[w][h].x - top) * 1.4426950408889634f);
      sum = fmaf(piece[w][h].y, factor, sum);
      value = fmaf(part[w][h][at % D], factor, value);
    }
    float* room =
        a.room + ((blockIdx.z * a.heads + head0 + h) * static_cast<long long>(a.spans) + blockIdx.x) * (D + 2);
    room[2 + at % D] = value;
    if (at % D == 0) room[0] = top, room[1] = sum;
  }
}

template <int D>
void launch_spans(CudaDevice& d, const RowArgs& a, std::int64_t rows) {
  const dim3 grid(static_cast<std::uint32_t>(a.spans),
                  static_cast<std::uint32_t>(a.kv_heads * ((a.group + kHeads - 1) / kHeads)),
                  static_cast<std::uint32_t>(rows));
  launch(d, "attention", spans_kernel<D>, grid, dim3(kThreads), 0, a);
}

}  // namespace

bool attention_spans(CudaDevice& d, const RowArgs& a, std::int64_t rows) {
  if (a.k_dim != a.v_dim) return false;
  switch (a.k_dim) {
    case 64: launch_spans<64>(d, a, rows); return true;
    case 128: launch_spans<128>(d, a, rows); return true;
    case 256: launch_spans<256>(d, a, rows); return true;
    default: return false;
  }
}

}  // namespace lode::kernels::cuda
