#include "serve/workers.h"

#include <utility>

namespace lode::serve {

Workers::Workers(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

void Workers::run(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return;
  jobs_.push_back(std::move(job));
  wake_.notify_one();
}

void Workers::stop() {
  std::deque<std::function<void()>> dropped;  // Destroyed without the lock: jobs own what they work on.
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
    wake_.notify_all();
  }
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
  }
}

}  // namespace lode::serve
