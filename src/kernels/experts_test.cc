// Routing, and what a mixture of experts does with rows: against double, and bit for bit between instruction sets and
// thread counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace lode::kernels {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::size_t count, unsigned seed, float scale) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats x(count);
  for (float& v : x) v = normal(rng);
  return x;
}

// Runs fn(stream) with every table on one thread and on three, and expects the same bits of all (any NaN for NaN).
template <typename Fn>
Floats expect_same(Fn fn) {
  Floats first;
  for (const int threads : {1, 3}) {
    for (const Table* table : available_tables()) {
      ThreadPool pool(threads);
      Stream stream{table, &pool, nullptr, 0, nullptr};
      const Floats got = fn(stream);
      if (first.empty()) first = got;
      EXPECT_EQ(first.size(), got.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        EXPECT_TRUE(std::memcmp(&first[i], &got[i], 4) == 0 || (std::isnan(first[i]) && std::isnan(got[i])))
            << table->name << ", " << threads << " threads, value " << i << ": " << got[i] << ", not " << first[i];
    }
  }
  return first;
}

struct Routed {
  std::vector<std::int32_t> ids;
  Floats weights;
};
Routed route(const Floats& logits, std::int64_t experts, std::int64_t used, RouteArgs::Norm norm, float scale) {
  const std::int64_t n = static_cast<std::int64_t>(logits.size()) / experts;
  Routed out;
  out.weights = expect_same([&](Stream& s) {
    std::vector<std::int32_t> ids(static_cast<std::size_t>(n * used), -1);
    Floats weights(ids.size());
    s.ops->route(s, {logits.data(), ids.data(), weights.data(), n, experts, used, norm, scale});
    if (out.ids.empty()) out.ids = ids;
    EXPECT_EQ(out.ids, ids);
    return weights;
  });
  return out;
}

TEST(Route, EqualsASortAndASoftmaxInDouble) {
  for (const auto& [experts, used] : {std::pair{1, 1}, {8, 2}, {9, 9}, {64, 4}, {128, 8}, {257, 3}}) {
    const std::int64_t n = 41;
    Floats logits = random_floats(static_cast<std::size_t>(n * experts), 1, 3);
    for (float& v : logits) v = std::round(v * 4) / 4;  // Many ties.
    for (const auto norm : {RouteArgs::Norm::none, RouteArgs::Norm::sum}) {
      const Routed got = route(logits, experts, used, norm, 2.5f);
      for (std::int64_t t = 0; t < n; ++t) {
        const float* row = logits.data() + t * experts;
        std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return row[a] > row[b]; });
        double all = 0, chosen = 0;
        for (std::int64_t e = 0; e < experts; ++e) all += std::exp(static_cast<double>(row[e]));
        for (std::int64_t r = 0; r < used; ++r)
          chosen += std::exp(static_cast<double>(row[order[static_cast<std::size_t>(r)]]));
        for (std::int64_t r = 0; r < used; ++r) {
          const auto at = static_cast<std::size_t>(t * used + r);
          ASSERT_EQ(got.ids[at], order[static_cast<std::size_t>(r)]) << experts << " experts, rank " << r;
          const double p = std::exp(static_cast<double>(row[got.ids[at]]));
          EXPECT_NEAR(got.weights[at], 2.5 * p / (norm == RouteArgs::Norm::sum ? chosen : all), 2e-6);
        }
      }
    }
  }
}

// A broken model still names `used` distinct experts, and its weights say NaN.
TEST(Route, NanAndInfinityKeepIdsInBounds) {
  for (const float odd : {NAN, INFINITY, -INFINITY}) {
    for (const Floats& logits : {Floats(8, odd), Floats{1, odd, 2, odd, 3, 0, 0, 0}}) {
      Routed got = route(logits, 8, 5, RouteArgs::Norm::sum, 1);
      std::sort(got.ids.begin(), got.ids.end());
      EXPECT_EQ(std::unique(got.ids.begin(), got.ids.end()), got.ids.end());
      EXPECT_GE(got.ids.front(), 0);
      EXPECT_LT(got.ids.back(), 8);
      EXPECT_TRUE(!std::isnan(odd) || std::isnan(got.weights[0]));
    }
  }
}

TEST(CombineExperts, SumsInRankOrder) {
  const std::int64_t n = 37, used = 3, width = 45;
  const Floats y = random_floats(static_cast<std::size_t>(n * used * width), 2, 1);
  const Floats weights = random_floats(static_cast<std::size_t>(n * used), 3, 1);
  std::vector<std::int32_t> rows(static_cast<std::size_t>(n * used));
  std::iota(rows.begin(), rows.end(), 0);
  std::shuffle(rows.begin(), rows.end(), std::mt19937(4));
  const Floats got = expect_same([&](Stream& s) {
    Floats out(static_cast<std::size_t>(n * width), NAN);
    s.ops->combine_experts(s, {y.data(), rows.data(), weights.data(), out.data(), n, used, width});
    return out;
  });
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t i = 0; i < width; ++i) {
      float sum = 0;
      for (std::int64_t r = 0; r < used; ++r) {
        const auto at = static_cast<std::size_t>(t * used + r);
        sum = std::fma(weights[at], y[static_cast<std::size_t>(rows[at] * width + i)], sum);
      }
      ASSERT_EQ(got[static_cast<std::size_t>(t * width + i)], sum);
    }
}

TEST(AddGated, AddsTheSigmoidShare) {
  const std::int64_t n = 700, width = 37;
  const Floats x = random_floats(static_cast<std::size_t>(n * width), 5, 1), y = random_floats(x.size(), 6, 1);
  const Floats gate = random_floats(static_cast<std::size_t>(n), 7, 3);
  const Floats got = expect_same([&](Stream& s) {
    Floats out = y;
    s.ops->add_gated(s, out.data(), x.data(), gate.data(), n, width);
    return out;
  });
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], y[i] + x[i] / (1 + std::exp(-static_cast<double>(gate[i / width]))), 1e-6);
}

TEST(SplitPairs, TakesThemApart) {
  const std::int64_t pairs = 1000, width = 20;
  const Floats x = random_floats(static_cast<std::size_t>(2 * pairs * width), 8, 1);
  expect_same([&](Stream& s) {
    Floats out(x.size());
    float* second = out.data() + pairs * width;
    s.ops->split_pairs(s, x.data(), pairs, width, out.data(), second);
    for (std::int64_t p = 0; p < pairs; ++p)
      for (std::int64_t i = 0; i < width; ++i) {
        EXPECT_EQ(out[static_cast<std::size_t>(p * width + i)], x[static_cast<std::size_t>(2 * p * width + i)]);
        EXPECT_EQ(second[p * width + i], x[static_cast<std::size_t>((2 * p + 1) * width + i)]);
      }
    return out;
  });
}

}  // namespace
}  // namespace lode::kernels
