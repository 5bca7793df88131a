// rope_table and rope with AVX2 and FMA. Bit for bit the generic ones. Owns nothing. Step thread only.
#include "kernels/cpu/avx2/math.h"
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {
namespace {

void rotate_pair(float& a, float& b, float c, float s) {
  const float x0 = a, x1 = b;
  a = fma1(x0, c, -(x1 * s));
  b = fma1(x0, s, x1 * c);
}

void rotate_neox(float* head, std::int64_t pairs, const float* cos_sin) {
  std::int64_t i = 0;
  for (; i + 8 <= pairs; i += 8) {
    // cos_sin: (c0 s0 c1 s1 c2 s2 c3 s3) (c4 s4 ...) -> c0..c7, s0..s7.
    const __m256 a = _mm256_loadu_ps(cos_sin + 2 * i), b = _mm256_loadu_ps(cos_sin + 2 * i + 8);
    const __m256 c = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)), 0xD8));
    const __m256 s = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xDD)), 0xD8));
    const __m256 x0 = _mm256_loadu_ps(head + i), x1 = _mm256_loadu_ps(head + pairs + i);
    _mm256_storeu_ps(head + i, _mm256_fmsub_ps(x0, c, _mm256_mul_ps(x1, s)));
    _mm256_storeu_ps(head + pairs + i, _mm256_fmadd_ps(x0, s, _mm256_mul_ps(x1, c)));
  }
  for (; i < pairs; ++i) rotate_pair(head[i], head[pairs + i], cos_sin[2 * i], cos_sin[2 * i + 1]);
}

void rotate_normal(float* head, std::int64_t pairs, const float* cos_sin) {
  std::int64_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    const __m256 x = _mm256_loadu_ps(head + 2 * i), cs = _mm256_loadu_ps(cos_sin + 2 * i);
    const __m256 x0 = _mm256_moveldup_ps(x), x1 = _mm256_movehdup_ps(x);
    // Even lanes x0 c - x1 s, odd lanes x0 s + x1 c.
    const __m256 crossed = _mm256_mul_ps(x1, _mm256_permute_ps(cs, 0xB1));
    _mm256_storeu_ps(head + 2 * i, _mm256_fmaddsub_ps(x0, cs, crossed));
  }
  for (; i < pairs; ++i) rotate_pair(head[2 * i], head[2 * i + 1], cos_sin[2 * i], cos_sin[2 * i + 1]);
}

}  // namespace

void rope_table(Stream& stream, const std::int64_t* positions, std::int64_t n, const double* inv_freq,
                std::int64_t pairs, float attn_factor, float* cos_sin) {
  for_rows(stream, n, pairs * 16, [&](std::int64_t begin, std::int64_t end) {
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
  for_rows(stream, n, heads * dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        float* head = x + (r * heads + h) * dim;
        const float* cs = cos_sin + r * pairs * 2;
        if (style == RopeStyle::normal) {
          rotate_normal(head, pairs, cs);
        } else {
          rotate_neox(head, pairs, cs);
        }
      }
    }
  });
}

}  // namespace lode::kernels::avx2
