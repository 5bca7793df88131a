#include "kernels/cpu/avx512/elementwise.h"

#include "kernels/cpu/avx512/ops.h"
#include "kernels/cpu/avx512/zmm.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx512 {

void rms_norm(Stream& stream, const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
              float* out) {
  rms_norm<Zmm>(stream, x, weight, eps, rows, width, out);
}
void add(Stream& stream, float* y, const float* x, std::int64_t count) {
  add<Zmm>(stream, y, x, count);
}
void add_bias(Stream& stream, float* y, const float* bias, std::int64_t n, std::int64_t width) {
  add_bias<Zmm>(stream, y, bias, n, width);
}
void rope(Stream& stream, float* x, std::int64_t n, std::int64_t heads, std::int64_t dim, std::int64_t pairs,
          RopeStyle style, const float* cos_sin) {
  rope<Zmm>(stream, x, n, heads, dim, pairs, style, cos_sin);
}
void glu(Stream& stream, Activation activation, const float* gate, const float* up, float* out, std::int64_t count) {
  glu<Zmm>(stream, activation, gate, up, out, count, avx2::glu);
}
void softcap(Stream& stream, float* x, float cap, std::int64_t count) {
  softcap<Zmm>(stream, x, cap, count);
}

}  // namespace lode::kernels::avx512
