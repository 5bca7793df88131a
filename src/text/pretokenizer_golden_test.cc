// Every pre-tokenizer against Hugging Face's `tokenizers` library, which ran the models' own patterns over the texts of
// testdata/pretokenizers.golden.
#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <sstream>

#include "text/pretokenizer.h"
#include "text/test_vocab.h"

namespace lode::text {
namespace {

// \\ \n \r \t \x{HEX}
std::string unescaped(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
      continue;
    }
    const char c = line[++i];
    if (c != 'x') {
      out += c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
      continue;
    }
    std::uint32_t code = 0;
    const std::size_t close = line.find('}', i);
    std::from_chars(line.data() + i + 2, line.data() + close, code, 16);
    test::append_utf8(out, code);
    i = close;
  }
  return out;
}

struct Golden {
  std::vector<std::string> texts;
  struct Rule {
    std::string name;
    std::vector<std::vector<std::size_t>> lengths;  // [text, word] in bytes
  };
  std::vector<Rule> rules;
};

const Golden& golden() {
  static const Golden golden = [] {
    Golden out;
    std::ifstream in(std::string(LODE_SOURCE_DIR) + "/src/text/testdata/pretokenizers.golden");
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("text ")) {
        out.texts.push_back(unescaped(std::string_view(line).substr(5)));
      } else if (line.starts_with("rule ")) {
        out.rules.push_back({line.substr(5), {}});
      } else if (!out.rules.empty()) {
        std::istringstream words(line);
        out.rules.back().lengths.emplace_back(std::istream_iterator<std::size_t>(words),
                                              std::istream_iterator<std::size_t>());
      }
    }
    return out;
  }();
  return golden;
}

std::vector<std::size_t> lengths(const PreTokenizer& pre, std::string_view text) {
  std::vector<std::size_t> ends;
  pre.split(text, ends);
  for (std::size_t i = ends.size(); i-- > 1;) ends[i] -= ends[i - 1];
  return ends;
}

void expect_golden(PreTokenizer::Engine engine) {
  ASSERT_GE(golden().rules.size(), 30u);
  for (const Golden::Rule& rule : golden().rules) {
    std::string warning;
    const auto pre = PreTokenizer::make(rule.name, engine, &warning);
    ASSERT_TRUE(pre.ok()) << pre.status().message();
    ASSERT_EQ(warning, "");
    ASSERT_EQ(rule.lengths.size(), golden().texts.size());
    int wrong = 0;
    for (std::size_t i = 0; i < rule.lengths.size() && wrong < 3; ++i) {
      EXPECT_EQ(lengths(*pre, golden().texts[i]), rule.lengths[i]) << rule.name << ": " << golden().texts[i];
      wrong += lengths(*pre, golden().texts[i]) != rule.lengths[i];
    }
  }
}

TEST(PreTokenizerGolden, B04CutsEqualTheReference) {
  expect_golden(PreTokenizer::Engine::fastest);
}

TEST(PreTokenizerGolden, PatternsCutTheSame) {
  expect_golden(PreTokenizer::Engine::regex);
}

TEST(PreTokenizerGolden, WithoutCompiledPatternsTheCutsAreTheSame) {
  expect_golden(PreTokenizer::Engine::interpreter);
}

TEST(PreTokenizerGolden, EveryRuleIsCovered) {
  for (const PreTokenizerRule& rule : pretokenizer_rules()) {
    bool covered = false;
    for (const Golden::Rule& known : golden().rules) {
      const PreTokenizerRule* other = pretokenizer_rule(known.name);
      covered |= other != nullptr && other->steps.data() == rule.steps.data();
    }
    EXPECT_TRUE(covered) << rule.names[0];
  }
}

}  // namespace
}  // namespace lode::text
