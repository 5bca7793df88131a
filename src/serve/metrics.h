// What the HTTP side counts, and all counters as Prometheus text. Plain atomics: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "serve/histogram.h"

namespace lode::serve {

struct HttpCounters {
  std::atomic<std::int64_t> connections_open{0}, connections_refused{0};
  std::atomic<std::int64_t> requests{0}, requests_open{0};
  std::atomic<std::int64_t> replies_2xx{0}, replies_4xx{0}, replies_5xx{0};
  std::atomic<std::int64_t> clients_gone{0};  // Left before the answer was finished.
  std::atomic<std::int64_t> clients_slow{0};  // Dropped because they did not read or send fast enough.
  // Of requests for text, in seconds as the server sees them; the step between two buckets is a factor of 2 to 2.5.
  Histogram first_token{{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250}};
  Histogram between_tokens{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}};
  Histogram per_token{{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}};
  Histogram queue{{0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250}};
  Histogram whole{{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500}};
  // What requests that have ended spent on their prompts and on their answers, in seconds.
  std::atomic<double> prompt_seconds{0}, predicted_seconds{0};

  void count_reply(int status);
};

// The page of /metrics. `stats` is nullptr while no model is loaded.
std::string prometheus_text(const HttpCounters& http, const engine::EngineStats* stats);

}  // namespace lode::serve
