// The answer's stretches, one after another: start -> (reasoning) -> content <-> calls.
#include "text/chat/reply_parser.h"

#include <nlohmann/json.hpp>

#include "text/chat/reply_state.h"

namespace lode::text {

using chat::find_mark;
using chat::Found;
using chat::kSpace;
using chat::may_begin;
using chat::safe_length;
using chat::trimmed;
using Json = nlohmann::ordered_json;
using Kind = ReplyDelta::Kind;

// A tool's name, and which of its parameters are texts.
void ReplyParser::Impl::add_tool(const Json& tool) {
  const auto member = [](const Json& of, const char* name) -> const Json& {
    static const Json kNone;
    const auto it = of.is_object() ? of.find(name) : of.end();
    return it == of.end() ? kNone : *it;
  };
  const Json& function = member(tool, "function");
  const Json& name = member(function, "name");
  if (!name.is_string()) return;
  auto& texts = text_parameters[name.get<std::string>()];
  const Json& properties = member(member(function, "parameters"), "properties");
  if (!properties.is_object()) return;
  for (const auto& [key, schema] : properties.items()) {
    if (member(schema, "type") == "string") texts.push_back(key);
  }
}

// Content or reasoning: white space waits until text follows, and is dropped where something else does.
void ReplyParser::Impl::put_text(Kind kind, std::string_view text) {
  if (drop_space) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    if (text.empty()) return;
    drop_space = false;
  }
  const bool waits = kind == Kind::reasoning || parse_calls;
  const std::size_t last = waits ? text.find_last_not_of(kSpace) : text.size();
  if (last == std::string_view::npos) {
    space += text;
    return;
  }
  const std::size_t end = std::min(last + 1, text.size());
  put(kind, std::exchange(space, {}));
  put(kind, text.substr(0, end));
  space = text.substr(end);
}

bool ReplyParser::Impl::start() {
  const std::string_view text = rest();
  const std::size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  const std::string_view word = text.substr(begin);
  if (word.empty() && !last) return false;
  if (split && !word.empty() && may_begin(word, format.think_open)) {
    if (word.size() < format.think_open.size()) {
      if (!last) return false;
    } else {
      drop(begin + format.think_open.size());
      enter_reasoning();
      return true;
    }
  }
  if (parse_calls && format.calls == CallFormat::llama && word.starts_with('{')) {
    keep(begin);
    state = State::object;
    call_object = chat::CallObject();
    return true;
  }
  state = State::content;
  return true;
}

bool ReplyParser::Impl::content() {
  if (format.calls == CallFormat::harmony) return harmony_body(Kind::content);
  const std::string_view text = rest();
  if (open_marks.empty()) {
    put_text(Kind::content, text);
    drop(text.size());
    return false;
  }
  const Found found = find_mark(text, open_marks);
  const std::size_t end = found.mark || !last ? found.at : text.size();
  put_text(Kind::content, text.substr(0, end));
  drop(end);
  if (!found.mark) return false;
  drop(found.mark->size());
  enter_calls(*found.mark);
  return true;
}

bool ReplyParser::Impl::reasoning() {
  if (format.calls == CallFormat::harmony) return harmony_body(Kind::reasoning);
  const std::string_view text = rest();
  const std::string& close = format.think_close;
  std::size_t from = 0;
  for (;;) {
    const std::size_t found = text.find(close, from);
    if (found == std::string_view::npos) break;
    const char before = found > 0 ? text[found - 1] : last_byte;
    const std::size_t behind = found + close.size();
    if (before == '`' || before == '"' || before == '\'') {
      if (behind == text.size() && !last) return reason_up_to(found);
      if (behind < text.size() && text[behind] == before) {
        from = behind;
        continue;
      }
    }
    reason_up_to(found);
    drop(close.size());
    enter_content();
    return true;
  }
  const std::string_view tail = text.substr(from);
  const std::size_t safe = last ? text.size() : from + safe_length(tail, {&close, 1});
  return reason_up_to(safe);
}

bool ReplyParser::Impl::reason_up_to(std::size_t end) {
  const std::string_view text = rest().substr(0, end);
  if (!text.empty()) last_byte = text.back();
  put_text(Kind::reasoning, text);
  drop(end);
  return false;
}

// The end: what still waits is what it looks like.
void ReplyParser::Impl::finish() {
  last = true;
  while (step()) {
  }
  if (state == State::object || state == State::named || (state == State::calls && !raw.empty()) ||
      state == State::tagged) {
    if (state == State::tagged && open_call) return;
    if (state == State::object && open_call) return;
    if (!raw.empty() || at < in.size()) {
      keep(in.size() - at);
      give_up();
    }
  }
  if (state == State::raw && format.calls == CallFormat::harmony && open_call) {
    if (!harmony_arguments) put(Kind::arguments, "{}");
    if (!harmony_arguments || harmony_whole) open_call = false;  // Its end mark was the answer's end token.
  }
  if (state == State::content || state == State::reasoning) {
    put(state == State::content ? Kind::content : Kind::reasoning, std::exchange(space, {}));
  }
}

bool ReplyParser::Impl::step() {
  switch (state) {
    case State::start: return start();
    case State::content: return content();
    case State::reasoning: return reasoning();
    case State::calls: return between_calls();
    case State::object: return object();
    case State::named: return named();
    case State::raw: return raw_arguments();
    case State::tagged: return tagged();
    case State::gemma: return gemma();
    case State::harmony: return harmony_header();
  }
  return false;
}

ReplyParser::ReplyParser(const ChatFormat& format, const Options& options)
    : impl_(std::make_unique<Impl>(format, options)) {}
ReplyParser::~ReplyParser() = default;
ReplyParser::ReplyParser(ReplyParser&&) noexcept = default;
ReplyParser& ReplyParser::operator=(ReplyParser&&) noexcept = default;

void ReplyParser::push(std::string_view text, std::vector<ReplyDelta>& out) {
  Impl& p = *impl_;
  p.out = &out;
  p.in.erase(0, std::exchange(p.at, 0));
  p.in += text;
  while (p.step()) {
  }
}

void ReplyParser::finish(std::vector<ReplyDelta>& out) {
  impl_->out = &out;
  impl_->finish();
}

std::size_t ReplyParser::calls() const {
  return impl_->calls;
}

bool ReplyParser::unfinished_call() const {
  return impl_->open_call;
}

}  // namespace lode::text
