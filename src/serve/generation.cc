#include "serve/generation.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <random>

#include "serve/request_log.h"

namespace lode::serve {
namespace {

std::string random_id(std::string_view prefix) {
  std::random_device random;
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, random(), random(), random());
}

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
      id_(random_id(names.id_prefix)),
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
    case Kind::progress: return on_progress(index, event);
    case Kind::delta: return on_text(index, event);
    case Kind::finished: return on_finished(index, event);
    case Kind::failed:
      choice.done = true;
      choice.timings = event.timings;
      choice.reuse = std::move(event.reuse);
      return fail(from_status(event.error));
  }
}

void Generation::on_progress(std::size_t index, const engine::Event& event) {
  if (!streaming() || request_.shared.progress == engine::Request::Progress::no) return;
  Json out = envelope();
  out["choices"] = Json::array({empty_choice(index)});
  out["prompt_progress"] = progress_json(event, ms_since(exchange_->received()));
  send(out);
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
  if (request_.stream_usage == StreamUsage::yes) {
    Json out = envelope();
    out["choices"] = Json::array();
    out["usage"] = usage_json(usage());
    send(out);
  }
  if (ended_) return;  // The last chunk was one too many for a slow client.
  exchange_->write("data: [DONE]\n\n");
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
    exchange_->reply(to_reply(sent));
  } else {
    // Before the first byte this is a real error status; reply() does nothing once the stream has begun, and then the
    // error is an event, and the connection is closed so that nobody waits for more.
    exchange_->reply(to_reply(sent));
    exchange_->write(fmt::format("data: {}\n\n", dump_json(to_json(sent))));
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
  exchange_->write(": keep-alive\n\n");
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

// ---- JSON

Json Generation::envelope() const {
  Json out;
  out["id"] = id_;
  out["object"] = streaming() ? names_.chunk_object : names_.object;
  out["created"] = created_;
  out["model"] = engine_.info().model_name;
  return out;
}

void Generation::send(const Json& json) {
  if (ended_) return;
  last_sent_ = std::chrono::steady_clock::now();
  exchange_->write(fmt::format("data: {}\n\n", dump_json(json)));
}

void Generation::send_choice(Json choice) {
  Json out = envelope();
  out["choices"] = Json::array({std::move(choice)});
  send(out);
}

void Generation::add_account(Json& chunk, std::size_t index) const {
  chunk["seed"] = request_.shared.sampling.seed;
  chunk["timings"] = timings_json(outcomes_[index].timings);
  chunk["cache"] = cache_json(outcomes_[index].reuse);
}

Json Generation::stop_reason(std::size_t index) const {
  return outcomes_[index].stop_string.empty() ? Json(nullptr) : Json(outcomes_[index].stop_string);
}

Json Generation::whole_reply() {
  Json list = Json::array();
  engine::Timings timings;
  kv::Reuse reuse = outcomes_.front().reuse;
  for (std::size_t i = 0; i < outcomes_.size(); ++i) {
    merge(timings, outcomes_[i].timings);
    if (i > 0) merge(reuse, outcomes_[i].reuse);
    list.push_back(choice_json(i));
    if (!outcomes_[i].stop_string.empty()) list.back()["stop_reason"] = outcomes_[i].stop_string;
  }
  Json out = envelope();
  out["choices"] = std::move(list);
  out["usage"] = usage_json(usage());
  out["seed"] = request_.shared.sampling.seed;
  out["timings"] = timings_json(timings);
  out["cache"] = cache_json(reuse);
  return out;
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
