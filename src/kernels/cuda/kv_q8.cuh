// K and V in q8_0 on the card (docs/numerics.md): the Walsh-Hadamard rotation and the rounding of a group to int8, with
// the CPU's order of operations, so that equal inputs give equal bytes; and the way back to f16 for the tensor cores.
// For the kernels that write the cache or read it.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/context.h"

namespace lode::kernels::cuda {

// Values of a head that a warp holds at once, eight a lane: value lane + 32 i of the piece in register i.
inline constexpr int kKvPiece = 256, kKvPer = kKvPiece / 32;

// kv_groups and kv_scales_offset of kernels.h, for kernels.
__host__ __device__ inline int groups_of(int dim) {
  return (dim + 31) / 32;
}
__host__ __device__ inline long long scales_from(int kv_heads, int dim) {
  return static_cast<long long>(kv_heads) * dim * kBlockTokens;
}
// Values of a head that are rotated together: the largest power of two that divides its size, at most 256.
__host__ __device__ inline int rotation_of(int dim) {
  const int n = dim & -dim;
  return n < kKvPiece ? n : kKvPiece;
}
// 1 / sqrt(n) as f32, for a power of two n up to 256.
__host__ __device__ inline float rotation_factor(int n) {
  float scale = 1;
  for (; n >= 4; n /= 4) scale *= 0.5f;
  return n == 2 ? scale * 0x1.6a09e6p-1f : scale;
}

// A piece of a head in place, by blocks of n values. kPer registers a lane; those past the head hold zeros.
template <int kPer>
__device__ __forceinline__ void rotate_piece(float (&x)[kPer], int n) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int h = 1; h < 32; h *= 2) {
    if (h >= n) break;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const float other = __shfl_xor_sync(0xffffffffu, x[i], h);
      x[i] = lane & h ? other - x[i] : x[i] + other;
    }
  }
#pragma unroll
  for (int h = 1; h < kPer; h *= 2) {
    if (32 * h >= n) break;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      if (i & h) continue;
      const float a = x[i], b = x[i + h];
      x[i] = a + b, x[i + h] = a - b;
    }
  }
  const float factor = rotation_factor(n);
#pragma unroll
  for (int i = 0; i < kPer; ++i) x[i] *= factor;
}

// One group, a value a lane (zero where the head has ended): the lane's code, and the group's scale in every lane.
__device__ __forceinline__ int quantize_group(float v, unsigned short& scale) {
  // Magnitudes compare as integers, so that a NaN wins.
  unsigned top = __float_as_uint(v) & 0x7fffffffu;
#pragma unroll
  for (int step = 16; step >= 1; step /= 2) top = max(top, __shfl_xor_sync(0xffffffffu, top, step));
  const float amax = __uint_as_float(top);
  scale = 0;
  if (amax < 0x1p-25f) return 0;
  const float exact = amax / 127.0f;
  if (!(exact <= 65504.0f)) {
    scale = 0x7e00;
    return 0;
  }
  const __half d = __float2half_ru(exact);
  scale = __half_as_ushort(d);
  return __float2int_rn(v * (1.0f / __half2float(d)));
}

// Two codes of offset 128, bytes `select` of x, as exact halves.
template <unsigned select>
__device__ __forceinline__ __half2 halves_of(unsigned x) {
  const unsigned raw = __byte_perm(x, 0x64646464u, select);  // 1024 + code + 128
  return __hsub2(*reinterpret_cast<const __half2*>(&raw), __half2half2(__ushort_as_half(0x6480)));
}
__device__ __forceinline__ unsigned bits_of(__half2 h) {
  return *reinterpret_cast<const unsigned*>(&h);
}

}  // namespace lode::kernels::cuda
