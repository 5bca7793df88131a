// Products of few rows of activations with weights read in place: one warp a row of W, a lane every 32nd group (or
// pair) of columns, partial sums joined in a fixed tree. A token's result does not depend on how many share the pass.
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec_jobs.cuh"

namespace lode::kernels::cuda {
namespace {

constexpr int kWarps = 4;

template <typename F, int NC>
__global__ void __launch_bounds__(32 * kWarps) quant_kernel(VecJobs v, Q8 x) {
  wait_for_inputs();
  const int unit = static_cast<int>(blockIdx.x) * kWarps + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (unit >= v.start[kVecJobs]) return;
  const int job = job_of(v, unit), row = unit - v.start[job];
  const int groups = v.cols / 32;
  const std::uint8_t* w = v.w[job] + static_cast<long long>(row) * (v.cols / F::kBlock) * F::kBytes;
  float acc[NC] = {};
#pragma unroll 2
  for (int g = lane; g < groups; g += 32) {
    const Group b = F::load(w, g);
#pragma unroll
    for (int c = 0; c < NC; ++c) {
      const long long at = min(c, v.n - 1);
      const int4* q = reinterpret_cast<const int4*>(x.q + at * v.cols + 32 * g);
      const int4 lo = q[0], hi = q[1];
      const float2 d = x.scale[at * groups + g];
      int s0 = __dp4a(b.q[0], lo.x, 0), s1 = __dp4a(b.q[4], hi.x, 0);
      s0 = __dp4a(b.q[1], lo.y, s0), s1 = __dp4a(b.q[5], hi.y, s1);
      s0 = __dp4a(b.q[2], lo.z, s0), s1 = __dp4a(b.q[6], hi.z, s1);
      s0 = __dp4a(b.q[3], lo.w, s0), s1 = __dp4a(b.q[7], hi.w, s1);
      const float sum = fmaf(b.d1, static_cast<float>(s1), b.d0 * static_cast<float>(s0));
      acc[c] = fmaf(d.x, sum, acc[c]);
      acc[c] = fmaf(b.m, d.y, acc[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < NC; ++c) {
    const float sum = warp_sum(acc[c]);
    if (lane == c && c < v.n) v.y[job][c * v.stride[job] + row] = sum;
  }
}

template <typename T>
__device__ __forceinline__ float to_float(T v);
template <>
__device__ __forceinline__ float to_float(float v) {
  return v;
}
template <>
__device__ __forceinline__ float to_float(__half v) {
  return __half2float(v);
}
template <>
__device__ __forceinline__ float to_float(__nv_bfloat16 v) {
  return __bfloat162float(v);
}

// A lane takes pairs of columns: 4 or 8 bytes of W a load. Rows of an odd length have no aligned pairs: `step` 1.
template <typename T, int NC, int step>
__global__ void __launch_bounds__(32 * kWarps) float_kernel(VecJobs v, const float* x) {
  wait_for_inputs();
  const int unit = static_cast<int>(blockIdx.x) * kWarps + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (unit >= v.start[kVecJobs]) return;
  const int job = job_of(v, unit), row = unit - v.start[job];
  const T* w = reinterpret_cast<const T*>(v.w[job]) + static_cast<long long>(row) * v.cols;
  float acc[NC] = {};
#pragma unroll 4
  for (int k = lane * step; k < v.cols; k += 32 * step) {
    float a[step];
    if constexpr (step == 2) {
      struct alignas(2 * sizeof(T)) Pair {
        T a, b;
      };
      const Pair pair = *reinterpret_cast<const Pair*>(w + k);
      a[0] = to_float(pair.a), a[1] = to_float(pair.b);
    } else {
      a[0] = to_float(w[k]);
    }
#pragma unroll
    for (int c = 0; c < NC; ++c)
#pragma unroll
      for (int i = 0; i < step; ++i) acc[c] = fmaf(a[i], x[static_cast<long long>(c) * v.cols + k + i], acc[c]);
  }
#pragma unroll
  for (int c = 0; c < NC; ++c) {
    const float sum = warp_sum(acc[c]);
    if (lane == c && c < v.n) v.y[job][c * v.stride[job] + row] = sum;
  }
}

template <typename F>
void launch_quant(CudaDevice& d, const VecJobs& v, const Q8& x, std::int64_t n) {
  const dim3 grid(blocks_for(v.start[kVecJobs], kWarps)), block(32 * kWarps);
  switch (n) {
    case 1: launch(d, "matvec", quant_kernel<F, 1>, grid, block, 0, v, x); break;
    case 2: launch(d, "matvec", quant_kernel<F, 2>, grid, block, 0, v, x); break;
    case 3:
    case 4: launch(d, "matvec", quant_kernel<F, 4>, grid, block, 0, v, x); break;
    default: launch(d, "matvec", quant_kernel<F, 8>, grid, block, 0, v, x); break;
  }
}

template <typename T, int step>
void launch_float(CudaDevice& d, const VecJobs& v, const float* x, std::int64_t n) {
  const dim3 grid(blocks_for(v.start[kVecJobs], kWarps)), block(32 * kWarps);
  if (n == 1) launch(d, "matvec", float_kernel<T, 1, step>, grid, block, 0, v, x);
  else launch(d, "matvec", float_kernel<T, 4, step>, grid, block, 0, v, x);
}

}  // namespace

void matvec_quant(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  const std::int64_t cols = jobs[0].w->cols;
  const VecJobs v = vec_jobs(jobs, first, n, 1);
  const Q8 part{x.q + first * cols, x.scale + first * (cols / 32)};
  with_format(jobs[0].w->type, [&](auto format) { launch_quant<decltype(format)>(d, v, part, n); });
}

// Rows in passes of 4 or of 1: the tree is the same.
void matvec_float(CudaDevice& d, std::span<const MatmulJob> jobs, const float* x, std::int64_t n) {
  const std::int64_t cols = jobs[0].w->cols;
  for (std::int64_t first = 0; first < n;) {
    const std::int64_t now = n - first >= 4 ? 4 : 1;
    const VecJobs v = vec_jobs(jobs, first, now, 1);
    const float* at = x + first * cols;
    const bool pairs = cols % 2 == 0;
    switch (jobs[0].w->type) {
      case DType::f32: pairs ? launch_float<float, 2>(d, v, at, now) : launch_float<float, 1>(d, v, at, now); break;
      case DType::f16: pairs ? launch_float<__half, 2>(d, v, at, now) : launch_float<__half, 1>(d, v, at, now); break;
      default:
        pairs ? launch_float<__nv_bfloat16, 2>(d, v, at, now) : launch_float<__nv_bfloat16, 1>(d, v, at, now);
        break;
    }
    first += now;
  }
}

}  // namespace lode::kernels::cuda
