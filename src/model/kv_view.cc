// Sizes and offsets of a block of one cache group. Owns nothing. Any thread.
#include "model/kv_view.h"

namespace lode::model {
namespace {

constexpr std::int64_t kTokens = kernels::kBlockTokens;

// Bytes of one head's `dim` x 32 values (or 32 x `dim`: the size does not depend on the order). q8_0 stores int8 values
// and one f16 scale for 32 of them along `dim`, for every token; i16 stores int16 values and one f32 scale a token.
std::int64_t head_bytes(kernels::KvType type, std::int64_t dim) {
  switch (type) {
    case kernels::KvType::f32: return dim * kTokens * 4;
    case kernels::KvType::f16: return dim * kTokens * 2;
    case kernels::KvType::q8_0: return dim * kTokens + (dim + 31) / 32 * kTokens * 2;
    case kernels::KvType::i16: return kernels::kv_even(dim) * kTokens * 2 + kTokens * 4;
  }
  return 0;
}

}  // namespace

BlockLayout block_layout(const CacheGroup& group, kernels::KvType k_type, kernels::KvType v_type) {
  BlockLayout layout;
  layout.slices.reserve(group.layers.size());
  for (const CacheLayer& l : group.layers) {
    const std::int64_t k_bytes = l.kv_heads * head_bytes(k_type, l.k_dim);
    const std::int64_t v_bytes = l.kv_heads * head_bytes(v_type, l.v_dim);
    BlockLayout::Slice slice;
    slice.layer = l.layer;
    slice.offset = layout.block_bytes;
    slice.bytes =
        static_cast<std::int64_t>(align_up(static_cast<std::uint64_t>(k_bytes + v_bytes + l.state_bytes), kSliceAlign));
    slice.kv = {.k_type = k_type,
                .v_type = v_type,
                .kv_heads = l.kv_heads,
                .k_dim = l.k_dim,
                .v_dim = l.v_dim,
                .k_offset = slice.offset,
                .v_offset = slice.offset + k_bytes};
    layout.slices.push_back(slice);
    layout.block_bytes += slice.bytes;
  }
  return layout;
}

}  // namespace lode::model
