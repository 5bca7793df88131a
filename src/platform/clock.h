// Time behind an interface, so that tests can turn it. Any thread.
#pragma once

#include <cstdint>
#include <ctime>

namespace lode::platform {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual std::int64_t now_ns() const = 0;        // Monotonic; for durations and deadlines.
  virtual std::int64_t wall_seconds() const = 0;  // Since the Unix epoch; may jump: never used for order or safety.
  virtual void sleep_ns(std::int64_t ns) = 0;
};
Clock& system_clock();

// The date and time of a wall clock's seconds where this machine stands.
std::tm local_time(std::int64_t wall_seconds);

}  // namespace lode::platform
