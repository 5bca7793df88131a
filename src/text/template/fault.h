// How a template's failure travels inside src/text/template: a Fault is thrown, and caught at the door (template.cc) or
// by a filter that holds an error back, as a generator does. No Fault leaves the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "text/template/template.h"

namespace lode::text::jinja {

struct Fault {
  Code code = Code::invalid_argument;
  std::string message;
  int line = 0;  // 0: the line that is being run.
};

[[noreturn]] inline void fail(std::string message) {
  throw Fault{Code::invalid_argument, std::move(message), 0};
}
[[noreturn]] inline void fail_at(int line, std::string message) {
  throw Fault{Code::invalid_argument, std::move(message), line};
}
[[noreturn]] inline void exhausted(std::string message) {
  throw Fault{Code::resource_exhausted, std::move(message), 0};
}

// What one render has left. Owned by the render, outlives its values.
class Budget {
 public:
  explicit Budget(const RenderLimits& limits) : limits_(limits), steps_left_(limits.steps_max) {}

  void step(std::int64_t count = 1) {
    steps_left_ -= count;
    if (steps_left_ < 0) out_of_steps();
  }
  // Copying `bytes` bytes: keeps string work in proportion to the steps. Both take about as long.
  void work(std::size_t bytes) { step(static_cast<std::int64_t>(bytes / 256)); }
  // Looking at each character of `bytes` bytes.
  void read(std::size_t bytes) { step(static_cast<std::int64_t>(bytes / 32)); }

  // Before an allocation of `bytes`, so that a huge one is refused and not made.
  void take(std::size_t bytes) {
    if (bytes > limits_.memory_bytes_max - live_) out_of_memory();
    live_ += bytes;
  }
  void give(std::size_t bytes) { live_ -= bytes; }
  void require(std::size_t bytes) {
    take(bytes);
    give(bytes);
  }

  void enter() {
    if (depth_ >= limits_.depth_max) too_deep();
    ++depth_;
  }
  void leave() { --depth_; }

  const RenderLimits& limits() const { return limits_; }
  std::size_t live_bytes() const { return live_; }

 private:
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] void out_of_memory() const;
  [[noreturn]] void too_deep() const;

  RenderLimits limits_;
  std::int64_t steps_left_;
  std::size_t live_ = 0;  // bytes
  int depth_ = 0;
};

class DepthGuard {
 public:
  explicit DepthGuard(Budget& budget) : budget_(budget) { budget_.enter(); }
  ~DepthGuard() { budget_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  Budget& budget_;
};

}  // namespace lode::text::jinja
