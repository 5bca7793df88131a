#include "engine/grammar_constraint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/grammar/grammar.h"
#include "text/test_vocab.h"

namespace lode::engine {
namespace {

using text::grammar::MaskCache;
using text::grammar::TokenTrie;

std::unique_ptr<text::Tokenizer> bytes_vocab() {
  auto v = text::test::bpe_vocab("llama-bpe");
  return v.tokenizer();
}

struct Fixture {
  std::unique_ptr<text::Tokenizer> tokenizer = bytes_vocab();
  std::shared_ptr<MaskCache> masks;
  explicit Fixture(const char* schema) {
    const auto compiled = text::grammar::compile_json_schema(nlohmann::ordered_json::parse(schema));
    EXPECT_TRUE(compiled.ok()) << compiled.status().message();
    masks = std::make_shared<MaskCache>(*compiled, TokenTrie::make(*tokenizer));
  }
  std::vector<std::uint32_t> mask(Constraint& c, std::size_t more_words = 0) const {
    std::vector<std::uint32_t> out(Constraint::mask_words(tokenizer->vocab_size()) + more_words, 0xFFFFFFFF);
    c.fill_mask(out);
    return out;
  }
  TokenId byte(char c) const { return static_cast<std::uint8_t>(c) + 1; }  // 0 is the end of generation.
};

TEST(GrammarConstraint, KeepsToTheSeam) {
  const Fixture f(R"({"enum":["ab","ac"]})");
  const GrammarConstraint prototype(f.masks, *f.tokenizer);
  const auto a = prototype.clone(), b = prototype.clone();
  auto mask = f.mask(*a);
  EXPECT_TRUE(Constraint::allows(mask, f.byte('"')));
  EXPECT_FALSE(Constraint::allows(mask, f.byte('a')) || Constraint::allows(mask, 0));
  EXPECT_GE(a->closing_cost(), 3);  // A byte each, or "ab" at once.
  EXPECT_LE(a->closing_cost(), 4);
  for (const char c : {'"', 'a'}) ASSERT_TRUE(a->accept(f.byte(c)));
  EXPECT_FALSE(a->accept(f.byte('x')));
  EXPECT_FALSE(a->done());
  for (const char c : {'c', '"'}) ASSERT_TRUE(a->accept(f.byte(c)));
  EXPECT_TRUE(a->done());
  EXPECT_EQ(a->closing_cost(), 0);
  mask = f.mask(*a);
  EXPECT_TRUE(Constraint::allows(mask, 0));
  // The other goes its own way.
  mask = f.mask(*b);
  EXPECT_TRUE(Constraint::allows(mask, f.byte('"')));
}

// More logits than tokens, or fewer: no bit outside, none lost.
TEST(GrammarConstraint, MasksOfOtherSizes) {
  const Fixture f(R"({"type":"string"})");
  GrammarConstraint c(f.masks, *f.tokenizer);
  auto mask = f.mask(c, 3);
  for (std::size_t w = mask.size() - 3; w < mask.size(); ++w) EXPECT_EQ(mask[w], 0u);
  std::vector<std::uint32_t> brief(2, 0xFFFFFFFF);
  c.fill_mask(brief);
  EXPECT_EQ(brief[0], mask[0]);
  EXPECT_EQ(brief[1], mask[1]);
}

// At every number of tokens that holds the shortest document the answer is a whole document.
TEST(GrammarConstraint, ClosesWithinTheTokensThatAreLeft) {
  const Fixture f(
      R"({"type":"object","properties":{"k":{"type":"array","items":{"type":"integer"}}},"required":["k"]})");
  const GrammarConstraint prototype(f.masks, *f.tokenizer);
  for (std::int64_t left = prototype.closing_cost(); left < 30; ++left) {
    const auto c = prototype.clone();
    std::int64_t n = left;
    for (; n > 0 && !c->done(); --n) {
      c->set_tokens_left(n);
      const auto mask = f.mask(*c);
      // Takes what opens most.
      TokenId id = -1;
      for (const char wish : {'[', '1', '{', '"', ',', 'k', ':', ']', '}'}) {
        if (id < 0 && Constraint::allows(mask, f.byte(wish))) id = f.byte(wish);
      }
      ASSERT_GE(id, 0) << left;
      ASSERT_TRUE(c->accept(id));
    }
    EXPECT_TRUE(c->done()) << left;
  }
}

}  // namespace
}  // namespace lode::engine
