// Filling masks and taking tokens allocates nothing, whether the masks are found or made.
#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "text/grammar/test_grammar.h"

namespace lode::text::grammar::test {
namespace {

TEST(Allocations, AStepMakesNone) {
  const auto masks = masks_of(schema(R"({"type":"object","properties":{"name":{"type":"string","maxLength":40},
    "list":{"type":"array","items":{"anyOf":[{"type":"number"},{"type":"object"}]},"minItems":3}},"required":["name","list"]})"));
  Matcher m(masks);
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(json_trie()->vocab_size() + 31) / 32);
  std::mt19937 rng(11);
  const std::int64_t before = lode::test::allocations.load();
  for (int step = 0; step < 300 && !m.done(); ++step) {
    m.fill_mask(mask, 300 - step);
    TokenId id = -1;
    for (TokenId t = 3, seen = 0; t < json_trie()->vocab_size(); ++t) {
      if (allows(mask, t) && rng() % static_cast<unsigned>(++seen) == 0) id = t;
    }
    if (id < 0 || !m.accept(id)) break;
    (void)m.close_tokens();
  }
  EXPECT_EQ(lode::test::allocations.load() - before, 0);
  EXPECT_TRUE(m.may_end());
  EXPECT_GT(masks->misses(), 10);
}

}  // namespace
}  // namespace lode::text::grammar::test
