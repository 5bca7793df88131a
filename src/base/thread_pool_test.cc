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
