#include "serve/generation_clock.h"

#include <chrono>

namespace lode::serve {
namespace {

double seconds(Time from, Time to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

void GenerationClock::on_event(std::size_t choice, const engine::Event& event) {
  using Kind = engine::Event::Kind;
  const Time now = std::chrono::steady_clock::now();
  // The last event may carry the only token.
  const bool text = event.kind == Kind::delta || (event.kind == Kind::finished && event.timings.predicted_n > 0);
  if (text) {
    if (first_token_ms_ < 0) {
      first_token_ms_ = 1000 * seconds(received_, now);
      counters_.first_token.observe(first_token_ms_ / 1000);
    }
    if (event.kind == Kind::delta) {
      if (last_[choice] != Time()) counters_.between_tokens.observe(seconds(last_[choice], now));
      last_[choice] = now;
    }
  }
  if (event.kind != Kind::finished && event.kind != Kind::failed) return;
  const engine::Timings& t = event.timings;
  counters_.queue.observe(t.queue_ms / 1000);
  counters_.prompt_seconds.fetch_add(t.prompt_ms / 1000);
  counters_.predicted_seconds.fetch_add(t.predicted_ms / 1000);
  if (t.predicted_n > 1) counters_.per_token.observe(t.predicted_ms / 1000 / static_cast<double>(t.predicted_n - 1));
}

void GenerationClock::on_end(int status) {
  if (status == 200) counters_.whole.observe(seconds(received_, std::chrono::steady_clock::now()));
}

}  // namespace lode::serve
