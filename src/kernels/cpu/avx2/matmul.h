// The ways this table multiplies, picked in matmul.cc: few tokens against rows as they lie in the file, panels of
// unpacked rows for many tokens, both again for the formats that go through signed weights and for packed rows, and
// float weights. For cpu/avx2/matmul*.cc only.
#pragma once

#include "kernels/cpu/split.h"
#include "kernels/kernels.h"

namespace lode::kernels::avx2 {

// Computes y[t * y_stride + r] for rows [first, end) of w and all tokens of x.
struct RowsTask {
  const Matrix* w;
  std::int64_t first, end;
  const Acts* x;
  float* y;
  std::int64_t y_stride;
  std::byte* scratch;  // [kMatmulScratch], this thread's.
};
using RowsFn = void (*)(const RowsTask&);

// Calls with at most this many tokens go row by row; `first` is then a multiple of 8, else of kPanelRows.
inline constexpr std::int64_t kFewTokens = 4;
inline constexpr std::int64_t kPanelRows = 16;

// nullptr where the type is of the other kind.
RowsFn few_function(quant::DType type);
RowsFn panel_function(quant::DType type);
RowsFn signed_few_function(quant::DType type);
RowsFn signed_panel_function(quant::DType type);
RowsFn float_function(quant::DType type);
// Layout::packed; nullptr where the table does not pack the type.
RowsFn packed_few_function(quant::DType type);
RowsFn packed_panel_function(quant::DType type);

}  // namespace lode::kernels::avx2
