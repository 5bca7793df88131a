#include "kernels/cpu/generic/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lode::kernels::generic {
namespace {

// Quantizes `count` values to q; returns the scale.
float quantize_group(const float* x, std::int64_t count, std::int8_t* q) {
  // Magnitudes compare as integers, so that a NaN wins whatever the order.
  std::uint32_t top = 0;
  for (std::int64_t i = 0; i < count; ++i) top = std::max(top, std::bit_cast<std::uint32_t>(x[i]) & 0x7fffffffu);
  const float amax = std::bit_cast<float>(top);
  if (!(amax >= kActTiny && amax <= std::numeric_limits<float>::max())) {
    std::fill(q, q + count, std::int8_t{0});
    return amax < kActTiny ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = 127.0f / amax;
  for (std::int64_t i = 0; i < count; ++i) q[i] = static_cast<std::int8_t>(std::lrintf(x[i] * inverse));
  return amax / 127.0f;
}

// Sums of q over k % 4 in {0, 1} and {2, 3}.
void pair_sums(const std::int8_t* q, std::int64_t count, std::int16_t* p) {
  int sums[2] = {0, 0};
  for (std::int64_t i = 0; i < count; ++i) sums[(i % 4) / 2] += q[i];
  p[0] = static_cast<std::int16_t>(sums[0]);
  p[1] = static_cast<std::int16_t>(sums[1]);
}

}  // namespace

void quantize_row_g32(const float* x, std::int64_t cols, const RowG32& out) {
  for (std::int64_t g = 0; g < cols / 32; ++g) {
    out.d[g] = quantize_group(x + 32 * g, 32, out.q + 32 * g);
    pair_sums(out.q + 32 * g, 32, out.p + 2 * g);
    out.s[g] = out.p[2 * g] + out.p[2 * g + 1];
    out.t[g] = out.d[g] * static_cast<float>(out.s[g]);
  }
}

void quantize_row_g256(const float* x, std::int64_t cols, const RowG256& out) {
  for (std::int64_t g = 0; g < cols / 256; ++g) out.d[g] = quantize_group(x + 256 * g, 256, out.q + 256 * g);
  for (std::int64_t g = 0; g < cols / 16; ++g) {
    pair_sums(out.q + 16 * g, 16, out.p + 2 * g);
    out.s[g] = static_cast<std::int16_t>(out.p[2 * g] + out.p[2 * g + 1]);
  }
  for (std::int64_t g = 0; g < cols / 32; ++g) out.u[g] = static_cast<std::int16_t>(out.s[2 * g] + out.s[2 * g + 1]);
}

}  // namespace lode::kernels::generic
