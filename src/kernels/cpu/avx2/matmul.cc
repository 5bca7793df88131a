#include "kernels/cpu/avx2/matmul.h"
#include "base/status.h"
#include "kernels/cpu/acts.h"
#include "kernels/cpu/avx2/quantize.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/split.h"

namespace lode::kernels::avx2 {

namespace {

RowsFn row_function(quant::DType type, bool few) {
  RowsFn fn = float_function(type);
  if (fn == nullptr) fn = few ? few_function(type) : panel_function(type);
  if (fn == nullptr) fn = few ? signed_few_function(type) : signed_panel_function(type);
  return fn;
}
RowsFn packed_function(quant::DType type, bool few) {
  return few ? packed_few_function(type) : packed_panel_function(type);
}

}  // namespace

bool packs(quant::DType type) {
  return packed_few_function(type) != nullptr;
}

void matmul(Stream& stream, std::span<const MatmulJob> jobs, Acts& x) {
  if (x.n == 0) return;
  LODE_CHECK(stream.scratch_bytes_per_thread >= kMatmulScratch);
  ensure_acts(stream, x, jobs, {quantize_row_g32, quantize_row_g256});
  const bool few = x.n <= kFewTokens;
  split_rows(stream, jobs, x.n, few ? 8 : kPanelRows,
             [&](const MatmulJob& job, std::int64_t first, std::int64_t end, int thread) {
               const quant::DType type = job.w->type;
               const RowsFn fn = job.w->layout == Layout::packed ? packed_function(type, few) : row_function(type, few);
               LODE_CHECK(fn != nullptr);
               fn({.w = job.w,
                   .first = first,
                   .end = end,
                   .x = &x,
                   .y = job.y,
                   .y_stride = job.y_stride,
                   .scratch = stream.scratch + thread * stream.scratch_bytes_per_thread});
             });
}

}  // namespace lode::kernels::avx2
