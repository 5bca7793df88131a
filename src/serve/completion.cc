#include "serve/completion.h"

#include <utility>

namespace lode::serve {

Completion::Completion(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, CompletionRequest request)
    : RequestHolder{std::move(request)},
      ChoiceGeneration(app, engine, std::move(exchange), {"/v1/completions", "cmpl-"},
                       {"text_completion", "text_completion"}, held, held.prompts),
      choices_(choices()) {}

void Completion::start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange,
                       CompletionRequest request) {
  Generation::start(std::make_shared<Completion>(app, engine, std::move(exchange), std::move(request)));
}

void Completion::on_stream_begun() {
  if (held.echo == Echo::no) return;
  for (std::size_t i = 0; i < choices_.size() && !ended(); ++i)
    send_choice(choice_with(i, echo_text(i), engine::FinishReason::none));
}

void Completion::add_logprobs(std::size_t index, const engine::Event& event) {
  if (!wants_logprobs()) return;
  Choice& choice = choices_[index];
  if (!streaming() && held.echo == Echo::yes) choice.text += echo_text(index);  // Prompt tokens come first.
  for (const auto& token : event.tokens) choice.logprobs.add(token, engine().tokenizer());
}

void Completion::on_text(std::size_t index, engine::Event& event) {
  add_logprobs(index, event);
  if (!streaming()) {
    choices_[index].text += event.text;
  } else if (!event.text.empty() || !choices_[index].logprobs.empty()) {
    send_choice(choice_with(index, std::move(event.text), engine::FinishReason::none));
  }
}

void Completion::on_last_text(std::size_t index, engine::Event& event) {
  add_logprobs(index, event);
  if (!streaming()) {
    choices_[index].text += event.text;
    return;
  }
  Json last = envelope();
  last["choices"] = Json::array({choice_with(index, std::move(event.text), event.finish)});
  if (const Json reason = stop_reason(index); !reason.is_null()) last["choices"][0]["stop_reason"] = reason;
  add_account(last, index);
  send(last);
}

Json Completion::empty_choice(std::size_t index) const {
  return {{"index", index}, {"text", ""}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
}

Json Completion::choice_with(std::size_t index, std::string text, engine::FinishReason finish) {
  LegacyLogprobs& logprobs = choices_[index].logprobs;
  Json one;
  one["index"] = index;
  one["text"] = std::move(text);
  one["logprobs"] = logprobs.empty() ? Json(nullptr) : logprobs.take();
  one["finish_reason"] = finish_reason(finish);
  return one;
}

// The prompt's text, once; its tokens go into the logprobs.
std::string Completion::echo_text(std::size_t index) {
  Choice& choice = choices_[index];
  if (std::exchange(choice.echoed, true)) return {};
  const auto& tokenizer = engine().tokenizer();
  if (wants_logprobs()) {
    for (const TokenId id : prompt_of(index)) choice.logprobs.add_prompt_token(id, tokenizer);
  }
  return tokenizer.decode(prompt_of(index), text::Tokenizer::Control::hide);
}

Json Completion::choice_json(std::size_t index) {
  std::string text = held.echo == Echo::yes ? echo_text(index) + choices_[index].text : choices_[index].text;
  return choice_with(index, std::move(text), outcome(index).finish);
}

}  // namespace lode::serve
