#include "engine/slots.h"

#include <gtest/gtest.h>

#include <numeric>

namespace lode::engine {
namespace {

using Tokens = std::vector<TokenId>;

Tokens run(TokenId from, std::size_t count) {
  Tokens t(count);
  std::iota(t.begin(), t.end(), from);
  return t;
}

TEST(Slots, TheOneAskedForElseTheOneAlikeElseTheLongestUnused) {
  Slots slots(3);
  const Tokens a = run(0, 100), b = run(1000, 100);
  EXPECT_EQ(slots.take(2, a, ""), 2) << "asked for";
  EXPECT_EQ(slots.take(2, b, ""), 0) << "that is busy";
  EXPECT_TRUE(slots.all()[2].busy);
  slots.give(2, a, "", 10);
  slots.give(0, b, "", 20);
  EXPECT_EQ(slots.take(99, a, ""), 2) << "no such slot: any; this one begins alike";
  slots.give(2, a, "", 30);
  EXPECT_EQ(slots.take(-1, run(5000, 50), ""), 1) << "never used";
  slots.give(1, run(5000, 50), "", 40);
  EXPECT_EQ(slots.take(-1, run(9000, 50), ""), 0) << "used longest ago";
}

TEST(Slots, OthersSlotsAreNotAlike) {
  Slots slots(2);
  const Tokens a = run(0, 100);
  slots.give(slots.take(0, a, "x"), a, "x", 10);
  EXPECT_EQ(slots.take(-1, a, "y"), 1);
  EXPECT_EQ(slots.all()[0].salt, "x");
  EXPECT_EQ(slots.all()[0].tokens, a);
}

TEST(Slots, ALittleInCommonIsNotAlike) {
  Slots slots(2);
  const Tokens a = run(0, 100);
  Tokens b = run(0, 40);
  for (TokenId id = 0; id < 60; ++id) b.push_back(7000 + id);
  slots.give(slots.take(0, a, ""), a, "", 10);
  EXPECT_EQ(slots.take(-1, b, ""), 1) << "40 of 100 tokens";
}

}  // namespace
}  // namespace lode::engine
