// A histogram of seconds for /metrics: counts in fixed buckets, and a sum. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lode::serve {

class Histogram {
 public:
  // Upper bounds, ascending; what is above the last counts only in the sum and in the count of all.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void observe(double seconds) {
    if (!(seconds >= 0)) return;  // No time at all, or not a number.
    const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), seconds) - bounds_.begin();
    counts_[static_cast<std::size_t>(at)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(seconds, std::memory_order_relaxed);
  }

  const std::vector<double>& bounds() const { return bounds_; }
  // Observations in each bucket, and at last those above all bounds. Not cumulative.
  std::vector<std::int64_t> counts() const {
    std::vector<std::int64_t> out;
    for (const auto& count : counts_) out.push_back(count.load(std::memory_order_relaxed));
    return out;
  }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  const std::vector<double> bounds_;
  std::vector<std::atomic<std::int64_t>> counts_;
  std::atomic<double> sum_{0};
};

}  // namespace lode::serve
