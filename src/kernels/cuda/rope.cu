// Rope tables, and the way of Q, K and V from their products to attention: norm of heads, rope, rounding into the
// cache's blocks, as one kernel where a forward page calls them one after another.
#include <algorithm>

#include "kernels/cuda/kv_q8.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kDimMax = 256;  // Of a head in the joined kernel; longer ones take a kernel an operation.

__global__ void __launch_bounds__(128) rope_table_kernel(const long long* positions, const double* inv_freq, int pairs,
                                                         long long count, double factor, float2* out) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  double sine, cosine;
  sincos(static_cast<double>(positions[at / pairs]) * inv_freq[at % pairs], &sine, &cosine);
  out[at] = make_float2(static_cast<float>(factor * cosine), static_cast<float>(factor * sine));
}

// One tensor of heads: x [vectors, dim], vectors = rows * heads.
struct Heads {
  float* x;
  const float* weight;
  const float2* cos_sin;
  long long vectors;
  int heads, dim, pairs;
  float eps;
  bool norm, rope, neox;
};
struct Parts {
  Heads of[2];
};
// Where K and V go.
struct Cache {
  std::byte* const* tables;  // [runs, blocks]
  long long blocks, k_offset, v_offset;
  const std::int32_t* row_run;
  const long long* positions;
  const float* v;
  long long v_vectors;
  int kv_heads, k_dim, v_dim;
  KvType k_type, v_type;
  int k_part;  // Which of the two tensors is K; -1: none, only V.
};

__device__ __forceinline__ void store_kv(std::byte* base, long long index, float value, KvType type) {
  if (type == KvType::f16) reinterpret_cast<__half*>(base)[index] = __float2half_rn(value);
  else reinterpret_cast<float*>(base)[index] = value;
}
__device__ __forceinline__ std::byte* block_of(const Cache& c, long long row) {
  return c.tables[c.row_run[row] * c.blocks + c.positions[row] / kBlockTokens];
}

// Where one side of a token and head goes in q8_0: value d at codes + d * stride, the scale of group g at scales +
// g * scale_stride.
struct Q8Place {
  signed char* codes;
  unsigned short* scales;
  int stride, scale_stride;
};
__device__ __forceinline__ Q8Place k_place(const Cache& c, std::byte* block, long long head, long long token) {
  std::byte* base = block + c.k_offset;
  auto* scales = reinterpret_cast<unsigned short*>(base + scales_from(c.kv_heads, c.k_dim));
  return {reinterpret_cast<signed char*>(base) + head * c.k_dim * kBlockTokens + token,
          scales + head * groups_of(c.k_dim) * kBlockTokens + token, static_cast<int>(kBlockTokens),
          static_cast<int>(kBlockTokens)};
}
__device__ __forceinline__ Q8Place v_place(const Cache& c, std::byte* block, long long head, long long token) {
  std::byte* base = block + c.v_offset;
  auto* scales = reinterpret_cast<unsigned short*>(base + scales_from(c.kv_heads, c.v_dim));
  return {reinterpret_cast<signed char*>(base) + (head * kBlockTokens + token) * c.v_dim,
          scales + (head * kBlockTokens + token) * groups_of(c.v_dim), 1, 1};
}
// A warp writes one head of one token: x(i) is value i.
template <typename X>
__device__ __forceinline__ void write_q8(const Q8Place& to, int dim, X x) {
  const int lane = threadIdx.x & 31, n = rotation_of(dim);
  for (int first = 0; first < dim; first += kKvPiece) {
    float r[kKvPer];
#pragma unroll
    for (int i = 0; i < kKvPer; ++i) r[i] = first + 32 * i + lane < dim ? x(first + 32 * i + lane) : 0.0f;
    rotate_piece(r, n);
#pragma unroll
    for (int i = 0; i < kKvPer; ++i) {
      const int d = first + 32 * i;
      if (d >= dim) break;
      unsigned short scale;
      const int code = quantize_group(r[i], scale);
      if (d + lane < dim) to.codes[static_cast<long long>(d + lane) * to.stride] = static_cast<signed char>(code);
      if (lane == 0) to.scales[d / 32 * to.scale_stride] = scale;
    }
  }
}

// A warp a head of one row.
__global__ void __launch_bounds__(32 * kWarps)
    heads_kernel(const __grid_constant__ Parts parts, const __grid_constant__ Cache cache) {
  __shared__ float room[kWarps][kDimMax];
  float* v = room[threadIdx.x >> 5];
  const int lane = threadIdx.x & 31;
  long long vector = static_cast<long long>(blockIdx.x) * kWarps + (threadIdx.x >> 5);
  int part = 0;
  if (vector >= parts.of[0].vectors) vector -= parts.of[0].vectors, part = 1;
  if (part == 1 && vector >= parts.of[1].vectors) vector -= parts.of[1].vectors, part = 2;
  if (part == 2) {
    const bool mine = cache.tables && vector < cache.v_vectors;
    const long long row = mine ? vector / cache.kv_heads : 0, head = vector % cache.kv_heads;
    std::byte* base = mine ? block_of(cache, row) + cache.v_offset : nullptr;
    const long long token = mine ? cache.positions[row] % kBlockTokens : 0;
    wait_for_inputs();
    if (!mine) return;
    const float* from = cache.v + vector * cache.v_dim;
    if (cache.v_type == KvType::q8_0) {
      write_q8(v_place(cache, base - cache.v_offset, head, token), cache.v_dim, [&](int i) { return from[i]; });
      return;
    }
#pragma unroll 4
    for (int i = lane; i < cache.v_dim; i += 32)
      store_kv(base, (head * kBlockTokens + token) * cache.v_dim + i, from[i], cache.v_type);
    return;
  }
  const Heads& h = parts.of[part];
  float* x = h.x + vector * h.dim;
  const long long row = vector / h.heads;
  const bool is_k = cache.tables && part == cache.k_part;
  std::byte* base = is_k ? block_of(cache, row) + cache.k_offset : nullptr;
  const long long head = vector % h.heads, token = is_k ? cache.positions[row] % kBlockTokens : 0;
  // All loads are on their way together.
  constexpr int kPer = kDimMax / 32;
  float r[kPer], w[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) w[i] = h.norm && h.weight && lane + 32 * i < h.dim ? h.weight[lane + 32 * i] : 1.0f;
  wait_for_inputs();
#pragma unroll
  for (int i = 0; i < kPer; ++i) r[i] = lane + 32 * i < h.dim ? x[lane + 32 * i] : 0.0f;
  float2 cs[kPer / 2];
#pragma unroll
  for (int i = 0; i < kPer / 2; ++i)
    cs[i] = h.rope && lane + 32 * i < h.pairs ? h.cos_sin[row * h.pairs + lane + 32 * i] : make_float2(1, 0);
  if (h.norm) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kPer; ++i) squares = fmaf(r[i], r[i], squares);
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(h.dim) + h.eps);
#pragma unroll
    for (int i = 0; i < kPer; ++i) r[i] = r[i] * inverse * w[i];
  }
#pragma unroll
  for (int i = 0; i < kPer; ++i) v[lane + 32 * i] = r[i];
  __syncwarp();
  if (h.rope) {
#pragma unroll
    for (int i = 0; i < kPer / 2; ++i) {
      const int n = lane + 32 * i;
      if (n >= h.pairs) continue;
      const int p = h.neox ? n : 2 * n, q = h.neox ? n + h.pairs : 2 * n + 1;
      const float first = v[p], second = v[q];
      v[p] = fmaf(first, cs[i].x, -(second * cs[i].y));
      v[q] = fmaf(first, cs[i].y, second * cs[i].x);
    }
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int n = lane + 32 * i;
    if (n >= h.dim) continue;
    x[n] = v[n];
    if (is_k && cache.k_type != KvType::q8_0)
      store_kv(base, (head * h.dim + n) * kBlockTokens + token, v[n], cache.k_type);
  }
  if (is_k && cache.k_type == KvType::q8_0)
    write_q8(k_place(cache, base - cache.k_offset, head, token), h.dim, [&](int i) { return v[i]; });
}

// K of many rows: a block takes 32 consecutive rows and one head, and turns them around in shared memory, so that
// stores are runs of neighbouring tokens wherever neighbouring rows are.
__global__ void __launch_bounds__(256) k_turn_kernel(const float* k, long long n, Cache cache) {
  __shared__ float turned[32][33];  // [dimension, row]
  __shared__ std::byte* base[32];
  __shared__ int token[32];
  const long long row0 = static_cast<long long>(blockIdx.x) * 32;
  const int head = static_cast<int>(blockIdx.y), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  if (warp == 0 && row0 + lane < n) {
    base[lane] = block_of(cache, row0 + lane) + cache.k_offset;
    token[lane] = static_cast<int>(cache.positions[row0 + lane] % kBlockTokens);
  }
  wait_for_inputs();
  for (int d0 = 0; d0 < cache.k_dim; d0 += 32) {
    __syncthreads();
    for (int r = warp; r < 32; r += 8)
      if (row0 + r < n && d0 + lane < cache.k_dim)
        turned[lane][r] = k[((row0 + r) * cache.kv_heads + head) * cache.k_dim + d0 + lane];
    __syncthreads();
    for (int i = warp; i < 32; i += 8)
      if (row0 + lane < n && d0 + i < cache.k_dim)
        store_kv(base[lane], (static_cast<long long>(head) * cache.k_dim + d0 + i) * kBlockTokens + token[lane],
                 turned[i][lane], cache.k_type);
  }
}

// The same in q8_0: a warp rotates and rounds a row's piece of up to 256 values, then codes are stored token by token.
__global__ void __launch_bounds__(256) k_turn_q8_kernel(const float* k, long long n, Cache cache) {
  __shared__ signed char turned[kKvPiece][36];  // [dimension, row]
  __shared__ unsigned short scales[kKvPer][32];
  __shared__ std::byte* base[32];
  __shared__ int token[32];
  const long long row0 = static_cast<long long>(blockIdx.x) * 32, head = blockIdx.y;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, rotation = rotation_of(cache.k_dim);
  if (warp == 0 && row0 + lane < n) {
    base[lane] = block_of(cache, row0 + lane);
    token[lane] = static_cast<int>(cache.positions[row0 + lane] % kBlockTokens);
  }
  wait_for_inputs();
  for (int first = 0; first < cache.k_dim; first += kKvPiece) {
    __syncthreads();
    for (int r = warp; r < 32 && row0 + r < n; r += 8) {
      const float* from = k + ((row0 + r) * cache.kv_heads + head) * cache.k_dim;
      float x[kKvPer];
#pragma unroll
      for (int i = 0; i < kKvPer; ++i) {
        const int d = first + 32 * i + lane;
        x[i] = d < cache.k_dim ? from[d] : 0.0f;
      }
      rotate_piece(x, rotation);
#pragma unroll
      for (int i = 0; i < kKvPer; ++i) {
        unsigned short scale;
        turned[32 * i + lane][r] = static_cast<signed char>(quantize_group(x[i], scale));
        if (lane == 0) scales[i][r] = scale;
      }
    }
    __syncthreads();
    if (row0 + lane >= n) continue;
    const Q8Place to = k_place(cache, base[lane], head, token[lane]);
    for (int i = warp; i < kKvPiece && first + i < cache.k_dim; i += 8)
      to.codes[static_cast<long long>(first + i) * to.stride] = turned[i][lane];
    if (first + 32 * warp < cache.k_dim) to.scales[(first / 32 + warp) * to.scale_stride] = scales[warp][lane];
  }
}

// K in q8_0 of a few rows that no norm or rope precedes, or of long heads; a warp a head.
__global__ void __launch_bounds__(32 * kWarps) k_write_q8_kernel(const float* k, long long vectors, Cache cache) {
  wait_for_inputs();
  const long long vector = static_cast<long long>(blockIdx.x) * kWarps + (threadIdx.x >> 5);
  if (vector >= vectors) return;
  const long long row = vector / cache.kv_heads;
  const float* from = k + vector * cache.k_dim;
  write_q8(k_place(cache, block_of(cache, row), vector % cache.kv_heads, cache.positions[row] % kBlockTokens),
           cache.k_dim, [&](int i) { return from[i]; });
}

// Heads of any length, in place; a thread a pair.
__global__ void __launch_bounds__(256)
    rope_kernel(float* x, long long count, int heads, int dim, int pairs, bool neox, const float2* cos_sin) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const long long vector = at / pairs, i = at % pairs;
  float* v = x + vector * dim;
  const long long p = neox ? i : 2 * i, q = neox ? i + pairs : 2 * i + 1;
  const float2 cs = cos_sin[vector / heads * pairs + i];
  const float first = v[p], second = v[q];
  v[p] = fmaf(first, cs.x, -(second * cs.y));
  v[q] = fmaf(first, cs.y, second * cs.x);
}
__global__ void __launch_bounds__(256) k_write_kernel(const float* k, long long count, Cache cache) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= count) return;
  const long long width = static_cast<long long>(cache.kv_heads) * cache.k_dim, row = at / width;
  store_kv(block_of(cache, row) + cache.k_offset, at % width * kBlockTokens + cache.positions[row] % kBlockTokens,
           k[at], cache.k_type);
}

Heads heads_of(const CudaDevice::PendingHeads& p) {
  return {.x = p.x,
          .weight = p.weight,
          .cos_sin = reinterpret_cast<const float2*>(p.cos_sin),
          .vectors = p.vectors,
          .heads = static_cast<int>(std::max<std::int64_t>(1, p.heads)),
          .dim = static_cast<int>(p.dim),
          .pairs = static_cast<int>(p.pairs),
          .eps = p.eps,
          .norm = p.norm,
          .rope = p.rope,
          .neox = p.style == RopeStyle::neox};
}

void launch_heads(CudaDevice& d, const Cache& cache) {
  Parts parts{};
  parts.of[0].heads = parts.of[1].heads = 1;
  for (int i = 0; i < d.heads_waiting; ++i) parts.of[i] = heads_of(d.pending_heads[i]);
  d.heads_waiting = 0;
  const long long vectors = parts.of[0].vectors + parts.of[1].vectors + (cache.tables ? cache.v_vectors : 0);
  launch(d, "norm and rope of heads", heads_kernel, dim3(blocks_for(vectors, kWarps)), dim3(32 * kWarps), 0, parts,
         cache);
}

}  // namespace

void CudaDevice::flush_heads() {
  if (heads_waiting > 0) launch_heads(*this, Cache{.k_part = -1});
}

void CudaDevice::flush() {
  flush_heads();
  flush_add();
}

void rope_table(Stream& s, const std::int64_t* positions, std::int64_t n, const double* inv_freq, std::int64_t pairs,
                float attn_factor, float* cos_sin) {
  CudaDevice& d = device_of(s);
  d.flush();
  const std::int64_t* at = d.on_device(positions, "the positions");
  const void* freq = d.constant(inv_freq, static_cast<std::size_t>(pairs) * sizeof(double));
  if (!at || !freq) return;
  launch(d, "rope_table", rope_table_kernel, dim3(blocks_for(n * pairs, 128)), dim3(128), 0,
         reinterpret_cast<const long long*>(at), static_cast<const double*>(freq), static_cast<int>(pairs),
         static_cast<long long>(n * pairs), static_cast<double>(attn_factor), reinterpret_cast<float2*>(cos_sin));
}

void rope(Stream& s, float* x, std::int64_t n, std::int64_t heads, std::int64_t dim, std::int64_t pairs,
          RopeStyle style, const float* cos_sin) {
  CudaDevice& d = device_of(s);
  d.flush_add();
  d.forget_q8(x);
  for (int i = 0; i < d.heads_waiting; ++i) {
    auto& p = d.pending_heads[i];
    if (p.x != x || p.rope || p.vectors != n * heads || p.dim != dim) continue;
    p.rope = true;
    p.heads = heads, p.pairs = pairs, p.style = style, p.cos_sin = cos_sin;
    return;
  }
  if (dim <= kDimMax) {
    bool touches = d.heads_waiting == 2;
    for (int i = 0; i < d.heads_waiting; ++i) touches |= d.pending_heads[i].x == x;
    if (touches) d.flush_heads();
    d.pending_heads[d.heads_waiting++] = {.x = x,
                                          .rope = true,
                                          .heads = heads,
                                          .dim = dim,
                                          .pairs = pairs,
                                          .vectors = n * heads,
                                          .style = style,
                                          .cos_sin = cos_sin};
    return;
  }
  d.flush();
  launch(d, "rope", rope_kernel, dim3(blocks_for(n * heads * pairs, 256)), dim3(256), 0, x,
         static_cast<long long>(n * heads * pairs), static_cast<int>(heads), static_cast<int>(dim),
         static_cast<int>(pairs), style == RopeStyle::neox, reinterpret_cast<const float2*>(cos_sin));
}

void kv_write(Stream& s, const KvWriteArgs& args) {
  CudaDevice& d = device_of(s);
  d.flush_add();
  const KvLayer& layer = args.layer;
  std::byte* const* tables = d.tables(args.runs);
  const StepOnDevice& step = d.step();
  if (!tables || step.n == 0) return;
  Cache cache{.tables = tables,
              .blocks = step.table_blocks,
              .k_offset = layer.k_offset,
              .v_offset = layer.v_offset,
              .row_run = step.row_run,
              .positions = reinterpret_cast<const long long*>(step.positions),
              .v = args.v,
              .v_vectors = step.n * layer.kv_heads,
              .kv_heads = layer.kv_heads,
              .k_dim = layer.k_dim,
              .v_dim = layer.v_dim,
              .k_type = layer.k_type,
              .v_type = layer.v_type,
              .k_part = -1};
  const bool q8 = layer.k_type == KvType::q8_0;
  bool v_waits = false;
  for (int i = 0; i < d.heads_waiting; ++i) {
    const auto& p = d.pending_heads[i];
    v_waits |= p.x == args.v;
    if (p.x == args.k && p.vectors == step.n * layer.kv_heads && p.dim == layer.k_dim) cache.k_part = i;
  }
  if (v_waits || step.n >= 32) {
    d.flush_heads();
    cache.k_part = -1;
  }
  if (step.n >= 32) {        // K by itself, after its norm and rope.
    launch_heads(d, cache);  // V alone.
    launch(d, "kv_write of K", q8 ? k_turn_q8_kernel : k_turn_kernel,
           dim3(blocks_for(step.n, 32), static_cast<std::uint32_t>(layer.kv_heads)), dim3(256), 0, args.k,
           static_cast<long long>(step.n), cache);
    return;
  }
  if (cache.k_part >= 0) {
    auto& p = d.pending_heads[cache.k_part];
    if (p.heads == 0) p.heads = layer.kv_heads;
    // A norm alone does not know its heads; the other tensor's count is used by rope only.
    launch_heads(d, cache);
    return;
  }
  d.flush();
  if (q8)
    launch(d, "kv_write of K", k_write_q8_kernel, dim3(blocks_for(step.n * layer.kv_heads, kWarps)), dim3(32 * kWarps),
           0, args.k, static_cast<long long>(step.n * layer.kv_heads), cache);
  else
    launch(d, "kv_write of K", k_write_kernel, dim3(blocks_for(step.n * layer.kv_heads * layer.k_dim, 256)), dim3(256),
           0, args.k, static_cast<long long>(step.n * layer.kv_heads * layer.k_dim), cache);
  launch_heads(d, cache);
}

}  // namespace lode::kernels::cuda
