#include "platform/clock.h"

#include <cerrno>
#include <ctime>

namespace lode::platform {
namespace {

std::int64_t read_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

class SystemClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return read_ns(CLOCK_MONOTONIC); }
  std::int64_t wall_seconds() const override { return read_ns(CLOCK_REALTIME) / 1'000'000'000; }
  void sleep_ns(std::int64_t ns) override {
    if (ns <= 0) return;
    timespec left{.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
    }
  }
};

}  // namespace

Clock& system_clock() {
  static SystemClock clock;
  return clock;
}

std::tm local_time(std::int64_t wall_seconds) {
  std::tm out{};
  const auto seconds = static_cast<std::time_t>(wall_seconds);
  localtime_r(&seconds, &out);
  return out;
}

}  // namespace lode::platform
