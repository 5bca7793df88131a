// add, add_bias, gather_rows, softcap in plain C++: the reference that every instruction set equals bit for bit.
// Owns nothing. Step thread only.
#include "kernels/cpu/generic/elementwise.h"

#include <cstring>

#include "base/status.h"
#include "kernels/cpu/generic/math.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {

void add(Stream& stream, float* y, const float* x, std::int64_t count) {
  for_pieces(stream, count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] += x[i];
  });
}

void add_bias(Stream& stream, float* y, const float* bias, std::int64_t n, std::int64_t width) {
  for_rows(stream, n, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* row = y + r * width;
      for (std::int64_t i = 0; i < width; ++i) row[i] += bias[i];
    }
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
  for_pieces(stream, count, kElementGrain / 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) x[i] = capped<Lane>(x[i], cap);
  });
}

}  // namespace lode::kernels::generic
