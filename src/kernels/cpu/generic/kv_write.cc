// kv_write in plain C++: rounds K and V to their storage types and lays them out in the runs' blocks: K
// [kv_head][k_dim][32 tokens], V [kv_head][32 tokens][v_dim]. Owns nothing. Step thread only.
#include <cstring>

#include "base/status.h"
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {
namespace {

void store(KvType type, std::byte* base, std::int64_t index, float value) {
  if (type == KvType::f32) {
    std::memcpy(base + index * 4, &value, 4);
  } else {
    const std::uint16_t half = quant::f32_to_f16(value);
    std::memcpy(base + index * 2, &half, 2);
  }
}

}  // namespace

void kv_write(Stream& stream, const KvWriteArgs& args) {
  const KvLayer& layer = args.layer;
  LODE_CHECK(layer.k_type != KvType::q8_0 && layer.v_type != KvType::q8_0);
  const std::int64_t kv_heads = layer.kv_heads, k_dim = layer.k_dim, v_dim = layer.v_dim;
  for (const KvRun& run : args.runs) {
    for_rows(stream, run.count, kv_heads * (k_dim + v_dim), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t position = run.first_position + i, t = position % kBlockTokens;
        std::byte* block = run.blocks[position / kBlockTokens];
        const float* k = args.k + (run.first_row + i) * kv_heads * k_dim;
        const float* v = args.v + (run.first_row + i) * kv_heads * v_dim;
        for (std::int64_t j = 0; j < kv_heads * k_dim; ++j) {
          store(layer.k_type, block + layer.k_offset, j * kBlockTokens + t, k[j]);
        }
        for (std::int64_t h = 0; h < kv_heads; ++h) {
          for (std::int64_t d = 0; d < v_dim; ++d) {
            store(layer.v_type, block + layer.v_offset, (h * kBlockTokens + t) * v_dim + d, v[h * v_dim + d]);
          }
        }
      }
    });
  }
}

}  // namespace lode::kernels::generic
