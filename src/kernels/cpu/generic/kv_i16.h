// K and V in i16 on the CPU: bounds, where values and scales lie in a block, and the rounding of a head to int16
// (docs/numerics.md, "K and V in i16"). Owns nothing. Kernels and tests only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace lode::kernels {

// The L2 norm of a head of K or Q in whole numbers, and the sum of a block's P, before rounding. Rounding adds at most
// sqrt(dim) / 2 to a norm and 16 to a sum; up to 1,024 dims both stay under 2^15, and so every sum of products under
// 2^30, in any order: by Cauchy-Schwarz of K and Q, by 2^15 times the largest |v| of P and V.
inline constexpr float kI16Whole = 32736;
inline constexpr std::int64_t kI16DimMax = 1024;
inline constexpr float kI16Top = 32767;  // The largest |v|.

// A head of which all is below this (K and Q: its norm) is stored as zeros with scale 0; a block whose P weigh less
// than the other adds nothing.
inline constexpr float kI16Tiny = 0x1p-50f;
inline constexpr float kI16TinyWeight = 0x1p-100f;

// A KV head's part of a block.
struct I16Side {
  std::int16_t* values;  // K [k_dim / 2][32 tokens][2 dims], V [16 token pairs][v_dim][2 tokens]
  float* scales;         // [32 tokens]
};
static inline I16Side i16_k(const KvLayer& layer, std::byte* block, std::int64_t kv_head) {
  std::byte* k = block + layer.k_offset;
  return {reinterpret_cast<std::int16_t*>(k) + kv_head * kv_even(layer.k_dim) * kBlockTokens,
          reinterpret_cast<float*>(k + kv_i16_scales_offset(layer.kv_heads, layer.k_dim)) + kv_head * kBlockTokens};
}
static inline I16Side i16_v(const KvLayer& layer, std::byte* block, std::int64_t kv_head) {
  std::byte* v = block + layer.v_offset;
  return {reinterpret_cast<std::int16_t*>(v) + kv_head * kv_even(layer.v_dim) * kBlockTokens,
          reinterpret_cast<float*>(v + kv_i16_scales_offset(layer.kv_heads, layer.v_dim)) + kv_head * kBlockTokens};
}
// Indices into I16Side::values.
static inline std::int64_t i16_k_at(std::int64_t d, std::int64_t t) {
  return (d / 2 * kBlockTokens + t) * 2 + d % 2;
}
static inline std::int64_t i16_v_at(std::int64_t v_dim, std::int64_t t, std::int64_t d) {
  return (t / 2 * v_dim + d) * 2 + t % 2;
}

// What a head is stored with: value = code * scale, code = round_even(f32(value * inverse)). inverse 0: all codes are
// 0, and scale is 0, or NaN where a value is not finite.
struct I16Scale {
  float scale, inverse;
};
// From the sum of squares of a head of K or Q (16 lanes, the tree).
I16Scale i16_norm_scale(float sum_of_squares);
// From the largest magnitude of a head of V, a NaN counting as the largest.
I16Scale i16_top_scale(float amax);
// From the sum L of a block's weights: code = round_even(f32(w * inverse)), all 0 where `inverse` is 0. A sum of
// products then counts `scale` each, from the sum of the codes: were it L / kI16Whole, equal weights would all err the
// same way.
static inline float i16_weight_inverse(float sum) {
  return sum >= kI16TinyWeight && sum <= 0x1.fffffep127f ? kI16Whole / sum : 0;
}
static inline float i16_weight_scale(float sum, float codes) {
  if (codes == 0) return sum < kI16TinyWeight ? 0 : __builtin_nanf("");
  return sum / codes;
}

namespace generic {

// A head of K, or a query times its scale, `dim` values -> codes; returns the scale.
float quantize_k_i16(const float* x, std::int64_t dim, std::int16_t* codes);
float quantize_v_i16(const float* x, std::int64_t dim, std::int16_t* codes);

}  // namespace generic
}  // namespace lode::kernels
