// How a matmul call is cut into parts: outputs only, never k. Owns nothing. For cpu/*/matmul*.cc.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace lode::kernels {

// Parts a thread gets of one call: enough that one slow core costs little, few enough that claiming is free.
inline constexpr std::int64_t kPartsPerThread = 128;
// Multiply-adds a part holds at least: 1 us, ten times the cost of claiming it. Threads begin with neighbouring parts,
// so that the rows that one part has asked for are the next part's: claimed in turns, parts of this size cost 15%.
inline constexpr std::int64_t kPartMacs = 32 * 1024;

// Bytes of scratch that a product may use in each thread, whatever the shape.
inline constexpr std::size_t kMatmulScratch = 64 * 1024;

// Runs fn(job, first_row, end_row, thread) so that every row of every job is covered once. Ranges begin at multiples of
// `unit` rows of their job. Jobs share the call's parts in order.
template <typename Fn>
void split_rows(Stream& stream, std::span<const MatmulJob> jobs, std::int64_t n, std::int64_t unit, Fn&& fn) {
  std::int64_t units = 0, macs = 0;
  for (const MatmulJob& job : jobs) {
    units += (job.w->rows + unit - 1) / unit;
    macs += job.w->rows * job.w->cols * n;
  }
  const std::int64_t parts =
      std::max<std::int64_t>(1, std::min({units, stream.pool->size() * kPartsPerThread, macs / kPartMacs}));
  stream.pool->run_near(parts, [&](std::int64_t part, int thread) {
    const std::int64_t begin = part * units / parts, end = (part + 1) * units / parts;
    std::int64_t first = 0;  // The current job's first unit.
    for (const MatmulJob& job : jobs) {
      const std::int64_t job_units = (job.w->rows + unit - 1) / unit;
      const std::int64_t from = std::max(begin, first) - first, to = std::min(end, first + job_units) - first;
      if (from < to) fn(job, from * unit, std::min(to * unit, job.w->rows), thread);
      first += job_units;
    }
  });
}

}  // namespace lode::kernels
