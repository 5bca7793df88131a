#include "base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <vector>

#include <gtest/gtest.h>

namespace lode {
namespace {

TEST(ThreadPool, EveryPartRunsOnceWhateverTheThreads) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int round = 0; round < 2000; ++round) {
      std::vector<std::atomic<int>> hits(round % 17);
      pool.run(static_cast<std::int64_t>(hits.size()), [&](std::int64_t part, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        hits[part].fetch_add(1);
      });
      for (auto& h : hits) ASSERT_EQ(h.load(), 1);
    }
  }
}

TEST(ThreadPool, EveryNearPartRunsOnceWhateverTheThreads) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 2000; ++round) {
      const std::int64_t parts = round % 41;
      std::vector<std::atomic<int>> hits(static_cast<std::size_t>(parts));
      pool.run_near(parts, [&](std::int64_t part, int) { hits[static_cast<std::size_t>(part)].fetch_add(1); });
      for (auto& h : hits) ASSERT_EQ(h.load(), 1);
    }
  }
}

// Every thread holds its first part until all threads have one: nobody could take from another's share before.
TEST(ThreadPool, NearPartsOfBusyThreadsAreTheirOwn) {
  constexpr int kThreads = 3;
  constexpr std::int64_t kParts = 30;
  ThreadPool pool(kThreads);
  std::atomic<int> begun{0};
  std::vector<std::int64_t> first(kThreads, -1);
  pool.run_near(kParts, [&](std::int64_t part, int thread) {
    if (first[static_cast<std::size_t>(thread)] >= 0) return;
    first[static_cast<std::size_t>(thread)] = part;
    ++begun;
    while (begun.load() < kThreads) std::this_thread::yield();
  });
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(first[static_cast<std::size_t>(t)], t * kParts / kThreads);
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> sum{0};
    pool.run(100, [&](std::int64_t part, int) { sum += static_cast<int>(part); });
    EXPECT_EQ(sum.load(), 4950);
  }
}

}  // namespace
}  // namespace lode
