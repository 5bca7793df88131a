#include "serve/chat_answer.h"

#include <utility>

#include "serve/random_name.h"

namespace lode::serve {

using Kind = text::ReplyDelta::Kind;

std::vector<text::ReplyDelta> ChatAnswer::take(std::string_view text) {
  std::vector<text::ReplyDelta> deltas;
  if (!std::exchange(begun_, true) && !request_->forced_start.empty()) parser_.push(request_->forced_start, deltas);
  parser_.push(text, deltas);
  keep_told(deltas);
  return deltas;
}

std::vector<text::ReplyDelta> ChatAnswer::finish(std::string_view text) {
  std::vector<text::ReplyDelta> deltas = take(text), rest;
  parser_.finish(rest);
  keep_told(rest);
  for (text::ReplyDelta& delta : rest) deltas.push_back(std::move(delta));
  return deltas;
}

void ChatAnswer::keep_told(std::vector<text::ReplyDelta>& deltas) {
  std::erase_if(deltas, [this](const text::ReplyDelta& delta) {
    if (delta.kind == Kind::call) ++seen_;
    const bool of_call = delta.kind == Kind::call || delta.kind == Kind::arguments;
    const bool told = !of_call || seen_ <= 1 || request_->parallel_calls == ParallelCalls::yes;
    if (told && delta.kind == Kind::call) ++calls_;
    return !told;
  });
}

ChatAnswer::End ChatAnswer::end(engine::FinishReason finish, std::string_view stop_string) const {
  if (finish == engine::FinishReason::length) return End::length;
  return calls_ > 0 && !cut_call(stop_string) ? End::calls : End::stop;
}

std::string ChatAnswer::call_id(const text::ReplyDelta& call, std::string_view prefix) const {
  if (!call.id.empty()) return call.id;
  if (request_->format.calls == text::CallFormat::mistral) return random_letters(9);
  return std::string(prefix) + random_letters(24);
}

}  // namespace lode::serve
