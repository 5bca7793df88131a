// route, combine_experts, add_gated and split_pairs in plain C++: the reference that every instruction set equals bit
// for bit. Owns nothing. Step thread only.
#include "kernels/cpu/generic/experts.h"

#include <cstring>

#include "base/status.h"
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/generic/math.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {

void route(Stream& stream, const RouteArgs& a) {
  LODE_CHECK(a.used >= 1 && a.used <= a.experts);
  for_rows(stream, a.n, a.experts * (8 + a.used), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* logits = a.logits + t * a.experts;
      std::int32_t* ids = a.ids + t * a.used;
      float* weights = a.weights + t * a.used;
      pick_experts(logits, a.experts, a.used, ids);
      const float top = logits[ids[0]];
      float lane[16] = {};
      for (std::int64_t e = 0; e < a.experts; ++e) lane[e % 16] += exp_nonpositive<Lane>(logits[e] - top);
      for (int step = 8; step >= 1; step /= 2) {
        for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
      }
      for (std::int64_t r = 0; r < a.used; ++r) weights[r] = exp_nonpositive<Lane>(logits[ids[r]] - top) / lane[0];
      finish_weights(a, weights);
    }
  });
}

void combine_experts(Stream& stream, const CombineArgs& a) {
  for_rows(stream, a.n, a.width * a.used, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < a.width; ++i) {
        float sum = 0;
        for (std::int64_t r = t * a.used; r < (t + 1) * a.used; ++r) {
          sum = std::fma(a.weights[r], a.y[a.rows[r] * a.width + i], sum);
        }
        a.out[t * a.width + i] = sum;
      }
    }
  });
}

void add_gated(Stream& stream, float* y, const float* x, const float* gate, std::int64_t n, std::int64_t width) {
  for_rows(stream, n, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float g = sigmoid<Lane>(gate[t]);
      for (std::int64_t i = t * width; i < (t + 1) * width; ++i) y[i] = std::fma(g, x[i], y[i]);
    }
  });
}

void split_pairs(Stream& stream, const float* x, std::int64_t pairs, std::int64_t width, float* first, float* second) {
  const std::size_t bytes = static_cast<std::size_t>(width) * sizeof(float);
  for_rows(stream, pairs, 2 * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      std::memcpy(first + p * width, x + 2 * p * width, bytes);
      std::memcpy(second + p * width, x + (2 * p + 1) * width, bytes);
    }
  });
}

}  // namespace lode::kernels::generic
