// Scalar dequantization: the reference for every kernel. The order of operations is gguf-py's, so that results equal it
// bit for bit: scale times code first, then the minimum, each rounded to f32. (The IQ formats have factors of 1/4 and
// 1/8 that gguf-py multiplies at another place; their products have at most 24 significant bits, so that none rounds.)
#include <cstring>

#include "base/status.h"
#include "quant/types.h"
#include "quant/unpack.h"

namespace lode::quant {
namespace {

template <typename T>
T load(const std::byte* src, std::int64_t i) {
  T b;
  std::memcpy(&b, src + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return b;
}

template <typename Block>
void rows32(const std::byte* src, float* dst, std::int64_t n) {
  LODE_CHECK(n % (32 * kParts<Block>) == 0);
  for (std::int64_t i = 0; i < n / 32; ++i) {
    Group32 g;
    unpack(load<Block>(src, i / kParts<Block>), static_cast<int>(i % kParts<Block>), g);
    for (int k = 0; k < 32; ++k) {
      const float value = g.d[k / 16] * static_cast<float>(g.w[k]);
      dst[32 * i + k] = kHasMin<Block> ? value + g.m : value;
    }
  }
}

template <typename Block>
void rows256(const std::byte* src, float* dst, std::int64_t n) {
  LODE_CHECK(n % 256 == 0);
  for (std::int64_t i = 0; i < n / 256; ++i) {
    Group256 g;
    unpack(load<Block>(src, i), g);
    for (int k = 0; k < 256; ++k) {
      const float value = g.d * static_cast<float>(g.scale[k / 16]) * static_cast<float>(g.w[k]);
      dst[256 * i + k] = kHasMin<Block> ? value - g.dmin * static_cast<float>(g.min[k / 16]) : value;
    }
  }
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
    case DType::q4_0: return rows32<BlockQ4_0>(src, dst, n);
    case DType::q4_1: return rows32<BlockQ4_1>(src, dst, n);
    case DType::q5_0: return rows32<BlockQ5_0>(src, dst, n);
    case DType::q5_1: return rows32<BlockQ5_1>(src, dst, n);
    case DType::q8_0: return rows32<BlockQ8_0>(src, dst, n);
    case DType::iq4_nl: return rows32<BlockIQ4_NL>(src, dst, n);
    case DType::mxfp4: return rows32<BlockMXFP4>(src, dst, n);
    case DType::nvfp4: return rows32<BlockNVFP4>(src, dst, n);
    case DType::q1_0: return rows32<BlockQ1_0>(src, dst, n);
    case DType::q2_0: return rows32<BlockQ2_0>(src, dst, n);
    case DType::q2_k: return rows256<BlockQ2_K>(src, dst, n);
    case DType::q3_k: return rows256<BlockQ3_K>(src, dst, n);
    case DType::q4_k: return rows256<BlockQ4_K>(src, dst, n);
    case DType::q5_k: return rows256<BlockQ5_K>(src, dst, n);
    case DType::q6_k: return rows256<BlockQ6_K>(src, dst, n);
    case DType::tq1_0: return rows256<BlockTQ1_0>(src, dst, n);
    case DType::tq2_0: return rows256<BlockTQ2_0>(src, dst, n);
    case DType::iq4_xs: return rows256<BlockIQ4_XS>(src, dst, n);
    case DType::iq3_s: return rows256<BlockIQ3_S>(src, dst, n);
    case DType::iq3_xxs: return rows256<BlockIQ3_XXS>(src, dst, n);
    case DType::iq2_xxs: return rows256<BlockIQ2_XXS>(src, dst, n);
    case DType::iq2_xs: return rows256<BlockIQ2_XS>(src, dst, n);
    case DType::iq2_s: return rows256<BlockIQ2_S>(src, dst, n);
    case DType::iq1_s: return rows256<BlockIQ1_S>(src, dst, n);
    case DType::iq1_m: return rows256<BlockIQ1_M>(src, dst, n);
    default: LODE_CHECK(!"dequantize_row of a type that is not computable");
  }
}

}  // namespace lode::quant
