// A fixed set of threads that run one parallel loop at a time: spin briefly, then sleep. Owns its threads.
// One caller at a time (the step thread); the caller works too. No allocation after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace lode {

class ThreadPool {
 public:
  // `threads` >= 1, the caller included: ThreadPool(1) starts none and runs everything inline.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls fn(part, thread) for every part in [0, parts), each once, over all threads; returns when all are done.
  // Parts are claimed in ascending order, so put the large ones first. Results must not depend on who ran a part.
  template <typename Fn>
  void run(std::int64_t parts, Fn&& fn) {
    using F = std::remove_reference_t<Fn>;
    run_erased(
        parts, [](void* f, std::int64_t part, int thread) { (*static_cast<F*>(f))(part, thread); },
        const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* fn, std::int64_t part, int thread);
  void run_erased(std::int64_t parts, Call call, void* fn);
  void work(int thread);
  void claim(int thread);

  std::vector<std::thread> workers_;
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // Bumped once a job; workers wait on it.
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<std::int64_t> next_{0};  // The next unclaimed part.
  alignas(64) std::atomic<int> busy_{0};           // Workers that have not finished the current job.
  Call call_ = nullptr;
  void* fn_ = nullptr;
  std::int64_t parts_ = 0;
};

}  // namespace lode
