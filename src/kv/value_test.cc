// Costs, expected reuse, shelves, and the claim that docs/eviction.md makes for them, on a small instance.
#include "kv/value.h"

#include <gtest/gtest.h>

#include <random>

#include "kv/shelves.h"
#include "kv/trace_sim.h"

namespace lode::kv::test {
namespace {

using Kind = ReuseModel::Kind;

void prefill(ComputeCost& cost, std::int64_t from, std::int64_t tokens, double a, double b) {
  const double positions = static_cast<double>(tokens) * (static_cast<double>(from) + static_cast<double>(tokens) / 2);
  cost.observe(tokens, positions, a * static_cast<double>(tokens) + b * positions);
}

TEST(ComputeCost, FindsBothPartsFromStepsAtSeveralDepths) {
  ComputeCost cost;
  EXPECT_FALSE(cost.measured());
  EXPECT_DOUBLE_EQ(cost.seconds(0, 1000), 1.05);  // The defaults: 1 ms a token, and a tenth more at 1000 of depth.
  for (int i = 0; i < 16; ++i) prefill(cost, 512 * i, 512, 7e-4, 4.7e-7);
  EXPECT_TRUE(cost.measured());
  EXPECT_NEAR(cost.per_token(), 7e-4, 7e-6);
  EXPECT_NEAR(cost.per_depth(), 4.7e-7, 5e-9);
  // 32 tokens at 16,000: seven tenths of a millisecond, and 16,016 * 4.7e-7 s, each.
  EXPECT_NEAR(cost.seconds(16000, 32), 32 * (7e-4 + 16016 * 4.7e-7), 1e-3);
  EXPECT_NEAR(cost.seconds(0, 64), cost.seconds(0, 32) + cost.seconds(32, 32), 1e-12);
}

TEST(ComputeCost, FollowsAChangeAndForgetsAStop) {
  ComputeCost cost;
  for (int i = 0; i < 64; ++i) prefill(cost, 512 * (i % 8), 512, 1e-3, 1e-7);
  cost.observe(512, 512 * 256, 3600);  // The machine slept for an hour.
  EXPECT_LT(cost.per_token(), 4e-3);
  for (int i = 0; i < 400; ++i) prefill(cost, 512 * (i % 8), 512, 2e-4, 2e-8);
  EXPECT_NEAR(cost.seconds(2048, 512), 512 * 2e-4 + 2e-8 * 512 * 2304, 6e-3);
}

TEST(ComputeCost, OneDepthAloneScalesBothParts) {
  ComputeCost cost;
  for (int i = 0; i < 8; ++i) prefill(cost, 0, 512, 4e-4, 0);
  EXPECT_NEAR(cost.seconds(0, 512), 512 * 4e-4, 1e-3);
  EXPECT_GT(cost.per_depth(), 0) << "nothing was seen of depth";
  cost.observe(1, 5000, 9);  // A decode step, and figures that cannot be.
  cost.observe(512, 100, -1);
  cost.observe(512, 100, 0);
  EXPECT_NEAR(cost.seconds(0, 512), 512 * 4e-4, 1e-3);
}

TEST(ReadCost, IsMeasuredByLargeRestoresAndGrowsOld) {
  ReadCost read;
  EXPECT_DOUBLE_EQ(read.seconds(1'000'000'000), 1);
  read.observe(1000, 5, 0);  // A single small read tells the latency.
  EXPECT_FALSE(read.measured(0));
  read.observe(100'000'000, 0.501, 1000);
  EXPECT_TRUE(read.measured(1000));
  EXPECT_NEAR(read.bytes_per_second(), 2e8, 1);
  read.observe(100'000'000, 0.251, 2000);
  EXPECT_NEAR(read.bytes_per_second(), 2.5e8, 1);
  EXPECT_FALSE(read.measured(ReadCost::kFreshNs + 3000));
}

TEST(ReuseModel, LearnsWhatScansAreWorth) {
  ReuseModel reuse;
  EXPECT_NEAR(reuse.rate(Kind::history, 0, 0), 0.5 / 256, 1e-6) << "half of everything comes back, after 256 ticks";
  EXPECT_GT(reuse.rate(Kind::history, 0, 0), reuse.rate(Kind::history, 0, 5000)) << "and fades";
  for (int i = 0; i < 1000; ++i) reuse.left(Kind::history, 0, 1000);
  for (int i = 0; i < 1000; ++i) reuse.reused(Kind::history, 3, 100);
  EXPECT_LT(reuse.rate(Kind::history, 0, 10), 2e-5);
  EXPECT_NEAR(reuse.rate(Kind::history, 3, 10), 1.0 / 101, 1e-3);
  EXPECT_NEAR(reuse.rate(Kind::history, 4, 10), reuse.rate(Kind::history, 3, 10), 1e-12) << "one class";
  // Of another kind nothing is known yet: it is believed to be like the rest.
  EXPECT_LT(reuse.rate(Kind::passed, 0, 10), 1e-4);
}

TEST(ReuseModel, ForgetsYesterday) {
  ReuseModel reuse;
  for (int i = 0; i < 100'000; ++i) reuse.left(Kind::history, 0, 100);
  for (int i = 0; i < 100'000; ++i) reuse.reused(Kind::history, 0, 100);
  EXPECT_GT(reuse.rate(Kind::history, 0, 10), 0.5 / 101);
}

Ranked ranked(double seconds_per_byte, std::uint32_t uses, std::uint64_t tick) {
  Ranked r;
  r.seconds_per_byte = static_cast<float>(seconds_per_byte);
  r.uses = uses;
  r.used_tick = tick;
  return r;
}

TEST(Shelves, TheLeastValuableIsFirst) {
  ReuseModel reuse;
  Shelves shelves;
  EXPECT_EQ(shelves.least(reuse, 0), nullptr);
  Ranked deep = ranked(8e-8, 0, 10), shallow = ranked(1e-8, 0, 10), used = ranked(1e-8, 5, 10),
         old = ranked(1e-8, 0, 2), worthless = ranked(0, 9, 99);
  for (Ranked* r : {&deep, &shallow, &used, &old, &worthless}) shelves.add(*r);
  for (const Ranked* expected : {&worthless, &old, &shallow, &used, &deep}) {
    Ranked* r = shelves.least(reuse, 1000);
    EXPECT_EQ(r, expected);
    shelves.remove(*r);
  }
  EXPECT_EQ(shelves.least(reuse, 1000), nullptr);
}

TEST(Shelves, AShelfIsInTheOrderOfUse) {
  std::mt19937 rng(1);
  ReuseModel reuse;
  Shelves shelves;
  std::vector<Ranked> all(40);
  for (auto& r : all) {
    r = ranked(1e-8, 0, rng() % 1000);
    shelves.add(r);
  }
  shelves.remove(all[7]);
  shelves.add(all[7]);
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    Ranked* r = shelves.least(reuse, 1000);
    ASSERT_GE(r->used_tick, last);
    last = r->used_tick;
    shelves.remove(*r);
  }
}

TEST(Trace, TextAndBack) {
  const sim::Trace trace = sim::mixed_trace(3, 200);
  const auto again = sim::parse_trace(sim::to_text(trace));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(sim::to_text(*again), sim::to_text(trace));
  for (const char* bad : {"1 0 1 2 3\n", "1 -1 0 0 3\n", "x\n", "1 -1 5 9 3\n", "1 -1 0 9 3\n2 0 13 20 1\n"})
    EXPECT_FALSE(sim::parse_trace(bad).ok()) << bad;
}

// docs/eviction.md has the full comparison; bench/kv_sim makes it.
TEST(TraceSim, TheShippedPolicySavesMostAndIsNeverFarFromTheBest) {
  std::array<double, sim::kPolicies.size()> scores{};
  for (const sim::SimModel& model : sim::sim_models())
    for (const sim::NamedTrace& t : sim::kTraces) {
      std::array<double, sim::kPolicies.size()> saved{};
      for (const auto& c : sim::compare(model, t.make(21, 400), {0.05}))
        for (std::size_t p = 0; p < scores.size(); ++p) {
          saved[p] += c.saved[p];
          scores[p] += c.saved[p] / c.unbounded;
        }
      const double best = *std::max_element(saved.begin(), saved.end());
      EXPECT_GE(saved.back(), 0.97 * best) << model.name << " " << t.name;
    }
  for (std::size_t p = 0; p + 1 < scores.size(); ++p) EXPECT_GT(scores.back(), scores[p]) << sim::kPolicies[p].second;
}

}  // namespace
}  // namespace lode::kv::test
