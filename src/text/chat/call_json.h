// Pieces of text -> one tool call written as JSON. Owns what it gathers. src/text/chat only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lode::text::chat {

// Finds the end of one JSON value that begins with { or [: brackets outside strings must balance. Looks at each byte
// once; the value itself is not checked.
class ValueEnd {
 public:
  // Takes a byte; true once it closes the value.
  bool take(char c);

 private:
  std::int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false;
};

// {"name": "f", "arguments": {...}, "id": "x"}, in any order; "parameters" is another word for arguments.
class CallObject {
 public:
  enum class Next : std::uint8_t { more, done, bad };
  // The first byte must be the opening brace.
  Next take(char c);

  // Known once its text is whole.
  const std::optional<std::string>& name() const { return name_; }
  const std::string& id() const { return id_; }
  // The arguments that came since the last call, as text of a JSON object.
  std::string take_arguments();
  bool arguments_begun() const { return arguments_begun_; }

 private:
  enum class State : std::uint8_t { open, key, in_key, colon, value, in_text, in_container, in_scalar, comma, closed };
  Next take_value_start(char c);
  Next end_value();

  State state_ = State::open;
  std::string key_, value_;  // value_: of what is not the arguments.
  bool escaped_ = false, arguments_begun_ = false;
  ValueEnd end_;
  std::optional<std::string> name_;
  std::string id_, arguments_;
};

bool is_json_space(char c);
// The text as a JSON string, quotes included.
std::string json_quoted(std::string_view text);
// Whether it is one whole JSON value.
bool is_json(std::string_view text);

// Gemma's {key:<|"|>text<|"|>,n:1,list:[..]} as JSON; nothing where it is none. `text` begins with the brace.
std::optional<std::string> json_from_gemma(std::string_view text);

}  // namespace lode::text::chat
