#include "text/grammar/forced_tokens.h"

#include <gtest/gtest.h>

#include "base/test_data.h"
#include "gguf/gguf.h"
#include "text/grammar/grammar_store.h"
#include "text/grammar/test_grammar.h"

namespace lode::text::grammar::test {
namespace {

std::unique_ptr<Tokenizer> smollm2() {
  const auto path = lode::test::models() / "SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) return nullptr;
  const auto file = gguf::File::open(path.string(), {.metadata_only = true});
  if (!file.ok()) return nullptr;
  auto out = Tokenizer::load(**file);
  return out.ok() ? std::move(*out) : nullptr;
}

constexpr const char* kRecord =
    R"({"type":"object","properties":{"temperature_in_celsius":{"type":"number","minimum":-90,"maximum":60},
  "relative_humidity":{"type":"integer","minimum":0,"maximum":100},"description of the sky":{"enum":["clear","cloudy","overcast"]},
  "readings":{"type":"array","items":{"type":"object","properties":{"timestamp":{"type":"string","format":"time"},
  "value":{"type":"boolean"}},"required":["timestamp","value"]},"minItems":1,"maxItems":3}},
  "required":["temperature_in_celsius","relative_humidity","description of the sky","readings"]})";

// The tokens that are forced are those that the tokenizer gives the finished document, from the tokens before them on.
TEST(ForcedTokens, AreTheTokenizersOwn) {
  const auto tokenizer = smollm2();
  if (!tokenizer) GTEST_SKIP() << "SmolLM2 is not in models/";
  GrammarStore store(*tokenizer);
  const auto masks = store.json_schema(nlohmann::ordered_json::parse(kRecord));
  ASSERT_TRUE(masks.ok()) << masks.status().message();
  std::mt19937 rng(4);
  std::size_t forced_total = 0, tokens_total = 0;
  for (int walk = 0; walk < 40; ++walk) {
    Matcher m(*masks);
    std::vector<TokenId> ids;
    std::vector<std::pair<std::size_t, std::size_t>> runs;  // First forced token, and one past the last.
    while (!m.done() && ids.size() < 400) {
      const auto mask = mask_of(m, 400 - static_cast<std::int64_t>(ids.size()));
      std::vector<TokenId> allowed;
      for (TokenId id = 0; id < tokenizer->vocab_size(); ++id) {
        if (allows(mask, id) && !(*masks)->trie()->text(id).empty()) allowed.push_back(id);
      }
      ASSERT_FALSE(allowed.empty());
      const TokenId id = allowed[rng() % allowed.size()];
      ASSERT_TRUE(m.accept(id));
      ids.push_back(id);
      const std::size_t before = ids.size(), tail = std::min<std::size_t>(before, 4);
      const std::vector<TokenId> last(ids.end() - static_cast<std::ptrdiff_t>(tail), ids.end());
      append_forced(*tokenizer, last, 400 - static_cast<std::int64_t>(ids.size()), 100, m, ids);
      if (ids.size() > before) runs.emplace_back(before, ids.size());
    }
    ASSERT_TRUE(m.may_end());
    for (const auto& [from, to] : runs) {
      const std::size_t start = from - std::min<std::size_t>(from, 4);
      std::string rest;
      for (std::size_t i = start; i < ids.size(); ++i) rest += (*masks)->trie()->text(ids[i]);
      const auto again = tokenizer->encode(rest, {});
      ASSERT_GE(again.size(), to - start);
      for (std::size_t i = start; i < to; ++i) ASSERT_EQ(again[i - start], ids[i]) << rest;
      forced_total += to - from;
    }
    tokens_total += ids.size();
  }
  // Random tokens cut keys where no tokenizer would (551 of 4,134 are forced here); a model does so rarely.
  EXPECT_GT(forced_total * 10, tokens_total) << forced_total << " of " << tokens_total;
}

TEST(ForcedTokens, NothingAtTheStartAndNothingInDoubt) {
  const auto tokenizer = smollm2();
  if (!tokenizer) GTEST_SKIP() << "SmolLM2 is not in models/";
  GrammarStore store(*tokenizer);
  const auto masks = store.regex("hello world, hello[a-z]*");
  ASSERT_TRUE(masks.ok());
  Matcher m(*masks);
  std::vector<TokenId> out;
  append_forced(*tokenizer, {}, -1, 100, m, out);
  EXPECT_TRUE(out.empty());
  // A tail that the tokenizer would not spell so: "hel" + "lo" is one token of its own.
  const auto h = tokenizer->encode("h", {});
  ASSERT_TRUE(m.accept(h[0]));
  append_forced(*tokenizer, h, -1, 100, m, out);
  EXPECT_TRUE(out.empty());
}

TEST(GrammarStore, KeepsWhatItMade) {
  const auto tokenizer = text::test::bpe_vocab("llama-bpe").tokenizer();
  GrammarStore store(*tokenizer, {.grammars_max = 2});
  const auto a = store.regex("a+"), b = store.gbnf("root ::= \"a\""), again = store.regex("a+");
  ASSERT_TRUE(a.ok() && b.ok() && again.ok());
  EXPECT_EQ(*a, *again);
  EXPECT_EQ((*a)->trie(), (*b)->trie());
  ASSERT_TRUE(store.json_object().ok());  // "gbnf" is the one that was not asked for longest.
  EXPECT_EQ(*store.regex("a+"), *a);
  EXPECT_NE(*store.gbnf("root ::= \"a\""), *b);
  EXPECT_FALSE(store.regex("(").ok());
  EXPECT_FALSE(store.choice({}).ok());
  const std::vector<std::string> one{"ab", "c"}, two{"a", "bc"};
  EXPECT_NE(*store.choice(one), *store.choice(two));
}

}  // namespace
}  // namespace lode::text::grammar::test
