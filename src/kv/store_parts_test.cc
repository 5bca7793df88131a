// The store's parts alone, and what it promises about allocation and time.
#include <gtest/gtest.h>

#include <chrono>

#include "base/count_allocations.h"
#include "kv/prefix_index.h"
#include "kv/store_test_util.h"

namespace lode::kv::test {
namespace {

using Disk = RigOptions::Disk;

std::array<TokenId, kBlockTokens> filled(TokenId id) {
  std::array<TokenId, kBlockTokens> ids;
  ids.fill(id);
  return ids;
}

TEST(PrefixIndex, ComparesParentAndTokensNotKeysAlone) {
  PrefixIndex index(1);
  Block* root = index.root("", BlockKey{});
  Block* other = index.root("salt", BlockKey{});
  EXPECT_EQ(index.root("", BlockKey{}), root);
  EXPECT_NE(other, root);
  BlockKey key;
  key.bytes[0] = 1;
  Block* a = index.add_child(*root, key, filled(1));
  Block* b = index.add_child(*root, key, filled(2));   // The same key for other tokens.
  Block* c = index.add_child(*other, key, filled(1));  // And for another parent.
  EXPECT_EQ(index.find_child(*root, key, filled(1)), a);
  EXPECT_EQ(index.find_child(*root, key, filled(2)), b);
  EXPECT_EQ(index.find_child(*other, key, filled(1)), c);
  EXPECT_EQ(index.find_child(*other, key, filled(2)), nullptr);
  EXPECT_EQ(index.size(), 3u);
  for (Block* block : {a, b, c}) index.settle(*block);
  index.trim(0);
  EXPECT_EQ(index.size(), 0u);
  EXPECT_FALSE(index.has_key(key));
}

TEST(PrefixIndex, TheClosestChildTellsWhereTokensDiffer) {
  PrefixIndex index(1);
  Block* root = index.root("", BlockKey{});
  auto ids = filled(1);
  EXPECT_EQ(PrefixIndex::closest_child(*root, ids), -1);
  index.add_child(*root, child_key(root->key, ids), ids);
  ids[20] = 9;
  EXPECT_EQ(PrefixIndex::closest_child(*root, ids), 20);
  ids[3] = 9;
  EXPECT_EQ(PrefixIndex::closest_child(*root, ids), 3);
  EXPECT_EQ(PrefixIndex::closest_child(*root, std::span(ids).first(2)), 2);
}

TEST(PrefixIndex, StubsAreBoundedAndTheOldestChainGoesWhole) {
  PrefixIndex index(1);
  Block* root = index.root("", BlockKey{});
  index.ref(*root);
  std::vector<Block*> last;
  for (TokenId chain = 0; chain < 3; ++chain) {
    Block* b = root;
    for (int i = 0; i < 10; ++i) b = index.add_child(*b, child_key(b->key, filled(chain)), filled(chain));
    index.settle(*b);
    last.push_back(b);
  }
  index.trim(30);
  EXPECT_EQ(index.size(), 30u);
  index.ref(*last[0]);  // In use again.
  index.trim(15);
  EXPECT_EQ(index.size(), 15u);  // Chain 1 and half of chain 2.
  EXPECT_NE(index.find_child(*root, child_key(root->key, filled(0)), filled(0)), nullptr);
  EXPECT_EQ(index.find_child(*root, child_key(root->key, filled(1)), filled(1)), nullptr);
  index.trim(0);
  EXPECT_EQ(index.size(), 10u) << "what is in use stays";
  index.unref(*last[0]);
  index.trim(0);
  EXPECT_EQ(index.size(), 0u);
}

TEST(Store, StepsAllocateNothing) {
  std::mt19937 rng(30);
  for (const auto& groups : {window_groups(), three_groups()})
    for (const Disk disk : {Disk::off, Disk::fake}) {
      Rig rig({.groups = groups, .context = 4000, .disk = disk});
      auto run = rig.open(random_tokens(rng, 500));
      ASSERT_TRUE(rig.finish(*run));
      for (int i = 0; i < 200; ++i) {
        const std::array<TokenId, 1> id{static_cast<TokenId>(rng() % 1000)};
        const Store::RunSpec spec{run->seq, 0, 1};
        const bool completes = rig.store->length(*run->seq) % kBlockTokens == kBlockTokens - 1;
        const std::int64_t before = lode::test::allocations;
        ASSERT_TRUE(rig.store->grow(*run->seq, 1).ok());
        model::KvView& view = rig.store->view({&spec, 1});
        for (const auto& g : groups)
          for (const auto& l : g.layers) {
            ASSERT_TRUE(view.wait(l.layer).ok());
            if (l.state_bytes > 0) {
              ASSERT_EQ(view.states(l.layer).size(), 1u);
              continue;
            }
            ASSERT_EQ(view.runs(l.layer).size(), 1u);
            ASSERT_EQ(view.layer(l.layer).kv_heads, 1);
          }
        if (completes) {
          EXPECT_EQ(lode::test::allocations, before);
          rig.store->commit(*run->seq, id);
        } else {
          rig.store->commit(*run->seq, id);
          EXPECT_EQ(lode::test::allocations, before);
        }
        rig.store->poll();
      }
      rig.close(*run);
    }
}

// 77k tokens are 2,406 blocks. The bound is generous for a busy machine; a quadratic scan would take seconds.
TEST(Store, OpeningALongPromptIsLinear) {
  std::mt19937 rng(31);
  Rig rig({.arena_bytes = 64 << 20, .unpinned_bytes = 64 << 20, .chunk = 512, .context = 80000, .disk = Disk::fake});
  const Tokens document = random_tokens(rng, 77000);
  rig.serve(document);
  const auto start = std::chrono::steady_clock::now();
  std::int64_t reused = 0;
  for (int i = 0; i < 5; ++i) {
    auto run = rig.open(concat(head(document, 76000), random_tokens(rng, 500)));
    reused += rig.store->reuse(*run->seq).tokens_reused;
    rig.close(*run);
  }
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count() / 5;
  RecordProperty("open_close_ms", std::to_string(ms));
  std::printf("open + close of 76,500 tokens, reused: %.2f ms\n", ms);
  EXPECT_EQ(reused, 5 * 76000 / 32 * 32);
  EXPECT_LT(ms, 400);
}

}  // namespace
}  // namespace lode::kv::test
