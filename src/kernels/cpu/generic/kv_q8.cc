#include "kernels/cpu/generic/kv_q8.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lode::kernels::generic {
namespace {

// x > 0, to binary16, towards infinity.
std::uint16_t half_up(float x) {
  const std::uint16_t nearest = quant::f32_to_f16(x);
  return quant::f16_to_f32(nearest) < x ? static_cast<std::uint16_t>(nearest + 1) : nearest;
}

}  // namespace

void rotate_blocks(float* x, std::int64_t count, std::int64_t n) {
  const float scale = rotation_scale(n);
  for (std::int64_t block = 0; block < count; block += n) {
    float* v = x + block;
    for (std::int64_t h = 1; h < n; h *= 2) {
      for (std::int64_t i = 0; i < n; i += 2 * h) {
        for (std::int64_t j = i; j < i + h; ++j) {
          const float a = v[j], b = v[j + h];
          v[j] = a + b;
          v[j + h] = a - b;
        }
      }
    }
    for (std::int64_t i = 0; i < n; ++i) v[i] *= scale;
  }
}

void rotate(float* x, std::int64_t dim) {
  rotate_blocks(x, dim, rotation_block(dim));
}

std::uint16_t quantize_kv_group(const float* x, std::int64_t count, std::int8_t* codes) {
  // Magnitudes compare as integers, so that a NaN wins whatever the order.
  std::uint32_t top = 0;
  for (std::int64_t i = 0; i < count; ++i) top = std::max(top, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
  const float amax = std::bit_cast<float>(top);
  std::fill(codes, codes + count, std::int8_t{0});
  if (amax < kKvTiny) return 0;
  const float exact = amax / 127.0f;
  if (!(exact <= 65504.0f)) return kHalfNaN;
  const std::uint16_t d = half_up(exact);
  const float inverse = 1.0f / quant::f16_to_f32(d);
  for (std::int64_t i = 0; i < count; ++i) codes[i] = static_cast<std::int8_t>(std::lrintf(x[i] * inverse));
  return d;
}

}  // namespace lode::kernels::generic
