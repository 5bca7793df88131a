// kv_write in plain C++: rounds K and V to their storage types, q8_0 after a rotation, and lays them out in the runs'
// blocks (kernels.h, KvLayer). A token's bytes depend on that token alone. Owns nothing. Step thread only.
#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/generic/kv_i16.h"
#include "kernels/cpu/generic/kv_q8.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {
namespace {

// Where one side of a token and head goes: value d at values + d * stride elements, scale g at scales + g *
// scale_stride halves (q8_0 only).
struct Place {
  std::byte* values;
  std::int64_t stride;
  std::byte* scales;
  std::int64_t scale_stride;
};

void store_half(std::byte* base, std::int64_t index, std::uint16_t half) {
  std::memcpy(base + index * 2, &half, 2);
}

void store_q8(const float* x, std::int64_t dim, const Place& to) {
  const std::int64_t n = rotation_block(dim), piece = rotation_piece(dim);
  float rotated[kRotationMax];
  std::int8_t codes[kKvGroup];
  for (std::int64_t first = 0; first < dim; first += piece) {
    const std::int64_t count = std::min(piece, dim - first);
    std::copy_n(x + first, count, rotated);
    rotate_blocks(rotated, count, n);
    for (std::int64_t i = 0; i < count; i += kKvGroup) {
      const std::int64_t in_group = std::min(kKvGroup, count - i), d = first + i;
      store_half(to.scales, d / kKvGroup * to.scale_stride, quantize_kv_group(rotated + i, in_group, codes));
      for (std::int64_t j = 0; j < in_group; ++j) to.values[(d + j) * to.stride] = static_cast<std::byte>(codes[j]);
    }
  }
}

void store(KvType type, const float* x, std::int64_t dim, const Place& to) {
  switch (type) {
    case KvType::f32:
      for (std::int64_t d = 0; d < dim; ++d) std::memcpy(to.values + d * to.stride * 4, x + d, 4);
      break;
    case KvType::f16:
      for (std::int64_t d = 0; d < dim; ++d) store_half(to.values, d * to.stride, quant::f32_to_f16(x[d]));
      break;
    case KvType::q8_0: store_q8(x, dim, to); break;
    case KvType::i16: break;  // Pairs of tokens or dims lie together: store_k_i16, store_v_i16.
  }
}

void store_k_i16(const KvLayer& layer, std::byte* block, std::int64_t h, std::int64_t t, const float* x) {
  const I16Side to = i16_k(layer, block, h);
  std::int16_t codes[kI16DimMax + 1];
  to.scales[t] = quantize_k_i16(x, layer.k_dim, codes);
  codes[layer.k_dim] = 0;  // The partner of an odd dim's last.
  for (std::int64_t d = 0; d < kv_even(layer.k_dim); ++d) to.values[i16_k_at(d, t)] = codes[d];
}
void store_v_i16(const KvLayer& layer, std::byte* block, std::int64_t h, std::int64_t t, const float* x) {
  const I16Side to = i16_v(layer, block, h);
  std::int16_t codes[kI16DimMax];
  to.scales[t] = quantize_v_i16(x, layer.v_dim, codes);
  for (std::int64_t d = 0; d < layer.v_dim; ++d) to.values[i16_v_at(layer.v_dim, t, d)] = codes[d];
}

std::int64_t value_bytes(KvType type) {
  return type == KvType::f32 ? 4 : type == KvType::f16 ? 2 : 1;
}

// Token t of a block, one head.
Place k_place(const KvLayer& layer, std::byte* block, std::int64_t h, std::int64_t t) {
  std::byte* k = block + layer.k_offset;
  const std::int64_t scale = h * kv_groups(layer.k_dim) * kBlockTokens + t;
  return {k + (h * layer.k_dim * kBlockTokens + t) * value_bytes(layer.k_type), kBlockTokens,
          k + kv_scales_offset(layer.kv_heads, layer.k_dim) + scale * 2, kBlockTokens};
}
Place v_place(const KvLayer& layer, std::byte* block, std::int64_t h, std::int64_t t) {
  std::byte* v = block + layer.v_offset;
  const std::int64_t scale = (h * kBlockTokens + t) * kv_groups(layer.v_dim);
  return {v + (h * kBlockTokens + t) * layer.v_dim * value_bytes(layer.v_type), 1,
          v + kv_scales_offset(layer.kv_heads, layer.v_dim) + scale * 2, 1};
}

}  // namespace

void kv_write(Stream& stream, const KvWriteArgs& args) {
  const KvLayer& layer = args.layer;
  const std::int64_t kv_heads = layer.kv_heads, k_dim = layer.k_dim, v_dim = layer.v_dim;
  LODE_CHECK(layer.k_type != KvType::i16 || k_dim <= kI16DimMax);
  LODE_CHECK(layer.v_type != KvType::i16 || v_dim <= kI16DimMax);
  for (const KvRun& run : args.runs) {
    for_rows(stream, run.count, kv_heads * (k_dim + v_dim), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t position = run.first_position + i, t = position % kBlockTokens;
        std::byte* block = run.blocks[position / kBlockTokens];
        for (std::int64_t h = 0; h < kv_heads; ++h) {
          const std::int64_t row = (run.first_row + i) * kv_heads + h;
          const float *k = args.k + row * k_dim, *v = args.v + row * v_dim;
          if (layer.k_type == KvType::i16) store_k_i16(layer, block, h, t, k);
          else store(layer.k_type, k, k_dim, k_place(layer, block, h, t));
          if (layer.v_type == KvType::i16) store_v_i16(layer, block, h, t, v);
          else store(layer.v_type, v, v_dim, v_place(layer, block, h, t));
        }
      }
    });
  }
}

}  // namespace lode::kernels::generic
