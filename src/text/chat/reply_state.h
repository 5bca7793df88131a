// What a ReplyParser keeps while an answer comes, and the steps it takes; see reply_parser.h. Each state takes what it
// is sure of from the front of the text that waits, and says whether it got any further. src/text/chat only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/call_json.h"
#include "text/chat/reply_parser.h"

namespace lode::text {
namespace chat {

inline constexpr std::string_view kSpace = " \n\r\t";

// Where one of `marks` stands first, and which; without any, how much of the text cannot be the start of one.
struct Found {
  std::size_t at = 0;
  const std::string* mark = nullptr;
};

inline std::size_t safe_length(std::string_view text, std::span<const std::string> marks) {
  std::size_t held = 0;
  for (const std::string& mark : marks) {
    for (std::size_t n = std::min(mark.size() - 1, text.size()); n > held; --n) {
      if (text.ends_with(std::string_view(mark).substr(0, n))) held = n;
    }
  }
  return text.size() - held;
}

inline Found find_mark(std::string_view text, std::span<const std::string> marks) {
  Found out{std::string_view::npos};
  for (const std::string& mark : marks) {
    const std::size_t at = text.find(mark);
    if (at < out.at || (at == out.at && out.mark && mark.size() > out.mark->size())) out = {at, &mark};
  }
  if (!out.mark) out.at = safe_length(text, marks);
  return out;
}

inline bool may_begin(std::string_view text, std::string_view mark) {
  return mark.starts_with(text) || text.starts_with(mark);
}

inline std::string_view trimmed(std::string_view s) {
  const std::size_t begin = s.find_first_not_of(chat::kSpace);
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(chat::kSpace) - begin + 1);
}

// How calls with a tag for each parameter are written.
struct Tags {
  std::string call_open, call_open_end, call_close, param_open, param_open_end, value_open, param_close;
};

}  // namespace chat

struct ReplyParser::Impl {
  enum class State : std::uint8_t {
    start,      // Before anything but white space.
    content,    // Also harmony's final channel.
    reasoning,  // Also harmony's analysis channel.
    calls,      // Between calls.
    object,     // In a {"name", "arguments"}.
    named,      // A name has been seen to begin; its arguments, an object, follow.
    raw,        // In a named call's arguments.
    tagged,     // In a call with a tag for each parameter.
    gemma,
    harmony,  // In a message's header.
  };

  Impl(const ChatFormat& f, const Options& options) : format(f) {
    const bool calls_on = options.tools == Options::Tools::parse && f.calls != CallFormat::none;
    parse_calls = calls_on;
    split = options.reasoning == Options::Reasoning::split;
    if (calls_on) open_marks = f.calls_open;
    if (f.calls == CallFormat::harmony) state = State::harmony;
    else if (split && options.start == Options::Start::in_reasoning) enter_reasoning();
    if (options.tools_json == nullptr || !options.tools_json->is_array()) return;
    for (const nlohmann::ordered_json& tool : *options.tools_json) add_tool(tool);
  }

  void add_tool(const nlohmann::ordered_json& tool);

  // ---- output

  void put(ReplyDelta::Kind kind, std::string_view text, std::string id = {}) {
    if (text.empty()) return;
    if (kind != ReplyDelta::Kind::call && !out->empty() && out->back().kind == kind) out->back().text += text;
    else out->push_back({kind, std::string(text), std::move(id)});
  }

  void put_text(ReplyDelta::Kind kind, std::string_view text);

  void begin_call(std::string_view name, std::string id = {}) {
    ++calls;
    open_call = true;
    current_name = name;
    value_end = chat::ValueEnd();
    harmony_whole = false;
    put(ReplyDelta::Kind::call, name, std::move(id));
    raw.clear();
  }
  void end_call() {
    open_call = false;
    raw.clear();
    state = State::calls;
  }

  void enter_reasoning() {
    state = State::reasoning;
    space.clear();
    drop_space = true;
  }
  void enter_content() {
    state = State::content;
    space.clear();
    drop_space = true;
  }
  void enter_calls(std::string_view mark) {
    state = State::calls;
    space.clear();
    raw = mark;
  }

  // What looked like a call and is none.
  void give_up() {
    state = State::content;
    drop_space = false;
    const std::string text = std::exchange(raw, {});
    put_text(ReplyDelta::Kind::content, text);
  }

  std::string_view rest() const { return std::string_view(in).substr(at); }
  void drop(std::size_t bytes) { at += bytes; }
  // Moves bytes into `raw`, from which give_up() restores them.
  void keep(std::size_t bytes) {
    raw.append(in, at, bytes);
    at += bytes;
  }

  // ---- states. True: there may be more to do.

  bool step();
  bool start();
  bool content();
  bool reasoning();
  bool reason_up_to(std::size_t end);
  bool between_calls();
  bool begin_other(std::string_view text);
  bool object();
  // Llama's calls are told from an answer in JSON by their name alone.
  bool known_enough() const {
    return format.calls != CallFormat::llama || text_parameters.contains(*call_object.name());
  }
  void flush_object();
  bool named();
  std::optional<std::pair<std::string, std::string>> name_in(std::string_view head) const;
  bool raw_arguments();

  // ---- a tag for each parameter

  bool begin_tagged(const chat::Tags& how);
  std::optional<std::string> up_to(std::string_view mark);
  bool tagged();
  bool tagged_name();
  bool tagged_parameter();
  bool is_text_parameter(const std::string& key) const;

  bool gemma();

  // ---- harmony

  bool harmony_header();
  bool harmony_body(ReplyDelta::Kind kind);
  bool harmony_call();
  void leave_harmony_body(const std::string& mark);

  void finish();

  ChatFormat format;
  bool parse_calls = false, split = true;
  std::vector<std::string> open_marks;
  std::map<std::string, std::vector<std::string>> text_parameters;  // A tool's parameters that are texts.

  std::string in;  // Text that waits, from `at` on.
  std::size_t at = 0;
  bool last = false;  // No more comes.
  std::vector<ReplyDelta>* out = nullptr;

  State state = State::start;
  std::string raw;    // What was taken of a call that is not certain yet.
  std::string space;  // White space that waits for text behind it.
  bool drop_space = false;
  char last_byte = '\0';  // Before what waits, in reasoning.
  std::size_t calls = 0;
  bool open_call = false;
  std::string current_name;
  chat::CallObject call_object;
  chat::ValueEnd value_end;
  const chat::Tags* tags = nullptr;
  bool first_parameter = true;
  std::size_t scanned = 0;  // Bytes of what waits that were searched already.
  bool harmony_begun = false, harmony_arguments = false, harmony_whole = false;
};

}  // namespace lode::text
