// rope_table and rope in plain C++. The angle and its reduction are double (math.h), the table and the rotation float.
// Owns nothing. Step thread only.
#include <cmath>

#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/generic/math.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {

void rope_table(Stream& stream, const std::int64_t* positions, std::int64_t n, const double* inv_freq,
                std::int64_t pairs, float attn_factor, float* cos_sin) {
  // A pair costs about 30 plain elements.
  for_rows(stream, n, pairs * 32, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double position = static_cast<double>(positions[r]);
      float* row = cos_sin + r * pairs * 2;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const SinCos sc = sin_cos<DoubleLane>(position * inv_freq[i]);
        row[2 * i] = static_cast<float>(static_cast<double>(attn_factor) * sc.cos);
        row[2 * i + 1] = static_cast<float>(static_cast<double>(attn_factor) * sc.sin);
      }
    }
  });
}

void rope(Stream& stream, float* x, std::int64_t n, std::int64_t heads, std::int64_t dim, std::int64_t pairs,
          RopeStyle style, const float* cos_sin) {
  // Pair i is (x[i * step], x[i * step + apart]).
  const std::int64_t step = style == RopeStyle::normal ? 2 : 1;
  const std::int64_t apart = style == RopeStyle::normal ? 1 : pairs;
  for_rows(stream, n, heads * dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* cs = cos_sin + r * pairs * 2;
      for (std::int64_t h = 0; h < heads; ++h) {
        float* head = x + (r * heads + h) * dim;
        for (std::int64_t i = 0; i < pairs; ++i) {
          float& a = head[i * step];
          float& b = head[i * step + apart];
          const float c = cs[2 * i], s = cs[2 * i + 1];
          const float x0 = a, x1 = b;
          a = std::fma(x0, c, -(x1 * s));
          b = std::fma(x0, s, x1 * c);
        }
      }
    }
  });
}

}  // namespace lode::kernels::generic
