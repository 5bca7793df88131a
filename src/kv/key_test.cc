#include "kv/key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace lode::kv {
namespace {

RootInputs example() {
  RootInputs inputs;
  for (std::size_t i = 0; i < 32; ++i) inputs.model_fingerprint[i] = static_cast<std::uint8_t>(i);
  inputs.k_type = inputs.v_type = "f16";
  inputs.numerics_id = "cpu-1";
  inputs.placement = "cpu";
  inputs.rope = "1";
  return inputs;
}

// The worked example of docs/kv-format.md, whose values come from Python's hashlib.
TEST(Key, TheWorkedExampleOfTheDocumentation) {
  const BlockKey root = root_key(example());
  EXPECT_EQ(hex(root), "edcc807c960af86e4011aed1f92ed9d79fe3cde40cb4401852556152e2a37112");
  std::array<TokenId, kBlockTokens> ids;
  std::iota(ids.begin(), ids.end(), 1000);
  EXPECT_EQ(hex(child_key(root, ids)), "faeb49bc36288d95c05f6dd4baade948c46609cdd77299e2c59c18cb7f6eda80");
}

TEST(Key, EveryInputCountsAndNoTwoFieldsCanBeConfused) {
  std::set<BlockKey> keys;
  std::size_t tried = 0;
  const auto add = [&](auto change) {
    RootInputs inputs = example();
    change(inputs);
    keys.insert(root_key(inputs));
    ++tried;
  };
  add([](RootInputs&) {});
  add([](RootInputs& i) { i.model_fingerprint[31] ^= 1; });
  add([](RootInputs& i) { i.k_type = "q8_0"; });
  add([](RootInputs& i) { i.v_type = "q8_0"; });
  add([](RootInputs& i) { i.numerics_id = "cpu-2"; });
  add([](RootInputs& i) { i.placement = "cuda"; });
  add([](RootInputs& i) { i.rope = "2"; });
  add([](RootInputs& i) { i.salt = "cpu"; });
  add([](RootInputs& i) { i.rope = "", i.salt = "1"; });
  add([](RootInputs& i) { i.placement = "cpu1", i.rope = ""; });
  add([](RootInputs& i) { i.k_type = "f1", i.v_type = "6f16"; });
  EXPECT_EQ(keys.size(), tried);
}

TEST(Key, AChildDependsOnItsParentAndEveryToken) {
  std::array<TokenId, kBlockTokens> ids{};
  const BlockKey root = root_key(example());
  std::set<BlockKey> keys = {root, child_key(root, ids), child_key(child_key(root, ids), ids)};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    auto other = ids;
    other[i] = -1;
    keys.insert(child_key(root, other));
  }
  EXPECT_EQ(keys.size(), 3u + kBlockTokens);
}

}  // namespace
}  // namespace lode::kv
