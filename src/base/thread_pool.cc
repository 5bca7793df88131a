#include "base/thread_pool.h"

#include "base/status.h"

namespace lode {
namespace {

// About 20 us on a 3 GHz core: longer than the gap between two operations of a step, shorter than anyone would notice
// as idle load.
constexpr int kSpins = 4000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : shares_(static_cast<std::size_t>(threads)) {
  LODE_CHECK(threads >= 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (auto& t : workers_) t.join();
}

void ThreadPool::claim(int thread) {
  for (int i = 0; i < share_count_; ++i) {
    Share& share = shares_[static_cast<std::size_t>((thread + i) % share_count_)];
    for (;;) {
      const std::int64_t part = share.next.fetch_add(1, std::memory_order_relaxed);
      if (part >= share.end) break;
      call_(fn_, part, thread);
    }
  }
}

void ThreadPool::run_erased(std::int64_t parts, int shares, Call call, void* fn) {
  if (parts <= 0) return;
  if (workers_.empty() || parts == 1) {
    for (std::int64_t p = 0; p < parts; ++p) call(fn, p, 0);
    return;
  }
  call_ = call;
  fn_ = fn;
  share_count_ = shares;
  for (int i = 0; i < shares; ++i) {
    shares_[static_cast<std::size_t>(i)].next.store(parts * i / shares, std::memory_order_relaxed);
    shares_[static_cast<std::size_t>(i)].end = parts * (i + 1) / shares;
  }
  busy_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  claim(0);
  for (int spins = 0; busy_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < kSpins) relax();
    else if (const int left = busy_.load(std::memory_order_acquire); left != 0)
      busy_.wait(left, std::memory_order_acquire);
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; epoch_.load(std::memory_order_acquire) == seen; ++spins) {
      if (spins < kSpins) relax();
      else epoch_.wait(seen, std::memory_order_acquire);
    }
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    claim(thread);
    if (busy_.fetch_sub(1, std::memory_order_release) == 1) busy_.notify_one();
  }
}

}  // namespace lode
