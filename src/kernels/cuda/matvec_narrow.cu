// Products of few rows with formats whose blocks start at any even address, in place: Q6_K (210 bytes), Q8_0 (34), Q4_0
// (18), and Q4_1 beside them. A warp takes a row or two of W, eight lanes a block of 256 columns or two a block of 32;
// a lane loads whole words around its bytes and shifts them together. (Q5_0 and Q5_1 are faster in matvec.cu: their
// fifth bits cost more loads than the words save.) Sums of a lane are whole numbers under one scale; a row's tree is
// the same for any number of tokens and rows.
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/vec_jobs.cuh"

namespace lode::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kZero = 0x4b400000;  // 1.5 * 2^23: an int below 2^22 added to its bits is that number added to it.

__device__ __forceinline__ float number(int biased) {
  return __int_as_float(biased) - 12582912.0f;
}

// 4 N bytes from an even address, as the words that hold them; no word lies past the last byte's.
template <int N>
struct Words {
  unsigned raw[N + 1];
  __device__ __forceinline__ void load(const std::uint8_t* p) {
    const unsigned odd = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p)) >> 1 & 1;
    const unsigned* at = reinterpret_cast<const unsigned*>(p - 2 * odd);
#pragma unroll
    for (int i = 0; i < N; ++i) raw[i] = __ldg(at + i);
    raw[N] = __ldg(at + N - 1 + odd);
  }
  __device__ __forceinline__ unsigned get(int i, const std::uint8_t* p) const {
    return __funnelshift_r(raw[i], raw[i + 1], (static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(p)) & 2) * 8);
  }
};

// A lane's share of a block of each format: load, unpack, and multiply with a token's codes.
template <DType type>
struct Share;

template <>
struct Share<DType::q6_k> {
  static constexpr int kBlock = 256, kBytes = 210, kLanes = 8;
  // Eight neighbouring columns of each quarter of half a block: of columns 128 (part / 4) + 8 (part % 4).
  Words<2> low, high, top, scales;
  unsigned short d;
  __device__ __forceinline__ void load(const std::uint8_t* b, int part) {
    const int half = part >> 2, at = 8 * (part & 3);
    low.load(b + 64 * half + at), high.load(b + 64 * half + 32 + at), top.load(b + 128 + 32 * half + at);
    scales.load(b + 192 + 8 * half);
    d = static_cast<unsigned short>(load16(b + 208));
  }
  struct Codes {
    int q[4][2], scale[4];  // Codes with 32 added.
    float d;
  };
  __device__ __forceinline__ Codes unpack(const std::uint8_t* b, int part) const {
    Codes out;
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // All of a block's pieces lie at multiples of 4 from it.
      const unsigned a = low.get(i, b), c = high.get(i, b), t = top.get(i, b);
      out.q[0][i] = static_cast<int>((a & 0x0f0f0f0fu) | (t << 4 & 0x30303030u));
      out.q[1][i] = static_cast<int>((c & 0x0f0f0f0fu) | (t << 2 & 0x30303030u));
      out.q[2][i] = static_cast<int>((a >> 4 & 0x0f0f0f0fu) | (t & 0x30303030u));
      out.q[3][i] = static_cast<int>((c >> 4 & 0x0f0f0f0fu) | (t >> 2 & 0x30303030u));
    }
    const int shift = part & 2 ? 8 : 0;  // Columns 16 to 31 of a group have the odd scales.
#pragma unroll
    for (int i = 0; i < 4; ++i)
      out.scale[i] = static_cast<signed char>(scales.get(i / 2, b) >> (16 * (i % 2) + shift) & 0xff);
    out.d = __half2float(__ushort_as_half(d));
    return out;
  }
  struct Token {
    int2 q[4];
    int offset[4];
    float d[4];
  };
  static __device__ __forceinline__ Token token(const std::int8_t* q, const float2* scale, int block, int part) {
    Token out;
    const float4* pairs = reinterpret_cast<const float4*>(scale + block * 8 + 4 * (part >> 2));
    const float4 d01 = pairs[0], d23 = pairs[1];
    out.d[0] = d01.x, out.d[1] = d01.z, out.d[2] = d23.x, out.d[3] = d23.z;
    const std::int8_t* at = q + block * 256 + 128 * (part >> 2) + 8 * (part & 3);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out.q[i] = *reinterpret_cast<const int2*>(at + 32 * i);
      out.offset[i] = __dp4a(out.q[i].x, 0x20202020, __dp4a(out.q[i].y, 0x20202020, 0));
    }
    return out;
  }
  static __device__ __forceinline__ void multiply(const Codes& w, const Token& x, float& acc) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int sum = __dp4a(w.q[i][0], x.q[i].x, __dp4a(w.q[i][1], x.q[i].y, -x.offset[i]));
      acc = fmaf(w.d * x.d[i], number(w.scale[i] * sum + kZero), acc);  // At most 128 * 8 * 32 * 127 < 2^22.
    }
  }
};

template <>
struct Share<DType::q8_0> {
  static constexpr int kBlock = 32, kBytes = 34, kLanes = 2;
  Words<4> codes;
  unsigned short d;
  __device__ __forceinline__ void load(const std::uint8_t* b, int part) {
    codes.load(b + 2 + 16 * part);
    d = static_cast<unsigned short>(load16(b));
  }
  struct Codes {
    int q[4];
    float d;
  };
  __device__ __forceinline__ Codes unpack(const std::uint8_t* b, int part) const {
    Codes out;
#pragma unroll
    for (int i = 0; i < 4; ++i) out.q[i] = static_cast<int>(codes.get(i, b + 2));
    out.d = __half2float(__ushort_as_half(d));
    return out;
  }
  struct Token {
    int4 q;
    float d;
  };
  static __device__ __forceinline__ Token token(const std::int8_t* q, const float2* scale, int block, int part) {
    return {*reinterpret_cast<const int4*>(q + block * 32 + 16 * part), scale[block].x};
  }
  static __device__ __forceinline__ void multiply(const Codes& w, const Token& x, float& acc) {
    int sum = __dp4a(w.q[0], x.q.x, kZero);
    sum = __dp4a(w.q[1], x.q.y, sum);
    sum = __dp4a(w.q[2], x.q.z, sum);
    sum = __dp4a(w.q[3], x.q.w, sum);
    acc = fmaf(w.d * x.d, number(sum), acc);
  }
};

// Nibbles of 32 columns: a lane has columns 8 part .. + 7 and the same 16 further.
template <bool has_min, int bytes, int offset>
struct NibbleShare {
  static constexpr int kBlock = 32, kBytes = bytes, kLanes = 2;
  static constexpr int kCodes = has_min ? 4 : 2;
  Words<2> codes;
  unsigned short d, m;
  __device__ __forceinline__ void load(const std::uint8_t* b, int part) {
    codes.load(b + kCodes + 8 * part);
    d = static_cast<unsigned short>(load16(b));
    m = has_min ? static_cast<unsigned short>(load16(b + 2)) : 0;
  }
  struct Codes {
    int q[4];
    float d, m;
  };
  __device__ __forceinline__ Codes unpack(const std::uint8_t* b, int part) const {
    Codes out;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned w = codes.get(i, b + kCodes);
      out.q[i] = static_cast<int>(w & 0x0f0f0f0fu), out.q[2 + i] = static_cast<int>(w >> 4 & 0x0f0f0f0fu);
    }
    out.d = __half2float(__ushort_as_half(d));
    out.m = has_min && part == 0 ? __half2float(__ushort_as_half(m)) : 0.0f;
    return out;
  }
  struct Token {
    int2 low, high;
    int zero;  // kZero less what the codes' offset adds.
    float2 d;
  };
  static __device__ __forceinline__ Token token(const std::int8_t* q, const float2* scale, int block, int part) {
    Token out{*reinterpret_cast<const int2*>(q + block * 32 + 8 * part),
              *reinterpret_cast<const int2*>(q + block * 32 + 16 + 8 * part), kZero, scale[block]};
    if (offset > 0) {
      constexpr int minus = static_cast<int>((256 - offset) * 0x01010101u);
      out.zero = __dp4a(out.low.x, minus, __dp4a(out.low.y, minus, kZero));
      out.zero = __dp4a(out.high.x, minus, __dp4a(out.high.y, minus, out.zero));
    }
    return out;
  }
  static __device__ __forceinline__ void multiply(const Codes& w, const Token& x, float& acc) {
    int sum = __dp4a(w.q[0], x.low.x, x.zero);
    sum = __dp4a(w.q[1], x.low.y, sum);
    sum = __dp4a(w.q[2], x.high.x, sum);
    sum = __dp4a(w.q[3], x.high.y, sum);
    acc = fmaf(w.d * x.d.x, number(sum), acc);
    if (has_min) acc = fmaf(w.m, x.d.y, acc);
  }
};
template <>
struct Share<DType::q4_0> : NibbleShare<false, 18, 8> {};
template <>
struct Share<DType::q4_1> : NibbleShare<true, 20, 0> {};

template <DType type, int NC, int kRows, int kAhead>
__global__ void __launch_bounds__(32 * kWarps) narrow_kernel(const __grid_constant__ VecJobs v, Q8 x) {
  using S = Share<type>;
  constexpr int kStep = 32 / S::kLanes;
  const int unit = static_cast<int>(blockIdx.x) * kWarps + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  const bool active = unit < v.start[kVecJobs];
  const int job = job_of(v, active ? unit : 0), row = (active ? unit - v.start[job] : 0) * kRows;
  const int blocks = v.cols / S::kBlock, part = lane % S::kLanes, first = lane / S::kLanes;
  const std::uint8_t* w[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    w[r] = v.w[job] + static_cast<long long>(min(row + r, v.rows[job] - 1)) * blocks * S::kBytes;
  // The first blocks are on their way before the activations are ready.
  S next[kAhead][kRows];
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (active && first + kStep * i < blocks) next[i][r].load(w[r] + (first + kStep * i) * S::kBytes, part);
  wait_for_inputs();
  if (!active) return;

  float acc[kRows][NC] = {};
  for (int base = first; base < blocks; base += kStep * kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int b = base + kStep * i, later = b + kStep * kAhead;
      if (b >= blocks) break;
      typename S::Codes codes[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        codes[r] = next[i][r].unpack(w[r] + b * S::kBytes, part);
        if (later < blocks) next[i][r].load(w[r] + later * S::kBytes, part);
      }
#pragma unroll
      for (int c = 0; c < NC; ++c) {
        const long long at = min(c, v.n - 1);
        const auto token = S::token(x.q + at * v.cols, x.scale + at * (v.cols / 32), b, part);
#pragma unroll
        for (int r = 0; r < kRows; ++r) S::multiply(codes[r], token, acc[r][c]);
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

template <DType type, int NC, int kRows, int kAhead>
void launch_narrow(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  const VecJobs v = vec_jobs(jobs, first, n, kRows);
  launch(d, "matvec", narrow_kernel<type, NC, kRows, kAhead>, dim3(blocks_for(v.start[kVecJobs], kWarps)),
         dim3(32 * kWarps), 0, v, x);
}

template <DType type>
void pick_count(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  switch (n) {
    case 1: {  // What was fastest for matrices of an 8B model (docs/gpu.md): fewer rows want more on its way.
      constexpr bool super = type == DType::q6_k, bytes = type == DType::q8_0;
      std::int64_t rows = 0;
      for (const MatmulJob& job : jobs) rows += job.w->rows;
      if (rows >= (super ? 6000 : 12000)) launch_narrow<type, 1, 2, 1>(d, jobs, x, first, n);
      else if (super || rows >= 6000) launch_narrow<type, 1, 2, 2>(d, jobs, x, first, n);
      else launch_narrow<type, 1, 1, bytes ? 3 : 2>(d, jobs, x, first, n);
      break;
    }
    case 2: launch_narrow<type, 2, 2, 1>(d, jobs, x, first, n); break;
    case 3:
    case 4: launch_narrow<type, 4, 2, 1>(d, jobs, x, first, n); break;
    default: launch_narrow<type, 8, 2, 1>(d, jobs, x, first, n); break;
  }
}

}  // namespace

bool matvec_narrow(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n) {
  const std::int64_t cols = jobs[0].w->cols;
  const DType type = jobs[0].w->type;
  for (const MatmulJob& job : jobs) {  // Words must begin and end inside the matrix.
    const std::int64_t bytes = job.w->rows * static_cast<std::int64_t>(quant::row_bytes(type, cols));
    if (reinterpret_cast<std::uintptr_t>(job.w->data) % 4 != 0 || bytes % 4 != 0) return false;
  }
  const Q8 part{x.q + first * cols, x.scale + first * (cols / 32)};
  switch (type) {
    case DType::q6_k: pick_count<DType::q6_k>(d, jobs, part, first, n); return true;
    case DType::q8_0: pick_count<DType::q8_0>(d, jobs, part, first, n); return true;
    case DType::q4_0: pick_count<DType::q4_0>(d, jobs, part, first, n); return true;
    case DType::q4_1: pick_count<DType::q4_1>(d, jobs, part, first, n); return true;
    default: return false;
  }
}

}  // namespace lode::kernels::cuda
