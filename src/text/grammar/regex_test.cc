#include "text/grammar/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <gtest/gtest.h>
#include <pcre2.h>

#include <random>

#include "text/grammar/test_grammar.h"

namespace lode::text::grammar::test {
namespace {

// PCRE2's answer to whether the whole text matches.
bool pcre_matches(const std::string& regex, const std::string& text) {
  int code = 0;
  PCRE2_SIZE at = 0;
  const std::string whole = "(?:" + regex + ")";
  pcre2_code* re =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(),
                    PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DOLLAR_ENDONLY, &code, &at, nullptr);
  EXPECT_NE(re, nullptr) << regex;
  pcre2_match_data* match = pcre2_match_data_create_from_pattern(re, nullptr);
  const int rc = pcre2_match(re, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, match, nullptr);
  pcre2_match_data_free(match);
  pcre2_code_free(re);
  return rc >= 0;
}

std::string random_regex(std::mt19937& rng, int depth) {
  static const char* const kAtoms[] = {"a",     "b",   "[ab]", "[^a]", ".",     "é",
                                       "[a-c]", "\\d", "\\.",  "漢",   "[b-é]", "\\x41"};
  if (depth == 0) return kAtoms[rng() % std::size(kAtoms)];
  switch (rng() % 6) {
    case 0: return random_regex(rng, depth - 1) + random_regex(rng, depth - 1);
    case 1: return "(?:" + random_regex(rng, depth - 1) + "|" + random_regex(rng, depth - 1) + ")";
    case 2: return "(" + random_regex(rng, depth - 1) + ")*";
    case 3: return "(?:" + random_regex(rng, depth - 1) + ")?" + random_regex(rng, depth - 1);
    case 4: return "(?:" + random_regex(rng, depth - 1) + "){1,3}";
    default: return "(?:" + random_regex(rng, depth - 1) + ")+" + random_regex(rng, depth - 1);
  }
}

TEST(Regex, AgreesWithPcreOnRandomExpressionsAndTexts) {
  std::mt19937 rng(5);
  static const char* const kPieces[] = {"a", "b", "c", "é", "漢", "1", ".", "A", "z"};
  int matched = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string regex = random_regex(rng, 3);
    const auto masks = masks_of(compile_regex(regex));
    ASSERT_TRUE(masks) << regex;
    for (int k = 0; k < 40; ++k) {
      std::string text;
      for (int n = static_cast<int>(rng() % 7); n > 0; --n) text += kPieces[rng() % std::size(kPieces)];
      const bool want = pcre_matches(regex, text);
      matched += want;
      ASSERT_EQ(accepts_text(masks, text), want) << regex << " on " << text;
    }
  }
  EXPECT_GT(matched, 500);
}

// A repetition that is counted, and one that is written out, are the same language.
TEST(Regex, CountedRepetitionsAreExact) {
  const auto masks = masks_of(compile_regex("(ab|c{0,2}d){3,400}x{300,}y"));
  const auto text = [](int n, int x) {
    std::string out;
    for (int i = 0; i < n; ++i) out += i % 3 == 0 ? "ab" : i % 3 == 1 ? "ccd" : "d";
    return out + std::string(static_cast<std::size_t>(x), 'x') + "y";
  };
  EXPECT_FALSE(accepts_text(masks, text(2, 300)));
  EXPECT_TRUE(accepts_text(masks, text(3, 300)));
  EXPECT_TRUE(accepts_text(masks, text(400, 5000)));
  EXPECT_FALSE(accepts_text(masks, text(401, 300)));
  EXPECT_FALSE(accepts_text(masks, text(5, 299)));
}

TEST(Regex, AnchorsAtTheEdgesAreNoOps) {
  for (const char* regex : {"^ab$", "^(ab)$", "(^ab$)", "^ab|^ab$", "(?:^a)b"}) {
    const auto masks = masks_of(compile_regex(regex));
    EXPECT_TRUE(accepts_text(masks, "ab")) << regex;
    EXPECT_FALSE(accepts_text(masks, "abx")) << regex;
  }
}

TEST(Regex, ErrorsNameLineAndColumn) {
  const std::pair<const char*, const char*> kWrong[] = {{"a(b", "line 1, column 2"},
                                                        {"a)", "line 1, column 2"},
                                                        {"ab\nc[x", "line 2, column 2"},
                                                        {"é*+", "column 3"},
                                                        {"a**", "column 3"},
                                                        {"*a", "column 1"},
                                                        {"a{3,2}", "column 2"},
                                                        {"[z-a]", "column 2"},
                                                        {"\\", "column 1"},
                                                        {"a(?=b)", "look-ahead"},
                                                        {"(?<!a)b", "look-behind"},
                                                        {"(a)\\1", "back-references"},
                                                        {"\\bx", "word boundaries"},
                                                        {"a^b", "^ is only supported"},
                                                        {"a$b", "$ is only supported"},
                                                        {"(a$)+", "$ is only supported"},
                                                        {"\\p{Greek}", "property"},
                                                        {"[\\d-z]x{", nullptr},
                                                        {"\\xZZ", "hexadecimal"},
                                                        {"\\ud800", "surrogate"},
                                                        {"a{2000000}", "at least"},
                                                        {"(?i)a", "kind of group"},
                                                        {"\xff", "UTF-8"}};
  for (const auto& [regex, why] : kWrong) {
    const std::string error = error_of(compile_regex(regex));
    if (why == nullptr) EXPECT_EQ(error, "") << regex;
    else EXPECT_NE(error.find(why), std::string::npos) << regex << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace lode::text::grammar::test
