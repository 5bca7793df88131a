// Rotation and rounding of q8_0 K and V with AVX2; bit for bit generic/kv_q8.h. Owns nothing. Only for avx2/*.cc and
// tests.
#pragma once

#include <cstdint>

#include "kernels/cpu/generic/kv_q8.h"

namespace lode::kernels::avx2 {

void rotate(float* x, std::int64_t dim);
void rotate_blocks(float* x, std::int64_t count, std::int64_t n);
std::uint16_t quantize_kv_group(const float* x, std::int64_t count, std::int8_t* codes);

}  // namespace lode::kernels::avx2
