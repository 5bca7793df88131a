// The block formats as kernels read them: 32 columns of a row as int8 codes in eight words, with their scales. Bytes
// are as quant/blocks.h describes them. A row starts at any multiple of 2 bytes.
#pragma once

#include <cuda_fp16.h>

#include "quant/types.h"

namespace lode::kernels::cuda {

using quant::DType;

// value i of the group = (i < 16 ? d0 : d1) * code i + m; byte i % 4 of q[i / 4] is code i.
struct Group {
  int q[8];
  float d0, d1, m;
};

__device__ __forceinline__ unsigned load16(const std::uint8_t* p) {
  return __ldg(reinterpret_cast<const unsigned short*>(p));
}
__device__ __forceinline__ unsigned load32(const std::uint8_t* p) {
  return load16(p) | load16(p + 2) << 16;
}
__device__ __forceinline__ float load_half(const std::uint8_t* p) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(load16(p))));
}
// Bits 0 to 3 of x, one in the lowest bit of each byte.
__device__ __forceinline__ unsigned spread4(unsigned x) {
  return ((x & 0xf) * 0x00204081u) & 0x01010101u;
}

template <DType type>
struct Format;

template <bool has_min, bool fifth_bit, int bytes, int offset>
struct Nibbles32 {
  static constexpr int kBlock = 32, kBytes = bytes;
  static __device__ __forceinline__ Group load(const std::uint8_t* row, int g) {
    const std::uint8_t* b = row + static_cast<long long>(g) * bytes;
    const std::uint8_t* qs = b + 2 + (has_min ? 2 : 0) + (fifth_bit ? 4 : 0);
    const unsigned high = fifth_bit ? load32(b + 2 + (has_min ? 2 : 0)) : 0;
    Group out;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned w = load32(qs + 4 * i);
      unsigned a = w & 0x0f0f0f0fu, c = (w >> 4) & 0x0f0f0f0fu;
      if (fifth_bit) {
        a |= spread4(high >> (4 * i)) << 4;
        c |= spread4(high >> (16 + 4 * i)) << 4;
      }
      out.q[i] = static_cast<int>(__vsub4(a, offset * 0x01010101u));
      out.q[4 + i] = static_cast<int>(__vsub4(c, offset * 0x01010101u));
    }
    out.d0 = out.d1 = load_half(b);
    out.m = has_min ? load_half(b + 2) : 0.0f;
    return out;
  }
};
template <>
struct Format<DType::q4_0> : Nibbles32<false, false, 18, 8> {};
template <>
struct Format<DType::q4_1> : Nibbles32<true, false, 20, 0> {};
template <>
struct Format<DType::q5_0> : Nibbles32<false, true, 22, 16> {};
template <>
struct Format<DType::q5_1> : Nibbles32<true, true, 24, 0> {};

template <>
struct Format<DType::q8_0> {
  static constexpr int kBlock = 32, kBytes = 34;
  static __device__ __forceinline__ Group load(const std::uint8_t* row, int g) {
    const std::uint8_t* b = row + static_cast<long long>(g) * kBytes;
    Group out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.q[i] = static_cast<int>(load32(b + 2 + 4 * i));
    out.d0 = out.d1 = load_half(b);
    out.m = 0;
    return out;
  }
};

// Scale and minimum of sub-block s (0 to 7) from the twelve packed bytes of Q4_K and Q5_K.
__device__ __forceinline__ void scale_k4(unsigned a, unsigned b, unsigned c, int s, int& scale, int& minimum) {
  const int shift = 8 * (s & 3);
  const unsigned low = s < 4 ? a : (c & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u);
  const unsigned min = s < 4 ? b : ((c >> 4) & 0x0f0f0f0fu) | ((b >> 2) & 0x30303030u);
  scale = (low >> shift) & 0x3f;
  minimum = (min >> shift) & 0x3f;
}

template <bool fifth_bit, int bytes>
struct SuperK {
  static constexpr int kBlock = 256, kBytes = bytes;
  static __device__ __forceinline__ Group load(const std::uint8_t* row, int g) {
    const std::uint8_t* b = row + static_cast<long long>(g >> 3) * bytes;
    const int s = g & 7;
    const std::uint8_t* qs = b + (fifth_bit ? 48 : 16) + 32 * (s >> 1);
    Group out;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      unsigned w = load32(qs + 4 * i);
      w = (s & 1 ? w >> 4 : w) & 0x0f0f0f0fu;
      if (fifth_bit) w |= ((load32(b + 16 + 4 * i) >> s) & 0x01010101u) << 4;
      out.q[i] = static_cast<int>(w);
    }
    int scale, minimum;
    scale_k4(load32(b + 4), load32(b + 8), load32(b + 12), s, scale, minimum);
    out.d0 = out.d1 = load_half(b) * static_cast<float>(scale);
    out.m = -(load_half(b + 2) * static_cast<float>(minimum));
    return out;
  }
};
template <>
struct Format<DType::q4_k> : SuperK<false, 144> {};
template <>
struct Format<DType::q5_k> : SuperK<true, 176> {};

template <>
struct Format<DType::q6_k> {
  static constexpr int kBlock = 256, kBytes = 210;
  static __device__ __forceinline__ Group load(const std::uint8_t* row, int g) {
    const std::uint8_t* b = row + static_cast<long long>(g >> 3) * kBytes;
    const int half = (g >> 2) & 1, part = g & 3;
    const std::uint8_t *ql = b + 64 * half + 32 * (part & 1), *qh = b + 128 + 32 * half;
    Group out;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const unsigned w = load32(ql + 4 * i);
      const unsigned low = (part & 2 ? w >> 4 : w) & 0x0f0f0f0fu;
      const unsigned high = ((load32(qh + 4 * i) >> (2 * part)) & 0x03030303u) << 4;
      out.q[i] = static_cast<int>(__vsub4(low | high, 0x20202020u));
    }
    const unsigned scales = load16(b + 192 + 8 * half + 2 * part);
    const float d = load_half(b + 208);
    out.d0 = d * static_cast<float>(static_cast<signed char>(scales & 0xff));
    out.d1 = d * static_cast<float>(static_cast<signed char>(scales >> 8));
    out.m = 0;
    return out;
  }
};

// Calls fn(Format<type>{}) for the formats that have kernels here; false for all others.
template <typename Fn>
bool with_format(DType type, Fn&& fn) {
  switch (type) {
    case DType::q4_0: fn(Format<DType::q4_0>{}); return true;
    case DType::q4_1: fn(Format<DType::q4_1>{}); return true;
    case DType::q5_0: fn(Format<DType::q5_0>{}); return true;
    case DType::q5_1: fn(Format<DType::q5_1>{}); return true;
    case DType::q8_0: fn(Format<DType::q8_0>{}); return true;
    case DType::q4_k: fn(Format<DType::q4_k>{}); return true;
    case DType::q5_k: fn(Format<DType::q5_k>{}); return true;
    case DType::q6_k: fn(Format<DType::q6_k>{}); return true;
    default: return false;
  }
}

inline bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

}  // namespace lode::kernels::cuda
