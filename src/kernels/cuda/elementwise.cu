// Norms, sums, activations and copies: a few bytes a value, one pass each. Adds and norms of heads wait in the device
// for what follows them, so that a layer's small steps become one kernel (flush, rms_norm, kv_write).
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) add_kernel(float* y, const float* x, long long count) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) y[at] += x[at];
}
__global__ void __launch_bounds__(kThreads) bias_kernel(float* y, const float* bias, long long count, int width) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) y[at] += bias[at % width];
}
__global__ void __launch_bounds__(kThreads) softcap_kernel(float* x, float cap, long long count) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < count) x[at] = cap * tanhf(x[at] / cap);
}
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const float* x, const std::int32_t* rows, int width, float* out) {
  wait_for_inputs();
  const long long from = static_cast<long long>(rows[blockIdx.x]) * width;
  for (int i = threadIdx.x; i < width; i += kThreads) out[static_cast<long long>(blockIdx.x) * width + i] = x[from + i];
}

template <Activation act>
__device__ __forceinline__ float activate(float x) {
  if constexpr (act == Activation::gelu_tanh) {
    const float u = 1.5957691216057308f * fmaf(x * x * 0.044715f, x, x);  // 2 sqrt(2 / pi)
    return x / (1.0f + expf(-u));
  } else if constexpr (act == Activation::silu) {
    return x / (1.0f + expf(-x));
  } else {
    return 1.0f / (1.0f + expf(-x));
  }
}
// Four values a thread, for many rows. Every pointer is a multiple of 16 bytes.
template <Activation act>
__global__ void __launch_bounds__(kThreads)
    wide_glu_kernel(const float4* gate, const float4* up, float4* out, long long fours) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= fours) return;
  const float4 g = gate[at], u = up[at];
  out[at] = make_float4(activate<act>(g.x) * u.x, activate<act>(g.y) * u.y, activate<act>(g.z) * u.z,
                        activate<act>(g.w) * u.w);
}
template <Activation act>
__global__ void __launch_bounds__(kThreads)
    glu_kernel(const float* gate, const float* up, float* out, long long count, Q8 q8) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x;
  const float v = at < count ? activate<act>(gate[at]) * up[at] : 0.0f;
  if (at < count) out[at] = v;
  if (q8.q && at < count) store_q8(v, q8, at >> 5);  // count is a multiple of 32 then: whole warps.
}

// The sum over a block, in a fixed tree; every thread gets it.
__device__ __forceinline__ float block_sum(float v) {
  __shared__ float part[32];
  v = warp_sum(v);
  if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) >> 5;
  const float sum = warp_sum((threadIdx.x & 31) < warps ? part[threadIdx.x & 31] : 0.0f);
  __syncthreads();
  return sum;
}

// A block a row of up to 8,192 values, each thread's in registers. With `addend`, x += addend first.
template <int kPer, bool kAdd>
__global__ void __launch_bounds__(1024)
    norm_kernel(float* x, const float* addend, const float* weight, float eps, int width, float* out, Q8 q8) {
  const long long row = static_cast<long long>(blockIdx.x) * width;
  float v[kPer], w[kPer];
  const auto column = [&](int i) { return static_cast<int>(threadIdx.x) + i * static_cast<int>(blockDim.x); };
#pragma unroll
  for (int i = 0; i < kPer; ++i) w[i] = weight && column(i) < width ? weight[column(i)] : 1.0f;
  wait_for_inputs();
  // All loads are on their way before the first store.
#pragma unroll
  for (int i = 0; i < kPer; ++i) v[i] = column(i) < width ? x[row + column(i)] : 0.0f;
  if constexpr (kAdd) {
    float more[kPer];
#pragma unroll
    for (int i = 0; i < kPer; ++i) more[i] = column(i) < width ? addend[row + column(i)] : 0.0f;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      v[i] += more[i];
      if (column(i) < width) x[row + column(i)] = v[i];
    }
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) squares = fmaf(v[i], v[i], squares);
  const float inverse = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(width) + eps);
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int k = column(i);
    if (k >= width) continue;
    const float y = v[i] * inverse * w[i];
    out[row + k] = y;
    if (q8.q) store_q8(y, q8, (row + k) >> 5);  // width is a multiple of 32 then.
  }
}
// Rows of any width.
__global__ void __launch_bounds__(kThreads)
    wide_norm_kernel(const float* x, const float* weight, float eps, int width, float* out) {
  wait_for_inputs();
  const long long row = static_cast<long long>(blockIdx.x) * width;
  float squares = 0;
  for (int k = threadIdx.x; k < width; k += kThreads) squares = fmaf(x[row + k], x[row + k], squares);
  const float inverse = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(width) + eps);
  for (int k = threadIdx.x; k < width; k += kThreads) out[row + k] = x[row + k] * inverse * (weight ? weight[k] : 1.0f);
}

template <Activation act>
void launch_glu(CudaDevice& d, const float* gate, const float* up, float* out, long long count, Q8 q8) {
  if (!q8.q && count % 4 == 0 && count >= 1 << 20) {
    launch(d, "glu", wide_glu_kernel<act>, dim3(blocks_for(count / 4, kThreads)), dim3(kThreads), 0,
           reinterpret_cast<const float4*>(gate), reinterpret_cast<const float4*>(up), reinterpret_cast<float4*>(out),
           count / 4);
    return;
  }
  launch(d, "glu", glu_kernel<act>, dim3(blocks_for(count, kThreads)), dim3(kThreads), 0, gate, up, out, count, q8);
}

template <bool kAdd>
void launch_norm(CudaDevice& d, float* x, const float* addend, const float* weight, float eps, std::int64_t rows,
                 std::int64_t width, float* out) {
  const Q8 q8 = d.offer_q8(rows, width);
  const dim3 grid(static_cast<std::uint32_t>(rows));
  const int w = static_cast<int>(width);
  if (width <= 1024) {
    const dim3 block(static_cast<std::uint32_t>((width + 31) / 32 * 32));
    launch(d, "rms_norm", norm_kernel<1, kAdd>, grid, block, 0, x, addend, weight, eps, w, out, q8);
  } else if (width <= 4096) {
    launch(d, "rms_norm", norm_kernel<4, kAdd>, grid, dim3(1024), 0, x, addend, weight, eps, w, out, q8);
  } else {
    launch(d, "rms_norm", norm_kernel<8, kAdd>, grid, dim3(1024), 0, x, addend, weight, eps, w, out, q8);
  }
  d.forget_q8(out);
  d.forget_q8(x);
  if (q8.q) d.made_q8(out, rows, width, q8);
}

}  // namespace

void CudaDevice::flush_add() {
  if (!pending_add.y) return;
  const PendingAdd p = pending_add;
  pending_add = {};
  launch(*this, "add", add_kernel, dim3(blocks_for(p.count, kThreads)), dim3(kThreads), 0, p.y, p.x, p.count);
}

void add(Stream& s, float* y, const float* x, std::int64_t count) {
  CudaDevice& d = device_of(s);
  d.flush();
  d.forget_q8(y);
  if (count > 0) d.pending_add = {y, x, count};
}

void rms_norm(Stream& s, const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
              float* out) {
  CudaDevice& d = device_of(s);
  if (rows == 0) return;
  // Heads, in place: rope and kv_write may follow.
  if (x == out && width <= 256 && width % 2 == 0) {
    d.flush_add();
    if (d.heads_waiting == 2) d.flush_heads();
    d.pending_heads[d.heads_waiting++] = {
        .x = out, .weight = weight, .eps = eps, .norm = true, .dim = width, .vectors = rows};
    d.forget_q8(out);
    return;
  }
  d.flush_heads();
  const bool joins = d.pending_add.y == x && d.pending_add.count == rows * width && width <= 8192;
  if (joins) {
    const auto p = d.pending_add;
    d.pending_add = {};
    launch_norm<true>(d, p.y, p.x, weight, eps, rows, width, out);
    return;
  }
  d.flush();
  if (width <= 8192) {
    launch_norm<false>(d, const_cast<float*>(x), nullptr, weight, eps, rows, width, out);
    return;
  }
  d.forget_q8(out);
  launch(d, "rms_norm", wide_norm_kernel, dim3(static_cast<std::uint32_t>(rows)), dim3(kThreads), 0, x, weight, eps,
         static_cast<int>(width), out);
}

void add_bias(Stream& s, float* y, const float* bias, std::int64_t n, std::int64_t width) {
  CudaDevice& d = device_of(s);
  d.flush();
  d.forget_q8(y);
  launch(d, "add_bias", bias_kernel, dim3(blocks_for(n * width, kThreads)), dim3(kThreads), 0, y, bias, n * width,
         static_cast<int>(width));
}

void glu(Stream& s, Activation act, const float* gate, const float* up, float* out, std::int64_t count) {
  CudaDevice& d = device_of(s);
  d.flush();
  d.forget_q8(out);
  if (count == 0) return;
  // The rows are not known here; a product asks by its own shape, and the groups lie alike for any.
  const std::int64_t n = d.step().n;
  const bool whole = n > 0 && count % n == 0 && count / n % 32 == 0;
  const Q8 q8 = whole ? d.offer_q8(n, count / n) : Q8{};
  switch (act) {
    case Activation::silu: launch_glu<Activation::silu>(d, gate, up, out, count, q8); break;
    case Activation::gelu_tanh: launch_glu<Activation::gelu_tanh>(d, gate, up, out, count, q8); break;
    case Activation::sigmoid: launch_glu<Activation::sigmoid>(d, gate, up, out, count, q8); break;
  }
  if (q8.q) d.made_q8(out, n, count / n, q8);
}

void gather_rows(Stream& s, const float* x, const std::int32_t* rows, std::int64_t m, std::int64_t width, float* out) {
  CudaDevice& d = device_of(s);
  d.flush();
  d.forget_q8(out);
  if (m == 0) return;
  const std::int32_t* at = d.on_device(rows, "the output rows");
  if (at)
    launch(d, "gather_rows", gather_kernel, dim3(static_cast<std::uint32_t>(m)), dim3(kThreads), 0, x, at,
           static_cast<int>(width), out);
}

void softcap(Stream& s, float* x, float cap, std::int64_t count) {
  CudaDevice& d = device_of(s);
  d.flush();
  d.forget_q8(x);
  launch(d, "softcap", softcap_kernel, dim3(blocks_for(count, kThreads)), dim3(kThreads), 0, x, cap,
         static_cast<long long>(count));
}

}  // namespace lode::kernels::cuda
