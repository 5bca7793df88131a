// The hand-written matchers against the regular expressions that define them, known cuts, and linear time.
#include "text/pretokenizer.h"

#include <gtest/gtest.h>

#include <ctime>

#include "text/test_vocab.h"

namespace lode::text {
namespace {

using Engine = PreTokenizer::Engine;
using Words = std::vector<std::string>;

PreTokenizer make(std::string_view rule, Engine engine) {
  std::string warning;
  auto pre = PreTokenizer::make(rule, engine, &warning);
  EXPECT_TRUE(pre.ok()) << pre.status().message();
  EXPECT_EQ(warning, "");
  return std::move(*pre);
}

Words words(const PreTokenizer& pre, std::string_view text) {
  std::vector<std::size_t> ends;
  pre.split(text, ends);
  Words out;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    EXPECT_GT(end, begin);
    out.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return out;
}

TEST(PreTokenizer, KnownCuts) {
  const auto cut = [](std::string_view rule, std::string_view text) {
    return words(make(rule, Engine::fastest), text);
  };
  EXPECT_EQ(cut("gpt-2", "I'm  12 x\n\n y"), (Words{"I", "'m", " ", " 12", " x", "\n\n", " y"}));
  EXPECT_EQ(cut("smollm", "a  12 x"), (Words{"a", "  ", "1", "2", " x"}));
  EXPECT_EQ(cut("llama-bpe", "I'LL 12345!\r\n x"), (Words{"I", "'LL", " ", "123", "45", "!\r\n", " x"}));
  EXPECT_EQ(cut("qwen2", "(a) 12 \n\n b  "), (Words{"(a", ")", " ", "1", "2", " \n\n", " b", "  "}));
  EXPECT_EQ(cut("qwen35", "e\u0301a \u0301"), (Words{"e\u0301a", " \u0301"}));
  EXPECT_EQ(cut("qwen2", "e\u0301a"), (Words{"e", "\u0301a"}));
  EXPECT_EQ(cut("gpt-4o", "HTTPServer it's 1234"), (Words{"HTTPServer", " it's", " ", "123", "4"}));
  EXPECT_EQ(cut("gpt-4o", "camelCase"), (Words{"camel", "Case"}));
  EXPECT_EQ(cut("tekken", "it's 12"), (Words{"it", "'s", " ", "1", "2"}));
  EXPECT_EQ(cut("kimi-k2", "a漢字b"), (Words{"a", "漢字", "b"}));
  EXPECT_EQ(cut("superbpe", "x1234567y"), (Words{"x", "1", "234", "567", "y"}));
  EXPECT_EQ(cut("tiny_aya", "12345 12345x"), (Words{"12", "345", " ", "123", "45", "x"}));
  EXPECT_EQ(cut("deepseek-v3", "a漢字 12345"), (Words{"a", "漢字", " ", "123", "45"}));
  EXPECT_EQ(cut("gemma4", "a b\n\nc"), (Words{"a b", "\n\n", "c"}));
}

// One name for each list of steps; or only where there is a matcher in it.
enum class Which { all, with_matcher };
std::vector<std::string_view> rule_names(Which which) {
  std::vector<std::string_view> out;
  std::vector<const PreTokenizerStep*> seen;
  for (const PreTokenizerRule& rule : pretokenizer_rules()) {
    const bool matcher =
        std::ranges::any_of(rule.steps, [](const PreTokenizerStep& s) { return s.matcher != nullptr; });
    if (which == Which::with_matcher && !matcher) continue;
    if (std::ranges::find(seen, rule.steps.data()) == seen.end()) out.push_back(rule.names[0]);
    seen.push_back(rule.steps.data());
  }
  return out;
}
std::string test_name(const testing::TestParamInfo<std::string_view>& info) {
  std::string name(info.param);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

class Rules : public testing::TestWithParam<std::string_view> {};
class MatchedRules : public testing::TestWithParam<std::string_view> {};

TEST_P(Rules, EnginesAgree) {
  const PreTokenizer fast = make(GetParam(), Engine::fastest), regex = make(GetParam(), Engine::regex),
                     interpreter = make(GetParam(), Engine::interpreter);
  std::mt19937 rng(1);
  for (int round = 0; round < 600; ++round) {
    std::string text = test::random_text(rng, 1 + static_cast<int>(rng() % 30));
    // A third of the texts are damaged: none of the engines may see beyond a byte that is not UTF-8, or differ there.
    for (int i = round % 3 == 0 ? 3 : 0; i > 0; --i) text[rng() % text.size()] = static_cast<char>(rng());
    const Words want = words(regex, text);
    ASSERT_EQ(words(fast, text), want) << text;
    if (round % 10 == 0) {
      ASSERT_EQ(words(interpreter, text), want) << text;
    }
  }
}

TEST_P(MatchedRules, EnginesAgreeOnEveryCharacter) {
  const PreTokenizer fast = make(GetParam(), Engine::fastest), regex = make(GetParam(), Engine::regex);
  std::string text;
  std::vector<std::size_t> a, b;
  int differing = 0;
  for (char32_t base = 0; base < 0x32400; base += 16) {  // Above lie no letters, only tags, selectors and private use.
    if (base >= 0xD800 && base < 0xF900) continue;
    text.clear();
    for (char32_t c = base; c < base + 16; ++c) {
      text += "a";
      test::append_utf8(text, c);
      text += "1 ";
      test::append_utf8(text, c);
    }
    a.clear();
    b.clear();
    fast.split(text, a);
    regex.split(text, b);
    if (a == b) continue;
    EXPECT_GT(base, 0x600u) << std::hex << static_cast<std::uint32_t>(base);
    ++differing;
  }
  // PCRE2's tables and utf8proc's are of neighbouring Unicode versions (14 and 15 in Debian 12): letters that the newer
  // one added lie in 284 of the 12,322 groups of 16.
  EXPECT_LE(differing, 300);
}

// Every rule, in time that grows with the text and no faster: a rule that read its run again from each character would
// take minutes here.
TEST_P(Rules, LongRunsInUnderASecond) {
  const PreTokenizer pre = make(GetParam(), Engine::fastest), interpreter = make(GetParam(), Engine::interpreter);
  const bool interpreted = std::ranges::any_of(pretokenizer_rule(GetParam())->steps,
                                               [](const PreTokenizerStep& s) { return s.matcher == nullptr; });
  std::vector<std::size_t> ends;
  for (const char* unit :
       {" ", "\n", "a", "A", "漢", "\u0301", "'", "1", "!", "<|", "aA", " a", "'s", "\xFF", " \n", "\x01"}) {
    for (const char* last : {"x", "漢"}) {
      std::string text;
      while (text.size() < 50'000) text += unit;
      text += last;
      for (const PreTokenizer* p : {&pre, &interpreter}) {
        if (p == &interpreter && !interpreted) continue;
        ends.clear();
        const std::clock_t begin = std::clock();  // Processor time: other programs do not count.
        p->split(text, ends);
        EXPECT_LT(std::clock() - begin, CLOCKS_PER_SEC) << unit << last;
        ASSERT_EQ(ends.back(), text.size());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Rules, testing::ValuesIn(rule_names(Which::all)), test_name);
INSTANTIATE_TEST_SUITE_P(All, MatchedRules, testing::ValuesIn(rule_names(Which::with_matcher)), test_name);

TEST(PreTokenizer, BytesThatAreNotUtf8AreSymbols) {
  for (const auto engine : {Engine::fastest, Engine::regex}) {
    std::string joined;
    for (const std::string& w : words(make("gpt-2", engine), "a\xFF\xFE b\xE2\x96 c")) joined += w;
    EXPECT_EQ(joined, "a\xFF\xFE b\xE2\x96 c");
  }
}

// Each name that converters write stands in one rule.
TEST(PreTokenizer, NamesAreUnique) {
  std::vector<std::string_view> names;
  for (const PreTokenizerRule& rule : pretokenizer_rules())
    names.insert(names.end(), rule.names.begin(), rule.names.end());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  EXPECT_EQ(pretokenizer_rule("never-heard-of"), nullptr);
  EXPECT_EQ(pretokenizer_rule(""), nullptr);
}

}  // namespace
}  // namespace lode::text
