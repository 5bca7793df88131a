// One client's request for text while it runs: submits its choices to the engine, hands their events to what makes the
// reply, streams or gathers, and cancels what is left when the client goes. What a reply looks like is the subclass's:
// choice_generation.h has OpenAI's lists of choices, messages.h Anthropic's messages, responses.h OpenAI's responses.
// Owned by its exchange; runs on the exchange's strand.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "serve/api_error.h"
#include "serve/app.h"
#include "serve/completion_reply.h"
#include "serve/generation_clock.h"
#include "serve/http.h"
#include "serve/request_fields.h"

namespace lode::serve {

class Generation : public Observer, public std::enable_shared_from_this<Generation> {
 public:
  // Submits every choice; an error of any is the whole reply, with its real status, and nothing has been sent then.
  static void start(const std::shared_ptr<Generation>& generation);

  void on_gone() override;
  void on_tick(Time now) override;

 protected:
  struct Names {
    std::string_view path, id_prefix;  // "/v1/completions", "cmpl-"
  };
  // `request` is owned by the subclass and outlives this part of it.
  Generation(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, const Names& names,
             GenerationRequest& request, std::vector<std::vector<TokenId>> prompts);

  // How a choice ended.
  struct Outcome {
    engine::RequestId id = 0;
    bool done = false;  // Its last event has come.
    std::string stop_string;
    engine::FinishReason finish = engine::FinishReason::none;
    engine::Timings timings;
    kv::Reuse reuse;
  };

  // What the subclass makes of events. A finished choice's outcome is filled in by then.
  virtual void on_stream_begun() {}
  virtual void on_progress(std::size_t index, const engine::Event& event) {
    (void)index;
    (void)event;
  }
  virtual void on_text(std::size_t index, engine::Event& event) = 0;
  virtual void on_last_text(std::size_t index, engine::Event& event) = 0;
  // Once all choices have ended: the whole reply, or what is left to send in a stream.
  virtual Json whole_reply() = 0;
  virtual void finish_stream() = 0;
  // What a stream says of an error after its first byte, and so that nobody gives up.
  virtual std::string error_event(const ApiError& error) const;
  virtual std::string_view heartbeat() const { return ": keep-alive\n\n"; }

  void write(std::string_view bytes);                          // To the stream.
  void write_event(std::string_view name, const Json& event);  // "event: NAME" and its data.
  double waited_ms() const;                                    // Since the request was read.
  bool ended() const { return ended_; }
  bool streaming() const { return request_.delivery == Delivery::stream; }
  bool wants_logprobs() const { return request_.shared.top_logprobs >= 0; }
  const engine::Engine& engine() const { return engine_; }
  const std::vector<TokenId>& prompt_of(std::size_t index) const {
    return prompts_[index / static_cast<std::size_t>(request_.n)];
  }
  const Outcome& outcome(std::size_t index) const { return outcomes_[index]; }
  const std::string& id() const { return id_; }
  std::int64_t created() const { return created_; }
  Usage usage() const;
  std::size_t choices() const { return outcomes_.size(); }
  const App& app() const { return app_; }
  App& app() { return app_; }

 private:
  bool submit_all();
  void on_event(std::size_t index, engine::Event&& event);
  void on_finished(std::size_t index, engine::Event& event);
  void all_finished();
  void fail(const ApiError& error);
  void cancel_rest();
  void end(int status);  // The last act: logs, and lets go of the exchange.

  App& app_;
  engine::Engine& engine_;
  const std::shared_ptr<Exchange> exchange_;
  const Names names_;
  GenerationRequest& request_;
  const std::vector<std::vector<TokenId>> prompts_;
  std::vector<Outcome> outcomes_;
  std::size_t finished_ = 0;
  bool ended_ = false;
  std::uint64_t number_ = 0;  // For the log.
  std::string id_;
  std::int64_t created_ = 0;  // Seconds since the Unix epoch.
  Time last_sent_;
  GenerationClock clock_;
};

}  // namespace lode::serve
