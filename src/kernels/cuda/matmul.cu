// Products: which kernel takes them, the int8 and bf16 forms of activations, and cuBLAS for many rows.
#include <algorithm>

#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

// Bytes of dequantized weights that one product makes at a time.
constexpr std::int64_t kDequantBytes = std::int64_t{128} << 20;
// Products whose activations are taken in one launch of fewer rows.
constexpr std::int64_t kFloatMatvecRows = 16;

// A warp a group of 32.
__global__ void __launch_bounds__(256) quantize_kernel(const float* x, Q8 out, long long groups) {
  wait_for_inputs();
  const long long group = static_cast<long long>(blockIdx.x) * 8 + (threadIdx.x >> 5);
  if (group >= groups) return;
  store_q8(x[group * 32 + (threadIdx.x & 31)], out, group);
}

__global__ void __launch_bounds__(256) bf16_kernel(const float4* x, uint2* out, long long fours) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= fours) return;
  const float4 v = x[at];
  __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(v.x, v.y), __floats2bfloat162_rn(v.z, v.w)};
  out[at] = *reinterpret_cast<const uint2*>(pairs);
}

// The int8 form: made on the way by the kernel before, made here earlier, or made now in the Acts' room. has_g32 marks
// it, has_g256 the bf16 form, which lies in the same bytes.
Q8 int8_form(CudaDevice& d, Acts& x) {
  if (d.ready.x == x.x && d.ready.n == x.n && d.ready.cols == x.cols) return d.ready.q8;
  const Q8 q8{x.q32, reinterpret_cast<float2*>(x.q256)};
  if (!x.has_g32) {
    const long long groups = x.n * x.cols / 32;
    launch(d, "quantize", quantize_kernel, dim3(blocks_for(groups, 8)), dim3(256), 0, x.x, q8, groups);
    x.has_g32 = true;
    x.has_g256 = false;
  }
  return q8;
}

const __nv_bfloat16* bf16_form(CudaDevice& d, Acts& x) {
  if (!x.has_g256) {
    const long long fours = x.n * x.cols / 4;
    launch(d, "to bf16", bf16_kernel, dim3(blocks_for(fours, 256)), dim3(256), 0, reinterpret_cast<const float4*>(x.x),
           reinterpret_cast<uint2*>(x.q32), fours);
    x.has_g256 = true;
    x.has_g32 = false;
  }
  return reinterpret_cast<const __nv_bfloat16*>(x.q32);
}

// y [n, rows] = x [n, cols] W^T: in cuBLAS's column-major words y^T = W x^T.
void gemm(CudaDevice& d, const void* w, const void* x, cudaDataType_t type, std::int64_t rows, std::int64_t n,
          std::int64_t cols, float* y, std::int64_t stride) {
  const float one = 1, zero = 0;
  d.check(cublasGemmEx(d.cublas(), CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(rows), static_cast<int>(n),
                       static_cast<int>(cols), &one, w, type, static_cast<int>(cols), x, type, static_cast<int>(cols),
                       &zero, y, CUDA_R_32F, static_cast<int>(stride), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "a product");
}

void many_rows(CudaDevice& d, const MatmulJob& job, Acts& x) {
  const Matrix& w = *job.w;
  const bool floats = is_float(w.type);
  const std::int64_t value_bytes = floats ? 4 : 2;
  const void* acts = floats ? static_cast<const void*>(x.x) : bf16_form(d, x);
  const cudaDataType_t type = floats ? CUDA_R_32F : CUDA_R_16BF;
  if (w.type == DType::f32) {
    gemm(d, w.data, acts, type, w.rows, x.n, w.cols, job.y, job.y_stride);
    return;
  }
  const std::int64_t rows_max =
      std::min(w.rows, std::max<std::int64_t>(256, kDequantBytes / (w.cols * value_bytes) / 256 * 256));
  std::byte* room = d.workspace(static_cast<std::uint64_t>(rows_max * w.cols * value_bytes));
  if (!room) return;
  for (std::int64_t first = 0; first < w.rows; first += rows_max) {
    const std::int64_t rows = std::min(rows_max, w.rows - first);
    dequantize(d, w, first, rows, room, !floats);
    gemm(d, room, acts, type, rows, x.n, w.cols, job.y + first, job.y_stride);
  }
}

// Jobs of one format, which share their launches.
void few_rows(CudaDevice& d, std::span<const MatmulJob> jobs, Acts& x) {
  if (is_float(jobs[0].w->type)) {
    matvec_float(d, jobs, x.x, x.n);
    return;
  }
  const Q8 q8 = int8_form(d, x);
  for (std::int64_t first = 0; first < x.n; first += kMatvecPass) {
    const std::int64_t n = std::min(kMatvecPass, x.n - first);
    if (!matvec_q4k(d, jobs, q8, first, n) && !matvec_narrow(d, jobs, q8, first, n))
      matvec_quant(d, jobs, q8, first, n);
  }
}

}  // namespace

void matmul(Stream& s, std::span<const MatmulJob> jobs, Acts& x) {
  CudaDevice& d = device_of(s);
  d.flush();
  if (x.n == 0) return;
  for (const MatmulJob& job : jobs) {
    LODE_CHECK(job.w->cols == x.cols);
    const DType type = job.w->type;
    if (is_float(type) || with_format(type, [](auto) {})) continue;
    d.fail(Status::unsupported("weights of type " + std::string(quant::info(type).name) +
                               ": no GPU kernel yet; run on the CPU"));
    return;
  }
  for (std::size_t i = 0; i < jobs.size();) {
    const DType type = jobs[i].w->type;
    std::size_t end = i + 1;
    while (end < jobs.size() && end - i < 4 && jobs[end].w->type == type) ++end;
    const std::int64_t few = is_float(type) ? kFloatMatvecRows : kMatvecRows;
    if (d.deterministic() || x.n <= few) {
      few_rows(d, jobs.subspan(i, end - i), x);
    } else {
      for (std::size_t j = i; j < end; ++j) many_rows(d, jobs[j], x);
    }
    i = end;
  }
  for (const MatmulJob& job : jobs) d.forget_q8(job.y);
}

}  // namespace lode::kernels::cuda
