// The CPU functions that the tables in cpu/*/table.cc point at: one namespace per instruction set, the signatures of
// Table (kernels.h). An instruction set that has no version of its own of a function uses the generic one in its table
// and leaves the declaration here undefined. Only table.cc files and tests include this.
#pragma once

#include "kernels/kernels.h"

namespace lode::kernels::generic {

extern const Table kTable;

void embed(Stream&, const Matrix& table, const TokenId* ids, std::int64_t n, float scale, float* out);
void matmul(Stream&, std::span<const MatmulJob> jobs, Acts& x);
void rms_norm(Stream&, const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
              float* out);
void add(Stream&, float* y, const float* x, std::int64_t count);
void add_bias(Stream&, float* y, const float* bias, std::int64_t n, std::int64_t width);
void rope_table(Stream&, const std::int64_t* positions, std::int64_t n, const double* inv_freq, std::int64_t pairs,
                float attn_factor, float* cos_sin);
void rope(Stream&, float* x, std::int64_t n, std::int64_t heads, std::int64_t dim, std::int64_t pairs, RopeStyle,
          const float* cos_sin);
void glu(Stream&, Activation, const float* gate, const float* up, float* out, std::int64_t count);
void kv_write(Stream&, const KvWriteArgs&);
void attention(Stream&, const AttentionArgs&);
void gather_rows(Stream&, const float* x, const std::int32_t* rows, std::int64_t m, std::int64_t width, float* out);
void softcap(Stream&, float* x, float cap, std::int64_t count);
void split_pairs(Stream&, const float* x, std::int64_t pairs, std::int64_t width, float* first, float* second);
void causal_conv(Stream&, const CausalConvArgs&);
void l2_norm(Stream&, const L2NormArgs&);
void delta_gates(Stream&, const DeltaGatesArgs&);
void delta_net(Stream&, const DeltaNetArgs&);
void route(Stream&, const RouteArgs&);
void combine_experts(Stream&, const CombineArgs&);
void add_gated(Stream&, float* y, const float* x, const float* gate, std::int64_t n, std::int64_t width);

}  // namespace lode::kernels::generic

namespace lode::kernels::avx2 {

extern const Table kTable;

bool packs(quant::DType type);
void embed(Stream&, const Matrix& table, const TokenId* ids, std::int64_t n, float scale, float* out);
void matmul(Stream&, std::span<const MatmulJob> jobs, Acts& x);
void rms_norm(Stream&, const float* x, const float* weight, float eps, std::int64_t rows, std::int64_t width,
              float* out);
void add(Stream&, float* y, const float* x, std::int64_t count);
void add_bias(Stream&, float* y, const float* bias, std::int64_t n, std::int64_t width);
void rope_table(Stream&, const std::int64_t* positions, std::int64_t n, const double* inv_freq, std::int64_t pairs,
                float attn_factor, float* cos_sin);
void rope(Stream&, float* x, std::int64_t n, std::int64_t heads, std::int64_t dim, std::int64_t pairs, RopeStyle,
          const float* cos_sin);
void glu(Stream&, Activation, const float* gate, const float* up, float* out, std::int64_t count);
void kv_write(Stream&, const KvWriteArgs&);
void attention(Stream&, const AttentionArgs&);
void gather_rows(Stream&, const float* x, const std::int32_t* rows, std::int64_t m, std::int64_t width, float* out);
void softcap(Stream&, float* x, float cap, std::int64_t count);
void split_pairs(Stream&, const float* x, std::int64_t pairs, std::int64_t width, float* first, float* second);
void causal_conv(Stream&, const CausalConvArgs&);
void l2_norm(Stream&, const L2NormArgs&);
void delta_gates(Stream&, const DeltaGatesArgs&);
void delta_net(Stream&, const DeltaNetArgs&);
void route(Stream&, const RouteArgs&);
void combine_experts(Stream&, const CombineArgs&);
void add_gated(Stream&, float* y, const float* x, const float* gate, std::int64_t n, std::int64_t width);

}  // namespace lode::kernels::avx2
