#include "model/kv_view.h"

#include <gtest/gtest.h>

namespace lode::model {
namespace {

using kernels::KvType;

CacheGroup two_layers() {
  CacheGroup g;
  g.layers = {{.layer = LayerIndex{3}, .kv_heads = 1, .k_dim = 256, .v_dim = 256},
              {.layer = LayerIndex{7}, .kv_heads = 3, .k_dim = 64, .v_dim = 32}};
  return g;
}

TEST(BlockLayout, F16SlicesFollowTheGroupsOrderAndArePadded) {
  const BlockLayout b = block_layout(two_layers(), KvType::f16, KvType::f16);
  ASSERT_EQ(b.slices.size(), 2u);
  EXPECT_EQ(b.slices[0].layer, LayerIndex{3});
  EXPECT_EQ(b.slices[0].offset, 0);
  EXPECT_EQ(b.slices[0].bytes, 32 * 1024);  // 32 tokens x 256 x 2 bytes, K and V.
  EXPECT_EQ(b.slices[0].kv.k_offset, 0);
  EXPECT_EQ(b.slices[0].kv.v_offset, 16 * 1024);
  EXPECT_EQ(b.slices[1].layer, LayerIndex{7});
  EXPECT_EQ(b.slices[1].offset, 32 * 1024);
  EXPECT_EQ(b.slices[1].kv.k_offset, 32 * 1024);
  EXPECT_EQ(b.slices[1].kv.v_offset, 32 * 1024 + 3 * 64 * 32 * 2);
  EXPECT_EQ(b.slices[1].bytes, 20480);  // 12288 + 6144 = 18432, padded.
  EXPECT_EQ(b.block_bytes, 32 * 1024 + 20480);
  EXPECT_EQ(b.slices[1].kv.kv_heads, 3);
  EXPECT_EQ(b.slices[1].kv.v_dim, 32);
}

TEST(BlockLayout, OtherTypesHaveTheirOwnSizes) {
  const BlockLayout f32 = block_layout(two_layers(), KvType::f32, KvType::f16);
  EXPECT_EQ(f32.slices[0].kv.v_offset, 256 * 32 * 4);
  EXPECT_EQ(f32.slices[0].bytes, 256 * 32 * 6);
  const BlockLayout q8 = block_layout(two_layers(), KvType::q8_0, KvType::q8_0);
  EXPECT_EQ(q8.slices[0].kv.v_offset, 256 * 32 + 256 / 32 * 32 * 2);  // int8 [256][32], f16 [8][32]
  EXPECT_EQ(q8.slices[1].kv.v_offset - q8.slices[1].offset, 3 * (64 * 32 + 2 * 32 * 2));
  const BlockLayout i16 = block_layout(two_layers(), KvType::i16, KvType::i16);
  EXPECT_EQ(i16.slices[0].kv.v_offset, 256 * 32 * 2 + 32 * 4);  // int16 [128][32][2], f32 [32]
  EXPECT_EQ(i16.slices[1].kv.v_offset - i16.slices[1].offset, 3 * (64 * 32 * 2 + 32 * 4));
  for (const auto& layout : {f32, q8, i16})
    for (const auto& s : layout.slices) {
      EXPECT_EQ(s.offset % kSliceAlign, 0);
      EXPECT_EQ(s.bytes % kSliceAlign, 0);
    }
}

TEST(CacheGroup, FirstNeeded) {
  CacheGroup g;
  EXPECT_EQ(g.first_needed(1000), 0);
  g.kind = CacheGroup::Kind::window;
  g.window = 512;
  EXPECT_EQ(g.first_needed(511), 0);
  EXPECT_EQ(g.first_needed(512), 1);
  EXPECT_EQ(g.first_needed(1000), 489);
  g.kind = CacheGroup::Kind::chunk;
  EXPECT_EQ(g.first_needed(1023), 512);
}

}  // namespace
}  // namespace lode::model
