// What the HTTP side counts, and all counters as Prometheus text. Plain atomics: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace lode::serve {

struct HttpCounters {
  std::atomic<std::int64_t> connections_open{0}, connections_refused{0};
  std::atomic<std::int64_t> requests{0}, requests_open{0};
  std::atomic<std::int64_t> replies_2xx{0}, replies_4xx{0}, replies_5xx{0};
  std::atomic<std::int64_t> clients_gone{0};  // Left before the answer was finished.
  std::atomic<std::int64_t> clients_slow{0};  // Dropped because they did not read or send fast enough.

  void count_reply(int status);
};

// The page of /metrics. `stats` is nullptr while no model is loaded.
std::string prometheus_text(const HttpCounters& http, const engine::EngineStats* stats);

}  // namespace lode::serve
