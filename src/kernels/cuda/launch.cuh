// How kernels of this folder are launched, and the small device functions they share.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <utility>

#include "kernels/cuda/context.h"

namespace lode::kernels::cuda {

// In every kernel, before it reads what another kernel of the step writes and before it writes anything. Lets the next
// kernel start its own prologue, then waits until the kernel before has finished and its writes are visible. Before the
// call a kernel may read what no kernel of a step writes: weights, the step's batch (except the step's first kernel),
// and K and V of positions that earlier steps computed.
__device__ __forceinline__ void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <typename... P, typename... A>
void launch(CudaDevice& d, const char* what, void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared,
            A&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = d.cuda_stream();
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = d.overlaps() ? 1 : 0;
  d.check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(std::forward<A>(args))...), what);
}

inline std::uint32_t blocks_for(std::int64_t count, std::int64_t per_block) {
  return static_cast<std::uint32_t>((count + per_block - 1) / per_block);
}

// Sums and maxima over a warp in a fixed order; every lane gets the result.
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
  return v;
}
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}

// The int8 form of one group of 32 values, one a lane (docs/gpu.md): d = amax / 127; the group's index is `group`.
__device__ __forceinline__ void store_q8(float v, const Q8& out, long long group) {
  const int lane = threadIdx.x & 31;
  const float amax = warp_max(fabsf(v));
  const float d = amax / 127.0f, inverse = amax > 1e-30f ? 127.0f / amax : 0.0f;
  const int q = __float2int_rn(v * inverse);
  int sum = q;
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  out.q[group * 32 + lane] = static_cast<signed char>(q);
  // A NaN or an infinity poisons its group, as on the CPU.
  const float poisoned = __all_sync(0xffffffffu, isfinite(v)) ? d : __int_as_float(0x7fffffff);
  if (lane == 0) out.scale[group] = make_float2(poisoned, poisoned * static_cast<float>(sum));
}

}  // namespace lode::kernels::cuda
