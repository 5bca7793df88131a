// What the recurrent kernels of all instruction sets share: how work is cut, never what is computed. Owns nothing.
// For cpu/*/recurrent.cc only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/generic/elementwise.h"
#include "kernels/kernels.h"

namespace lode::kernels {

// Columns of a state that one part of delta_net computes: 128 keys x 32 values x 4 bytes = 16 KiB stay in a core's
// first cache from token to token. Columns never meet, so the cut cannot matter.
inline constexpr std::int64_t kDeltaTile = 32;

static inline void copy_floats(float* to, const float* from, std::int64_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
static inline void zero_floats(float* to, std::int64_t count) {
  std::memset(to, 0, static_cast<std::size_t>(count) * sizeof(float));
}

// A run's state in float32, and nullptr where it begins with zeros.
static inline const float* state_in(const StateRun& run, std::int64_t offset) {
  return run.in == nullptr ? nullptr : reinterpret_cast<const float*>(run.in + offset);
}
static inline float* state_out(const StateRun& run, std::int64_t offset) {
  return reinterpret_cast<float*>(run.out + offset);
}

// Calls fn(run, first_channel, end_channel) over all runs and channels; pieces are multiples of 64 channels.
template <typename Fn>
static inline void for_channels(const Stream& stream, const CausalConvArgs& a, Fn&& fn) {
  std::int64_t rows = 0;
  for (const StateRun& run : a.runs) rows += run.count;
  // A value costs about 8 plain elements: the taps and SiLU.
  const std::int64_t per_channel = std::max<std::int64_t>(1, rows * 8);
  const std::int64_t grain = std::max<std::int64_t>(64, kElementGrain / per_channel / 64 * 64);
  for_pieces(stream, a.channels, grain, [&](std::int64_t begin, std::int64_t end) {
    for (const StateRun& run : a.runs) fn(run, begin, end);
  });
}

// The input of a tap (0 is the oldest) for token `t` of a run: a row of x, or of the state, or nullptr for zeros before
// the sequence's first token.
static inline const float* conv_input(const CausalConvArgs& a, const StateRun& run, std::int64_t t, std::int64_t tap) {
  const std::int64_t at = t + tap - (a.taps - 1);
  if (at >= 0) return a.x + (run.first_row + at) * a.channels;
  const float* state = state_in(run, a.state_offset);
  return state == nullptr ? nullptr : state + (at + a.taps - 1) * a.channels;
}

// Keeps the last taps - 1 inputs of channels [begin, end). `out` never overlaps `in`.
static inline void keep_conv_inputs(const CausalConvArgs& a, const StateRun& run, std::int64_t begin,
                                    std::int64_t end) {
  float* state = state_out(run, a.state_offset);
  for (std::int64_t j = 0; j < a.taps - 1; ++j) {
    const float* from = conv_input(a, run, run.count, j);
    float* to = state + j * a.channels;
    if (from == nullptr) zero_floats(to + begin, end - begin);
    else copy_floats(to + begin, from + begin, end - begin);
  }
}

// One tile's work: columns [column, column + width) of one value head's state over the tokens of a run.
struct DeltaTask {
  const StateRun* run;
  std::int64_t head, column, width;
  float* tile;  // [k_dim, kDeltaTile], this thread's.
};

// Calls fn(task) for every run, head and tile.
template <typename Fn>
static inline void for_delta_tiles(const Stream& stream, const DeltaNetArgs& a, Fn&& fn) {
  const std::int64_t tiles = (a.v_dim + kDeltaTile - 1) / kDeltaTile;
  const std::int64_t each = a.v_heads * tiles;
  stream.pool->run(static_cast<std::int64_t>(a.runs.size()) * each, [&](std::int64_t part, int thread) {
    const std::int64_t head = part % each / tiles, column = part % tiles * kDeltaTile;
    fn(DeltaTask{.run = &a.runs[static_cast<std::size_t>(part / each)],
                 .head = head,
                 .column = column,
                 .width = std::min(kDeltaTile, a.v_dim - column),
                 .tile = reinterpret_cast<float*>(stream.scratch +
                                                  static_cast<std::size_t>(thread) * stream.scratch_bytes_per_thread)});
  });
}

// Fills the tile from the run's state, absent columns with zeros; and back.
static inline void load_tile(const DeltaNetArgs& a, const DeltaTask& task) {
  const float* in = state_in(*task.run, a.state_offset);
  for (std::int64_t i = 0; i < a.k_dim; ++i) {
    float* row = task.tile + i * kDeltaTile;
    if (in == nullptr || task.width < kDeltaTile) zero_floats(row, kDeltaTile);
    if (in != nullptr) copy_floats(row, in + (task.head * a.k_dim + i) * a.v_dim + task.column, task.width);
  }
}
static inline void store_tile(const DeltaNetArgs& a, const DeltaTask& task) {
  float* out = state_out(*task.run, a.state_offset);
  for (std::int64_t i = 0; i < a.k_dim; ++i) {
    const float* row = task.tile + i * kDeltaTile;
    copy_floats(out + (task.head * a.k_dim + i) * a.v_dim + task.column, row, task.width);
  }
}

}  // namespace lode::kernels
