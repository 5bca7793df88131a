// Attention of a prompt's chunk on the tensor cores: a block takes 64 rows of one head and runs over 64 tokens (heads
// of 256: 32) at a time, with a running softmax. Q, P, K and V are f16, sums f32. Blocks of the cache come in by
// asynchronous copies, two stages deep, as they lie: K [dim][32 tokens], V [32 tokens][dim].
#include <algorithm>

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
  int heads, group, tile_count;
  float scale, softcap;
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

template <int D>
struct Shape {
  static constexpr int kTokens = D == 256 ? 32 : 64;  // Of a stage.
  static constexpr int kStage = 2 * kTokens * D;      // f16 values of K and V.
  static constexpr std::size_t kShared = 2 * kStage * sizeof(__half);
};
// 16-byte pieces are permuted within a row so that eight rows' pieces lie in different banks.
__device__ __forceinline__ int k_piece(int dim, int piece) {
  return dim * 4 + (piece ^ ((dim >> 1) & 3));
}
template <int D>
__device__ __forceinline__ int v_piece(int token, int piece) {
  return token * (D / 8) + (piece ^ (token & 7));
}

// One stage: blocks of 32 tokens, K and V of one head. Blocks beyond the table's visible end are left out.
template <int D>
__device__ __forceinline__ void fetch(__half* stage, const TileArgs& a, std::byte* const* table, long long block,
                                      long long block_end, int kv_head) {
  constexpr int tokens = Shape<D>::kTokens, pieces = 32 * D / 8;
  __half *k = stage, *v = stage + tokens * D;
#pragma unroll
  for (int b = 0; b < tokens / 32; ++b) {
    if (block + b >= block_end) break;
    const std::byte* base = table[block + b];
    const uint4* from_k = reinterpret_cast<const uint4*>(base + a.k_offset) + static_cast<long long>(kv_head) * pieces;
    const uint4* from_v = reinterpret_cast<const uint4*>(base + a.v_offset) + static_cast<long long>(kv_head) * pieces;
#pragma unroll 4
    for (int i = threadIdx.x; i < pieces; i += kThreads) {
      copy16(k + b * 32 * D + k_piece(i / 4, i % 4) * 8, from_k + i);
      copy16(v + b * 32 * D + v_piece<D>(i / (D / 8), i % (D / 8)) * 8, from_v + i);
    }
  }
  copies_end();
}

template <int D>
__global__ void __launch_bounds__(kThreads) tiles_kernel(TileArgs a) {
  constexpr int kTokens = Shape<D>::kTokens;
  extern __shared__ float4 raw[];
  __half* shared = reinterpret_cast<__half*>(raw);
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
  {
    const float* qa = a.q + (row_at(row_a) * a.heads + head) * D + (lane & 3) * 2;
    const float* qb = a.q + (row_at(row_b) * a.heads + head) * D + (lane & 3) * 2;
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      q[k][0] = pack(qa[16 * k], qa[16 * k + 1]);
      q[k][1] = pack(qb[16 * k], qb[16 * k + 1]);
      q[k][2] = pack(qa[16 * k + 8], qa[16 * k + 9]);
      q[k][3] = pack(qb[16 * k + 8], qb[16 * k + 9]);
    }
  }
  const long long p_a = position0 + min(row_a, tile.rows - 1), p_b = position0 + min(row_b, tile.rows - 1);
  const long long first_a = first_of(p_a), first_b = first_of(p_b);

  float o[D / 8][4] = {};
  float m_a = -INFINITY, m_b = -INFINITY, l_a = 0, l_b = 0;
  constexpr float kLog2e = 1.4426950408889634f;
  const int mi = lane / 8, r8 = lane & 7;

  const int stages = static_cast<int>((block_end - block0 + kTokens / 32 - 1) / (kTokens / 32));
  fetch<D>(shared, a, table, block0, block_end, kv_head);
  for (int n = 0; n < stages; ++n) {
    __half* stage = shared + (n & 1) * Shape<D>::kStage;
    if (n + 1 < stages) {
      fetch<D>(shared + ((n + 1) & 1) * Shape<D>::kStage, a, table, block0 + (n + 1) * (kTokens / 32), block_end,
               kv_head);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
    const long long token0 = (block0 + static_cast<long long>(n) * (kTokens / 32)) * 32;
    __half *ks = stage, *vs = stage + kTokens * D;
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
    float top_a = m_a, top_b = m_b;
#pragma unroll
    for (int t = 0; t < kTokens / 8; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float v = s[t][i] * a.scale;
        if (a.softcap > 0) v = a.softcap * tanhf(v / a.softcap);
        if (!whole) {
          const long long token = token0 + 8 * t + (lane & 3) * 2 + (i & 1);
          const bool seen = i < 2 ? token >= first_a && token <= p_a : token >= first_b && token <= p_b;
          v = seen ? v : -INFINITY;
        }
        s[t][i] = v;
        if (i < 2) top_a = fmaxf(top_a, v);
        else top_b = fmaxf(top_b, v);
      }
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
  float* out_a = a.out + (row_at(row_a) * a.heads + head) * D + (lane & 3) * 2;
  float* out_b = a.out + (row_at(row_b) * a.heads + head) * D + (lane & 3) * 2;
#pragma unroll
  for (int i = 0; i < D / 8; ++i) {
    if (row_a < tile.rows) *reinterpret_cast<float2*>(out_a + 8 * i) = make_float2(o[i][0] * f_a, o[i][1] * f_a);
    if (row_b < tile.rows) *reinterpret_cast<float2*>(out_b + 8 * i) = make_float2(o[i][2] * f_b, o[i][3] * f_b);
  }
}

template <int D>
void launch_tiles(CudaDevice& d, const TileArgs& a) {
  d.check(cudaFuncSetAttribute(tiles_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(Shape<D>::kShared)),
          "shared memory of attention");
  launch(d, "attention of a chunk", tiles_kernel<D>,
         dim3(static_cast<std::uint32_t>(a.tile_count), static_cast<std::uint32_t>(a.heads)), dim3(kThreads),
         Shape<D>::kShared, a);
}

}  // namespace

// f16 and heads of 64, 128 or 256; everything else goes by rows.
bool attention_tiles(CudaDevice& d, const AttentionArgs& args, std::byte* const* tables) {
  const KvLayer& layer = args.layer;
  const StepOnDevice& step = d.step();
  if (layer.k_type != KvType::f16 || layer.k_dim != layer.v_dim) return false;
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
                   .heads = args.heads,
                   .group = args.heads / layer.kv_heads,
                   .tile_count = static_cast<int>(step.tiles),
                   .scale = args.scale,
                   .softcap = args.softcap};
  switch (layer.k_dim) {
    case 64: launch_tiles<64>(d, a); return true;
    case 128: launch_tiles<128>(d, a); return true;
    case 256: launch_tiles<256>(d, a); return true;
    default: return false;
  }
}

}  // namespace lode::kernels::cuda
