// Threads for work that takes too long for the io threads: a large body's parsing and tokenizing. Owns the threads and
// the queue. run() may be called from any thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lode::serve {

class Workers {
 public:
  explicit Workers(int threads);
  ~Workers() { stop(); }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // In order of arrival, as soon as a thread is free. After stop(): dropped.
  void run(std::function<void()> job);
  // Drops what has not begun and waits for what has.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lode::serve
