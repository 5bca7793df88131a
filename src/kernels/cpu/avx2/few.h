// Products of few tokens: how rows of W reach the kernels of matmul_few.cc and matmul_signed_few.cc. For these two
// only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2/rows.h"

namespace lode::kernels::avx2 {

// Hands a task's rows out 8 at a time, in order, and asks for those to come in the order in which they lie, a piece a
// group: the 8 rows that are multiplied side by side are no pattern that the processor's own prefetchers follow.
class RowFeed {
 public:
  RowFeed(const RowsTask& task, std::int64_t row_bytes)
      : next_(task.w->data + task.first * row_bytes), row_bytes_(row_bytes), rows_left_(task.end - task.first) {}

  // The next 8 rows; the last of them again where the task ends before.
  void take(const std::byte* (&row)[8]) {
    const std::int64_t rows = std::min<std::int64_t>(8, rows_left_);
    for (int r = 0; r < 8; ++r) row[r] = next_ + std::min<std::int64_t>(r, rows - 1) * row_bytes_;
    rows_left_ -= rows;
    next_ += rows * row_bytes_;
    ahead_ = next_;
  }

  // Asks for the next kBytes of the rows to come. What lies behind the task's last row is another thread's or nobody's.
  template <std::int64_t kBytes>
  [[gnu::always_inline]] void prefetch() {
    for (std::int64_t i = 0; i < kBytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(ahead_ + i), _MM_HINT_T0);
    ahead_ += kBytes;
  }

 private:
  const std::byte* next_;  // Rows not handed out yet.
  std::int64_t row_bytes_, rows_left_;
  const std::byte* ahead_ = nullptr;
};

// One kernel's work: 8 rows with tokens `token` and on.
struct FewPass {
  const std::byte* row[8];
  std::int64_t first;  // Row.
  std::int64_t token;
  RowFeed* feed;
};
using PassFn = void (*)(const RowsTask&, const FewPass&);

// All rows of a task with all tokens, up to 4 at a time. pass[n - 1] takes n tokens.
inline void run_few(const RowsTask& task, const PassFn (&pass)[4]) {
  RowFeed feed(task, quant::row_bytes(task.w->type, task.x->cols));
  FewPass p{};
  p.feed = &feed;
  for (p.first = task.first; p.first < task.end; p.first += 8) {
    feed.take(p.row);
    for (p.token = 0; p.token < task.x->n; p.token += 4)
      pass[std::min<std::int64_t>(4, task.x->n - p.token) - 1](task, p);
  }
}

}  // namespace lode::kernels::avx2
