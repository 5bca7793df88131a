#include "serve/generation.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "serve/random_name.h"

#include "serve/request_log.h"

namespace lode::serve {
namespace {

double ms_since(Time t) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t).count();
}

}  // namespace

Generation::Generation(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, const Names& names,
                       GenerationRequest& request, std::vector<std::vector<TokenId>> prompts)
    : app_(app),
      engine_(engine),
      exchange_(std::move(exchange)),
      names_(names),
      request_(request),
      prompts_(std::move(prompts)),
      outcomes_(prompts_.size() * static_cast<std::size_t>(request.n)),
      number_(app.next_request_number()),
      id_(std::string(names.id_prefix) + random_hex(24)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      last_sent_(std::chrono::steady_clock::now()),
      clock_(app.counters(), exchange_->received(), outcomes_.size()) {}

void Generation::start(const std::shared_ptr<Generation>& self) {
  self->exchange_->observe(self);
  if (!self->submit_all() || !self->streaming()) return;
  // The headers go at once: a client that waits for them sees that its request is being computed.
  self->exchange_->begin_stream("text/event-stream; charset=utf-8");
  self->on_stream_begun();
}

bool Generation::submit_all() {
  for (std::size_t i = 0; i < outcomes_.size(); ++i) {
    engine::Request request = request_.shared;
    request.prompt = prompt_of(i);
    request.choice = static_cast<std::uint32_t>(i % static_cast<std::size_t>(request_.n));
    // The engine holds no part of us: events for a client that has gone find nobody, and are dropped.
    const std::weak_ptr<Generation> weak = weak_from_this();
    auto id = engine_.submit(std::move(request), [weak, i](engine::Event&& event) {
      const auto self = weak.lock();
      if (!self) return;
      auto shared = std::make_shared<engine::Event>(std::move(event));
      self->exchange_->post([self, i, shared] { self->on_event(i, std::move(*shared)); });
    });
    if (id.ok()) {
      outcomes_[i].id = *id;
      continue;
    }
    ApiError error = from_status(id.status());
    const auto length = static_cast<std::int64_t>(prompt_of(i).size());
    if (error.http_status == 400 && length >= engine_.info().context_max) error.code = "context_length_exceeded";
    for (std::size_t rest = i; rest < outcomes_.size(); ++rest) outcomes_[rest].done = true;  // Never submitted.
    fail(error);
    return false;
  }
  return true;
}

void Generation::on_event(std::size_t index, engine::Event&& event) {
  Outcome& choice = outcomes_[index];
  if (ended_ || choice.done) return;
  clock_.on_event(index, event);
  using Kind = engine::Event::Kind;
  switch (event.kind) {
    case Kind::progress:
      if (streaming()) on_progress(index, event);
      return;
    case Kind::delta: return on_text(index, event);
    case Kind::finished: return on_finished(index, event);
    case Kind::failed:
      choice.done = true;
      choice.timings = event.timings;
      choice.reuse = std::move(event.reuse);
      return fail(from_status(event.error));
  }
}

void Generation::on_finished(std::size_t index, engine::Event& event) {
  Outcome& choice = outcomes_[index];
  choice.done = true;
  choice.finish = event.finish;
  choice.stop_string = std::move(event.stop_string);
  choice.timings = event.timings;
  choice.reuse = std::move(event.reuse);
  if (event.finish == engine::FinishReason::cancelled) {  // Not by us: we would have ended first.
    return fail(from_status({Code::unavailable, "the server is stopping; the request was not finished"}));
  }
  on_last_text(index, event);
  if (++finished_ == outcomes_.size()) all_finished();
}

void Generation::all_finished() {
  if (ended_) return;
  if (!streaming()) {
    exchange_->reply({.body = dump_json(whole_reply())});
    return end(200);
  }
  finish_stream();
  if (ended_) return;  // The last chunk was one too many for a slow client.
  exchange_->end_stream();
  end(200);
}

// The whole request ends: a reply with only some of its choices would be mistaken for success.
void Generation::fail(const ApiError& error) {
  if (ended_) return;
  cancel_rest();
  ApiError sent = error;
  sent.message = valid_utf8(sent.message);
  if (!streaming()) {
    exchange_->reply(error_reply(exchange_->request(), sent));
  } else {
    // Before the first byte this is a real error status; reply() does nothing once the stream has begun, and then the
    // error is an event, and the connection is closed so that nobody waits for more.
    exchange_->reply(error_reply(exchange_->request(), sent));
    exchange_->write(error_event(sent));
    exchange_->abort_stream();
  }
  if (error.http_status >= 500) spdlog::warn("#{} failed: {}", number_, sent.message);
  end(error.http_status);
}

void Generation::on_gone() {
  if (ended_) return;
  cancel_rest();
  end(499);  // nginx's word for a client that closed its request.
}

void Generation::cancel_rest() {
  for (Outcome& choice : outcomes_) {
    if (choice.done || choice.id == 0) continue;
    choice.done = true;
    engine_.cancel(choice.id);
  }
}

void Generation::on_tick(Time now) {
  if (ended_ || !streaming() || now - last_sent_ < app_.options().heartbeat) return;
  last_sent_ = now;
  exchange_->write(heartbeat());
}

void Generation::end(int status) {
  ended_ = true;
  const Usage u = usage();
  const double ms = ms_since(exchange_->received());
  clock_.on_end(status);
  log_request({.number = number_,
               .method = "POST",
               .path = names_.path,
               .status = status,
               .ms = ms,
               .text = RequestRecord::Text{.prompt_tokens = u.prompt_tokens,
                                           .cached_tokens = u.cached_tokens,
                                           .generated_tokens = u.completion_tokens,
                                           .first_token_ms = clock_.first_token_ms()}});
}

std::string Generation::error_event(const ApiError& error) const {
  return fmt::format("data: {}\n\n", dump_json(to_json(error)));
}

void Generation::write(std::string_view bytes) {
  if (ended_) return;
  last_sent_ = std::chrono::steady_clock::now();
  exchange_->write(bytes);
}

void Generation::write_event(std::string_view name, const Json& event) {
  write(fmt::format("event: {}\ndata: {}\n\n", name, dump_json(event)));
}

double Generation::waited_ms() const {
  return ms_since(exchange_->received());
}

// A prompt counts once, whatever its number of choices; what was cached is what its first choice found.
Usage Generation::usage() const {
  Usage u;
  for (std::size_t i = 0; i < outcomes_.size(); ++i) {
    u.completion_tokens += outcomes_[i].timings.predicted_n;
    if (i % static_cast<std::size_t>(request_.n) != 0) continue;
    u.prompt_tokens += static_cast<std::int64_t>(prompt_of(i).size());
    u.cached_tokens += outcomes_[i].reuse.tokens_reused;
  }
  return u;
}

}  // namespace lode::serve
