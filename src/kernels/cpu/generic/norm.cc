// rms_norm in plain C++: 16 virtual lanes and the fixed tree of docs/numerics.md. Owns nothing. Step thread only.
#include <cmath>

#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {
namespace {

float sum_of_squares(const float* x, std::int64_t width) {
  float lane[16] = {};
  for (std::int64_t i = 0; i < width; ++i) lane[i % 16] = std::fma(x[i], x[i], lane[i % 16]);
  for (int step = 8; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  return lane[0];
}

}  // namespace

void rms_norm(Stream& stream, const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
              float* out) {
  for_rows(stream, rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = x + r * width;
      float* to = out + r * width;
      const float mean = sum_of_squares(in, width) / static_cast<float>(width);
      const float inverse = 1.0f / std::sqrt(mean + eps);
      for (std::int64_t i = 0; i < width; ++i) {
        const float scaled = in[i] * inverse;
        to[i] = weight != nullptr ? scaled * weight[i] : scaled;
      }
    }
  });
}

}  // namespace lode::kernels::generic
