#include "serve/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lode::serve {

Messages::Messages(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request)
    : RequestHolder{std::move(request)},
      Generation(app, engine, std::move(exchange), {"/v1/messages", "msg_"}, held, {held.prompt.ids}),
      answer_(held) {}

void Messages::start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request) {
  // The first event says what was reused; without progress it would come with the first token only.
  request.shared.progress = engine::Request::Progress::yes;
  Generation::start(std::make_shared<Messages>(app, engine, std::move(exchange), std::move(request)));
}

void Messages::on_progress(std::size_t, const engine::Event& event) {
  begin(event.reuse);
}

void Messages::on_text(std::size_t, engine::Event& event) {
  begin(event.reuse);
  tell(answer_.take(event.text));
}

void Messages::on_last_text(std::size_t, engine::Event& event) {
  begin(event.reuse);
  tell(answer_.finish(event.text));
  close();
}

void Messages::begin(const kv::Reuse& reuse) {
  if (std::exchange(begun_, true) || !streaming()) return;
  Json message = message_json();
  message["content"] = Json::array();
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  message["usage"] = usage_of(reuse, 0);
  write_event("message_start", {{"type", "message_start"}, {"message", std::move(message)}});
}

void Messages::tell(std::vector<text::ReplyDelta> deltas) {
  for (text::ReplyDelta& delta : deltas) {
    const Kind kind = delta.kind == Kind::arguments ? Kind::call : delta.kind;
    if (delta.kind == Kind::call || !open_ || blocks_.back().kind != kind) open(kind, delta);
    if (delta.kind == Kind::call) continue;
    if (!streaming()) {
      blocks_.back().text += delta.text;
      continue;
    }
    Json part;
    switch (kind) {
      case Kind::content: part = {{"type", "text_delta"}, {"text", std::move(delta.text)}}; break;
      case Kind::reasoning: part = {{"type", "thinking_delta"}, {"thinking", std::move(delta.text)}}; break;
      default: part = {{"type", "input_json_delta"}, {"partial_json", std::move(delta.text)}}; break;
    }
    write_event("content_block_delta",
                {{"type", "content_block_delta"}, {"index", blocks_.size() - 1}, {"delta", std::move(part)}});
  }
}

void Messages::open(Kind kind, text::ReplyDelta& delta) {
  close();
  open_ = true;
  blocks_.push_back({.kind = kind});
  if (kind == Kind::call) {
    blocks_.back().id = answer_.call_id(delta, "toolu_");
    blocks_.back().name = std::move(delta.text);
  }
  if (!streaming()) return;
  write_event(
      "content_block_start",
      {{"type", "content_block_start"}, {"index", blocks_.size() - 1}, {"content_block", block_json(blocks_.back())}});
}

void Messages::close() {
  if (!std::exchange(open_, false) || !streaming()) return;
  write_event("content_block_stop", {{"type", "content_block_stop"}, {"index", blocks_.size() - 1}});
}

void Messages::finish_stream() {
  Json delta;
  delta["type"] = "message_delta";
  delta["delta"] = stop_fields();
  delta["usage"] = usage_of(outcome(0).reuse, outcome(0).timings.predicted_n);
  // Lode's own account, as chat's last chunk has it.
  delta["timings"] = timings_json(outcome(0).timings);
  delta["cache"] = cache_json(outcome(0).reuse);
  write_event("message_delta", delta);
  write_event("message_stop", {{"type", "message_stop"}});
}

std::string Messages::error_event(const ApiError& error) const {
  return fmt::format("event: error\ndata: {}\n\n", dump_json(to_anthropic_json(error)));
}

Json Messages::whole_reply() {
  Json out = message_json();
  for (const Block& block : blocks_) out["content"].push_back(block_json(block));
  out.update(stop_fields());
  out["usage"] = usage_of(outcome(0).reuse, outcome(0).timings.predicted_n);
  out["timings"] = timings_json(outcome(0).timings);
  out["cache"] = cache_json(outcome(0).reuse);
  return out;
}

Json Messages::message_json() const {
  Json out;
  out["id"] = id();
  out["type"] = "message";
  out["role"] = "assistant";
  out["model"] = engine().info().model_name;
  out["content"] = Json::array();
  return out;
}

Json Messages::block_json(const Block& block) const {
  switch (block.kind) {
    case Kind::content: return {{"type", "text"}, {"text", block.text}};
    // Nothing is signed here: nobody has to prove that a thought was this server's.
    case Kind::reasoning: return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
    default: break;
  }
  // What the length cut is no JSON; the reason to stop says so.
  Json input = Json::parse(block.text.begin(), block.text.end(), nullptr, false);
  if (!input.is_object()) input = Json::object();
  return {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", std::move(input)}};
}

// Tokens before the last cache_control that had to be computed are counted as "creation", as Anthropic does; the three
// kinds add up to the prompt.
Json Messages::usage_of(const kv::Reuse& reuse, std::int64_t output) const {
  const auto prompt = static_cast<std::int64_t>(held.prompt.ids.size());
  const std::int64_t read = std::min(reuse.tokens_reused, prompt);
  const std::int64_t made = std::max<std::int64_t>(held.prompt.asked_mark - read, 0);
  return {{"input_tokens", prompt - read - made},
          {"cache_creation_input_tokens", made},
          {"cache_read_input_tokens", read},
          {"output_tokens", output}};
}

Json Messages::stop_fields() const {
  const Outcome& is = outcome(0);
  const ChatAnswer::End end = answer_.end(is.finish, is.stop_string);
  std::string_view reason = "end_turn";
  if (end == ChatAnswer::End::length) reason = "max_tokens";
  else if (end == ChatAnswer::End::calls) reason = "tool_use";
  else if (!is.stop_string.empty()) reason = "stop_sequence";
  Json out;
  out["stop_reason"] = reason;
  out["stop_sequence"] = reason == "stop_sequence" ? Json(is.stop_string) : Json(nullptr);
  return out;
}

}  // namespace lode::serve
