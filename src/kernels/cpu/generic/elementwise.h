// How elementwise and row-wise functions are cut into parts for the pool: by work, never by meaning, since every
// element is computed alone. Shared by the instruction sets. Owns nothing. Step thread only.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace lode::kernels {

// Elements in one part: about 5 us of work, well above the cost of waking a thread. A multiple of 16.
inline constexpr std::int64_t kElementGrain = 16384;

// Calls fn(begin, end) over [0, count) in pieces whose starts are multiples of `grain`.
template <typename Fn>
static inline void for_pieces(const Stream& stream, std::int64_t count, std::int64_t grain, Fn&& fn) {
  const std::int64_t parts = (count + grain - 1) / grain;
  if (parts <= 1) {
    if (count > 0) fn(std::int64_t{0}, count);
    return;
  }
  stream.pool->run(parts, [&](std::int64_t part, int) {
    const std::int64_t begin = part * grain;
    fn(begin, begin + grain < count ? begin + grain : count);
  });
}

// The same over rows of `width` elements each.
template <typename Fn>
static inline void for_rows(const Stream& stream, std::int64_t rows, std::int64_t width, Fn&& fn) {
  const std::int64_t per_part = width >= kElementGrain ? 1 : kElementGrain / (width > 0 ? width : 1);
  for_pieces(stream, rows, per_part, fn);
}

}  // namespace lode::kernels
