// Attention row by row over absolute spans of 256 tokens: for single tokens (decode), split over spans; for whatever
// the tensor-core tiles do not take; and for every row where results must not depend on how a step was cut. A span's
// (m, l, o) comes from that span alone, and a second kernel joins a row's spans in ascending order.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/kv_q8.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = 8;
constexpr float kNone = -INFINITY;

// Eight consecutive values as floats.
__device__ __forceinline__ void load8(const __half* p, float (&v)[8]) {
  const uint4 raw = *reinterpret_cast<const uint4*>(p);
  const __half2* h = reinterpret_cast<const __half2*>(&raw);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = __half22float2(h[i]);
    v[2 * i] = f.x, v[2 * i + 1] = f.y;
  }
}
__device__ __forceinline__ void load8(const float* p, float (&v)[8]) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

__device__ __forceinline__ void load8(const signed char* p, float (&v)[8]) {
  const uint2 raw = *reinterpret_cast<const uint2*>(p);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    v[i] = static_cast<float>(static_cast<signed char>((i < 4 ? raw.x : raw.y) >> (8 * (i % 4))));
}

// One block's K and V of one head as a kernel reads them. Both f32 or both f16 (T), or any types (Mixed).
template <typename T>
struct Reader {
  const T *k, *v;
  __device__ __forceinline__ Reader(const RowArgs& a, const std::byte* block, int kv_head)
      : k(reinterpret_cast<const T*>(block + a.k_offset) + static_cast<long long>(kv_head) * a.k_dim * kBlockTokens),
        v(reinterpret_cast<const T*>(block + a.v_offset) + static_cast<long long>(kv_head) * kBlockTokens * a.v_dim) {}
  // Dimension d of eight tokens; eight dimensions of token t.
  __device__ __forceinline__ void read_k(const RowArgs& a, int d, int token, float (&x)[8]) const {
    load8(k + static_cast<long long>(d) * kBlockTokens + token, x);
  }
  __device__ __forceinline__ void read_v(const RowArgs& a, int t, int dim, float (&x)[8]) const {
    load8(v + static_cast<long long>(t) * a.v_dim + dim, x);
  }
};
struct Mixed {};
template <>
struct Reader<Mixed> {
  const std::byte* block;
  int kv_head;
  __device__ __forceinline__ Reader(const RowArgs&, const std::byte* of, int head) : block(of), kv_head(head) {}
  __device__ __forceinline__ static void read(const std::byte* values, KvType type, long long at, float (&x)[8]) {
    if (type == KvType::f32) load8(reinterpret_cast<const float*>(values) + at, x);
    else if (type == KvType::f16) load8(reinterpret_cast<const __half*>(values) + at, x);
    else load8(reinterpret_cast<const signed char*>(values) + at, x);
  }
  __device__ __forceinline__ void read_k(const RowArgs& a, int d, int token, float (&x)[8]) const {
    read(block + a.k_offset, a.k_type, (static_cast<long long>(kv_head) * a.k_dim + d) * kBlockTokens + token, x);
    if (a.k_type != KvType::q8_0) return;
    float scale[8];
    load8(reinterpret_cast<const __half*>(block + a.k_scales) +
              (static_cast<long long>(kv_head) * groups_of(a.k_dim) + d / 32) * kBlockTokens + token,
          scale);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] *= scale[i];
  }
  __device__ __forceinline__ void read_v(const RowArgs& a, int t, int dim, float (&x)[8]) const {
    const long long token = static_cast<long long>(kv_head) * kBlockTokens + t;
    read(block + a.v_offset, a.v_type, token * a.v_dim + dim, x);
    if (a.v_type != KvType::q8_0) return;
    const float scale =
        __half2float(reinterpret_cast<const __half*>(block + a.v_scales)[token * groups_of(a.v_dim) + dim / 32]);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] *= scale;
  }
};

// Shared memory of a block: q [G, k_dim], s [G, 256], (m, l) [G], and a region a warp: V of its 32 tokens (f16: copied
// there while scores are computed), then its part of o [G, v_dim].
template <typename T, int G>
struct Shared {
  static constexpr bool kStaged = sizeof(T) == 2;
  float *q, *s;
  float2* span;
  std::byte* regions;
  int region_bytes;

  static __host__ __device__ int region(int v_dim) {
    const int part = G * v_dim * 4, staged = 32 * v_dim * 2;
    return kStaged && staged > part ? staged : part;
  }
  static __host__ __device__ int bytes(int k_dim, int v_dim) {
    return kWarps * region(v_dim) + (G * (k_dim + static_cast<int>(kSpanTokens)) + 2 * G) * 4;
  }
  __device__ __forceinline__ Shared(std::byte* base, int k_dim, int v_dim) {
    regions = base;
    region_bytes = region(v_dim);
    q = reinterpret_cast<float*>(base + kWarps * region_bytes);
    s = q + G * k_dim;
    span = reinterpret_cast<float2*>(s + G * kSpanTokens);
  }
  __device__ __forceinline__ float* part(int warp) const {
    return reinterpret_cast<float*>(regions + warp * region_bytes);
  }
};

// Scores of the warp's block of 32 tokens: a lane has 8 tokens and every eighth dimension.
template <typename T, int G>
__device__ __forceinline__ void scores(const RowArgs& a, const Shared<T, G>& sh, const Reader<T>& kv, int lane, int at,
                                       int lo, int hi) {
  const int tokens = (lane & 3) * 8, dim = lane >> 2;
  float acc[G][8] = {};
#pragma unroll 4
  for (int d = dim; d < a.k_dim; d += 8) {
    float v[8];
    kv.read_k(a, d, tokens, v);
#pragma unroll
    for (int h = 0; h < G; ++h) {
      const float q = sh.q[h * a.k_dim + d];
#pragma unroll
      for (int t = 0; t < 8; ++t) acc[h][t] = fmaf(q, v[t], acc[h][t]);
    }
  }
#pragma unroll
  for (int h = 0; h < G; ++h)
#pragma unroll
    for (int t = 0; t < 8; ++t) {
      float s = acc[h][t];
      s += __shfl_xor_sync(0xffffffffu, s, 4);
      s += __shfl_xor_sync(0xffffffffu, s, 8);
      s += __shfl_xor_sync(0xffffffffu, s, 16);
      if (dim == (t & 7)) {
        const int token = at + tokens + t;
        sh.s[h * kSpanTokens + token] = token >= lo && token < hi ? s : kNone;
      }
    }
}

// The warp's part of o: its block of 32 tokens. v_dim / 8 lanes a token.
template <typename T, int G>
__device__ __forceinline__ void mix(const RowArgs& a, const Shared<T, G>& sh, const Reader<T>& kv, int lane, int warp,
                                    int lo, int hi) {
  const int lanes = a.v_dim / 8, tokens = 32 / lanes, mine = lane / lanes, dim = lane % lanes * 8;
  float acc[G][8] = {};
  if (mine < tokens) {
    const int begin = max(lo, warp * 32), end = min(hi, warp * 32 + 32);
#pragma unroll 4
    for (int t = warp * 32 + mine; t < end; t += tokens) {
      if (t < begin) continue;
      float x[8];
      kv.read_v(a, t - warp * 32, dim, x);
#pragma unroll
      for (int h = 0; h < G; ++h) {
        const float p = sh.s[h * kSpanTokens + t];
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[h][i] = fmaf(p, x[i], acc[h][i]);
      }
    }
  }
  // Lanes that share dimensions add up, the lowest token's first. The part takes the place of V: all have read it.
  __syncwarp();
  float* part = sh.part(warp);
#pragma unroll
  for (int h = 0; h < G; ++h)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float sum = acc[h][i];
      for (int other = 1; other < tokens; ++other) {
        const float next = __shfl_sync(0xffffffffu, acc[h][i], (lane + other * lanes) & 31);
        sum += next;
      }
      if (mine == 0) part[h * a.v_dim + dim + i] = sum;
    }
}

__device__ __forceinline__ void copy_ahead(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global));
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}
__device__ __forceinline__ void copies_arrive() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Into the L2, 128 bytes a lane at a time.
__device__ __forceinline__ void prefetch(const void* from, int bytes, int lane) {
  for (int i = lane * 128; i < bytes; i += 32 * 128)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + i));
}

// Heads in shared memory, [count, dim], as K in q8_0 is rotated; a warp a head.
__device__ __forceinline__ void rotate_queries(float* q, int count, int dim) {
  const int lane = threadIdx.x & 31, n = rotation_of(dim);
  for (int h = threadIdx.x >> 5; h < count; h += kWarps)
    for (int first = 0; first < dim; first += kKvPiece) {
      float x[kKvPer];
#pragma unroll
      for (int i = 0; i < kKvPer; ++i) {
        const int d = first + 32 * i + lane;
        x[i] = d < dim ? q[h * dim + d] : 0.0f;
      }
      rotate_piece(x, n);
#pragma unroll
      for (int i = 0; i < kKvPer; ++i) {
        const int d = first + 32 * i + lane;
        if (d < dim) q[h * dim + d] = x[i];
      }
    }
}

// Block (span, KV head and part of its group, row): (m, l, o) of one span into the room.
template <typename T, int G>
__global__ void __launch_bounds__(kThreads) rows_kernel(RowArgs a) {
  extern __shared__ float4 raw[];
  const Shared<T, G> sh(reinterpret_cast<std::byte*>(raw), a.k_dim, a.v_dim);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const long long row = a.rows ? a.rows[blockIdx.z] : a.first_row + blockIdx.z;
  const long long position = a.positions[row], first = first_visible(a, position);
  const long long span = first / kSpanTokens + blockIdx.x;
  if (span > position / kSpanTokens) {
    wait_for_inputs();
    return;
  }
  const int parts = (a.group + G - 1) / G, kv_head = static_cast<int>(blockIdx.y) / parts;
  const int head0 = kv_head * a.group + static_cast<int>(blockIdx.y) % parts * G;
  const int heads = min(G, (kv_head + 1) * a.group - head0);
  const long long start = span * kSpanTokens;
  const int lo = static_cast<int>(max(0ll, first - start));
  const int hi = static_cast<int>(min(static_cast<long long>(kSpanTokens), position + 1 - start));

  // The warp's block of 32 tokens. Its V is on its way while K is read.
  const bool sees = warp * 32 < hi && warp * 32 + 32 > lo;
  const std::byte* block =
      sees ? a.tables[a.row_run[row] * a.blocks + span * (kSpanTokens / kBlockTokens) + warp] : nullptr;
  Reader<T> kv(a, block, kv_head);
  // Blocks that this step does not write are fetched before the kernel's inputs are there.
  const bool old = start + warp * 32 + 32 <= a.row_start[row];
  if constexpr (!std::is_same_v<T, Mixed>)
    if (sees && old) prefetch(kv.k, a.k_dim * kBlockTokens * static_cast<int>(sizeof(T)), lane);
  if (!old) wait_for_inputs();
  if constexpr (Shared<T, G>::kStaged) {
    T* staged = reinterpret_cast<T*>(sh.regions + warp * sh.region_bytes);
    if (sees)
      for (int i = lane; i < kBlockTokens * a.v_dim / 8; i += 32) copy_ahead(staged + 8 * i, kv.v + 8 * i);
    kv.v = staged;
  } else if constexpr (std::is_same_v<T, float>) {
    if (sees && old) prefetch(kv.v, a.v_dim * kBlockTokens * static_cast<int>(sizeof(T)), lane);
  }
  if (old) wait_for_inputs();
  for (int i = threadIdx.x; i < G * a.k_dim; i += kThreads)
    sh.q[i] = i < heads * a.k_dim ? a.q[(row * a.heads + head0) * a.k_dim + i] * a.scale : 0.0f;
  __syncthreads();
  if constexpr (std::is_same_v<T, Mixed>) {
    if (a.k_type == KvType::q8_0) {
      rotate_queries(sh.q, G, a.k_dim);
      __syncthreads();
    }
  }
  if (sees) {
    scores<T, G>(a, sh, kv, lane, warp * 32, lo, hi);
  } else {
    for (int h = 0; h < G; ++h) sh.s[h * kSpanTokens + warp * 32 + lane] = kNone;
  }
  __syncthreads();
  for (int h = warp; h < G; h += kWarps) {
    float s[8], m = kNone, l = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) s[i] = sh.s[h * kSpanTokens + 32 * i + lane];
    if (a.softcap > 0) {
#pragma unroll
      for (int i = 0; i < 8; ++i) s[i] = s[i] == kNone ? kNone : a.softcap * tanhf(s[i] / a.softcap);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) m = fmaxf(m, s[i]);
    m = warp_max(m);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      s[i] = s[i] == kNone ? 0.0f : expf(s[i] - m);
      l += s[i];
      sh.s[h * kSpanTokens + 32 * i + lane] = s[i];
    }
    l = warp_sum(l);
    if (lane == 0) sh.span[h] = make_float2(m, l);
  }
  copies_arrive();
  __syncthreads();
  mix<T, G>(a, sh, kv, lane, warp, sees ? lo : 0, sees ? hi : 0);
  __syncthreads();
  for (int at = threadIdx.x; at < heads * a.v_dim; at += kThreads) {
    float o = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) o += sh.part(w)[at];
    const int h = at / a.v_dim;
    float* room =
        a.room + ((blockIdx.z * a.heads + head0 + h) * static_cast<long long>(a.spans) + blockIdx.x) * (a.v_dim + 2);
    room[2 + at % a.v_dim] = o;
    if (at % a.v_dim == 0) room[0] = sh.span[h].x, room[1] = sh.span[h].y;
  }
}

// Sum or maximum over a block in a fixed tree; every thread gets it.
template <bool kMax>
__device__ __forceinline__ float over_block(float v, float* room) {
  v = kMax ? warp_max(v) : warp_sum(v);
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  if ((thread & 31) == 0) room[thread >> 5] = v;
  __syncthreads();
  float all = room[0];
  const int warps = static_cast<int>(blockDim.x * blockDim.y) / 32;
  for (int w = 1; w < warps; ++w) all = kMax ? fmaxf(all, room[w]) : all + room[w];
  __syncthreads();
  return all;
}

// The value of dimension i in the threads (i, any), rotated by blocks of n; `room` [blockDim.x]. Every thread calls.
__device__ __forceinline__ float rotate_over_block(float y, int n, float* room) {
  const int i = static_cast<int>(threadIdx.x);
  for (int h = 1; h < n; h *= 2) {
    float other;
    if (h < 32) {
      other = __shfl_xor_sync(0xffffffffu, y, h);
    } else {
      if (threadIdx.y == 0) room[i] = y;
      __syncthreads();
      other = room[i ^ h];
      __syncthreads();
    }
    y = i & h ? other - y : y + other;
  }
  return y * rotation_factor(n);
}

// A block a (head, row); x is a multiple of 32. Thread (i, y) has dimension i of o and of kSlices sums over every
// fourth span, ascending, one (kSplit 4) or all (1: few spans, so that a short context does not wait for 512 threads).
// Which of the two runs changes no bits: with spans of one warp's lanes at most, all other sums are zeros.
constexpr int kSlices = 4, kSplitSpans = 16;
template <int kSplit>
__global__ void __launch_bounds__(256 * kSplit) merge_kernel(const __grid_constant__ RowArgs a) {
  extern __shared__ float4 raw[];
  float* weight = reinterpret_cast<float*>(raw);  // [spans]
  __shared__ float reduced[32];
  __shared__ float part[kSlices][256];
  const long long row = a.rows ? a.rows[blockIdx.y] : a.first_row + blockIdx.y;
  const long long position = a.positions[row], first = first_visible(a, position);
  const int spans = static_cast<int>(position / kSpanTokens - first / kSpanTokens + 1);
  const int head = static_cast<int>(blockIdx.x), step = a.v_dim + 2;
  const int i = static_cast<int>(threadIdx.x), slice = static_cast<int>(threadIdx.y);
  const int thread = slice * static_cast<int>(blockDim.x) + i, threads = kSplit * static_cast<int>(blockDim.x);
  constexpr int kOwn = kSlices / kSplit, kEarly = 16;  // A thread's sums; spans of all of them that it reads at once.
  const float* room = a.room + (blockIdx.y * a.heads + head) * static_cast<long long>(a.spans) * step;
  const auto at = [&](int n) { return room + static_cast<long long>(n) * step; };
  wait_for_inputs();
  // The first spans are on their way while their weights are found: n is span kSplit n + slice.
  float early[kEarly];
#pragma unroll
  for (int n = 0; n < kEarly; ++n) {
    const int span = slice + kSplit * n;
    early[n] = span < spans && i < a.v_dim ? at(span)[2 + i] : 0.0f;
  }
  float top = a.sinks && thread == 0 ? a.sinks[head] : kNone;
  for (int n = thread; n < spans; n += threads) top = fmaxf(top, at(n)[0]);
  top = over_block<true>(top, reduced);
  float l = a.sinks && thread == 0 ? expf(a.sinks[head] - top) : 0.0f;
  for (int n = thread; n < spans; n += threads) {
    const float w = expf(at(n)[0] - top);
    weight[n] = w;
    l = fmaf(at(n)[1], w, l);
  }
  l = over_block<false>(l, reduced);
  float sums[kOwn] = {};
#pragma unroll
  for (int n = 0; n < kEarly; ++n)
    if (slice + kSplit * n < spans) sums[n % kOwn] = fmaf(weight[slice + kSplit * n], early[n], sums[n % kOwn]);
  if (kSplit == kSlices && i < a.v_dim) {
#pragma unroll 8
    for (int n = slice + kSplit * kEarly; n < spans; n += kSplit) sums[0] = fmaf(weight[n], at(n)[2 + i], sums[0]);
  }
#pragma unroll
  for (int n = 0; n < kOwn; ++n) part[slice + n][i] = sums[n];
  __syncthreads();
  float o = part[0][i];
#pragma unroll
  for (int other = 1; other < kSlices; ++other) o += part[other][i];
  float y = o / l;
  if (a.v_type == KvType::q8_0) {  // V was rotated, and with it its sums.
    __syncthreads();
    y = rotate_over_block(y, rotation_of(a.v_dim), part[0]);
  }
  if (i >= a.v_dim || slice > 0) return;
  const long long to = (row * a.heads + head) * a.v_dim + i;
  a.out[to] = y;
  if (a.q8.q) store_q8(y, a.q8, to >> 5);  // v_dim is a multiple of 32 then.
}

template <typename T, int G>
void launch_rows(CudaDevice& d, const RowArgs& a, std::int64_t rows) {
  const int shared = Shared<T, G>::bytes(a.k_dim, a.v_dim);
  const dim3 grid(static_cast<std::uint32_t>(a.spans), static_cast<std::uint32_t>(a.kv_heads * ((a.group + G - 1) / G)),
                  static_cast<std::uint32_t>(rows));
  d.check(cudaFuncSetAttribute(rows_kernel<T, G>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "shared memory of attention");
  launch(d, "attention", rows_kernel<T, G>, grid, dim3(kThreads), static_cast<std::size_t>(shared), a);
}

template <typename T>
void pick_group(CudaDevice& d, const RowArgs& a, std::int64_t rows) {
  if (a.group == 1) launch_rows<T, 1>(d, a, rows);
  else if (a.group == 2) launch_rows<T, 2>(d, a, rows);
  else if (a.group <= 4 || a.v_dim > 128) launch_rows<T, 4>(d, a, rows);
  else launch_rows<T, 8>(d, a, rows);
}

}  // namespace

void attention_rows(CudaDevice& d, const AttentionArgs& args, std::byte* const* tables, bool all_rows) {
  const KvLayer& layer = args.layer;
  const StepOnDevice& step = d.step();
  const std::int64_t rows = all_rows ? step.n : step.row_list;
  if (rows == 0) return;
  if (layer.v_dim % 8 != 0 || layer.v_dim > 256 || layer.k_dim > 1024) {
    d.fail(Status::unsupported("attention with heads of " + std::to_string(layer.k_dim) + " and " +
                               std::to_string(layer.v_dim) + ": GPU kernels take V heads of up to 256, by 8"));
    return;
  }
  const std::int64_t table_spans = (step.table_blocks * kBlockTokens + kSpanTokens - 1) / kSpanTokens;
  std::int64_t spans = table_spans;
  const std::int64_t range =
      args.window > 0 && args.chunk > 0 ? std::min(args.window, args.chunk) : std::max(args.window, args.chunk);
  if (range > 0) spans = std::min(spans, (range + kSpanTokens - 2) / kSpanTokens + 1);
  // As many rows at a time as the room holds; one at least, or the caller has cut it too small.
  const std::int64_t row_floats = args.heads * spans * (layer.v_dim + 2);
  const std::int64_t at_once =
      std::min<std::int64_t>({rows, static_cast<std::int64_t>(args.span_room_floats) / row_floats, 65535});
  if (at_once < 1) {
    d.fail({Code::internal, "attention: the room for spans is smaller than one row's"});
    return;
  }
  const bool whole = at_once == rows && all_rows && layer.v_dim % 32 == 0;
  const Q8 q8 = whole ? d.offer_q8(rows, args.heads * layer.v_dim) : Q8{};
  RowArgs a{.q = args.q,
            .out = args.out,
            .sinks = args.sinks,
            .tables = tables,
            .row_run = step.row_run,
            .positions = reinterpret_cast<const long long*>(step.positions),
            .row_start = reinterpret_cast<const long long*>(step.row_start),
            .room = args.span_room,
            .q8 = q8,
            .blocks = step.table_blocks,
            .k_offset = layer.k_offset,
            .v_offset = layer.v_offset,
            .window = args.window,
            .chunk = args.chunk,
            .k_scales = layer.k_offset + kv_scales_offset(layer.kv_heads, layer.k_dim),
            .v_scales = layer.v_offset + kv_scales_offset(layer.kv_heads, layer.v_dim),
            .k_type = layer.k_type,
            .v_type = layer.v_type,
            .heads = args.heads,
            .kv_heads = layer.kv_heads,
            .group = args.heads / layer.kv_heads,
            .k_dim = layer.k_dim,
            .v_dim = layer.v_dim,
            .spans = static_cast<int>(spans),
            .scale = args.scale,
            .softcap = args.softcap};
  for (std::int64_t first = 0; first < rows; first += at_once) {
    const std::int64_t now = std::min(at_once, rows - first);
    a.first_row = first;
    a.rows = all_rows ? nullptr : step.rows + first;
    if (!attention_spans(d, a, now)) {
      if (layer.k_type != layer.v_type || layer.k_type == KvType::q8_0) pick_group<Mixed>(d, a, now);
      else if (layer.k_type == KvType::f32) pick_group<float>(d, a, now);
      else pick_group<__half>(d, a, now);
    }
    const bool few = spans <= kSplitSpans;
    launch(d, "merge of spans", few ? merge_kernel<1> : merge_kernel<kSlices>,
           dim3(static_cast<std::uint32_t>(args.heads), static_cast<std::uint32_t>(now)),
           dim3(static_cast<std::uint32_t>((layer.v_dim + 31) / 32 * 32), few ? 1 : kSlices),
           static_cast<std::size_t>(spans) * 4, a);
  }
  if (q8.q) d.made_q8(args.out, rows, args.heads * layer.v_dim, q8);
}

void attention(Stream& s, const AttentionArgs& args) {
  CudaDevice& d = device_of(s);
  d.flush();
  d.forget_q8(args.out);
  const KvLayer& layer = args.layer;
  LODE_CHECK(layer.kv_heads > 0 && args.heads % layer.kv_heads == 0);
  std::byte* const* tables = d.tables(args.runs);
  if (!tables) return;
  if (!d.deterministic() && d.step().tiles > 0 && attention_tiles(d, args, tables)) {
    attention_rows(d, args, tables, false);
    return;
  }
  attention_rows(d, args, tables, true);
}

}  // namespace lode::kernels::cuda
