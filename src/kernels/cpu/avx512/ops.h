// The functions that this table has of its own; whatever else a Table holds is the AVX2 one's. Only kernels.cc,
// table.cc and tests include this.
#pragma once

#include "kernels/kernels.h"

namespace lode::kernels::avx512 {

// For processors with AVX-512 F, BW, DQ, VL and VNNI, which all have AVX2 too.
const Table& table();

void matmul(Stream&, std::span<const MatmulJob> jobs, Acts& x);
void rms_norm(Stream&, const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
              float* out);
void add(Stream&, float* y, const float* x, std::int64_t count);
void add_bias(Stream&, float* y, const float* bias, std::int64_t n, std::int64_t width);
void rope(Stream&, float* x, std::int64_t n, std::int64_t heads, std::int64_t dim, std::int64_t pairs, RopeStyle,
          const float* cos_sin);
void glu(Stream&, Activation, const float* gate, const float* up, float* out, std::int64_t count);
void attention(Stream&, const AttentionArgs&);
void softcap(Stream&, float* x, float cap, std::int64_t count);

}  // namespace lode::kernels::avx512
