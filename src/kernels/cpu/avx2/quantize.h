// AVX2 quantization of activation rows: the bits of generic/quantize.h. Owns nothing.
#pragma once

#include "kernels/cpu/acts.h"

namespace lode::kernels::avx2 {

void quantize_row_g32(const float* x, std::int64_t cols, const RowG32& out);
void quantize_row_g256(const float* x, std::int64_t cols, const RowG256& out);

}  // namespace lode::kernels::avx2
