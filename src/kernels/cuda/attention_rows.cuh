// What the kernels that take attention row by row share.
#pragma once

#include "kernels/cuda/context.h"

namespace lode::kernels::cuda {

struct RowArgs {
  const float* q;
  float* out;
  const float* sinks;
  std::byte* const* tables;
  const std::int32_t *row_run, *rows;  // rows nullptr: block z is row first_row + z.
  long long first_row;
  const long long *positions, *row_start;
  float* room;  // [rows, heads, spans, v_dim + 2]: m, l, o of each span
  Q8 q8;        // Of out, where wanted.
  long long blocks, k_offset, v_offset, window, chunk;
  long long k_scales, v_scales;  // Offsets of the scales in a block; q8_0 only.
  KvType k_type, v_type;
  int heads, kv_heads, group, k_dim, v_dim, spans;  // group: query heads of a KV head
  float scale, softcap;
};

__device__ __forceinline__ long long first_visible(const RowArgs& a, long long position) {
  long long first = 0;
  if (a.window > 0 && position >= a.window) first = position - a.window + 1;
  if (a.chunk > 0) first = max(first, position / a.chunk * a.chunk);
  return first;
}

// f16 or q8_0 on either side with equal heads of 64, 128 or 256: (m, l, o) of every span into the room. False for
// others.
bool attention_spans(CudaDevice& d, const RowArgs& a, std::int64_t rows);

}  // namespace lode::kernels::cuda
