// glu with AVX2. Bit for bit the generic one. Owns nothing. Step thread only.
#include "kernels/cpu/avx2/math.h"
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {
namespace {

template <__m256 (*Act)(__m256)>
void glu_piece(const float* gate, const float* up, float* out, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_mul_ps(Act(_mm256_loadu_ps(gate + i)), _mm256_loadu_ps(up + i)));
  }
  if (i < count) {
    const __m256i mask = first_lanes(count - i);
    const __m256 g = _mm256_maskload_ps(gate + i, mask), u = _mm256_maskload_ps(up + i, mask);
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(Act(g), u));
  }
}

}  // namespace

void glu(Stream& stream, Activation activation, const float* gate, const float* up, float* out, std::int64_t count) {
  for_pieces(stream, count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    switch (activation) {
      case Activation::silu: glu_piece<silu<Lanes>>(gate + begin, up + begin, out + begin, end - begin); break;
      case Activation::gelu_tanh:
        glu_piece<gelu_tanh<Lanes>>(gate + begin, up + begin, out + begin, end - begin);
        break;
      case Activation::sigmoid: glu_piece<sigmoid<Lanes>>(gate + begin, up + begin, out + begin, end - begin); break;
    }
  });
}

}  // namespace lode::kernels::avx2
