// Q4_K in place, the format most files use: a warp takes a row or two of W, eight lanes one block of 256 columns
// (16 bytes of codes and the 16-byte header a lane), so that four blocks are one pass of aligned 16-byte loads.
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec_jobs.cuh"

namespace lode::kernels::cuda {
namespace {

constexpr int kWarps = 4;

struct Loaded {
  uint4 codes, head;
};

__device__ __forceinline__ uint4 load_once(const std::uint8_t* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Codes of columns 64 pair + 16 half + 0..15 (low nibbles) and of the same 32 further (high ones).
template <int NC>
__device__ __forceinline__ void multiply(const Loaded& b, int pair, bool first_half, const int4 (&xa)[NC],
                                         const int4 (&xb)[NC], const float4 (&d)[NC], float (&acc)[NC]) {
  // Scales of both sub-blocks and the minimum of one: of the first in the lane with the first half, of the second in
  // its neighbour. Small integers become floats in the low bits of 2^23, sums (under 2^22) in those of 1.5 * 2^23.
  const __half2 scales = *reinterpret_cast<const __half2*>(&b.head.x);
  const float big = __low2float(scales), big_min = -__high2float(scales);
  const bool upper = pair >= 2;
  const unsigned s =
      (upper ? (b.head.w & 0x0f0f0f0fu) | ((b.head.y >> 2) & 0x30303030u) : b.head.y) >> (16 * (pair & 1));
  const unsigned m = (upper ? ((b.head.w >> 4) & 0x0f0f0f0fu) | ((b.head.z >> 2) & 0x30303030u) : b.head.z) >>
                     (16 * (pair & 1) + (first_half ? 0 : 8));
  const auto times = [](float d, unsigned code) {  // d * code, exactly as from an int: the fma rounds once.
    return fmaf(d, __uint_as_float((code & 0x3f) | 0x4b000000u), -8388608.0f * d);
  };
  const float d0 = times(big, s), d1 = times(big, s >> 8), n0 = times(big_min, m);
  const unsigned mask = 0x0f0f0f0fu;
  constexpr int kZero = 0x4b400000;
#pragma unroll
  for (int c = 0; c < NC; ++c) {
    int lo = __dp4a(static_cast<int>(b.codes.x & mask), xa[c].x, kZero);
    int hi = __dp4a(static_cast<int>((b.codes.x >> 4) & mask), xb[c].x, kZero);
    lo = __dp4a(static_cast<int>(b.codes.y & mask), xa[c].y, lo);
    hi = __dp4a(static_cast<int>((b.codes.y >> 4) & mask), xb[c].y, hi);
    lo = __dp4a(static_cast<int>(b.codes.z & mask), xa[c].z, lo);
    hi = __dp4a(static_cast<int>((b.codes.z >> 4) & mask), xb[c].z, hi);
    lo = __dp4a(static_cast<int>(b.codes.w & mask), xa[c].w, lo);
    hi = __dp4a(static_cast<int>((b.codes.w >> 4) & mask), xb[c].w, hi);
    acc[c] = fmaf(d0 * d[c].x, __int_as_float(lo) - 12582912.0f, acc[c]);
    acc[c] = fmaf(d1 * d[c].z, __int_as_float(hi) - 12582912.0f, acc[c]);
    acc[c] = fmaf(n0, first_half ? d[c].y : d[c].w, acc[c]);
  }
}

template <int NC, int kRows, int kAhead>
__global__ void __launch_bounds__(32 * kWarps) q4k_kernel(VecJobs v, Q8 x) {
  const int unit = static_cast<int>(blockIdx.x) * kWarps + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  const bool active = unit < v.start[kVecJobs];
  const int job = job_of(v, active ? unit : 0), row = (active ? unit - v.start[job] : 0) * kRows;
  const int blocks = v.cols / 256, part = lane & 7, pair = part >> 1, half = part & 1;
  const long long row_bytes = static_cast<long long>(blocks) * 144;
  const std::uint8_t* w[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) w[r] = v.w[job] + min(row + r, v.rows[job] - 1) * row_bytes;

  // The first blocks are on their way before the activations are ready.
  Loaded next[kAhead][kRows];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int b = (lane >> 3) + 4 * i;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (active && b < blocks) next[i][r] = {load_once(w[r] + b * 144 + 16 + 16 * part), load_once(w[r] + b * 144)};
  }
  wait_for_inputs();
  if (!active) return;

  float acc[kRows][NC] = {};
  for (int base = lane >> 3; base < blocks; base += 4 * kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int b = base + 4 * i;
      if (b >= blocks) break;
      int4 xa[NC], xb[NC];
      float4 d[NC];
#pragma unroll
      for (int c = 0; c < NC; ++c) {
        const long long at = min(c, v.n - 1);
        const std::int8_t* q = x.q + at * v.cols + b * 256 + 64 * pair + 16 * half;
        xa[c] = *reinterpret_cast<const int4*>(q);
        xb[c] = *reinterpret_cast<const int4*>(q + 32);
        d[c] = *reinterpret_cast<const float4*>(x.scale + at * (v.cols / 32) + b * 8 + 2 * pair);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const Loaded now = next[i][r];
        const int later = b + 4 * kAhead;
        if (later < blocks)
          next[i][r] = {load_once(w[r] + later * 144 + 16 + 16 * part), load_once(w[r] + later * 144)};
        multiply<NC>(now, pair, half == 0, xa, xb, d, acc[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < NC; ++c) {
      const float sum = warp_sum(acc[r][c]);
      if (lane == c && c < v.n && row + r < v.rows[job]) v.y[job][c * v.stride[job] + row + r] = sum;
    }
}

template <int NC, int kRows, int kAhead>
void launch_q4k(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  const VecJobs v = vec_jobs(jobs, first, n, kRows);
  launch(d, "matvec Q4_K", q4k_kernel<NC, kRows, kAhead>, dim3(blocks_for(v.start[kVecJobs], kWarps)),
         dim3(32 * kWarps), 0, v, x);
}

}  // namespace

bool matvec_q4k(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  const std::int64_t cols = jobs[0].w->cols;
  for (const MatmulJob& job : jobs)
    if (reinterpret_cast<std::uintptr_t>(job.w->data) % 16 != 0) return false;
  const Q8 part{x.q + first * cols, x.scale + first * (cols / 32)};
  switch (n) {
    case 1: {  // Many rows hide their own latency; fewer need more loads ahead (docs/gpu.md has the figures).
      std::int64_t rows = 0;
      for (const MatmulJob& job : jobs) rows += job.w->rows;
      if (rows >= 6000) launch_q4k<1, 2, 1>(d, jobs, part, first, n);
      else launch_q4k<1, 2, 2>(d, jobs, part, first, n);
      break;
    }
    case 2: launch_q4k<2, 1, 2>(d, jobs, part, first, n); break;
    case 3:
    case 4: launch_q4k<4, 2, 1>(d, jobs, part, first, n); break;
    default: launch_q4k<8, 2, 1>(d, jobs, part, first, n); break;
  }
  return true;
}

}  // namespace lode::kernels::cuda
