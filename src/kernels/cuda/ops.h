// The functions that the table "cuda" points at: the signatures of Table (kernels.h). Only table.cu includes this, and
// the files that define them.
#pragma once

#include "kernels/cuda/context.h"

namespace lode::kernels::cuda {

Table make_table(std::string_view numerics_id);

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

// Pieces that operations hand to each other.
struct VecJobs;
// W of a few rows of int8 activations, in place (matvec.cu, matvec_q4k.cu, matvec_narrow.cu). n <= kMatvecPass. The
// bool ones say whether they take the jobs, by type and address alone.
void matvec_quant(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n);
bool matvec_q4k(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n);
bool matvec_narrow(CudaDevice& d, std::span<const MatmulJob> jobs, const Q8& x, std::int64_t first, std::int64_t n);
void matvec_float(CudaDevice& d, std::span<const MatmulJob> jobs, const float* x, std::int64_t n);
// rows [first, first + count) of w, as bf16 or f32 [count, cols].
void dequantize(CudaDevice& d, const Matrix& w, std::int64_t first, std::int64_t count, void* out, bool bf16);
// The three forms of attention; each takes rows or tiles of the step.
bool attention_tiles(CudaDevice& d, const AttentionArgs& args, std::byte* const* tables);
void attention_rows(CudaDevice& d, const AttentionArgs& args, std::byte* const* tables, bool all_rows);

}  // namespace lode::kernels::cuda
