// SIGINT and SIGTERM as a question that a program can wait for. Owns a thread while it lives; one at a time in a
// process.
#pragma once

#include <functional>
#include <memory>

namespace lode::serve {

class SignalWatch {
 public:
  // `on_signal` is called on the watch's thread, with 1 for the first signal, 2 for the second, ...
  explicit SignalWatch(std::function<void(int count)> on_signal);
  ~SignalWatch();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lode::serve
