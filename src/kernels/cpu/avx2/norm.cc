// rms_norm with AVX2: the 16 virtual lanes are two registers. Bit for bit the generic one. Owns nothing. Step thread
// only.
#include "kernels/cpu/avx2/math.h"
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {
namespace {

void scale_row(const float* x, const float* weight, float inverse, std::int64_t width, float* out) {
  const __m256 s = _mm256_set1_ps(inverse);
  std::int64_t i = 0;
  if (weight == nullptr) {
    for (; i + 8 <= width; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), s));
    for (; i < width; ++i) out[i] = x[i] * inverse;
    return;
  }
  for (; i + 8 <= width; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), s), _mm256_loadu_ps(weight + i)));
  }
  for (; i < width; ++i) out[i] = (x[i] * inverse) * weight[i];
}

}  // namespace

void rms_norm(Stream& stream, const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
              float* out) {
  for_rows(stream, rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = x + r * width;
      const float mean = sum_of_squares(in, width) / static_cast<float>(width);
      const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean + eps)));
      scale_row(in, weight, 1.0f / root, width, out + r * width);
    }
  });
}

}  // namespace lode::kernels::avx2
