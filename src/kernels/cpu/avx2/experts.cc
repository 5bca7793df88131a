// route, combine_experts and add_gated with AVX2. Bit for bit the generic ones. Owns nothing. Step thread only.
#include "kernels/cpu/generic/experts.h"

#include "base/status.h"
#include "kernels/cpu/avx2/math.h"
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {
namespace {

// The sum of exp(logit - top) over 16 lanes and the tree. Absent values add +0 to sums of positive values: a no-op.
float exp_sum(const float* logits, std::int64_t count, float top) {
  __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  const __m256 t = _mm256_set1_ps(top);
  for (std::int64_t i = 0; i < count; i += 8) {
    const __m256i mask = first_lanes(count - i < 8 ? count - i : 8);
    const __m256 e = exp_nonpositive<Lanes>(_mm256_sub_ps(_mm256_maskload_ps(logits + i, mask), t));
    __m256& half = sum[i / 8 % 2];
    half = _mm256_add_ps(half, _mm256_and_ps(e, _mm256_castsi256_ps(mask)));
  }
  return tree_sum(sum[0], sum[1]);
}

// exp of one difference, in the lanes' own operations.
float exp1(float x) {
  return _mm256_cvtss_f32(exp_nonpositive<Lanes>(_mm256_set1_ps(x)));
}

}  // namespace

void route(Stream& stream, const RouteArgs& a) {
  LODE_CHECK(a.used >= 1 && a.used <= a.experts);
  for_rows(stream, a.n, a.experts * (2 + a.used), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const float* logits = a.logits + t * a.experts;
      std::int32_t* ids = a.ids + t * a.used;
      float* weights = a.weights + t * a.used;
      pick_experts(logits, a.experts, a.used, ids);
      const float top = logits[ids[0]];
      const float sum = exp_sum(logits, a.experts, top);
      for (std::int64_t r = 0; r < a.used; ++r) weights[r] = exp1(logits[ids[r]] - top) / sum;
      finish_weights(a, weights);
    }
  });
}

void combine_experts(Stream& stream, const CombineArgs& a) {
  for_rows(stream, a.n, a.width * a.used, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t i = 0; i < a.width; i += 8) {
        const __m256i mask = first_lanes(a.width - i < 8 ? a.width - i : 8);
        __m256 sum = _mm256_setzero_ps();
        for (std::int64_t r = t * a.used; r < (t + 1) * a.used; ++r) {
          const __m256 y = _mm256_maskload_ps(a.y + a.rows[r] * a.width + i, mask);
          sum = _mm256_fmadd_ps(_mm256_broadcast_ss(a.weights + r), y, sum);
        }
        _mm256_maskstore_ps(a.out + t * a.width + i, mask, sum);
      }
    }
  });
}

void add_gated(Stream& stream, float* y, const float* x, const float* gate, std::int64_t n, std::int64_t width) {
  for_rows(stream, n, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const __m256 g = sigmoid<Lanes>(_mm256_set1_ps(gate[t]));
      for (std::int64_t i = 0; i < width; i += 8) {
        const __m256i mask = first_lanes(width - i < 8 ? width - i : 8);
        const __m256 old = _mm256_maskload_ps(y + t * width + i, mask);
        _mm256_maskstore_ps(y + t * width + i, mask,
                            _mm256_fmadd_ps(g, _mm256_maskload_ps(x + t * width + i, mask), old));
      }
    }
  });
}

}  // namespace lode::kernels::avx2
