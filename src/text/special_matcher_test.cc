// The one-pass matcher against the plain rule: each token in order of length cuts what is left of the text.
#include "text/special_matcher.h"

#include <gtest/gtest.h>

#include <random>

namespace lode::text {
namespace {

using Fragment = SpecialMatcher::Fragment;

// The rule itself, on a list of fragments.
std::vector<Fragment> split_plainly(std::string_view text, std::vector<Vocab::Special> specials) {
  std::stable_sort(specials.begin(), specials.end(),
                   [](const auto& a, const auto& b) { return a.text.size() > b.text.size(); });
  std::vector<Fragment> now{{0, text.size(), -1}};
  for (const Vocab::Special& s : specials) {
    std::vector<Fragment> next;
    for (Fragment f : now) {
      while (f.id < 0 && f.end > f.begin) {
        const std::size_t at = text.substr(0, f.end).find(s.text, f.begin);
        if (at == std::string_view::npos) break;
        std::size_t end = at + s.text.size();
        std::size_t begin = at;
        while (s.strips_left && begin > f.begin && std::isspace(static_cast<unsigned char>(text[begin - 1]))) --begin;
        while (s.strips_right && end < f.end && std::isspace(static_cast<unsigned char>(text[end]))) ++end;
        if (begin > f.begin) next.push_back({f.begin, begin, -1});
        next.push_back({begin, end, s.id});
        f.begin = end;
      }
      if (f.end > f.begin) next.push_back(f);
    }
    now = next;
  }
  return now;
}

void expect_equal(const std::vector<Vocab::Special>& specials, std::string_view text) {
  std::vector<Fragment> got;
  SpecialMatcher(specials).split(text, got);
  const auto want = text.empty() ? std::vector<Fragment>() : split_plainly(text, specials);
  ASSERT_EQ(got.size(), want.size()) << text;
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].begin, want[i].begin) << text;
    ASSERT_EQ(got[i].end, want[i].end) << text;
    ASSERT_EQ(got[i].id, want[i].id) << text;
  }
}

TEST(SpecialMatcher, EqualsTheRuleOnRandomTexts) {
  std::mt19937 rng(5);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Vocab::Special> specials;
    const bool strips = round % 3 == 0;
    const std::string_view letters = round % 2 ? "ab \n" : "a<b>\n";
    const auto random_text = [&](std::size_t size) {
      std::string out;
      while (out.size() < size) out += letters[rng() % letters.size()];
      return out;
    };
    for (TokenId id = 0; id < 6; ++id) {
      specials.push_back({id, random_text(1 + rng() % 4), strips && rng() % 2 == 0, strips && rng() % 2 == 0});
    }
    for (int i = 1; i < 8; i += 1 + round % 3) specials.push_back({10 + i, std::string(i, '\n'), false});
    expect_equal(specials, random_text(rng() % 40));
  }
}

TEST(SpecialMatcher, NoTokensNoText) {
  expect_equal({}, "abc");
  expect_equal({}, "");
  expect_equal({{1, "a", false}}, "");
}

TEST(SpecialMatcher, RunsCostNoMemoryPerMatch) {
  std::vector<Vocab::Special> specials;
  for (int i = 2; i <= 31; ++i) specials.push_back({i, std::string(i, ' '), false});
  std::vector<Fragment> got;
  SpecialMatcher(specials).split(std::string(3'100'001, ' '), got);
  ASSERT_EQ(got.size(), 100'001u);
  EXPECT_EQ(got[0].id, 31);
  EXPECT_EQ(got.back().id, -1);  // One space is no token here.
}

}  // namespace
}  // namespace lode::text
