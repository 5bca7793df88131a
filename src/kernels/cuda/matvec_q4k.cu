// Q4_K, the format most files use, and Q5_K in place: a warp takes a row or two of W, eight lanes one block of 256
// columns (16 bytes of codes, the 16-byte header and Q5_K's 16 bytes of fifth bits a lane), so that four blocks are one
// pass of aligned 16-byte loads.
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec_jobs.cuh"

namespace lode::kernels::cuda {
namespace {

constexpr int kWarps = 4;

template <bool fifth_bit>
struct Loaded {
  uint4 codes, head;
};
template <>
struct Loaded<true> {
  uint4 codes, head, bits;
};

__device__ __forceinline__ uint4 load_once(const std::uint8_t* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

template <bool fifth_bit>
__device__ __forceinline__ Loaded<fifth_bit> load_block(const std::uint8_t* b, int part) {
  if constexpr (fifth_bit) return {load_once(b + 48 + 16 * part), load_once(b), load_once(b + 16 + 16 * (part & 1))};
  else return {load_once(b + 16 + 16 * part), load_once(b)};
}

// Codes of columns 64 pair + 16 half + 0..15 (low nibbles) and of the same 32 further (high ones).
template <int NC, bool fifth_bit>
__device__ __forceinline__ void multiply(const Loaded<fifth_bit>& b, int pair, bool first_half, const int4 (&xa)[NC],
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
  constexpr int kZero = 0x4b400000;
  const unsigned words[4] = {b.codes.x, b.codes.y, b.codes.z, b.codes.w};
  int low[4], high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned first = words[i] & 0x0f0f0f0fu, second = (words[i] >> 4) & 0x0f0f0f0fu;
    if constexpr (fifth_bit) {
      const unsigned bits = (i == 0 ? b.bits.x : i == 1 ? b.bits.y : i == 2 ? b.bits.z : b.bits.w) >> (2 * pair);
      first |= (bits & 0x01010101u) << 4, second |= (bits & 0x02020202u) << 3;
    }
    low[i] = static_cast<int>(first), high[i] = static_cast<int>(second);
  }
#pragma unroll
  for (int c = 0; c < NC; ++c) {
    int lo = __dp4a(low[0], xa[c].x, kZero), hi = __dp4a(high[0], xb[c].x, kZero);
    lo = __dp4a(low[1], xa[c].y, lo), hi = __dp4a(high[1], xb[c].y, hi);
    lo = __dp4a(low[2], xa[c].z, lo), hi = __dp4a(high[2], xb[c].z, hi);
    lo = __dp4a(low[3], xa[c].w, lo), hi = __dp4a(high[3], xb[c].w, hi);
    acc[c] = fmaf(d0 * d[c].x, __int_as_float(lo) - 12582912.0f, acc[c]);
    acc[c] = fmaf(d1 * d[c].z, __int_as_float(hi) - 12582912.0f, acc[c]);
    acc[c] = fmaf(n0, first_half ? d[c].y : d[c].w, acc[c]);
  }
}

template <bool fifth_bit, int NC, int kRows, int kAhead>
__global__ void __launch_bounds__(32 * kWarps) q4k_kernel(VecJobs v, Q8 x) {
  const int unit = static_cast<int>(blockIdx.x) * kWarps + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  const bool active = unit < v.start[kVecJobs];
  const int job = job_of(v, active ? unit : 0), row = (active ? unit - v.start[job] : 0) * kRows;
  constexpr int kBytes = fifth_bit ? 176 : 144;
  const int blocks = v.cols / 256, part = lane & 7, pair = part >> 1, half = part & 1;
  const long long row_bytes = static_cast<long long>(blocks) * kBytes;
  const std::uint8_t* w[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) w[r] = v.w[job] + min(row + r, v.rows[job] - 1) * row_bytes;

  // The first blocks are on their way before the activations are ready.
  Loaded<fifth_bit> next[kAhead][kRows];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int b = (lane >> 3) + 4 * i;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (active && b < blocks) next[i][r] = load_block<fifth_bit>(w[r] + b * kBytes, part);
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
        const Loaded<fifth_bit> now = next[i][r];
        const int later = b + 4 * kAhead;
        if (later < blocks) next[i][r] = load_block<fifth_bit>(w[r] + later * kBytes, part);
        multiply<NC, fifth_bit>(now, pair, half == 0, xa, xb, d, acc[r]);
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

template <bool fifth_bit, int NC, int kRows, int kAhead>
void launch_q4k(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  const VecJobs v = vec_jobs(jobs, first, n, kRows);
  launch(d, "matvec of super-blocks", q4k_kernel<fifth_bit, NC, kRows, kAhead>,
         dim3(blocks_for(v.start[kVecJobs], kWarps)), dim3(32 * kWarps), 0, v, x);
}

template <bool fifth_bit>
void pick_count(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  switch (n) {
    case 1: {  // Many rows hide their own latency; fewer need more loads ahead (docs/gpu.md has the figures).
      std::int64_t rows = 0;
      for (const MatmulJob& job : jobs) rows += job.w->rows;
      if (rows >= 6000) launch_q4k<fifth_bit, 1, 2, 1>(d, jobs, x, first, n);
      else launch_q4k<fifth_bit, 1, 2, 2>(d, jobs, x, first, n);
      break;
    }
    case 2: launch_q4k<fifth_bit, 2, 1, 2>(d, jobs, x, first, n); break;
    case 3:
    case 4: launch_q4k<fifth_bit, 4, 2, 1>(d, jobs, x, first, n); break;
    default: launch_q4k<fifth_bit, 8, 2, 1>(d, jobs, x, first, n); break;
  }
}

}  // namespace

bool matvec_q4k(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  const DType type = jobs[0].w->type;
  if (type != DType::q4_k && type != DType::q5_k) return false;
  const std::int64_t cols = jobs[0].w->cols;
  for (const MatmulJob& job : jobs)
    if (reinterpret_cast<std::uintptr_t>(job.w->data) % 16 != 0) return false;
  const Q8 part{x.q + first * cols, x.scale + first * (cols / 32)};
  type == DType::q4_k ? pick_count<false>(d, jobs, part, first, n) : pick_count<true>(d, jobs, part, first, n);
  return true;
}

}  // namespace lode::kernels::cuda
