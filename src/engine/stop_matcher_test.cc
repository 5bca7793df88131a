#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

namespace lode::engine {
namespace {

std::string feed(StopMatcher& m, std::string_view text, std::size_t piece) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += piece) out += m.push(text.substr(i, piece));
  return out;
}

// D02: a stop string that spans tokens is neither missed nor partly sent.
TEST(StopMatcher, D02_StopAcrossPieces) {
  for (std::size_t piece = 1; piece <= 12; ++piece) {
    StopMatcher m({"beta gamma", "DEFGHIJ"});
    EXPECT_EQ(feed(m, "alpha beta gamma delta", piece), "alpha ") << piece;
    EXPECT_EQ(m.matched(), "beta gamma");
    EXPECT_EQ(m.flush(), "");
  }
}

// D03: text held as a possible stop is sent when none came.
TEST(StopMatcher, D03_HeldTextIsFlushed) {
  StopMatcher m({"<|x|>assistant"});
  EXPECT_EQ(feed(m, "sample<|x|>as", 3), "sample");
  EXPECT_EQ(m.matched(), "");
  EXPECT_EQ(m.flush(), "<|x|>as");
}

TEST(StopMatcher, EarliestMatchWinsAndOverlapsAreFound) {
  StopMatcher m({"aab", "b"});
  EXPECT_EQ(feed(m, "aaab", 1), "a");
  EXPECT_EQ(m.matched(), "aab");
}

TEST(StopMatcher, OnlyAPossiblePrefixIsHeld) {
  StopMatcher m({"stop"});
  EXPECT_EQ(m.push("a st"), "a ");
  EXPECT_EQ(m.push("art"), "start");
}

TEST(StopMatcher, D05_EmptyStopsAreIgnored) {
  StopMatcher m({"", ""});
  EXPECT_EQ(m.push("text"), "text");
  EXPECT_EQ(m.matched(), "");
}

}  // namespace
}  // namespace lode::engine
