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
    run_erased(parts, 1, call_of<Fn>, const_cast<void*>(static_cast<const void*>(&fn)));
  }

  // As run, but every thread begins with a share of neighbouring parts and takes from the others' only once its own are
  // done: for parts that read memory in order, where the end of one has already asked for the beginning of the next.
  template <typename Fn>
  void run_near(std::int64_t parts, Fn&& fn) {
    run_erased(parts, size(), call_of<Fn>, const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using Call = void (*)(void* fn, std::int64_t part, int thread);
  template <typename Fn>
  static void call_of(void* fn, std::int64_t part, int thread) {
    (*static_cast<std::remove_reference_t<Fn>*>(fn))(part, thread);
  }
  // Neighbouring parts, claimed in ascending order by whoever comes.
  struct alignas(64) Share {
    std::atomic<std::int64_t> next{0};  // The next unclaimed part.
    std::int64_t end = 0;
  };
  void run_erased(std::int64_t parts, int shares, Call call, void* fn);
  void work(int thread);
  void claim(int thread);

  std::vector<std::thread> workers_;
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // Bumped once a job; workers wait on it.
  std::atomic<bool> stop_{false};
  alignas(64) std::atomic<int> busy_{0};  // Workers that have not finished the current job.
  std::vector<Share> shares_;             // [size()]; the current job uses the first share_count_.
  int share_count_ = 0;
  Call call_ = nullptr;
  void* fn_ = nullptr;
};

}  // namespace lode
