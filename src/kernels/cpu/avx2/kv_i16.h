// Rounding a head of K, Q or V to i16 with AVX2, bit for bit the generic one (docs/numerics.md). Owns nothing. Kernels
// and tests only.
#pragma once

#include <cstdint>

#include "kernels/cpu/generic/kv_i16.h"

namespace lode::kernels::avx2 {

// A head of K, or a query times its scale: its scale, and with it its codes; returns `scale`.
I16Scale k_scale_i16(const float* x, std::int64_t dim);
float quantize_k_i16(const float* x, std::int64_t dim, std::int16_t* codes);
// The same for V.
I16Scale v_scale_i16(const float* x, std::int64_t dim);
float quantize_v_i16(const float* x, std::int64_t dim, std::int16_t* codes);

// kv_write of one head: `count` tokens, `stride` floats apart, to the block's tokens t, t + 1, ...
void write_k_i16(const float* k, std::int64_t stride, std::int64_t count, std::int64_t k_dim, I16Side to,
                 std::int64_t t);
void write_v_i16(const float* v, std::int64_t stride, std::int64_t count, std::int64_t v_dim, I16Side to,
                 std::int64_t t);

}  // namespace lode::kernels::avx2
