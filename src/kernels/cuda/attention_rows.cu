// Attention row by row over absolute spans of 256 tokens: for single tokens (decode), split over spans; for whatever
// the tensor-core tiles do not take; and for every row where results must not depend on how a step was cut. A span's
// (m, l, o) comes from that span alone, and spans merge in ascending order, by the same operations whether one block
// runs through a row's spans or each span has its own block.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = 8;
constexpr float kNone = -INFINITY;

struct RowArgs {
  const float* q;
  float* out;
  const float* sinks;
  std::byte* const* tables;
  const std::int32_t *row_run, *rows;  // rows nullptr: block z is row z.
  const long long* positions;
  float* room;  // [rows, heads, spans, v_dim + 2] where split
  Q8 q8;        // Of out, where wanted.
  long long blocks, k_offset, v_offset, window, chunk;
  int heads, kv_heads, group, k_dim, v_dim, spans;  // group: query heads of a KV head
  float scale, softcap;
};

__device__ __forceinline__ long long first_visible(const RowArgs& a, long long position) {
  long long first = 0;
  if (a.window > 0 && position >= a.window) first = position - a.window + 1;
  if (a.chunk > 0) first = max(first, position / a.chunk * a.chunk);
  return first;
}

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

// Shared memory of a block: q [G, k_dim], s [G, 256], part [8, G, v_dim], o [G, v_dim], (m, l) [G, 2] of the span and
// of the running state.
template <int G>
struct Shared {
  float *q, *s, *part, *o;
  float2 *span, *state;
};
template <int G>
__device__ __forceinline__ Shared<G> shared_of(float* base, int k_dim, int v_dim) {
  Shared<G> r;
  r.q = base;
  r.s = r.q + G * k_dim;
  r.part = r.s + G * kSpanTokens;
  r.o = r.part + kWarps * G * v_dim;
  r.span = reinterpret_cast<float2*>(r.o + G * v_dim);
  r.state = r.span + G;
  return r;
}

// Scores of the warp's block of 32 tokens: a lane has 8 tokens and every eighth dimension.
template <typename T, int G>
__device__ __forceinline__ void scores(const RowArgs& a, const Shared<G>& sh, const T* k, int lane, int at, int lo,
                                       int hi) {
  const int tokens = (lane & 3) * 8, dim = lane >> 2;
  float acc[G][8] = {};
#pragma unroll 4
  for (int d = dim; d < a.k_dim; d += 8) {
    float v[8];
    load8(k + static_cast<long long>(d) * kBlockTokens + tokens, v);
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
        if (a.softcap > 0) s = a.softcap * tanhf(s / a.softcap);
        sh.s[h * kSpanTokens + token] = token >= lo && token < hi ? s : kNone;
      }
    }
}

// The warp's part of o: its block of 32 tokens. v_dim / 8 lanes a token.
template <typename T, int G>
__device__ __forceinline__ void mix(const RowArgs& a, const Shared<G>& sh, const T* v, int lane, int warp, int lo,
                                    int hi) {
  const int lanes = a.v_dim / 8, tokens = 32 / lanes, mine = lane / lanes, dim = lane % lanes * 8;
  float acc[G][8] = {};
  if (mine < tokens) {
    const int begin = max(lo, warp * 32), end = min(hi, warp * 32 + 32);
#pragma unroll 4
    for (int t = warp * 32 + mine; t < end; t += tokens) {
      if (t < begin) continue;
      float x[8];
      load8(v + static_cast<long long>(t - warp * 32) * a.v_dim + dim, x);
#pragma unroll
      for (int h = 0; h < G; ++h) {
        const float p = sh.s[h * kSpanTokens + t];
#pragma unroll
        for (int i = 0; i < 8; ++i) acc[h][i] = fmaf(p, x[i], acc[h][i]);
      }
    }
  }
  // Lanes that share dimensions add up, the lowest token's first.
#pragma unroll
  for (int h = 0; h < G; ++h)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float sum = acc[h][i];
      for (int other = 1; other < tokens; ++other) {
        const float next = __shfl_sync(0xffffffffu, acc[h][i], (lane + other * lanes) & 31);
        sum += next;
      }
      if (mine == 0) sh.part[(warp * G + h) * a.v_dim + dim + i] = sum;
    }
}

// (m, l) into sh.span and o into sh.o, from one span.
template <typename T, int G>
__device__ void span_result(const RowArgs& a, const Shared<G>& sh, std::byte* const* table, long long span, int kv_head,
                            int lo, int hi) {
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const bool sees = warp * 32 < hi && warp * 32 + 32 > lo;
  const std::byte* block = sees ? table[span * (kSpanTokens / kBlockTokens) + warp] : nullptr;
  if (sees) {
    const T* k = reinterpret_cast<const T*>(block + a.k_offset) +
                 static_cast<long long>(kv_head) * a.k_dim * kBlockTokens;
    scores<T, G>(a, sh, k, lane, warp * 32, lo, hi);
  } else {
    for (int h = 0; h < G; ++h) sh.s[h * kSpanTokens + warp * 32 + lane] = kNone;
  }
  __syncthreads();
  for (int h = warp; h < G; h += kWarps) {
    float s[8], m = kNone, l = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) m = fmaxf(m, s[i] = sh.s[h * kSpanTokens + 32 * i + lane]);
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
  __syncthreads();
  const T* v = sees ? reinterpret_cast<const T*>(block + a.v_offset) +
                          static_cast<long long>(kv_head) * kBlockTokens * a.v_dim
                    : nullptr;
  mix<T, G>(a, sh, v, lane, warp, sees ? lo : 0, sees ? hi : 0);
  __syncthreads();
}

// What a span adds to the running (m, l).
__device__ __forceinline__ float2 merged(float2 state, float2 span, float& keep, float& take) {
  const float m = fmaxf(state.x, span.x);
  keep = state.x == kNone ? 0.0f : expf(state.x - m);
  take = span.x == kNone ? 0.0f : expf(span.x - m);
  return make_float2(m, fmaf(state.y, keep, span.y * take));
}
__device__ __forceinline__ float finished(float o, float2 state, const float* sinks, int head) {
  if (!sinks) return o / state.y;
  const float sink = sinks[head], m = fmaxf(state.x, sink), a = expf(state.x - m);
  return o * a / fmaf(state.y, a, expf(sink - m));
}

// Block (span or 0, KV head and part of its group, row).
template <typename T, int G, bool kSplit>
__global__ void __launch_bounds__(kThreads) rows_kernel(RowArgs a) {
  extern __shared__ float4 raw[];
  wait_for_inputs();
  const Shared<G> sh = shared_of<G>(reinterpret_cast<float*>(raw), a.k_dim, a.v_dim);
  const int parts = (a.group + G - 1) / G, kv_head = static_cast<int>(blockIdx.y) / parts;
  const int head0 = kv_head * a.group + static_cast<int>(blockIdx.y) % parts * G;
  const int heads = min(G, (kv_head + 1) * a.group - head0);
  const long long row = a.rows ? a.rows[blockIdx.z] : blockIdx.z;
  const long long position = a.positions[row], first = first_visible(a, position);
  const long long span0 = first / kSpanTokens, spans = position / kSpanTokens - span0 + 1;
  const long long begin = kSplit ? blockIdx.x : 0, end = kSplit ? min(begin + 1, spans) : spans;
  if (begin >= end) return;
  std::byte* const* table = a.tables + a.row_run[row] * a.blocks;

  for (int i = threadIdx.x; i < G * a.k_dim; i += kThreads)
    sh.q[i] = i < heads * a.k_dim ? a.q[(row * a.heads + head0) * a.k_dim + i] * a.scale : 0.0f;
  if (threadIdx.x < G) sh.state[threadIdx.x] = make_float2(kNone, 0);
  float running[4] = {};  // G * v_dim <= 1,024: values threadIdx.x + 256 i of [G, v_dim].
  __syncthreads();
  for (long long n = begin; n < end; ++n) {
    const long long start = (span0 + n) * kSpanTokens;
    const int lo = static_cast<int>(max(0ll, first - start));
    const int hi = static_cast<int>(min(static_cast<long long>(kSpanTokens), position + 1 - start));
    span_result<T, G>(a, sh, table, span0 + n, kv_head, lo, hi);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads;
      if (at >= heads * a.v_dim) continue;
      float o = 0;
      for (int w = 0; w < kWarps; ++w) o += sh.part[w * G * a.v_dim + at];
      if constexpr (kSplit) {
        const int h = at / a.v_dim;
        float* room = a.room + ((blockIdx.z * a.heads + head0 + h) * static_cast<long long>(a.spans) + n) * (a.v_dim + 2);
        room[2 + at % a.v_dim] = o;
        if (at % a.v_dim == 0) room[0] = sh.span[h].x, room[1] = sh.span[h].y;
      } else {
        float keep, take;
        merged(sh.state[at / a.v_dim], sh.span[at / a.v_dim], keep, take);
        running[i] = fmaf(running[i], keep, o * take);
      }
    }
    if constexpr (!kSplit) {
      __syncthreads();
      float keep, take;
      if (threadIdx.x < G) sh.state[threadIdx.x] = merged(sh.state[threadIdx.x], sh.span[threadIdx.x], keep, take);
      __syncthreads();
    }
  }
  if constexpr (!kSplit) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads;
      if (at >= heads * a.v_dim) continue;
      const int h = at / a.v_dim;
      a.out[(row * a.heads + head0) * a.v_dim + at] = finished(running[i], sh.state[h], a.sinks, head0 + h);
    }
  }
}

// A block a (head, row), a thread a dimension.
__global__ void merge_kernel(RowArgs a) {
  wait_for_inputs();
  const long long row = a.rows ? a.rows[blockIdx.y] : blockIdx.y;
  const long long position = a.positions[row], first = first_visible(a, position);
  const int spans = static_cast<int>(position / kSpanTokens - first / kSpanTokens + 1);
  const int head = static_cast<int>(blockIdx.x), i = static_cast<int>(threadIdx.x);
  const float* room = a.room + (blockIdx.y * a.heads + head) * static_cast<long long>(a.spans) * (a.v_dim + 2);
  float2 state = make_float2(kNone, 0);
  float o = 0;
#pragma unroll 4
  for (int n = 0; n < spans; ++n, room += a.v_dim + 2) {
    float keep, take;
    state = merged(state, make_float2(room[0], room[1]), keep, take);
    o = fmaf(o, keep, room[2 + i] * take);
  }
  const long long at = (row * a.heads + head) * a.v_dim + i;
  const float y = finished(o, state, a.sinks, head);
  a.out[at] = y;
  if (a.q8.q) store_q8(y, a.q8, at >> 5);  // v_dim is a multiple of 32 then.
}

template <typename T, int G>
void launch_rows(CudaDevice& d, RowArgs a, std::int64_t rows, bool split) {
  const std::size_t shared =
      static_cast<std::size_t>(G * (a.k_dim + kSpanTokens + (kWarps + 1) * a.v_dim + 4)) * sizeof(float);
  const dim3 grid(split ? static_cast<std::uint32_t>(a.spans) : 1,
                  static_cast<std::uint32_t>(a.kv_heads * ((a.group + G - 1) / G)), static_cast<std::uint32_t>(rows));
  const auto prepare = [&](auto kernel) {
    d.check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
            "shared memory of attention");
    launch(d, "attention", kernel, grid, dim3(kThreads), shared, a);
  };
  if (split) prepare(rows_kernel<T, G, true>);
  else prepare(rows_kernel<T, G, false>);
}

template <typename T>
void pick_group(CudaDevice& d, const RowArgs& a, std::int64_t rows, bool split) {
  if (a.group == 1) launch_rows<T, 1>(d, a, rows, split);
  else if (a.group == 2) launch_rows<T, 2>(d, a, rows, split);
  else if (a.group <= 4 || a.v_dim > 128) launch_rows<T, 4>(d, a, rows, split);
  else launch_rows<T, 8>(d, a, rows, split);
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
  const std::int64_t range = args.window > 0 && args.chunk > 0 ? std::min(args.window, args.chunk)
                                                               : std::max(args.window, args.chunk);
  if (range > 0) spans = std::min(spans, (range + kSpanTokens - 2) / kSpanTokens + 1);
  const std::size_t need = static_cast<std::size_t>(rows * args.heads * spans * (layer.v_dim + 2));
  const bool split = need <= args.span_room_floats && rows * layer.kv_heads < 8 * d.processors();
  const bool q8_whole = split && all_rows && layer.v_dim % 32 == 0;
  const Q8 q8 = q8_whole ? d.offer_q8(rows, args.heads * layer.v_dim) : Q8{};
  const RowArgs a{.q = args.q,
                  .out = args.out,
                  .sinks = args.sinks,
                  .tables = tables,
                  .row_run = step.row_run,
                  .rows = all_rows ? nullptr : step.rows,
                  .positions = reinterpret_cast<const long long*>(step.positions),
                  .room = args.span_room,
                  .q8 = q8,
                  .blocks = step.table_blocks,
                  .k_offset = layer.k_offset,
                  .v_offset = layer.v_offset,
                  .window = args.window,
                  .chunk = args.chunk,
                  .heads = args.heads,
                  .kv_heads = layer.kv_heads,
                  .group = args.heads / layer.kv_heads,
                  .k_dim = layer.k_dim,
                  .v_dim = layer.v_dim,
                  .spans = static_cast<int>(spans),
                  .scale = args.scale,
                  .softcap = args.softcap};
  if (layer.k_type == KvType::f16) pick_group<__half>(d, a, rows, split);
  else pick_group<float>(d, a, rows, split);
  if (split)
    launch(d, "merge of spans", merge_kernel,
           dim3(static_cast<std::uint32_t>(args.heads), static_cast<std::uint32_t>(rows)),
           dim3(static_cast<std::uint32_t>(layer.v_dim)), 0, a);
  if (q8.q) d.made_q8(args.out, rows, args.heads * layer.v_dim, q8);
}

void attention(Stream& s, const AttentionArgs& args) {
  CudaDevice& d = device_of(s);
  d.flush();
  d.forget_q8(args.out);
  const KvLayer& layer = args.layer;
  LODE_CHECK(layer.kv_heads > 0 && args.heads % layer.kv_heads == 0);
  if (layer.k_type != layer.v_type || layer.k_type == KvType::q8_0) {
    d.fail(Status::unsupported("K and V of different types, or of type q8_0: no GPU kernel yet; use f16 or f32"));
    return;
  }
  std::byte* const* tables = d.tables(args.runs);
  if (!tables) return;
  if (!d.deterministic() && d.step().tiles > 0 && attention_tiles(d, args, tables)) {
    attention_rows(d, args, tables, false);
    return;
  }
  attention_rows(d, args, tables, true);
}

}  // namespace lode::kernels::cuda
