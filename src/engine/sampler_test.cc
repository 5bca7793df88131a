#include "engine/sampler.h"

#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "base/count_allocations.h"

namespace lode::engine {
namespace {

const std::vector<TokenId> kNone;

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Sampler s(4);
  const float logits[] = {1, 3, 3, 2};
  for (float t : {0.0f, 1e-5f, 1e-40f}) EXPECT_EQ(s.sample(logits, {.temperature = t}, 0, kNone), 1);
}

TEST(Sampler, GreedyFindsTheFirstOfTheLargestAtEveryPlaceAndNeverNaN) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const std::size_t size : {1, 15, 16, 17, 50}) {
    Sampler s(static_cast<std::int64_t>(size));
    for (std::size_t at = 0; at < size; ++at) {
      std::vector<float> logits(size, -2.0f);
      logits[0] = kNaN;
      logits[at] = logits[size - 1] = -1.0f;
      EXPECT_EQ(s.sample(logits, {.temperature = 0}, 0, kNone), static_cast<TokenId>(at)) << size;
    }
    EXPECT_EQ(s.sample(std::vector<float>(size, kNaN), {.temperature = 0}, 0, kNone), 0);
  }
}

TEST(Sampler, DrawsFollowTheDistribution) {
  Sampler s(3);
  const float logits[] = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  int count[3] = {};
  const int n = 20000;
  for (int i = 0; i < n; ++i)
    ++count[s.sample(logits, {.temperature = 1, .seed = static_cast<std::uint64_t>(i)}, 0, kNone)];
  EXPECT_NEAR(count[0], n * 0.5, n * 0.02);
  EXPECT_NEAR(count[1], n * 0.3, n * 0.02);
  EXPECT_NEAR(count[2], n * 0.2, n * 0.02);
}

// D19: top_k 0 and -1 mean off.
TEST(Sampler, D19_TopKZeroIsOff) {
  Sampler s(64);
  const std::vector<float> flat(64, 0.0f);
  for (int k : {0, -1}) {
    std::set<TokenId> seen;
    for (std::uint64_t seed = 0; seed < 50; ++seed)
      seen.insert(s.sample(flat, {.temperature = 1, .top_k = k, .seed = seed}, 0, kNone));
    EXPECT_GT(seen.size(), 20u);
  }
}

TEST(Sampler, FiltersKeepOnlyTheirShare) {
  Sampler s(1000);
  std::vector<float> logits(1000);
  for (int i = 0; i < 1000; ++i) logits[static_cast<std::size_t>(i)] = std::log(static_cast<float>(i == 7 ? 500 : 1));
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    EXPECT_EQ(s.sample(logits, {.temperature = 1, .top_p = 0.3f, .seed = seed}, 0, kNone), 7);
    EXPECT_EQ(s.sample(logits, {.temperature = 1, .min_p = 0.5f, .seed = seed}, 0, kNone), 7);
    const TokenId two = s.sample(logits, {.temperature = 1, .top_k = 2, .seed = seed}, 0, kNone);
    EXPECT_TRUE(two == 7 || two == 0) << two;
  }
}

TEST(Sampler, BiasAndPenalties) {
  Sampler s(4);
  const float logits[] = {1, 3, 2, 0};
  SamplingParams p{.temperature = 0};
  p.logit_bias = {{3, 100.0f}, {99, 5.0f}};
  EXPECT_EQ(s.sample(logits, p, 0, kNone), 3);
  const std::vector<TokenId> history = {1, 1};
  SamplingParams q{.temperature = 0};
  q.frequency_penalty = 0.6f;  // 3 - 2 * 0.6 = 1.8 < 2
  EXPECT_EQ(s.sample(logits, q, 0, history), 2);
}

TEST(Sampler, DrawDependsOnSeedChoiceAndPositionAlone) {
  EXPECT_EQ(uniform_draw(1, 2, 3), uniform_draw(1, 2, 3));
  EXPECT_NE(uniform_draw(1, 2, 3), uniform_draw(1, 2, 4));
  EXPECT_NE(uniform_draw(1, 2, 3), uniform_draw(1, 3, 3));
  EXPECT_NE(uniform_draw(1, 2, 3), uniform_draw(2, 2, 3));
}

// D09: sorted, the first is the greedy token, probabilities sum to at most 1.
TEST(Sampler, D09_LogProbabilities) {
  const float logits[] = {1, 3, 3, 2, -1e30f};
  TokenInfo info;
  info.id = 3;
  Sampler::log_probabilities(logits, 5, info);
  ASSERT_EQ(info.top.size(), 5u);
  EXPECT_EQ(info.top[0].first, 1);
  EXPECT_EQ(info.top[1].first, 2);
  EXPECT_EQ(info.top[2].first, 3);
  EXPECT_EQ(info.top[2].second, info.logprob);
  double sum = 0;
  for (const auto& [id, lp] : info.top) sum += std::exp(lp);
  EXPECT_NEAR(sum, 1, 1e-6);
  EXPECT_NEAR(info.logprob, 2 - std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0)), 1e-6);
}

// ---- samplers beyond OpenAI's

TEST(Sampler, TypicalKeepsWhatSurprisesAsMuchAsExpected) {
  // Shares 0.4, 0.3, 0.2, 0.1: entropy 1.28 nats; surprises 0.92, 1.20, 1.61, 2.30. Nearest first: 0.3, 0.2 (0.33 off),
  // 0.4 (0.36 off), 0.1.
  Sampler s(4);
  const float logits[] = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  const auto seen = [&](float typical) {
    std::set<TokenId> out;
    for (std::uint64_t seed = 0; seed < 300; ++seed)
      out.insert(s.sample(logits, {.temperature = 1, .typical_p = typical, .seed = seed}, 0, kNone));
    return out;
  };
  EXPECT_EQ(seen(0.25f), (std::set<TokenId>{1}));
  EXPECT_EQ(seen(0.45f), (std::set<TokenId>{1, 2}));
  EXPECT_EQ(seen(0.85f), (std::set<TokenId>{0, 1, 2}));
  EXPECT_EQ(seen(1.0f), (std::set<TokenId>{0, 1, 2, 3}));
}

TEST(Sampler, XtcLeavesTheLeastLikelyOfTheLikely) {
  Sampler s(4);
  const float logits[] = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  int top = 0, third = 0;
  const int n = 2000;
  for (std::uint64_t seed = 0; seed < n; ++seed) {
    SamplingParams p{.temperature = 1, .xtc_probability = 1.0f, .xtc_threshold = 0.1f, .seed = seed};
    const TokenId t = s.sample(logits, p, 0, kNone);
    EXPECT_TRUE(t == 2 || t == 3) << t;
    third += t == 2;
    p.xtc_probability = 0.5f;
    top += s.sample(logits, p, 0, kNone) < 2;
    p.xtc_threshold = 0.6f;  // Nothing to exclude.
    p.xtc_probability = 1.0f;
    const TokenId free = s.sample(logits, p, 0, kNone);
    EXPECT_EQ(free, s.sample(logits, {.temperature = 1, .seed = seed}, 0, kNone));
  }
  EXPECT_NEAR(third, n * 0.75, n * 0.05);
  EXPECT_NEAR(top, n * 0.4, n * 0.05);  // Half of the draws are left alone, 0.8 of those are of the first two.
}

// The token that goes on with the repetition loses multiplier * base^(length - allowed); others lose nothing.
TEST(Sampler, DryPenalizesWhatWouldRepeat) {
  const std::vector<TokenId> history = {1, 2, 3, 4, 9, 1, 2, 3};  // 4 would make "1 2 3 4" again: 3 repeated.
  SamplingParams p{.temperature = 0, .dry_multiplier = 1.0f, .dry_base = 2.0f, .dry_allowed_length = 2};
  Sampler s(10, 64);
  std::vector<float> logits(10, 0.0f);
  logits[4] = 5.0f;
  logits[7] = 3.01f;
  EXPECT_EQ(s.sample(logits, p, 0, history), 7);  // 5 - 1 * 2^(3 - 2) = 3
  logits[7] = 2.99f;
  EXPECT_EQ(s.sample(logits, p, 0, history), 4);
  p.dry_allowed_length = 4;
  logits[7] = 4.9f;
  EXPECT_EQ(s.sample(logits, p, 0, history), 4);  // Too short to count.
  p.dry_allowed_length = 2;
  p.dry_breakers = {2};  // "3" alone is behind a breaker: a repetition of 1.
  EXPECT_EQ(s.sample(logits, p, 0, history), 4);
  p.dry_breakers = {};
  p.dry_penalty_last_n = 4;  // Does not see the first time.
  EXPECT_EQ(s.sample(logits, p, 0, history), 4);
  p.dry_multiplier = 0;
  EXPECT_EQ(s.sample(logits, p, 0, history), 4);
}

// Against counting by hand, over random histories of few tokens.
TEST(Sampler, DryFindsTheLongestRepetition) {
  Sampler s(4, 64);
  std::uint64_t x = 7;
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> h;
    for (int i = 0; i < 3 + round % 40; ++i) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      h.push_back(static_cast<TokenId>(x >> 62));
    }
    const auto penalty = [&](TokenId t) {
      int longest = 0;
      for (std::size_t i = 1; i < h.size(); ++i) {  // h[i] is t, and what stands before it ends as h does.
        if (h[i] != t) continue;
        std::size_t n = 0;
        while (n < i && h[i - 1 - n] == h[h.size() - 1 - n]) ++n;
        longest = std::max(longest, static_cast<int>(n));
      }
      return longest >= 1 ? std::pow(1.5, longest - 1) : 0.0;
    };
    const SamplingParams p{.temperature = 0, .dry_multiplier = 1.0f, .dry_base = 1.5f, .dry_allowed_length = 1};
    for (TokenId t = 0; t < 4; ++t) {
      const TokenId other = (t + 1) % 4;
      std::vector<float> logits(4, -1e9f);
      logits[static_cast<std::size_t>(other)] = static_cast<float>(penalty(other));
      for (const float more : {0.01f, -0.01f}) {  // Each a hair over or under what it loses.
        logits[static_cast<std::size_t>(t)] = static_cast<float>(penalty(t)) * (1 + more / 10) + more;
        EXPECT_EQ(s.sample(logits, p, 0, h), more > 0 ? t : other) << round;
      }
    }
  }
}

// A window over a whole context costs as much as it is long, not its square.
TEST(Sampler, PenaltiesOverALongHistoryTakeLinearTime) {
  constexpr int kLong = 100'000;
  Sampler s(1000, kLong);
  std::vector<TokenId> history(kLong, 7);
  for (int i = 0; i < kLong; i += 3) history[static_cast<std::size_t>(i)] = i % 1000;
  const std::vector<float> logits(1000, 1.0f);
  SamplingParams p{.temperature = 0, .dry_multiplier = 1};
  p.repeat_penalty = 1.1f;
  p.penalty_last_n = -1;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) s.sample(logits, p, 0, history);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

// Thresholds that keep everything cost a sort, not one for each token.
TEST(Sampler, ExtremeSettingsOverALargeVocabularyEnd) {
  constexpr int kVocab = 100'000;
  Sampler s(kVocab);
  std::vector<float> logits(kVocab);
  for (int i = 0; i < kVocab; ++i) logits[static_cast<std::size_t>(i)] = static_cast<float>(i % 977) / 100;
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    SamplingParams p{.temperature = 1, .seed = seed};
    p.xtc_probability = 1;
    p.xtc_threshold = 0;
    EXPECT_EQ(s.sample(logits, p, 0, kNone) % 977, 0);  // Only the least likely is left.
    p.xtc_probability = 0;
    p.typical_p = 0.999f;
    s.sample(logits, p, 0, kNone);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));  // One sort a token: minutes.
}

// ---- what is barred

TEST(Sampler, OnlyWhatTheMaskAllowsComes) {
  Sampler s(70);
  std::vector<float> logits(70, 0.0f);
  logits[5] = 10;
  std::uint32_t mask[3] = {};
  Constraint::allow(mask, 33);
  Constraint::allow(mask, 69);
  logits[69] = 1;
  EXPECT_EQ(s.sample(logits, {.temperature = 0}, 0, kNone, {.mask = mask}), 69);
  std::set<TokenId> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SamplingParams p{.temperature = 1, .top_p = 0.99f, .seed = seed};
    p.logit_bias = {{5, 100.0f}};  // A wish does not lift a bar.
    seen.insert(s.sample(logits, p, 0, kNone, {.mask = mask}));
  }
  EXPECT_EQ(seen, (std::set<TokenId>{33, 69}));
  const TokenId barred[] = {69};
  EXPECT_EQ(s.sample(logits, {.temperature = 0}, 0, kNone, {.mask = mask, .tokens = barred}), 33);
  const std::uint32_t none[3] = {};
  for (const float t : {0.0f, 1.0f}) EXPECT_EQ(s.sample(logits, {.temperature = t}, 0, kNone, {.mask = none}), -1);
}

TEST(Sampler, AllocatesNothing) {
  Sampler s(500, 256);
  std::vector<float> logits(500);
  for (int i = 0; i < 500; ++i) logits[static_cast<std::size_t>(i)] = static_cast<float>(i % 17);
  std::vector<TokenId> history;
  for (int i = 0; i < 256; ++i) history.push_back(i % 50);
  const std::vector<std::uint32_t> mask(16, ~0u);
  SamplingParams p{.temperature = 0.9f, .top_p = 0.9f, .top_k = 100, .min_p = 0.01f};
  p.typical_p = 0.9f;
  p.xtc_probability = 1;
  p.dry_multiplier = 1;
  p.repeat_penalty = 1.1f;
  p.penalty_last_n = -1;
  p.logit_bias = {{1, 2.0f}};
  const std::int64_t before = lode::test::allocations;
  for (int i = 0; i < 10; ++i) s.sample(logits, p, 0, history, {.mask = mask});
  EXPECT_EQ(lode::test::allocations, before);
}

}  // namespace
}  // namespace lode::engine
