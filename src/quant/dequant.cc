// Scalar dequantization: the reference for every kernel. The order of operations is gguf-py's, so that results equal it
// bit for bit: scale times code first, then the minimum, each rounded to f32.
#include <cstring>

#include "base/status.h"
#include "quant/blocks.h"
#include "quant/types.h"

namespace lode::quant {
namespace {

template <typename Block>
Block load(const std::byte* src, std::int64_t i) {
  Block b;
  std::memcpy(&b, src + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
  return b;
}

int nibble(const std::uint8_t* qs, int i) {
  return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}
int fifth_bit(const std::uint8_t* qh, int i) {
  return ((qh[i / 8] >> (i % 8)) & 1) << 4;
}

void dequantize(const BlockQ4_0& b, float* dst) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(nibble(b.qs, i) - 8);
}

void dequantize(const BlockQ4_1& b, float* dst) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(nibble(b.qs, i)) + m;
}

void dequantize(const BlockQ5_0& b, float* dst) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>((nibble(b.qs, i) | fifth_bit(b.qh, i)) - 16);
}

void dequantize(const BlockQ5_1& b, float* dst) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(nibble(b.qs, i) | fifth_bit(b.qh, i)) + m;
}

void dequantize(const BlockQ8_0& b, float* dst) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) dst[i] = static_cast<float>(b.qs[i]) * d;
}

void dequantize(const BlockQ4_K& b, float* dst) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  std::uint8_t sc[16];
  unpack_scales_k4(b.scales, sc);
  for (int j = 0; j < 8; ++j) {
    const float scale = d * static_cast<float>(sc[j]), min = dmin * static_cast<float>(sc[8 + j]);
    for (int i = 0; i < 32; ++i) {
      const int code = (b.qs[32 * (j / 2) + i] >> (4 * (j % 2))) & 15;
      dst[32 * j + i] = scale * static_cast<float>(code) - min;
    }
  }
}

void dequantize(const BlockQ5_K& b, float* dst) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  std::uint8_t sc[16];
  unpack_scales_k4(b.scales, sc);
  for (int j = 0; j < 8; ++j) {
    const float scale = d * static_cast<float>(sc[j]), min = dmin * static_cast<float>(sc[8 + j]);
    for (int i = 0; i < 32; ++i) {
      const int code = ((b.qs[32 * (j / 2) + i] >> (4 * (j % 2))) & 15) | (((b.qh[i] >> j) & 1) << 4);
      dst[32 * j + i] = scale * static_cast<float>(code) - min;
    }
  }
}

void dequantize(const BlockQ6_K& b, float* dst) {
  const float d = f16_to_f32(b.d);
  for (int k = 0; k < 256; ++k) {
    const int half = k / 128, g = (k / 32) % 4, i = k % 32;
    const int low = (b.ql[64 * half + 32 * (g % 2) + i] >> (4 * (g / 2))) & 15;
    const int high = (b.qh[32 * half + i] >> (2 * g)) & 3;
    const float scale = d * static_cast<float>(b.scales[k / 16]);
    dst[k] = scale * static_cast<float>((low | (high << 4)) - 32);
  }
}

template <typename Block>
void blocks(const std::byte* src, float* dst, std::int64_t n, std::int64_t values) {
  LODE_CHECK(n % values == 0);
  for (std::int64_t i = 0; i < n / values; ++i) dequantize(load<Block>(src, i), dst + i * values);
}

}  // namespace

void dequantize_row(DType type, const std::byte* src, float* dst, std::int64_t n) {
  switch (type) {
    case DType::f32: std::memcpy(dst, src, static_cast<std::size_t>(n) * 4); return;
    case DType::f16:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = f16_to_f32(load<std::uint16_t>(src, i));
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < n; ++i) dst[i] = bf16_to_f32(load<std::uint16_t>(src, i));
      return;
    case DType::q4_0: return blocks<BlockQ4_0>(src, dst, n, 32);
    case DType::q4_1: return blocks<BlockQ4_1>(src, dst, n, 32);
    case DType::q5_0: return blocks<BlockQ5_0>(src, dst, n, 32);
    case DType::q5_1: return blocks<BlockQ5_1>(src, dst, n, 32);
    case DType::q8_0: return blocks<BlockQ8_0>(src, dst, n, 32);
    case DType::q4_k: return blocks<BlockQ4_K>(src, dst, n, 256);
    case DType::q5_k: return blocks<BlockQ5_K>(src, dst, n, 256);
    case DType::q6_k: return blocks<BlockQ6_K>(src, dst, n, 256);
    default: LODE_CHECK(!"dequantize_row of a type that is not computable");
  }
}

}  // namespace lode::quant
