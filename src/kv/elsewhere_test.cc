#include "kv/elsewhere.h"

#include <gtest/gtest.h>

#include "kv/disk_test_util.h"
#include "kv/extent.h"

namespace lode::kv {
namespace {

using namespace test;

TEST(Elsewhere, OtherModelsAndOtherTypesAreFoundUnderTheSameSaltAlone) {
  Harness h;
  std::vector<TokenId> tokens;
  for (TokenId id = 0; id < 20 * 32 + 5; ++id) tokens.push_back(id * 7);
  RootInputs here;
  here.model_fingerprint = h.config.model_fingerprint;
  here.k_type = here.v_type = "f16";
  here.numerics_id = "cpu-1";
  here.placement = "cpu";
  here.salt = "s";
  const auto store = [&](const RootInputs& root, std::size_t blocks) {
    h.config.model_fingerprint = root.model_fingerprint;
    ASSERT_TRUE(h.open().ok());
    std::vector<DiskBlock> chain(blocks);
    BlockKey key = root_key(root);
    for (std::size_t i = 0; i < blocks; ++i) {
      std::copy_n(tokens.begin() + static_cast<int>(32 * i), 32, chain[i].ids.begin());
      chain[i].parent = key;
      chain[i].index = static_cast<std::int64_t>(i);
      chain[i].key = key = child_key(key, chain[i].ids);
    }
    for (std::size_t at = 0; at < blocks; at += 16)
      h.write(kFull, std::span(chain).subspan(at, std::min<std::size_t>(16, blocks - at)));
    ASSERT_TRUE(h.tier->flush(20'000));
  };
  const auto find = [&](const RootInputs& root) { return find_elsewhere(h.fake, h.config.dir, root, tokens); };
  EXPECT_TRUE(find(here).empty()) << "there is no folder";
  store(here, 20);
  EXPECT_TRUE(find(here).empty()) << "what is here is not elsewhere";
  RootInputs q8 = here;
  q8.k_type = q8.v_type = "q8_0+wht";
  auto found = find(q8);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].same_model);
  EXPECT_EQ(found[0].k_type, "f16");
  EXPECT_EQ(found[0].tokens, 640);
  RootInputs model = here;
  model.model_fingerprint.fill(0x11);
  found = find(model);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].same_model);
  EXPECT_EQ(found[0].fingerprint, hex(BlockKey{here.model_fingerprint}));
  RootInputs salt = model;
  salt.salt = "t";
  EXPECT_TRUE(find(salt).empty()) << "another's";
  tokens[3] += 1;
  EXPECT_TRUE(find(model).empty()) << "another prompt";
}

}  // namespace
}  // namespace lode::kv
