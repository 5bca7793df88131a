// Quantized activations of the CPU tables: where a row's pieces lie in Acts, and filling in the forms that a product
// needs. Each instruction set brings its own row quantizers; all give the same bits. Step thread only.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace lode::kernels {

// One row of Acts' g32 form; shapes as there, without n.
struct RowG32 {
  std::int8_t* q;
  float* d;
  std::int32_t* s;
  std::int16_t* p;
  float* t;
};
struct RowG256 {
  std::int8_t* q;
  float* d;
  std::int16_t* s;
  std::int16_t* u;
  std::int16_t* p;
};

inline RowG32 row_g32(const Acts& a, std::int64_t row) {
  const std::int64_t groups = a.cols / 32;
  return {a.q32 + row * a.cols, a.d32 + row * groups, a.s32 + row * groups, a.p32 + row * groups * 2,
          a.t32 + row * groups};
}
inline RowG256 row_g256(const Acts& a, std::int64_t row) {
  return {a.q256 + row * a.cols, a.d256 + row * (a.cols / 256), a.s256 + row * (a.cols / 16),
          a.u256 + row * (a.cols / 32), a.p256 + row * (a.cols / 16) * 2};
}

// A group whose largest magnitude is below this is stored as zeros with scale 0: 127 / amax would overflow.
inline constexpr float kActTiny = 0x1p-120f;

struct ActQuantizers {
  void (*g32)(const float* x, std::int64_t cols, const RowG32& out);
  void (*g256)(const float* x, std::int64_t cols, const RowG256& out);
};
// Fills in the forms that `jobs` need and `x` lacks. Checks that shapes and types fit the kernels.
void ensure_acts(Stream& stream, Acts& x, std::span<const MatmulJob> jobs, const ActQuantizers& quantizers);

}  // namespace lode::kernels
