#include "engine/sampler.h"

#include <cmath>
#include <limits>
#include <set>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lode::engine
