// One client's request for text while it runs: submits its choices to the engine, hands their events to what makes the
// reply, streams or gathers, and cancels what is left when the client goes. What a reply looks like is the subclass's.
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
    std::string_view path, id_prefix, object, chunk_object;  // "/v1/completions", "cmpl-", "text_completion", ...
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
  virtual void on_text(std::size_t index, engine::Event& event) = 0;
  virtual void on_last_text(std::size_t index, engine::Event& event) = 0;
  // One choice of a whole reply, in index order.
  virtual Json choice_json(std::size_t index) = 0;
  // A chunk's choice that says nothing: for progress.
  virtual Json empty_choice(std::size_t index) const = 0;

  Json envelope() const;  // id, object, created, model
  void send(const Json& chunk);
  void send_choice(Json choice);  // In an envelope.
  // Adds what only a stream's last chunk of a choice says: seed, timings, cache.
  void add_account(Json& chunk, std::size_t index) const;
  bool ended() const { return ended_; }
  bool streaming() const { return request_.delivery == Delivery::stream; }
  bool wants_logprobs() const { return request_.shared.top_logprobs >= 0; }
  const engine::Engine& engine() const { return engine_; }
  const std::vector<TokenId>& prompt_of(std::size_t index) const {
    return prompts_[index / static_cast<std::size_t>(request_.n)];
  }
  const Outcome& outcome(std::size_t index) const { return outcomes_[index]; }
  std::size_t choices() const { return outcomes_.size(); }
  // A stop string that matched, for "stop_reason"; null: none.
  Json stop_reason(std::size_t index) const;

 private:
  bool submit_all();
  void on_event(std::size_t index, engine::Event&& event);
  void on_progress(std::size_t index, const engine::Event& event);
  void on_finished(std::size_t index, engine::Event& event);
  void all_finished();
  void fail(const ApiError& error);
  void cancel_rest();
  void end(int status);  // The last act: logs, and lets go of the exchange.
  Json whole_reply();
  Usage usage() const;

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
