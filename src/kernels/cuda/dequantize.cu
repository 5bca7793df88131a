// Rows of a weight matrix as bf16 (for cuBLAS) or f32, and embedding rows.
#include "kernels/cuda/formats.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

__device__ __forceinline__ float value_of(const Group& b, int i) {
  const int code = static_cast<signed char>(static_cast<unsigned>(b.q[i / 4]) >> (8 * (i % 4)));
  return fmaf(i < 16 ? b.d0 : b.d1, static_cast<float>(code), b.m);
}

// A thread a group of 32 columns: 64 bytes of bf16, as four 16-byte stores.
template <typename F>
__global__ void __launch_bounds__(128)
    to_bf16_kernel(const std::uint8_t* w, long long groups, int groups_per_row, __nv_bfloat16* out) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= groups) return;
  const long long row_bytes = static_cast<long long>(groups_per_row) * 32 / F::kBlock * F::kBytes;
  const Group b = F::load(w + at / groups_per_row * row_bytes, static_cast<int>(at % groups_per_row));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    __nv_bfloat162 pairs[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      pairs[j] = __floats2bfloat162_rn(value_of(b, 8 * i + 2 * j), value_of(b, 8 * i + 2 * j + 1));
    reinterpret_cast<uint4*>(out + at * 32)[i] = *reinterpret_cast<const uint4*>(pairs);
  }
}

template <typename F>
__global__ void __launch_bounds__(128)
    to_f32_kernel(const std::uint8_t* w, long long groups, int groups_per_row, float* out) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= groups) return;
  const long long row_bytes = static_cast<long long>(groups_per_row) * 32 / F::kBlock * F::kBytes;
  const Group b = F::load(w + at / groups_per_row * row_bytes, static_cast<int>(at % groups_per_row));
#pragma unroll
  for (int i = 0; i < 32; ++i) out[at * 32 + i] = value_of(b, i);
}

// Floats of any width to f32.
__device__ __forceinline__ float float_at(const std::uint8_t* w, DType type, long long i) {
  if (type == DType::f32) return reinterpret_cast<const float*>(w)[i];
  if (type == DType::f16) return __half2float(reinterpret_cast<const __half*>(w)[i]);
  return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(w)[i]);
}
__global__ void __launch_bounds__(256) floats_kernel(const std::uint8_t* w, DType type, long long count, float* out) {
  wait_for_inputs();
  const long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < count) out[at] = float_at(w, type, at);
}

// A block a row of the batch. An id that is no row of the table gives NaN.
template <typename F>
__global__ void __launch_bounds__(128)
    embed_kernel(const std::uint8_t* table, const std::int32_t* ids, int rows, int groups, float scale, float* out) {
  wait_for_inputs();
  const int id = ids[blockIdx.x];
  const bool known = id >= 0 && id < rows;
  const std::uint8_t* w = table + static_cast<long long>(known ? id : 0) * groups * 32 / F::kBlock * F::kBytes;
  float* to = out + static_cast<long long>(blockIdx.x) * groups * 32;
  for (int g = threadIdx.x; g < groups; g += blockDim.x) {
    const Group b = F::load(w, g);
#pragma unroll
    for (int i = 0; i < 32; ++i) to[32 * g + i] = known ? value_of(b, i) * scale : __int_as_float(0x7fffffff);
  }
}
__global__ void __launch_bounds__(128)
    embed_float_kernel(const std::uint8_t* table, DType type, const std::int32_t* ids, int rows, int cols, float scale,
                       float* out) {
  wait_for_inputs();
  const int id = ids[blockIdx.x];
  const bool known = id >= 0 && id < rows;
  for (int k = threadIdx.x; k < cols; k += blockDim.x) {
    const float value = float_at(table, type, static_cast<long long>(known ? id : 0) * cols + k) * scale;
    out[static_cast<long long>(blockIdx.x) * cols + k] = known ? value : __int_as_float(0x7fffffff);
  }
}

}  // namespace

void dequantize(CudaDevice& d, const Matrix& w, std::int64_t first, std::int64_t count, void* out, bool bf16) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(w.data) +
                     first * static_cast<std::int64_t>(quant::row_bytes(w.type, w.cols));
  if (is_float(w.type)) {
    launch(d, "floats to f32", floats_kernel, dim3(blocks_for(count * w.cols, 256)), dim3(256), 0, data, w.type,
           count * w.cols, static_cast<float*>(out));
    return;
  }
  const int per_row = static_cast<int>(w.cols / 32);
  const dim3 grid(blocks_for(count * per_row, 128)), block(128);
  with_format(w.type, [&](auto format) {
    using F = decltype(format);
    if (bf16)
      launch(d, "dequantize", to_bf16_kernel<F>, grid, block, 0, data, count * per_row, per_row,
             static_cast<__nv_bfloat16*>(out));
    else
      launch(d, "dequantize", to_f32_kernel<F>, grid, block, 0, data, count * per_row, per_row,
             static_cast<float*>(out));
  });
}

void embed(Stream& s, const Matrix& table, const TokenId* ids, std::int64_t n, float scale, float* out) {
  CudaDevice& d = device_of(s);
  d.flush();
  d.forget_q8(out);
  const std::int32_t* at = d.on_device(ids, "the token ids");
  if (!at || n == 0) return;
  const auto* data = reinterpret_cast<const std::uint8_t*>(table.data);
  const dim3 grid(static_cast<std::uint32_t>(n)), block(128);
  const int rows = static_cast<int>(table.rows), cols = static_cast<int>(table.cols);
  if (is_float(table.type)) {
    launch(d, "embed", embed_float_kernel, grid, block, 0, data, table.type, at, rows, cols, scale, out);
    return;
  }
  const bool known = with_format(table.type, [&](auto format) {
    launch(d, "embed", embed_kernel<decltype(format)>, grid, block, 0, data, at, rows, cols / 32, scale, out);
  });
  if (!known)
    d.fail(Status::unsupported("embedding table of type " + std::string(quant::info(table.type).name) +
                               ": no GPU kernel yet; run on the CPU"));
}

}  // namespace lode::kernels::cuda
