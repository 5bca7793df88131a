#include "kernels/cpu/generic/kv_i16.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lode::kernels {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kLargest = std::numeric_limits<float>::max();

}  // namespace

I16Scale i16_norm_scale(float sum_of_squares) {
  const float norm = std::sqrt(sum_of_squares);
  if (norm < kI16Tiny) return {0, 0};
  if (!(norm <= kLargest)) return {kNaN, 0};
  return {norm / kI16Whole, kI16Whole / norm};
}

I16Scale i16_top_scale(float amax) {
  if (amax < kI16Tiny) return {0, 0};
  if (!(amax <= kLargest)) return {kNaN, 0};
  return {amax / kI16Top, kI16Top / amax};
}

namespace generic {
namespace {

void round_all(const float* x, std::int64_t dim, float inverse, std::int16_t* codes) {
  if (inverse == 0) {
    std::fill_n(codes, dim, std::int16_t{0});
    return;
  }
  for (std::int64_t d = 0; d < dim; ++d) codes[d] = static_cast<std::int16_t>(std::lrintf(x[d] * inverse));
}

}  // namespace

float quantize_k_i16(const float* x, std::int64_t dim, std::int16_t* codes) {
  float lane[16] = {};
  for (std::int64_t d = 0; d < dim; ++d) lane[d % 16] = std::fma(x[d], x[d], lane[d % 16]);
  for (int step = 8; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  const I16Scale to = i16_norm_scale(lane[0]);
  round_all(x, dim, to.inverse, codes);
  return to.scale;
}

float quantize_v_i16(const float* x, std::int64_t dim, std::int16_t* codes) {
  // Magnitudes compare as integers, so that a NaN wins whatever the order.
  std::uint32_t top = 0;
  for (std::int64_t d = 0; d < dim; ++d) top = std::max(top, std::bit_cast<std::uint32_t>(x[d]) & 0x7fffffffu);
  const I16Scale to = i16_top_scale(std::bit_cast<float>(top));
  round_all(x, dim, to.inverse, codes);
  return to.scale;
}

}  // namespace generic
}  // namespace lode::kernels
