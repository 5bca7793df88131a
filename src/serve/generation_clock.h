// Times one request for text for /metrics: its first token, the pieces after it, its end. Strand of the exchange.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/request.h"
#include "serve/http.h"
#include "serve/metrics.h"

namespace lode::serve {

class GenerationClock {
 public:
  GenerationClock(HttpCounters& counters, Time received, std::size_t choices)
      : counters_(counters), received_(received), last_(choices) {}

  void on_event(std::size_t choice, const engine::Event& event);
  void on_end(int status);
  double first_token_ms() const { return first_token_ms_; }  // -1: there was none.

 private:
  HttpCounters& counters_;
  const Time received_;
  std::vector<Time> last_;  // Of each choice's last piece; zero: none yet.
  double first_token_ms_ = -1;
};

}  // namespace lode::serve
