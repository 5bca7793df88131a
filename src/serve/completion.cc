#include "serve/completion.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <random>

namespace lode::serve {
namespace {

std::string random_id() {
  std::random_device random;
  return fmt::format("cmpl-{:08x}{:08x}{:08x}", random(), random(), random());
}

double ms_since(Time t) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - t).count();
}

}  // namespace

Completion::Completion(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, CompletionRequest request)
    : app_(app),
      engine_(engine),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      choices_(request_.prompts.size() * static_cast<std::size_t>(request_.n)),
      number_(app.next_request_number()),
      id_(random_id()),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      last_sent_(std::chrono::steady_clock::now()) {}

void Completion::start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange,
                       CompletionRequest request) {
  const auto self = std::make_shared<Completion>(app, engine, exchange, std::move(request));
  exchange->observe(self);
  if (!self->submit_all() || !self->streaming()) return;
  // The headers go at once: a client that waits for them sees that its request is being computed.
  exchange->begin_stream("text/event-stream; charset=utf-8");
  if (self->request_.echo == Echo::no) return;
  for (std::size_t i = 0; i < self->choices_.size() && !self->ended_; ++i) {
    self->send(self->chunk(i, self->echo_text(i), engine::FinishReason::none));
  }
}

bool Completion::submit_all() {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    engine::Request request = request_.shared;
    request.prompt = prompt_of(i);
    request.choice = static_cast<std::uint32_t>(i % static_cast<std::size_t>(request_.n));
    // The engine holds no part of us: events for a client that has gone find nobody, and are dropped.
    const std::weak_ptr<Completion> weak = weak_from_this();
    auto id = engine_.submit(std::move(request), [weak, i](engine::Event&& event) {
      const auto self = weak.lock();
      if (!self) return;
      auto shared = std::make_shared<engine::Event>(std::move(event));
      self->exchange_->post([self, i, shared] { self->on_event(i, std::move(*shared)); });
    });
    if (id.ok()) {
      choices_[i].id = *id;
      continue;
    }
    ApiError error = from_status(id.status());
    const auto length = static_cast<std::int64_t>(prompt_of(i).size());
    if (error.http_status == 400 && length >= engine_.info().context_max) error.code = "context_length_exceeded";
    choices_[i].done = true;
    for (std::size_t rest = i + 1; rest < choices_.size(); ++rest) choices_[rest].done = true;  // Never submitted.
    fail(error);
    return false;
  }
  return true;
}

void Completion::on_event(std::size_t index, engine::Event&& event) {
  Choice& choice = choices_[index];
  if (ended_ || choice.done) return;
  using Kind = engine::Event::Kind;
  switch (event.kind) {
    case Kind::progress: return on_progress(index, event);
    case Kind::delta: return on_delta(index, event);
    case Kind::finished: return on_finished(index, event);
    case Kind::failed:
      choice.done = true;
      choice.timings = event.timings;
      choice.reuse = std::move(event.reuse);
      return fail(from_status(event.error));
  }
}

void Completion::on_progress(std::size_t index, const engine::Event& event) {
  if (!streaming() || request_.shared.progress == engine::Request::Progress::no) return;
  Json out = chunk(index, "", engine::FinishReason::none);
  out["prompt_progress"] = progress_json(event, ms_since(exchange_->received()));
  send(out);
}

void Completion::on_delta(std::size_t index, engine::Event& event) {
  Choice& choice = choices_[index];
  if (wants_logprobs()) {
    if (!streaming() && request_.echo == Echo::yes) choice.text += echo_text(index);  // Prompt tokens come first.
    for (const auto& token : event.tokens) choice.logprobs.add(token, engine_.tokenizer());
  }
  if (!streaming()) {
    choice.text += event.text;
  } else if (!event.text.empty() || !choice.logprobs.empty()) {
    send(chunk(index, std::move(event.text), engine::FinishReason::none));
  }
}

void Completion::on_finished(std::size_t index, engine::Event& event) {
  Choice& choice = choices_[index];
  choice.done = true;
  choice.finish = event.finish;
  choice.stop_string = std::move(event.stop_string);
  choice.timings = event.timings;
  choice.reuse = std::move(event.reuse);
  if (event.finish == engine::FinishReason::cancelled) {  // Not by us: we would have ended first.
    return fail(from_status({Code::unavailable, "the server is stopping; the request was not finished"}));
  }
  if (wants_logprobs()) {
    if (!streaming() && request_.echo == Echo::yes) choice.text += echo_text(index);
    for (const auto& token : event.tokens) choice.logprobs.add(token, engine_.tokenizer());
  }
  if (!streaming()) {
    choice.text += event.text;
  } else {
    Json last = chunk(index, std::move(event.text), event.finish);
    if (!choice.stop_string.empty()) last["choices"][0]["stop_reason"] = choice.stop_string;
    last["seed"] = request_.shared.sampling.seed;
    last["timings"] = timings_json(choice.timings);
    last["cache"] = cache_json(choice.reuse);
    send(last);
  }
  if (++finished_ == choices_.size()) all_finished();
}

void Completion::all_finished() {
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
void Completion::fail(const ApiError& error) {
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

void Completion::on_gone() {
  if (ended_) return;
  cancel_rest();
  end(499);  // nginx's word for a client that closed its request.
}

void Completion::cancel_rest() {
  for (Choice& choice : choices_) {
    if (choice.done || choice.id == 0) continue;
    choice.done = true;
    engine_.cancel(choice.id);
  }
}

void Completion::on_tick(Time now) {
  if (ended_ || !streaming() || now - last_sent_ < app_.options().heartbeat) return;
  last_sent_ = now;
  exchange_->write(": keep-alive\n\n");
}

void Completion::end(int status) {
  ended_ = true;
  const Usage u = usage();
  const double ms = ms_since(exchange_->received());
  if (status == 499)
    return spdlog::info("#{} /v1/completions 499 prompt {}: the client left after {:.0f} ms", number_, u.prompt_tokens,
                        ms);
  spdlog::info("#{} /v1/completions {} prompt {} cached {} generated {} {:.0f} ms", number_, status, u.prompt_tokens,
               u.cached_tokens, u.completion_tokens, ms);
}

// ---- JSON

Json Completion::envelope() const {
  Json out;
  out["id"] = id_;
  out["object"] = "text_completion";
  out["created"] = created_;
  out["model"] = engine_.info().model_name;
  return out;
}

Json Completion::chunk(std::size_t index, std::string text, engine::FinishReason finish) {
  Choice& choice = choices_[index];
  Json one;
  one["index"] = index;
  one["text"] = std::move(text);
  one["logprobs"] = choice.logprobs.empty() ? Json(nullptr) : choice.logprobs.take();
  one["finish_reason"] = finish_reason(finish);
  Json out = envelope();
  out["choices"] = Json::array({std::move(one)});
  return out;
}

void Completion::send(const Json& json) {
  last_sent_ = std::chrono::steady_clock::now();
  exchange_->write(fmt::format("data: {}\n\n", dump_json(json)));
}

// The prompt's text, once; its tokens go into the logprobs.
std::string Completion::echo_text(std::size_t index) {
  Choice& choice = choices_[index];
  if (std::exchange(choice.echoed, true)) return {};
  const auto& tokenizer = engine_.tokenizer();
  if (wants_logprobs()) {
    for (const TokenId id : prompt_of(index)) choice.logprobs.add_prompt_token(id, tokenizer);
  }
  return tokenizer.decode(prompt_of(index), text::Tokenizer::Control::hide);
}

Json Completion::whole_reply() {
  Json list = Json::array();
  engine::Timings timings;
  kv::Reuse reuse = choices_.front().reuse;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    merge(timings, choice.timings);
    if (i > 0) merge(reuse, choice.reuse);
    std::string text = request_.echo == Echo::yes ? echo_text(i) + choice.text : choice.text;
    list.push_back(chunk(i, std::move(text), choice.finish)["choices"][0]);
    if (!choice.stop_string.empty()) list.back()["stop_reason"] = choice.stop_string;
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
Usage Completion::usage() const {
  Usage u;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    u.completion_tokens += choices_[i].timings.predicted_n;
    if (i % static_cast<std::size_t>(request_.n) != 0) continue;
    u.prompt_tokens += static_cast<std::int64_t>(prompt_of(i).size());
    u.cached_tokens += choices_[i].reuse.tokens_reused;
  }
  return u;
}

}  // namespace lode::serve
