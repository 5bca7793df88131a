// glu in plain C++. Owns nothing. Step thread only.
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/generic/math.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {

void glu(Stream& stream, Activation activation, const float* gate, const float* up, float* out, std::int64_t count) {
  for_pieces(stream, count, kElementGrain / 4, [&](std::int64_t begin, std::int64_t end) {
    switch (activation) {
      case Activation::silu:
        for (std::int64_t i = begin; i < end; ++i) out[i] = silu<Lane>(gate[i]) * up[i];
        break;
      case Activation::gelu_tanh:
        for (std::int64_t i = begin; i < end; ++i) out[i] = gelu_tanh<Lane>(gate[i]) * up[i];
        break;
      case Activation::sigmoid:
        for (std::int64_t i = begin; i < end; ++i) out[i] = sigmoid<Lane>(gate[i]) * up[i];
        break;
    }
  });
}

}  // namespace lode::kernels::generic
