// Masks against the definition: a token is allowed exactly where its bytes can be accepted, and, under a budget, where
// the document can still be closed behind it.
#include "text/grammar/matcher.h"

#include <gtest/gtest.h>

#include "text/grammar/test_grammar.h"

namespace lode::text::grammar::test {
namespace {

struct Case {
  const char* name;
  Result<Compiled> (*make)();
};
const Case kCases[] = {
    {"object", [] { return compile_json_object(); }},
    {"counted string", [] { return schema(R"({"type":"string","minLength":40,"maxLength":60})"); }},
    {"long string", [] { return schema(R"({"type":"array","items":{"type":"string","minLength":3},"minItems":30})"); }},
    {"record",
     [] {
       return schema(R"({"type":"object","properties":{"name":{"type":"string"},"id":{"type":"integer","minimum":10},
         "tags":{"type":"array","items":{"enum":["ab","abc",null,1.5]}},"at":{"type":"string","format":"date"}},
         "required":["name","tags"]})");
     }},
    {"tree",
     [] {
       return schema(R"({"$defs":{"t":{"type":"object","properties":{"v":{"type":"number"},"k":{"type":"array",
         "items":{"$ref":"#/$defs/t"}}},"required":["v"]}},"$ref":"#/$defs/t"})");
     }},
    {"left recursion", [] { return compile_gbnf("root ::= root \"+\" root | [0-9]+ | \"(\" root \")\""); }},
    {"right recursion", [] { return compile_gbnf("root ::= [a-c] root | \"x\""); }},
    {"optional ends", [] { return compile_gbnf("root ::= \"a\" root \"b\"? | \"c\""); }},
    {"ambiguous",
     [] { return compile_gbnf("root ::= (a | b)+\na ::= \"ab\" | \"a\" a\nb ::= \"aa\"? \"abc\" | [a-z]{3,20}"); }},
    {"counts in counts", [] { return compile_gbnf("root ::= ([a-z]{3,400})+ [0-9]"); }},
    {"choice", [] { return compile_choice(std::vector<std::string>{"true", "trial", "null", "nul"}); }},
    {"regex", [] { return compile_regex("(ab|abc|c)*(hello|12)\\d{0,300}x?"); }},
};

class Masks : public testing::TestWithParam<Case> {};

// Draws an allowed token, small ones more often.
TokenId draw(const std::vector<std::uint32_t>& mask, std::mt19937& rng) {
  std::vector<TokenId> all;
  for (TokenId id = 3; id < json_trie()->vocab_size(); ++id) {
    if (allows(mask, id)) all.push_back(id);
  }
  return all.empty() ? -1 : all[rng() % all.size()];
}

TEST_P(Masks, AllowExactlyWhatCanBeAccepted) {
  const auto masks = masks_of(GetParam().make());
  ASSERT_TRUE(masks);
  std::mt19937 rng(7);
  for (int walk = 0; walk < 12; ++walk) {
    Matcher m(masks);
    for (int step = 0; step < 60; ++step) {
      const auto mask = mask_of(m);
      EXPECT_EQ(allows(mask, kEndToken), m.may_end());
      EXPECT_FALSE(allows(mask, kControlToken) || allows(mask, kUnusedToken));
      for (TokenId id = 3; id < json_trie()->vocab_size(); ++id) {
        Matcher other(m);
        ASSERT_EQ(allows(mask, id), other.accept(id)) << GetParam().name << " token " << json_trie()->text(id);
      }
      const TokenId id = draw(mask, rng);
      if (id < 0) {
        EXPECT_TRUE(m.done());
        break;
      }
      ASSERT_TRUE(m.accept(id));
      // Counts in counts have more readings than are followed; what is followed stays right.
      EXPECT_TRUE(!m.dropped() || GetParam().name == std::string("counts in counts"));
    }
  }
}

TEST_P(Masks, UnderABudgetTheDocumentAlwaysCloses) {
  const auto masks = masks_of(GetParam().make());
  ASSERT_TRUE(masks);
  std::mt19937 rng(8);
  for (int walk = 0; walk < 200; ++walk) {
    Matcher m(masks);
    std::int64_t budget = m.close_tokens() + static_cast<std::int64_t>(walk < 40 ? 0 : rng() % 30);
    while (!m.may_end() || (budget > 0 && rng() % 4 != 0)) {
      const auto mask = mask_of(m, budget);
      for (TokenId id = 3; id < json_trie()->vocab_size(); ++id) {
        Matcher other(m);
        const bool fits = other.accept(id) && other.close_tokens() <= budget - 1;
        // close_tokens() is 0 where the text may end; a mask asks the same of the way on, which may be longer.
        ASSERT_TRUE(fits || !allows(mask, id)) << GetParam().name << " " << json_trie()->text(id);
      }
      const TokenId id = draw(mask, rng);
      if (id < 0) break;
      ASSERT_TRUE(m.accept(id));
      --budget;
    }
    EXPECT_TRUE(m.may_end()) << GetParam().name;
    EXPECT_GE(budget, 0);
  }
}

TEST_P(Masks, ForcedBytesAreTheOnlyOnes) {
  const auto masks = masks_of(GetParam().make());
  ASSERT_TRUE(masks);
  std::mt19937 rng(9);
  for (int walk = 0; walk < 30; ++walk) {
    Matcher m(masks);
    for (int step = 0; step < 30; ++step) {
      std::string forced;
      m.forced_bytes(forced, 1000);
      Matcher other(m);
      for (const char c : forced) {
        const auto next = other.next_bytes();
        ASSERT_EQ(std::count(next.begin(), next.end(), true), 1);
        ASSERT_FALSE(other.may_end());
        ASSERT_TRUE(other.accept_bytes(std::string(1, c)));
      }
      if (!other.may_end()) {
        const auto next = other.next_bytes();
        EXPECT_NE(std::count(next.begin(), next.end(), true), 1) << "one more byte is forced";
      }
      const TokenId id = draw(mask_of(m), rng);
      if (id < 0) break;
      ASSERT_TRUE(m.accept(id));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grammars, Masks, testing::ValuesIn(kCases), [](const auto& i) {
  std::string name = i.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

TEST(Matcher, KnowsTheShortestEnd) {
  const auto masks = masks_of(schema(R"({"type":"object","properties":{"name":{"type":"string","minLength":3},
    "id":{"type":"integer"}},"required":["name","id"]})"));
  Matcher m(masks);
  EXPECT_EQ(m.close_bytes(), std::string(R"({"name":"aaa","id":0})").size());
  // {" name ": " aaa ", " id": 0 } and the like: far fewer tokens than bytes.
  EXPECT_LT(m.close_tokens(), 16u);
  ASSERT_TRUE(m.accept_bytes(R"({"name":"aaa","id":0)"));
  EXPECT_EQ(m.close_bytes(), 1u);
  EXPECT_EQ(m.close_tokens(), 1u);
  ASSERT_TRUE(m.accept_bytes("}"));
  EXPECT_TRUE(m.done());
  EXPECT_EQ(m.close_tokens(), 0u);
}

TEST(Matcher, ABudgetUnderTheShortestDocumentRestrictsNothing) {
  const auto masks = masks_of(schema(R"({"type":"array","items":{"type":"integer"},"minItems":5})"));
  Matcher m(masks);
  ASSERT_GT(m.close_tokens(), 2u);
  EXPECT_EQ(mask_of(m, 2), mask_of(m));
}

TEST(Matcher, ARefusedTokenChangesNothing) {
  const auto masks = masks_of(compile_json_object());
  Matcher m(masks);
  ASSERT_TRUE(m.accept_bytes("{\"a"));
  const auto before = mask_of(m);
  EXPECT_FALSE(m.accept_bytes("\": x"));
  EXPECT_FALSE(m.accept(kEndToken));
  EXPECT_FALSE(m.accept(-1));
  EXPECT_FALSE(m.accept(1 << 30));
  EXPECT_EQ(mask_of(m), before);
}

TEST(Matcher, ACopyGoesItsOwnWay) {
  const auto masks = masks_of(compile_json_object());
  Matcher a(masks);
  ASSERT_TRUE(a.accept_bytes("{\"k\":[[1,{"));
  Matcher b(a);
  ASSERT_TRUE(b.accept_bytes("}]]}"));
  EXPECT_TRUE(b.done());
  EXPECT_FALSE(a.may_end());
  ASSERT_TRUE(a.accept_bytes("\"z\":2}]]}"));
  EXPECT_TRUE(a.done());
}

TEST(Matcher, NestingIsBoundedAndAlwaysCloses) {
  const auto masks = masks_of(compile_json_object());
  Matcher m(masks);
  ASSERT_TRUE(m.accept_bytes("{\"a\":"));
  int opened = 0;
  const TokenId bracket = 3 + '[';
  for (; opened < 5000 && allows(mask_of(m), bracket); ++opened) ASSERT_TRUE(m.accept(bracket));
  EXPECT_GT(opened, 200);
  EXPECT_LT(opened, 300);
  std::mt19937 rng(1);
  for (int step = 0; step < 5000 && !m.done(); ++step) {
    const TokenId id = draw(mask_of(m, m.close_tokens()), rng);
    ASSERT_GE(id, 3);
    ASSERT_TRUE(m.accept(id));
  }
  EXPECT_TRUE(m.done());
}

// A document of any length takes no more room than its open rules: the pools are fixed.
TEST(Matcher, LongDocumentsFit) {
  const auto masks = masks_of(compile_json_object());
  Matcher m(masks);
  ASSERT_TRUE(m.accept_bytes("{\"a\":["));
  for (int i = 0; i < 20000; ++i) ASSERT_TRUE(m.accept_bytes("{\"key\":[1,\"x\"]},"));
  ASSERT_TRUE(m.accept_bytes("1]}"));
  EXPECT_TRUE(m.done());
  EXPECT_FALSE(m.dropped());
}

TEST(MaskCache, IsFlushedWhenFullAndStaysRight) {
  // Each state has a mask of its own.
  std::string regex;
  for (int i = 0; i < 1500; ++i) regex += i % 3 == 0 ? "[ab]" : i % 3 == 1 ? "a?" : "(b|abc)";
  const auto compiled = compile_regex(regex);
  ASSERT_TRUE(compiled.ok());
  const auto small = std::make_shared<MaskCache>(*compiled, json_trie(), MaskCacheOptions{.bytes = 1024});
  const auto large = std::make_shared<MaskCache>(*compiled, json_trie());
  Matcher a(small), b(large);
  std::mt19937 rng(3);
  for (int step = 0; step < 600; ++step) {
    const auto mask = mask_of(a);
    ASSERT_EQ(mask, mask_of(b));
    const TokenId id = draw(mask, rng);
    if (id < 0) break;
    ASSERT_TRUE(a.accept(id) && b.accept(id));
  }
  EXPECT_GT(small->flushes(), 0);
  EXPECT_EQ(large->flushes(), 0);
}

// Field report E16: a control or unused token is never allowed, an end token exactly where the text may end.
TEST(FieldReports, E16_ControlTokensAreMaskedUnlessTheEndIsLegal) {
  const auto masks = masks_of(compile_regex("(<\\|tool\\|>|<unused7>)+"));
  Matcher m(masks);
  auto mask = mask_of(m);
  EXPECT_FALSE(allows(mask, kControlToken) || allows(mask, kUnusedToken) || allows(mask, kEndToken));
  EXPECT_FALSE(m.accept(kControlToken));
  ASSERT_TRUE(m.accept_bytes("<|tool|>"));
  mask = mask_of(m);
  EXPECT_TRUE(allows(mask, kEndToken));
  EXPECT_FALSE(allows(mask, kControlToken) || allows(mask, kUnusedToken));
}

// Field report E09: no run of whitespace goes on, and nothing follows the closing brace.
TEST(FieldReports, E09_WhitespaceIsBounded) {
  const auto masks = masks_of(compile_json_object());
  for (const char* text :
       {" {", "{ ", "{\n", "{\"a\":  1}", "{\"a\": 1,  \"b\":2}", "{\"a\":1 }", "{} ", "{}\n", "{\"a\":[ 1]}"}) {
    EXPECT_FALSE(Matcher(masks).accept_bytes(text)) << text;
  }
  EXPECT_TRUE(accepts_text(masks, "{\"a\": 1, \"b\":[1, 2]}"));
  Matcher m(masks);
  ASSERT_TRUE(m.accept_bytes("{\"a\":1}"));
  EXPECT_TRUE(m.done());
  const auto mask = mask_of(m);
  for (TokenId id = 1; id < json_trie()->vocab_size(); ++id) EXPECT_FALSE(allows(mask, id));
  EXPECT_TRUE(allows(mask, kEndToken));
}

}  // namespace
}  // namespace lode::text::grammar::test
