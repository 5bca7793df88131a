// Attention of a prompt's chunk on the tensor cores: a block takes 64 rows of one head and runs over 64 tokens (heads
// of 256: 32) at a time, with a running softmax. Q, P, K and V are f16, sums f32. Blocks of the cache come in by
// asynchronous copies, two stages deep, as they lie: K [dim][32 tokens], V [32 tokens][dim]. Codes of q8_0 are made f16
// in shared memory first, each product of code and scale rounded once.
#include <algorithm>

#include "kernels/cuda/kv_q8.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

constexpr int kThreads = 128;

struct TileArgs {
  const float* q;
  float* out;
  const float* sinks;
  std::byte* const* tables;
  const Tile* tiles;
  const long long* positions;
  long long blocks, k_offset, v_offset, window, chunk;
  long long k_scales, v_scales;  // Offsets of the scales in a block; q8_0 only.
  int heads, group, tile_count;
  float scale, softcap;
  bool k_q8, v_q8;
};

__device__ __forceinline__ void copy16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global));
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}
__device__ __forceinline__ void copies_end() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}
template <int left>
__device__ __forceinline__ void copies_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(left));
#endif
}
// Four 8x8 matrices of f16, transposed: lane l gets values (2 (l % 4) + {0, 1}, l / 4) of each.
__device__ __forceinline__ void load_transposed(unsigned (&r)[4], const __half* row) {
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
// c [16, 8] += a [16, 16] b [16, 8].
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
__device__ __forceinline__ unsigned pack(float a, float b) {
  const __half2 h = __floats2half2_rn(a, b);
  return *reinterpret_cast<const unsigned*>(&h);
}

// Shared memory. All f16: two stages of K and V. Else each side has its own: f16 two stages; q8_0 room for f16, then
// two stages of codes with their scales.
template <int D>
struct Shape {
  static constexpr int kTokens = D == 256 ? 32 : 64;             // Of a stage.
  static constexpr int kSide = kTokens * D;                      // Values of K or V.
  static constexpr int kCodes = kSide + kTokens * (D / 32) * 2;  // Bytes of a stage of codes and scales.
  static __host__ __device__ constexpr int side_bytes(bool q8) { return q8 ? 2 * kSide + 2 * kCodes : 4 * kSide; }
};
// 16-byte pieces are permuted within a row so that eight rows' pieces lie in different banks.
__device__ __forceinline__ int k_piece(int dim, int piece) {
  return dim * 4 + (piece ^ ((dim >> 1) & 3));
}
template <int D>
__device__ __forceinline__ int v_piece(int token, int piece) {
  return token * (D / 8) + (piece ^ (token & 7));
}

// One side of a stage as it comes in: f16 in place, codes behind the f16 that they become.
template <int D>
struct Incoming {
  std::byte* room;  // Of the side.
  bool q8;
  __device__ __forceinline__ __half* halves(int n) const {
    return reinterpret_cast<__half*>(room) + (q8 ? 0 : (n & 1) * Shape<D>::kSide);
  }
  __device__ __forceinline__ std::byte* codes(int n) const {
    return room + 2 * Shape<D>::kSide + (n & 1) * Shape<D>::kCodes;
  }
  __device__ __forceinline__ __half* scales(int n) const {
    return reinterpret_cast<__half*>(codes(n) + Shape<D>::kSide);
  }
};

// One stage: blocks of 32 tokens, K and V of one head. Blocks beyond the table's visible end are left out.
template <int D>
__device__ __forceinline__ void fetch_halves(__half* stage, const std::byte* base, long long offset, int kv_head, int b,
                                             bool is_k) {
  constexpr int pieces = 32 * D / 8;
  const uint4* from = reinterpret_cast<const uint4*>(base + offset) + static_cast<long long>(kv_head) * pieces;
#pragma unroll 4
  for (int i = threadIdx.x; i < pieces; i += kThreads)
    copy16(stage + b * 32 * D + (is_k ? k_piece(i / 4, i % 4) : v_piece<D>(i / (D / 8), i % (D / 8))) * 8, from + i);
}
template <int D>
__device__ __forceinline__ void fetch_codes(const Incoming<D>& in, int n, const std::byte* base, long long offset,
                                            long long scales, int kv_head, int b) {
  constexpr int pieces = 32 * D / 16, scale_pieces = D / 8;
  const std::byte* from = base + offset + static_cast<long long>(kv_head) * 32 * D;
#pragma unroll 4
  for (int i = threadIdx.x; i < pieces; i += kThreads) copy16(in.codes(n) + b * 32 * D + 16 * i, from + 16 * i);
  const std::byte* of = base + scales + static_cast<long long>(kv_head) * 2 * D;
  for (int i = threadIdx.x; i < scale_pieces; i += kThreads) copy16(in.scales(n) + b * D + 8 * i, of + 16 * i);
}
template <int D, bool any>
__device__ __forceinline__ void fetch(const Incoming<D>& ks, const Incoming<D>& vs, int n, const TileArgs& a,
                                      std::byte* const* table, long long block, long long block_end, int kv_head) {
  constexpr int pieces = 32 * D / 8;
#pragma unroll
  for (int b = 0; b < Shape<D>::kTokens / 32; ++b) {
    if (block + b >= block_end) break;
    const std::byte* base = table[block + b];
    if constexpr (any) {
      if (ks.q8) fetch_codes<D>(ks, n, base, a.k_offset, a.k_scales, kv_head, b);
      else fetch_halves<D>(ks.halves(n), base, a.k_offset, kv_head, b, true);
      if (vs.q8) fetch_codes<D>(vs, n, base, a.v_offset, a.v_scales, kv_head, b);
      else fetch_halves<D>(vs.halves(n), base, a.v_offset, kv_head, b, false);
    } else {
      const uint4* from_k =
          reinterpret_cast<const uint4*>(base + a.k_offset) + static_cast<long long>(kv_head) * pieces;
      const uint4* from_v =
          reinterpret_cast<const uint4*>(base + a.v_offset) + static_cast<long long>(kv_head) * pieces;
      __half *k = ks.halves(n) + b * 32 * D, *v = vs.halves(n) + b * 32 * D;
#pragma unroll 4
      for (int i = threadIdx.x; i < pieces; i += kThreads) {
        copy16(k + k_piece(i / 4, i % 4) * 8, from_k + i);
        copy16(v + v_piece<D>(i / (D / 8), i % (D / 8)) * 8, from_v + i);
      }
    }
  }
  copies_end();
}

// Eight codes times eight scales, or one.
__device__ __forceinline__ uint4 halves_of_codes(uint2 codes, const __half2 (&d)[4]) {
  codes.x ^= 0x80808080u, codes.y ^= 0x80808080u;
  return make_uint4(
      bits_of(__hmul2(halves_of<0x4140>(codes.x), d[0])), bits_of(__hmul2(halves_of<0x4342>(codes.x), d[1])),
      bits_of(__hmul2(halves_of<0x4140>(codes.y), d[2])), bits_of(__hmul2(halves_of<0x4342>(codes.y), d[3])));
}
template <int D>
__device__ __forceinline__ void convert_k(const Incoming<D>& in, int n) {
  const uint2* codes = reinterpret_cast<const uint2*>(in.codes(n));
  const uint4* scales = reinterpret_cast<const uint4*>(in.scales(n));
#pragma unroll 4
  for (int i = threadIdx.x; i < Shape<D>::kSide / 8; i += kThreads) {  // Eight tokens of a dimension.
    const int b = i / (4 * D), dim = i / 4 % D, piece = i % 4;
    const uint4 raw = scales[(b * (D / 32) + dim / 32) * 4 + piece];
    const __half2 d[4] = {*reinterpret_cast<const __half2*>(&raw.x), *reinterpret_cast<const __half2*>(&raw.y),
                          *reinterpret_cast<const __half2*>(&raw.z), *reinterpret_cast<const __half2*>(&raw.w)};
    *reinterpret_cast<uint4*>(in.halves(n) + b * 32 * D + k_piece(dim, piece) * 8) = halves_of_codes(codes[i], d);
  }
}
template <int D>
__device__ __forceinline__ void convert_v(const Incoming<D>& in, int n) {
  const uint2* codes = reinterpret_cast<const uint2*>(in.codes(n));
#pragma unroll 4
  for (int i = threadIdx.x; i < Shape<D>::kSide / 8; i += kThreads) {  // Eight dimensions of a token.
    const int token = i / (D / 8), piece = i % (D / 8);
    const __half2 one = __half2half2(in.scales(n)[token * (D / 32) + piece / 4]);
    const __half2 d[4] = {one, one, one, one};
    *reinterpret_cast<uint4*>(in.halves(n) + token / 32 * 32 * D + v_piece<D>(token & 31, piece) * 8) =
        halves_of_codes(codes[i], d);
  }
}

// A row of a tile in the registers of four lanes, x[i] being dimension 8 (i / 2) + 2 (lane % 4) + i % 2, rotated.
template <int D>
__device__ __forceinline__ void rotate_row(float (&x)[D / 4]) {
  const int lane = threadIdx.x & 31;
  const auto in_lane = [&](int h) {
#pragma unroll
    for (int i = 0; i < D / 4; ++i) {
      if (i & h) continue;
      const float first = x[i], second = x[i + h];
      x[i] = first + second, x[i + h] = first - second;
    }
  };
  in_lane(1);
#pragma unroll
  for (int h = 1; h <= 2; h *= 2)
#pragma unroll
    for (int i = 0; i < D / 4; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, x[i], h);
      x[i] = lane & h ? other - x[i] : x[i] + other;
    }
#pragma unroll
  for (int h = 2; h < D / 4; h *= 2) in_lane(h);
#pragma unroll
  for (int i = 0; i < D / 4; ++i) x[i] *= rotation_factor(D);
}

template <int D, bool any>
__global__ void __launch_bounds__(kThreads) tiles_kernel(const __grid_constant__ TileArgs a) {
  constexpr int kTokens = Shape<D>::kTokens;
  extern __shared__ float4 raw[];
  const Incoming<D> k_in{reinterpret_cast<std::byte*>(raw), any && a.k_q8};
  const Incoming<D> v_in{reinterpret_cast<std::byte*>(raw) + Shape<D>::side_bytes(any && a.k_q8), any && a.v_q8};
  wait_for_inputs();
  // The last tiles see the most: they go first.
  const Tile tile = a.tiles[a.tile_count - 1 - static_cast<int>(blockIdx.x)];
  const int head = static_cast<int>(blockIdx.y), kv_head = head / a.group;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  std::byte* const* table = a.tables + tile.run * a.blocks;
  const long long position0 = a.positions[tile.first_row], position_end = position0 + tile.rows;
  const auto first_of = [&](long long p) {
    long long first = 0;
    if (a.window > 0 && p >= a.window) first = p - a.window + 1;
    if (a.chunk > 0) first = max(first, p / a.chunk * a.chunk);
    return first;
  };
  const long long first_token = first_of(position0);
  const long long block0 = first_token / 32, block_end = (position_end + 31) / 32;

  // The warp's 16 rows of Q as operands. Rows beyond the tile repeat its last one.
  const int row_a = warp * 16 + lane / 4, row_b = row_a + 8;
  const auto row_at = [&](int r) { return static_cast<long long>(tile.first_row + min(r, tile.rows - 1)); };
  unsigned q[D / 16][4];
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    const float2* from =
        reinterpret_cast<const float2*>(a.q + (row_at(which ? row_b : row_a) * a.heads + head) * D) + (lane & 3);
    float x[D / 4];
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const float2 two = from[4 * i];
      x[2 * i] = two.x, x[2 * i + 1] = two.y;
    }
    if (any && a.k_q8) rotate_row<D>(x);
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      q[k][which] = pack(x[4 * k], x[4 * k + 1]);
      q[k][which + 2] = pack(x[4 * k + 2], x[4 * k + 3]);
    }
  }
  const long long p_a = position0 + min(row_a, tile.rows - 1), p_b = position0 + min(row_b, tile.rows - 1);
  const long long first_a = first_of(p_a), first_b = first_of(p_b);

  float o[D / 8][4] = {};
  float m_a = -INFINITY, m_b = -INFINITY, l_a = 0, l_b = 0;
  constexpr float kLog2e = 1.4426950408889634f;
  const int mi = lane / 8, r8 = lane & 7;

  const int stages = static_cast<int>((block_end - block0 + kTokens / 32 - 1) / (kTokens / 32));
  fetch<D, any>(k_in, v_in, 0, a, table, block0, block_end, kv_head);
  for (int n = 0; n < stages; ++n) {
    if (n + 1 < stages) {
      fetch<D, any>(k_in, v_in, n + 1, a, table, block0 + (n + 1) * (kTokens / 32), block_end, kv_head);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
    if constexpr (any) {
      if (a.k_q8) convert_k<D>(k_in, n);
      if (a.v_q8) convert_v<D>(v_in, n);
      __syncthreads();
    }
    const long long token0 = (block0 + static_cast<long long>(n) * (kTokens / 32)) * 32;
    __half *ks = k_in.halves(n), *vs = v_in.halves(n);
    // V of tokens that nobody in the tile sees may be anything, NaN included: zero times it must be zero.
    if (token0 < first_token || token0 + kTokens > position_end) {
      for (int i = threadIdx.x; i < kTokens * D / 8; i += kThreads) {
        const int token = i / (D / 8);
        if (token0 + token >= first_token && token0 + token < position_end) continue;
        reinterpret_cast<uint4*>(vs)[i / (32 * D / 8) * (32 * D / 8) + v_piece<D>(token & 31, i % (D / 8))] =
            make_uint4(0, 0, 0, 0);
      }
      __syncthreads();
    }

    float s[kTokens / 8][4] = {};
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
#pragma unroll
      for (int t = 0; t < kTokens / 16; ++t) {  // 16 tokens: two pieces of 8.
        const int dim = 16 * k + (mi & 1) * 8 + r8, piece = 2 * (t & 1) + (mi >> 1);
        unsigned b[4];
        load_transposed(b, ks + (t >> 1) * 32 * D + k_piece(dim, piece) * 8);
        multiply(s[2 * t], q[k], b[0], b[1]);
        multiply(s[2 * t + 1], q[k], b[2], b[3]);
      }
    }

    const bool whole = token0 + kTokens <= position0 + 1 && token0 >= first_of(position_end - 1);
    if (a.softcap > 0) {
#pragma unroll
      for (int t = 0; t < kTokens / 8; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[t][i] = a.softcap * tanhf(s[t][i] * a.scale / a.softcap);
    } else {
#pragma unroll
      for (int t = 0; t < kTokens / 8; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[t][i] *= a.scale;
    }
    if (!whole) {  // Of the stage's tokens a row sees [low, high].
      const auto inside = [&](long long p) {
        return static_cast<int>(max(-1ll, min(p - token0, static_cast<long long>(kTokens))));
      };
      const int low_a = inside(first_a), low_b = inside(first_b), high_a = inside(p_a), high_b = inside(p_b);
#pragma unroll
      for (int t = 0; t < kTokens / 8; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = 8 * t + (lane & 3) * 2 + (i & 1), low = i < 2 ? low_a : low_b,
                    high = i < 2 ? high_a : high_b;
          s[t][i] = (token >= low) & (token <= high) ? s[t][i] : -INFINITY;
        }
    }
    float top_a = m_a, top_b = m_b;
#pragma unroll
    for (int t = 0; t < kTokens / 8; ++t) {
      top_a = fmaxf(top_a, fmaxf(s[t][0], s[t][1]));
      top_b = fmaxf(top_b, fmaxf(s[t][2], s[t][3]));
    }
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
      top_a = fmaxf(top_a, __shfl_xor_sync(0xffffffffu, top_a, step));
      top_b = fmaxf(top_b, __shfl_xor_sync(0xffffffffu, top_b, step));
    }
    const float base_a = top_a == -INFINITY ? 0.0f : top_a * kLog2e,
                base_b = top_b == -INFINITY ? 0.0f : top_b * kLog2e;
    const float keep_a = exp2f(fmaf(m_a, kLog2e, -base_a)), keep_b = exp2f(fmaf(m_b, kLog2e, -base_b));
    m_a = top_a, m_b = top_b;
    l_a *= keep_a, l_b *= keep_b;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      o[i][0] *= keep_a, o[i][1] *= keep_a;
      o[i][2] *= keep_b, o[i][3] *= keep_b;
    }
#pragma unroll
    for (int t = 0; t < kTokens / 8; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[t][i] = exp2f(fmaf(s[t][i], kLog2e, i < 2 ? -base_a : -base_b));
        if (i < 2) l_a += s[t][i];
        else l_b += s[t][i];
      }
    }
#pragma unroll
    for (int t = 0; t < kTokens / 16; ++t) {
      const unsigned p[4] = {pack(s[2 * t][0], s[2 * t][1]), pack(s[2 * t][2], s[2 * t][3]),
                             pack(s[2 * t + 1][0], s[2 * t + 1][1]), pack(s[2 * t + 1][2], s[2 * t + 1][3])};
      const int token = 16 * t + (mi & 1) * 8 + r8;
#pragma unroll
      for (int i = 0; i < D / 16; ++i) {  // 16 dimensions: two pieces.
        unsigned b[4];
        load_transposed(b, vs + (token >> 5) * 32 * D + v_piece<D>(token & 31, 2 * i + (mi >> 1)) * 8);
        multiply(o[2 * i], p, b[0], b[1]);
        multiply(o[2 * i + 1], p, b[2], b[3]);
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int step = 1; step <= 2; step *= 2) {
    l_a += __shfl_xor_sync(0xffffffffu, l_a, step);
    l_b += __shfl_xor_sync(0xffffffffu, l_b, step);
  }
  float f_a = 1, f_b = 1;
  if (a.sinks) {
    const float sink = a.sinks[head], t_a = fmaxf(m_a, sink), t_b = fmaxf(m_b, sink);
    f_a = expf(m_a - t_a), f_b = expf(m_b - t_b);
    l_a = fmaf(l_a, f_a, expf(sink - t_a)), l_b = fmaf(l_b, f_b, expf(sink - t_b));
  }
  f_a /= l_a, f_b /= l_b;
#pragma unroll
  for (int i = 0; i < D / 8; ++i) o[i][0] *= f_a, o[i][1] *= f_a, o[i][2] *= f_b, o[i][3] *= f_b;
  if (any && a.v_q8) {  // V was rotated, and with it its sums.
#pragma unroll
    for (int which = 0; which < 4; which += 2) {
      float x[D / 4];
#pragma unroll
      for (int i = 0; i < D / 8; ++i) x[2 * i] = o[i][which], x[2 * i + 1] = o[i][which + 1];
      rotate_row<D>(x);
#pragma unroll
      for (int i = 0; i < D / 8; ++i) o[i][which] = x[2 * i], o[i][which + 1] = x[2 * i + 1];
    }
  }
  float* out_a = a.out + (row_at(row_a) * a.heads + head) * D + (lane & 3) * 2;
  float* out_b = a.out + (row_at(row_b) * a.heads + head) * D + (lane & 3) * 2;
#pragma unroll
  for (int i = 0; i < D / 8; ++i) {
    if (row_a < tile.rows) *reinterpret_cast<float2*>(out_a + 8 * i) = make_float2(o[i][0], o[i][1]);
    if (row_b < tile.rows) *reinterpret_cast<float2*>(out_b + 8 * i) = make_float2(o[i][2], o[i][3]);
  }
}

template <int D, bool any>
void launch_any(CudaDevice& d, const TileArgs& a) {
  const int shared = Shape<D>::side_bytes(a.k_q8) + Shape<D>::side_bytes(a.v_q8);
  d.check(cudaFuncSetAttribute(tiles_kernel<D, any>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "shared memory of attention");
  launch(d, "attention of a chunk", tiles_kernel<D, any>,
         dim3(static_cast<std::uint32_t>(a.tile_count), static_cast<std::uint32_t>(a.heads)), dim3(kThreads),
         static_cast<std::size_t>(shared), a);
}
template <int D>
void launch_tiles(CudaDevice& d, const TileArgs& a) {
  a.k_q8 || a.v_q8 ? launch_any<D, true>(d, a) : launch_any<D, false>(d, a);
}

}  // namespace

// f16 or q8_0 and heads of 64, 128 or 256; everything else goes by rows.
bool attention_tiles(CudaDevice& d, const AttentionArgs& args, std::byte* const* tables) {
  const KvLayer& layer = args.layer;
  const StepOnDevice& step = d.step();
  if (layer.k_type == KvType::f32 || layer.v_type == KvType::f32 || layer.k_dim != layer.v_dim) return false;
  const TileArgs a{.q = args.q,
                   .out = args.out,
                   .sinks = args.sinks,
                   .tables = tables,
                   .tiles = step.tile,
                   .positions = reinterpret_cast<const long long*>(step.positions),
                   .blocks = step.table_blocks,
                   .k_offset = layer.k_offset,
                   .v_offset = layer.v_offset,
                   .window = args.window,
                   .chunk = args.chunk,
                   .k_scales = layer.k_offset + kv_scales_offset(layer.kv_heads, layer.k_dim),
                   .v_scales = layer.v_offset + kv_scales_offset(layer.kv_heads, layer.v_dim),
                   .heads = args.heads,
                   .group = args.heads / layer.kv_heads,
                   .tile_count = static_cast<int>(step.tiles),
                   .scale = args.scale,
                   .softcap = args.softcap,
                   .k_q8 = layer.k_type == KvType::q8_0,
                   .v_q8 = layer.v_type == KvType::q8_0};
  switch (layer.k_dim) {
    case 64: launch_tiles<64>(d, a); return true;
    case 128: launch_tiles<128>(d, a); return true;
    case 256: launch_tiles<256>(d, a); return true;
    default: return false;
  }
}

}  // namespace lode::kernels::cuda
