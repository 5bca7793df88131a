// The matmul of this table, as a template over the vector type: few tokens against rows as they lie in the file, panels
// of unpacked rows for many tokens, of packed ones too, and float weights. What has no code here goes to another
// table's matmul. Owns nothing. For matmul.cc and tests.
#pragma once

#include <span>

#include "base/status.h"
#include "kernels/cpu/acts.h"
#include "kernels/cpu/avx512/matmul_any.h"
#include "kernels/cpu/avx512/matmul_few.h"
#include "kernels/cpu/avx512/matmul_float.h"
#include "kernels/cpu/avx512/matmul_packed.h"
#include "kernels/cpu/avx512/matmul_panel.h"
#include "kernels/cpu/split.h"

namespace lode::kernels::avx512 {

// Calls with at most this many tokens go row by row.
static constexpr std::int64_t kFewTokens = 4;
static constexpr std::int64_t kFewRows = 16;

// What this table takes from another one.
struct OtherMatmul {
  void (*matmul)(Stream&, std::span<const MatmulJob>, Acts&);  // For what has no rows_function.
  ActQuantizers quantizers;
};

template <typename V>
static RowsFn float_function(quant::DType type) {
  switch (type) {
    case quant::DType::f32: return float_rows<V, WeightF32<V>>;
    case quant::DType::f16: return float_rows<V, WeightF16<V>>;
    case quant::DType::bf16: return float_rows<V, WeightBF16<V>>;
    default: return nullptr;
  }
}

template <typename V>
static RowsFn panel_function(quant::DType type) {
  switch (type) {
    case quant::DType::q4_0: return panel_g32<V, Unpack32<V, quant::BlockQ4_0>>;
    case quant::DType::q4_1: return panel_g32<V, Unpack32<V, quant::BlockQ4_1>>;
    case quant::DType::q5_0: return panel_g32<V, Unpack32<V, quant::BlockQ5_0>>;
    case quant::DType::q5_1: return panel_g32<V, Unpack32<V, quant::BlockQ5_1>>;
    case quant::DType::q8_0: return panel_g32<V, Unpack32<V, quant::BlockQ8_0>>;
    case quant::DType::q4_k: return panel_g256<V, Unpack256<V, quant::BlockQ4_K>>;
    case quant::DType::q5_k: return panel_g256<V, Unpack256<V, quant::BlockQ5_K>>;
    case quant::DType::q6_k: return panel_g256<V, Unpack256<V, quant::BlockQ6_K>>;
    default: return nullptr;
  }
}

template <typename V, int kTokens>
static RowsFn few_for(quant::DType type) {
  switch (type) {
    case quant::DType::q4_0: return few_g32<V, quant::BlockQ4_0, kTokens>;
    case quant::DType::q4_1: return few_g32<V, quant::BlockQ4_1, kTokens>;
    case quant::DType::q5_0: return few_g32<V, quant::BlockQ5_0, kTokens>;
    case quant::DType::q5_1: return few_g32<V, quant::BlockQ5_1, kTokens>;
    case quant::DType::q8_0: return few_g32<V, quant::BlockQ8_0, kTokens>;
    case quant::DType::q4_k: return few_g256<V, quant::BlockQ4_K, kTokens>;
    case quant::DType::q5_k: return few_g256<V, quant::BlockQ5_K, kTokens>;
    case quant::DType::q6_k: return few_g256<V, quant::BlockQ6_K, kTokens>;
    default: return nullptr;
  }
}
template <typename V>
static RowsFn few_function(quant::DType type, std::int64_t tokens) {
  switch (tokens) {
    case 1: return few_for<V, 1>(type);
    case 2: return few_for<V, 2>(type);
    case 3: return few_for<V, 3>(type);
    default: return few_for<V, 4>(type);
  }
}

// How rows of a matrix meet `tokens` tokens; nullptr: not by this table.
template <typename V>
static RowsFn rows_function(const Matrix& w, std::int64_t tokens) {
  const quant::DType type = w.type;
  if (w.layout == Layout::packed) return tokens <= kFewTokens ? nullptr : packed_panel_function<V>(type);
  if (const RowsFn fn = float_function<V>(type)) return fn;
  if (tokens <= kFewTokens) return few_function<V>(type, tokens);
  if (const RowsFn fn = panel_function<V>(type)) return fn;
  return tokens >= kManyTokens ? any_panel_function<V>(type) : nullptr;
}

// All jobs have a rows_function.
template <typename V>
static void own_matmul(Stream& stream, std::span<const MatmulJob> jobs, Acts& x, const ActQuantizers& quantizers) {
  LODE_CHECK(stream.scratch_bytes_per_thread >= kMatmulScratch);
  ensure_acts(stream, x, jobs, quantizers);
  split_rows(stream, jobs, x.n, x.n <= kFewTokens ? kFewRows : kPanelRows,
             [&](const MatmulJob& job, std::int64_t first, std::int64_t end, int thread) {
               rows_function<V>(*job.w, x.n)({.w = job.w,
                                              .first = first,
                                              .end = end,
                                              .x = &x,
                                              .y = job.y,
                                              .y_stride = job.y_stride,
                                              .scratch = stream.scratch + thread * stream.scratch_bytes_per_thread});
             });
}

// Jobs in a row that go the same way are one call.
template <typename V>
static void matmul(Stream& stream, std::span<const MatmulJob> jobs, Acts& x, const OtherMatmul& other) {
  if (x.n == 0) return;
  for (std::size_t from = 0; from < jobs.size();) {
    const auto own = [&](std::size_t i) { return rows_function<V>(*jobs[i].w, x.n) != nullptr; };
    std::size_t to = from + 1;
    while (to < jobs.size() && own(to) == own(from)) ++to;
    if (own(from)) {
      own_matmul<V>(stream, jobs.subspan(from, to - from), x, other.quantizers);
    } else {
      other.matmul(stream, jobs.subspan(from, to - from), x);
    }
    from = to;
  }
}

}  // namespace lode::kernels::avx512
