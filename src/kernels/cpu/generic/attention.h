// What every CPU version of attention shares: which positions a query sees, its absolute 256-token spans, and scratch
// sizes. The arithmetic is fixed in docs/numerics.md. Owns nothing. Kernels, their tables and tests only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace lode::kernels {

namespace generic {
// Bytes of per-thread scratch that attention needs for heads of up to `head_dim_max`, on every instruction set.
std::size_t attention_scratch_bytes(std::int64_t head_dim_max);
}  // namespace generic

inline constexpr std::int64_t kSpanBlocks = kSpanTokens / kBlockTokens;

// The first position that a query at `position` sees; the last is its own.
static inline std::int64_t first_visible(const AttentionArgs& args, std::int64_t position) {
  std::int64_t first = 0;
  if (args.window > 0 && position >= args.window) first = position - args.window + 1;
  if (args.chunk > 0) {
    const std::int64_t chunk_start = position / args.chunk * args.chunk;
    if (chunk_start > first) first = chunk_start;
  }
  return first;
}

// Tokens [begin, end) of a span, counted from the span's start. Empty: begin == end.
struct SpanRange {
  std::int64_t begin = 0, end = 0;
};
static inline SpanRange visible_in_span(const AttentionArgs& args, std::int64_t position, std::int64_t span) {
  const std::int64_t start = span * kSpanTokens;
  std::int64_t begin = first_visible(args, position) - start, end = position + 1 - start;
  if (begin < 0) begin = 0;
  if (end > kSpanTokens) end = kSpanTokens;
  return begin < end ? SpanRange{begin, end} : SpanRange{0, 0};
}

}  // namespace lode::kernels
