// One client's completion while it runs: submits its choices to the engine, turns events into a reply or a stream, and
// cancels what is left when the client goes. Owned by its exchange; runs on the exchange's strand.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/api_error.h"
#include "serve/app.h"
#include "serve/completion_reply.h"
#include "serve/completion_request.h"
#include "serve/http.h"

namespace lode::serve {

class Completion : public Observer, public std::enable_shared_from_this<Completion> {
 public:
  // Submits every choice; an error of any is the whole reply, with its real status, and nothing has been sent then.
  static void start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, CompletionRequest request);

  Completion(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, CompletionRequest request);
  void on_gone() override;
  void on_tick(Time now) override;

 private:
  struct Choice {
    engine::RequestId id = 0;
    bool done = false;              // Its last event has come.
    bool echoed = false;            // The prompt's text and logprobs are in.
    std::string text, stop_string;  // Text: whole delivery only.
    LegacyLogprobs logprobs;
    engine::FinishReason finish = engine::FinishReason::none;
    engine::Timings timings;
    kv::Reuse reuse;
  };

  bool submit_all();
  void on_event(std::size_t index, engine::Event&& event);
  void on_delta(std::size_t index, engine::Event& event);
  void on_progress(std::size_t index, const engine::Event& event);
  void on_finished(std::size_t index, engine::Event& event);
  void all_finished();
  void fail(const ApiError& error);
  void cancel_rest();
  void end(int status);  // The last act: logs, and lets go of the exchange.

  Json envelope() const;  // id, object, created, model
  void send(const Json& chunk);
  Json chunk(std::size_t index, std::string text, engine::FinishReason finish);
  std::string echo_text(std::size_t index);
  Json whole_reply();
  Usage usage() const;
  bool streaming() const { return request_.delivery == Delivery::stream; }
  bool wants_logprobs() const { return request_.shared.top_logprobs >= 0; }
  const std::vector<TokenId>& prompt_of(std::size_t index) const {
    return request_.prompts[index / static_cast<std::size_t>(request_.n)];
  }

  App& app_;
  engine::Engine& engine_;
  const std::shared_ptr<Exchange> exchange_;
  CompletionRequest request_;
  std::vector<Choice> choices_;
  std::size_t finished_ = 0;
  bool ended_ = false;
  std::uint64_t number_ = 0;  // For the log.
  std::string id_;
  std::int64_t created_ = 0;  // Seconds since the Unix epoch.
  Time last_sent_;
};

}  // namespace lode::serve
