#include "serve/chat_completion.h"

#include <utility>

namespace lode::serve {
namespace {

using Kind = text::ReplyDelta::Kind;

Json bytes_json(std::string_view bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

}  // namespace

void ChatLogprobs::add(const engine::TokenInfo& token, const text::Tokenizer& tokenizer) {
  const auto entry = [&](TokenId id, float logprob) {
    const std::string bytes = tokenizer.token_bytes(id, text::Tokenizer::Control::show);
    Json one;
    one["token"] = token_text(bytes);
    one["logprob"] = json_logprob(logprob);
    one["bytes"] = bytes_json(bytes);
    return one;
  };
  Json one = entry(token.id, token.logprob);
  one["top_logprobs"] = Json::array();
  for (const auto& [id, logprob] : token.top) one["top_logprobs"].push_back(entry(id, logprob));
  content_.push_back(std::move(one));
}

Json ChatLogprobs::take() {
  Json out;
  out["content"] = std::exchange(content_, Json::array());
  out["refusal"] = nullptr;
  return out;
}

ChatCompletion::ChatCompletion(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange,
                               ChatRequest request)
    : RequestHolder{std::move(request)},
      ChoiceGeneration(app, engine, std::move(exchange), {"/v1/chat/completions", "chatcmpl-"},
                       {"chat.completion", "chat.completion.chunk"}, held, {held.prompt.ids}) {
  for (std::size_t i = 0; i < choices(); ++i) choices_.emplace_back(held);
}

void ChatCompletion::start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request) {
  Generation::start(std::make_shared<ChatCompletion>(app, engine, std::move(exchange), std::move(request)));
}

void ChatCompletion::begin(std::size_t index, const engine::Event& event) {
  Choice& choice = choices_[index];
  if (wants_logprobs()) {
    for (const auto& token : event.tokens) choice.logprobs.add(token, engine().tokenizer());
  }
  if (!std::exchange(choice.begun, true) && streaming()) send_delta(index, {{"role", "assistant"}, {"content", ""}});
}

void ChatCompletion::tell(std::size_t index, std::vector<text::ReplyDelta> deltas) {
  for (text::ReplyDelta& delta : deltas) {
    if (streaming()) stream(index, delta);
    else gather(choices_[index], delta);
  }
}

void ChatCompletion::on_text(std::size_t index, engine::Event& event) {
  begin(index, event);
  tell(index, choices_[index].answer.take(event.text));
}

void ChatCompletion::on_last_text(std::size_t index, engine::Event& event) {
  Choice& choice = choices_[index];
  begin(index, event);
  tell(index, choice.answer.finish(event.text));
  if (!streaming()) return;
  Json one = empty_choice(index);
  if (!choice.logprobs.empty()) one["logprobs"] = choice.logprobs.take();
  one["finish_reason"] = finish(index);
  if (const Json reason = stop_reason(index); !reason.is_null()) one["stop_reason"] = reason;
  Json last = envelope();
  last["choices"] = Json::array({std::move(one)});
  add_account(last, index);
  send(last);
}

void ChatCompletion::gather(Choice& choice, text::ReplyDelta& delta) {
  switch (delta.kind) {
    case Kind::content: choice.content += delta.text; break;
    case Kind::reasoning: choice.reasoning += delta.text; break;
    case Kind::call: choice.made.push_back({choice.answer.call_id(delta, "call_"), std::move(delta.text), {}}); break;
    case Kind::arguments: choice.made.back().arguments += delta.text; break;
  }
}

void ChatCompletion::stream(std::size_t index, text::ReplyDelta& delta) {
  Choice& choice = choices_[index];
  switch (delta.kind) {
    case Kind::content: return send_delta(index, {{"content", std::move(delta.text)}});
    case Kind::reasoning: return send_delta(index, {{"reasoning_content", std::move(delta.text)}});
    case Kind::call: {
      Json one;
      one["index"] = choice.told++;
      one["id"] = choice.answer.call_id(delta, "call_");
      one["type"] = "function";
      one["function"] = {{"name", std::move(delta.text)}, {"arguments", ""}};
      return send_delta(index, {{"tool_calls", Json::array({std::move(one)})}});
    }
    case Kind::arguments: {
      Json one;
      one["index"] = choice.told - 1;
      one["function"] = {{"arguments", std::move(delta.text)}};
      return send_delta(index, {{"tool_calls", Json::array({std::move(one)})}});
    }
  }
}

void ChatCompletion::send_delta(std::size_t index, Json delta) {
  ChatLogprobs& logprobs = choices_[index].logprobs;
  Json one = empty_choice(index);
  const bool role = delta.contains("role");
  one["delta"] = std::move(delta);
  if (!role && !logprobs.empty()) one["logprobs"] = logprobs.take();
  send_choice(std::move(one));
}

Json ChatCompletion::empty_choice(std::size_t index) const {
  Json one;
  one["index"] = index;
  one["delta"] = Json::object();
  one["logprobs"] = nullptr;
  one["finish_reason"] = nullptr;
  return one;
}

Json ChatCompletion::finish(std::size_t index) const {
  const Outcome& is = outcome(index);
  const bool called = choices_[index].answer.end(is.finish, is.stop_string) == ChatAnswer::End::calls;
  return called ? Json("tool_calls") : finish_reason(is.finish);
}

Json ChatCompletion::choice_json(std::size_t index) {
  Choice& choice = choices_[index];
  Json message;
  message["role"] = "assistant";
  message["content"] = choice.content.empty() && !choice.made.empty() ? Json(nullptr) : Json(choice.content);
  message["refusal"] = nullptr;
  if (!choice.reasoning.empty()) message["reasoning_content"] = choice.reasoning;
  if (!choice.made.empty()) {
    message["tool_calls"] = Json::array();
    for (const Call& call : choice.made) {
      Json one;
      one["id"] = call.id;
      one["type"] = "function";
      one["function"] = {{"name", call.name}, {"arguments", call.arguments}};
      message["tool_calls"].push_back(std::move(one));
    }
  }
  Json one;
  one["index"] = index;
  one["message"] = std::move(message);
  one["logprobs"] = wants_logprobs() ? choice.logprobs.take() : Json(nullptr);
  one["finish_reason"] = finish(index);
  return one;
}

}  // namespace lode::serve
