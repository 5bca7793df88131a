// For tests of the engine: a request's events in one place, prompts of known ids, greedy requests, and what "the same
// answer" means.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace lode::engine::test {

// Collects a request's events; wait() returns after the last one.
struct Collector {
  std::mutex mutex;
  std::condition_variable ready;
  std::string text;
  std::vector<TokenInfo> tokens;
  std::vector<Event> progress;
  bool over = false;
  Event last;

  EventSink sink() {
    return [this](Event&& e) {
      const std::lock_guard lock(mutex);
      ASSERT_FALSE(over) << "an event after the last one";
      text += e.text;
      tokens.insert(tokens.end(), e.tokens.begin(), e.tokens.end());
      if (e.kind == Event::Kind::progress) progress.push_back(e);
      if (e.kind == Event::Kind::finished || e.kind == Event::Kind::failed) {
        last = std::move(e);
        over = true;
      }
      ready.notify_all();
    };
  }
  void wait() {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(ready.wait_for(lock, std::chrono::seconds(60), [&] { return over; })) << "no last event in 60 s";
  }
};

// `n` ids that depend on `seed` from position `from` on.
inline std::vector<TokenId> prompt(int n, int seed = 0, int from = 0) {
  std::vector<TokenId> ids;
  for (int i = 0; i < n; ++i) ids.push_back(5 + (i * 37 + (i >= from ? seed * 11 : 0)) % 120);
  return ids;
}
inline Request request(std::vector<TokenId> ids, int max_tokens = 24) {
  Request r;
  r.prompt = std::move(ids);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  r.top_logprobs = 5;
  r.end_tokens = Request::EndTokens::ignore;
  return r;
}
inline void run(Engine& engine, Request r, Collector& out) {
  ASSERT_TRUE(engine.submit(std::move(r), out.sink()).ok());
  out.wait();
}
inline void expect_same(const Collector& a, const Collector& b) {
  EXPECT_EQ(a.text, b.text);
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (std::size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].id, b.tokens[i].id);
    EXPECT_EQ(a.tokens[i].logprob, b.tokens[i].logprob);
    EXPECT_EQ(a.tokens[i].top, b.tokens[i].top);
  }
}

}  // namespace lode::engine::test
