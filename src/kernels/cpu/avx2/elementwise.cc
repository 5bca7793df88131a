// add, add_bias, gather_rows, softcap with AVX2. Bit for bit the generic ones. Owns nothing. Step thread only.
#include "kernels/cpu/generic/elementwise.h"

#include <cstring>

#include "kernels/cpu/avx2/math.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {
namespace {

void add_into(float* y, const float* x, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), _mm256_loadu_ps(x + i)));
  for (; i < count; ++i) y[i] += x[i];
}

}  // namespace

void add(Stream& stream, float* y, const float* x, std::int64_t count) {
  for_pieces(stream, count, kElementGrain,
             [&](std::int64_t begin, std::int64_t end) { add_into(y + begin, x + begin, end - begin); });
}

void add_bias(Stream& stream, float* y, const float* bias, std::int64_t n, std::int64_t width) {
  for_rows(stream, n, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) add_into(y + r * width, bias, width);
  });
}

void gather_rows(Stream& stream, const float* x, const std::int32_t* rows, std::int64_t m, std::int64_t width,
                 float* out) {
  for_rows(stream, m, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::memcpy(out + r * width, x + rows[r] * width, static_cast<std::size_t>(width) * sizeof(float));
    }
  });
}

void softcap(Stream& stream, float* x, float cap, std::int64_t count) {
  for_pieces(stream, count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    const __m256 c = _mm256_set1_ps(cap);
    std::int64_t i = begin;
    for (; i + 8 <= end; i += 8) _mm256_storeu_ps(x + i, capped<Lanes>(_mm256_loadu_ps(x + i), c));
    if (i < end) {
      const __m256i mask = first_lanes(end - i);
      _mm256_maskstore_ps(x + i, mask, capped<Lanes>(_mm256_maskload_ps(x + i, mask), c));
    }
  });
}

}  // namespace lode::kernels::avx2
