// Background work in turns, on the calling thread, in place of threads: which piece comes next is drawn from a seed, so
// that a run takes the same course each time. Owns the list of workers, not them. One thread. For simulations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lode::platform {

class Turns {
 public:
  // Does one piece of work, by `pick` where it has several to choose from; false: there is none.
  using Work = std::function<bool(std::uint64_t pick)>;

  explicit Turns(std::uint64_t seed = 1) : random_(seed) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  void reseed(std::uint64_t seed) { random_.seed(seed); }
  std::uint64_t add(Work work) {
    workers_.emplace_back(next_, std::move(work));
    return next_++;
  }
  void remove(std::uint64_t worker) {
    std::erase_if(workers_, [worker](const auto& entry) { return entry.first == worker; });
  }
  // One piece of some worker's work; false: nobody has any.
  bool take() {
    if (workers_.empty()) return false;
    const std::size_t first = random_() % workers_.size(), count = workers_.size();
    for (std::size_t i = 0; i < count; ++i)
      if (workers_[(first + i) % count].second(random_())) return true;
    return false;
  }
  // What a thread would wait for is worked for. It must come to be true by the work that there is.
  template <typename Done>
  void until(Done&& done) {
    while (!done())
      if (!take()) {
        LODE_CHECK(done());
        return;
      }
  }

 private:
  std::mt19937_64 random_;
  std::uint64_t next_ = 0;
  std::vector<std::pair<std::uint64_t, Work>> workers_;
};

}  // namespace lode::platform
