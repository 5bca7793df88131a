// Products of few tokens: how rows of W reach the kernels of matmul_few.cc and matmul_signed_few.cc. For these two
// only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2/rows.h"

namespace lode::kernels::avx2 {

// One kernel's work: 8 rows with tokens `token` and on. Kernels keep it in locals, which stores can't change.
struct FewPass {
  const std::byte* row[8];  // The last of them again where the task ends before.
  const std::byte* ahead;   // The rows to come, which lie behind these.
  std::int64_t first;       // Row.
  std::int64_t token;
};
using PassFn = void (*)(const RowsTask&, FewPass);

// Asks for the next kBytes of the rows to come, in the order in which they lie: the 8 rows that are multiplied side by
// side are no pattern that the processor's own prefetchers follow. For every group of a kernel; what lies behind the
// task's last row is another thread's or nobody's.
template <std::int64_t kBytes>
[[gnu::always_inline]] inline void prefetch_ahead(FewPass& pass) {
  for (std::int64_t i = 0; i < kBytes; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(pass.ahead + i), _MM_HINT_T0);
  pass.ahead += kBytes;
}

// All rows of a task with all tokens, up to 4 at a time. pass[n - 1] takes n tokens.
inline void run_few(const RowsTask& task, const PassFn (&pass)[4]) {
  const std::int64_t bytes = quant::row_bytes(task.w->type, task.x->cols);
  FewPass p{};
  for (p.first = task.first; p.first < task.end; p.first += 8) {
    const std::int64_t rows = std::min<std::int64_t>(8, task.end - p.first);
    for (int r = 0; r < 8; ++r) p.row[r] = task.w->data + (p.first + std::min<std::int64_t>(r, rows - 1)) * bytes;
    p.ahead = task.w->data + (p.first + rows) * bytes;
    for (p.token = 0; p.token < task.x->n; p.token += 4)
      pass[std::min<std::int64_t>(4, task.x->n - p.token) - 1](task, p);
  }
}

}  // namespace lode::kernels::avx2
