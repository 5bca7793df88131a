#include "serve/responses.h"

#include <fmt/format.h>

#include <utility>

#include "serve/random_name.h"

namespace lode::serve {

Responses::Responses(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ResponsesRequest request)
    : RequestHolder{std::move(request)},
      Generation(app, engine, std::move(exchange), {"/v1/responses", "resp_"}, held.chat, {held.chat.prompt.ids}),
      answer_(held.chat) {}

void Responses::start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ResponsesRequest request) {
  Generation::start(std::make_shared<Responses>(app, engine, std::move(exchange), std::move(request)));
}

std::string_view Responses::word(State state) {
  switch (state) {
    case State::in_progress: return "in_progress";
    case State::completed: return "completed";
    case State::incomplete: break;
  }
  return "incomplete";
}

void Responses::send(std::string_view type, Json fields) {
  Json event;
  event["type"] = type;
  event["sequence_number"] = next_number_++;
  event.update(fields);
  write_event(type, event);
}

void Responses::on_stream_begun() {
  send("response.created", {{"response", response_json(State::in_progress)}});
  send("response.in_progress", {{"response", response_json(State::in_progress)}});
}

void Responses::on_text(std::size_t, engine::Event& event) {
  tell(answer_.take(event.text));
}

void Responses::on_last_text(std::size_t, engine::Event& event) {
  tell(answer_.finish(event.text));
  close(end_state());
}

Json Responses::place() const {
  return {{"item_id", items_.back().id}, {"output_index", items_.size() - 1}};
}

void Responses::tell(std::vector<text::ReplyDelta> deltas) {
  for (text::ReplyDelta& delta : deltas) {
    const Kind kind = delta.kind == Kind::arguments ? Kind::call : delta.kind;
    if (delta.kind == Kind::call || !open_ || items_.back().kind != kind) open(kind, delta);
    if (delta.kind == Kind::call) continue;
    items_.back().text += delta.text;
    if (!streaming()) continue;
    Json event = place();
    if (kind != Kind::call) event["content_index"] = 0;
    event["delta"] = std::move(delta.text);
    if (kind == Kind::content) event["logprobs"] = Json::array();
    send(kind == Kind::content     ? "response.output_text.delta"
         : kind == Kind::reasoning ? "response.reasoning_text.delta"
                                   : "response.function_call_arguments.delta",
         std::move(event));
  }
}

void Responses::open(Kind kind, text::ReplyDelta& delta) {
  close(State::completed);
  open_ = true;
  const std::string_view prefix = kind == Kind::content ? "msg_" : kind == Kind::reasoning ? "rs_" : "fc_";
  items_.push_back({.kind = kind, .id = std::string(prefix) + random_hex(24)});
  Item& item = items_.back();
  if (kind == Kind::call) {
    item.call_id = answer_.call_id(delta, "call_");
    item.name = std::move(delta.text);
  }
  if (!streaming()) return;
  Json begun = item_json(item, State::in_progress);
  if (kind != Kind::call) begun["content"] = Json::array();
  send("response.output_item.added", {{"output_index", items_.size() - 1}, {"item", std::move(begun)}});
  if (kind == Kind::call) return;
  Json part = place();
  part["content_index"] = 0;
  part["part"] = part_json(item, "");
  send("response.content_part.added", std::move(part));
}

void Responses::close(State state) {
  if (!std::exchange(open_, false) || !streaming()) return;
  const Item& item = items_.back();
  Json done = place();
  if (item.kind == Kind::call) {
    done["name"] = item.name;
    done["arguments"] = item.text;
    send("response.function_call_arguments.done", std::move(done));
  } else {
    done["content_index"] = 0;
    Json part = done;
    done["text"] = item.text;
    if (item.kind == Kind::content) done["logprobs"] = Json::array();
    send(item.kind == Kind::content ? "response.output_text.done" : "response.reasoning_text.done", std::move(done));
    part["part"] = part_json(item, item.text);
    send("response.content_part.done", std::move(part));
  }
  send("response.output_item.done", {{"output_index", items_.size() - 1}, {"item", item_json(item, state)}});
}

Json Responses::part_json(const Item& item, std::string_view text) {
  if (item.kind == Kind::reasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

Json Responses::item_json(const Item& item, State state) {
  Json out;
  out["id"] = item.id;
  switch (item.kind) {
    case Kind::content:
      out["type"] = "message";
      out["status"] = word(state);
      out["role"] = "assistant";
      out["content"] = Json::array({part_json(item, item.text)});
      break;
    case Kind::reasoning:
      out["type"] = "reasoning";
      out["status"] = word(state);
      out["summary"] = Json::array();
      out["content"] = Json::array({part_json(item, item.text)});
      break;
    default:
      out["type"] = "function_call";
      out["status"] = word(state);
      out["call_id"] = item.call_id;
      out["name"] = item.name;
      out["arguments"] = item.text;
      break;
  }
  return out;
}

// Cut by the length, or, in the midst of a call, by a stop string.
Responses::State Responses::end_state() const {
  const Outcome& is = outcome(0);
  if (answer_.end(is.finish, is.stop_string) == ChatAnswer::End::length) return State::incomplete;
  return answer_.cut_call(is.stop_string) ? State::incomplete : State::completed;
}

void Responses::finish_stream() {
  const State state = end_state();
  send(state == State::completed ? "response.completed" : "response.incomplete", {{"response", response_json(state)}});
}

Json Responses::whole_reply() {
  return response_json(end_state());
}

std::string Responses::error_event(const ApiError& error) const {
  Json event;
  event["type"] = "error";
  event["sequence_number"] = next_number_;
  event.update(to_json(error)["error"], true);
  event["type"] = "error";  // Not the error's own type.
  return fmt::format("event: error\ndata: {}\n\n", dump_json(event));
}

Json Responses::response_json(State state) const {
  const bool ended = state != State::in_progress;
  Json out;
  out["id"] = id();
  out["object"] = "response";
  out["created_at"] = created();
  out["status"] = word(state);
  out["background"] = false;
  out["error"] = nullptr;
  out["incomplete_details"] = nullptr;
  if (state == State::incomplete) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
  out["model"] = engine().info().model_name;
  out["output"] = Json::array();
  for (std::size_t i = 0; ended && i < items_.size(); ++i)
    out["output"].push_back(item_json(items_[i], i + 1 == items_.size() ? state : State::completed));
  out.update(held.echo);
  out["usage"] = ended ? usage_json_of() : Json(nullptr);
  if (!ended) return out;
  // Lode's own account, as chat's last chunk has it.
  out["seed"] = held.chat.shared.sampling.seed;
  out["timings"] = timings_json(outcome(0).timings);
  out["cache"] = cache_json(outcome(0).reuse);
  return out;
}

Json Responses::usage_json_of() const {
  const Usage u = usage();
  std::size_t thoughts = 0;
  for (const Item& item : items_) {
    if (item.kind == Kind::reasoning) thoughts += engine().tokenizer().encode(item.text, {}).size();
  }
  Json out;
  out["input_tokens"] = u.prompt_tokens;
  out["input_tokens_details"] = {{"cached_tokens", u.cached_tokens}, {"cache_write_tokens", 0}};
  out["output_tokens"] = u.completion_tokens;
  out["output_tokens_details"] = {{"reasoning_tokens", thoughts}};
  out["total_tokens"] = u.prompt_tokens + u.completion_tokens;
  return out;
}

}  // namespace lode::serve
