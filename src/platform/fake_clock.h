// A clock that tests turn by hand. Any thread.
#pragma once

#include <atomic>

#include "platform/clock.h"

namespace lode::platform {

class FakeClock final : public Clock {
 public:
  std::int64_t now_ns() const override { return now_ns_.load(); }
  std::int64_t wall_seconds() const override {
    return wall_start_seconds + now_ns_.load() / 1'000'000'000 + wall_jump_seconds_.load();
  }
  void sleep_ns(std::int64_t ns) override { advance_ns(ns); }  // Returns at once: sleeping is what moves it.

  void advance_ns(std::int64_t ns) { now_ns_ += ns; }
  void advance_seconds(std::int64_t seconds) { now_ns_ += seconds * 1'000'000'000; }
  // Somebody sets the wall clock, forth or back.
  void jump_wall_seconds(std::int64_t seconds) { wall_jump_seconds_ += seconds; }

 private:
  static constexpr std::int64_t wall_start_seconds = 1'800'000'000;  // Some morning in 2027.
  std::atomic<std::int64_t> now_ns_{0}, wall_jump_seconds_{0};
};

}  // namespace lode::platform
