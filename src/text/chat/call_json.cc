#include "text/chat/call_json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace lode::text::chat {

using Json = nlohmann::ordered_json;

bool is_json_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

std::string json_quoted(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_json(std::string_view text) {
  return Json::accept(text.begin(), text.end());
}

bool ValueEnd::take(char c) {
  if (in_string_) {
    if (escaped_) escaped_ = false;
    else if (c == '\\') escaped_ = true;
    else if (c == '"') in_string_ = false;
    return false;
  }
  if (c == '"') in_string_ = true;
  else if (c == '{' || c == '[') ++depth_;
  else if (c == '}' || c == ']') return --depth_ == 0;
  return false;
}

CallObject::Next CallObject::take_value_start(char c) {
  value_.assign(1, c);
  escaped_ = false;
  if (c == '"') {
    state_ = State::in_text;
  } else if (c == '{' || c == '[') {
    state_ = State::in_container;
    end_ = ValueEnd();
    end_.take(c);
    if ((key_ == "arguments" || key_ == "parameters") && c == '{' && !arguments_begun_) {
      arguments_begun_ = true;
      arguments_ = "{";
    }
  } else if (c == ',' || c == '}' || c == ']' || c == ':') {
    return Next::bad;
  } else {
    state_ = State::in_scalar;
  }
  return Next::more;
}

// A value that is not an object of arguments has ended.
CallObject::Next CallObject::end_value() {
  state_ = State::comma;
  const Json value = Json::parse(value_, nullptr, false);
  const bool arguments = key_ == "arguments" || key_ == "parameters";
  if (key_ == "name") {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) return Next::bad;
    if (!name_) name_ = value.get<std::string>();
  } else if (key_ == "id" && value.is_string()) {
    id_ = value.get<std::string>();
  } else if (arguments && !arguments_begun_ && value.is_string()) {  // An object written as a string.
    arguments_begun_ = true;
    arguments_ = value.get<std::string>();
  } else if (arguments && !value.is_null()) {
    return Next::bad;
  }
  return Next::more;
}

CallObject::Next CallObject::take(char c) {
  const bool space = is_json_space(c);
  switch (state_) {
    case State::open: state_ = State::key; return c == '{' ? Next::more : Next::bad;
    case State::key:
      if (space) return Next::more;
      if (c != '"') return Next::bad;
      key_.clear();
      escaped_ = false;
      state_ = State::in_key;
      return Next::more;
    case State::in_key:
      if (!escaped_ && c == '"') {
        state_ = State::colon;
        return Next::more;
      }
      escaped_ = !escaped_ && c == '\\';
      key_ += c;
      return Next::more;
    case State::colon:
      if (c == ':') state_ = State::value;
      return space || c == ':' ? Next::more : Next::bad;
    case State::value: return space ? Next::more : take_value_start(c);
    case State::in_text:
      value_ += c;
      if (!escaped_ && c == '"') return end_value();
      escaped_ = !escaped_ && c == '\\';
      return Next::more;
    case State::in_container: {
      const bool ours = arguments_begun_ && (key_ == "arguments" || key_ == "parameters");
      if (ours) arguments_ += c;
      if (end_.take(c)) state_ = State::comma;
      return Next::more;
    }
    case State::in_scalar:
      if (!space && c != ',' && c != '}') {
        value_ += c;
        return Next::more;
      }
      if (end_value() == Next::bad) return Next::bad;
      [[fallthrough]];
    case State::comma:
      if (space) return Next::more;
      if (c == ',') {
        state_ = State::key;
        return Next::more;
      }
      if (c != '}') return Next::bad;
      state_ = State::closed;
      return name_ ? Next::done : Next::bad;
    case State::closed: break;
  }
  return Next::bad;
}

std::string CallObject::take_arguments() {
  return std::exchange(arguments_, {});
}

namespace {

constexpr std::string_view kQuote = "<|\"|>";

// Reads Gemma's notation from left to right. Nesting is a list, not recursion.
class GemmaReader {
 public:
  explicit GemmaReader(std::string_view text) : rest_(text) {}

  std::optional<std::string> read() {
    while (!rest_.empty()) {
      if (!step()) return std::nullopt;
      if (open_.empty()) return rest_.empty() ? std::optional(std::move(out_)) : std::nullopt;
    }
    return std::nullopt;
  }

 private:
  bool step() {
    const char c = rest_[0];
    if (is_json_space(c)) {
      rest_.remove_prefix(1);
    } else if (c == '{' || c == '[') {
      if (key_next_ && !open_.empty()) return false;
      open_.push_back(c);
      key_next_ = c == '{';
      put(c);
    } else if (c == '}' || c == ']') {
      if (open_.empty() || (open_.back() == '{') != (c == '}')) return false;
      open_.pop_back();
      key_next_ = false;
      put(c);
    } else if (c == ',') {
      key_next_ = !open_.empty() && open_.back() == '{';
      out_ += ", ";
      rest_.remove_prefix(1);
    } else {
      return word();
    }
    return true;
  }

  void put(char c) {
    out_ += c;
    rest_.remove_prefix(1);
  }

  // A key with its colon, or a value.
  bool word() {
    if (open_.empty()) return false;
    std::string text;
    const bool quoted = rest_.starts_with(kQuote);
    if (quoted) {
      rest_.remove_prefix(kQuote.size());
      const std::size_t end = rest_.find(kQuote);
      if (end == std::string_view::npos) return false;
      text = rest_.substr(0, end);
      rest_.remove_prefix(end + kQuote.size());
    } else {
      const std::size_t end = std::min(rest_.find_first_of(key_next_ ? ":" : ",}]"), rest_.size());
      text = rest_.substr(0, end);
      rest_.remove_prefix(end);
      while (!text.empty() && is_json_space(text.back())) text.pop_back();
    }
    if (key_next_) {
      const std::size_t colon = rest_.find_first_not_of(" \n\r\t");
      if (colon == std::string_view::npos || rest_[colon] != ':') return false;
      rest_.remove_prefix(colon + 1);
      out_ += json_quoted(text) + ": ";
      key_next_ = false;
      return true;
    }
    out_ += !quoted && is_json(text) ? text : json_quoted(text);
    return true;
  }

  std::string_view rest_;
  std::string out_;
  std::vector<char> open_;
  bool key_next_ = false;
};

}  // namespace

std::optional<std::string> json_from_gemma(std::string_view text) {
  auto out = GemmaReader(text).read();
  if (!out || !is_json(*out)) return std::nullopt;
  return out;
}

}  // namespace lode::text::chat
