// Calls in each of the formats, and harmony's messages.
#include <array>
#include <nlohmann/json.hpp>

#include "text/chat/reply_state.h"

namespace lode::text {

using chat::CallObject;
using chat::find_mark;
using chat::Found;
using chat::kSpace;
using chat::may_begin;
using chat::Tags;
using chat::trimmed;
using Json = nlohmann::ordered_json;
using Kind = ReplyDelta::Kind;

namespace {

const Tags kFunctionTags{"<function=", ">", "</function>", "<parameter=", ">", "", "</parameter>"};
const Tags kDsmlTags{"<｜DSML｜invoke name=\"", "\">", "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"", "\"", ">",
                     "</｜DSML｜parameter>"};
const Tags kArgumentTags{"", "\n", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};

const std::array<std::string, 6> kHarmonyEnds{"<|end|>",   "<|call|>",    "<|return|>",
                                              "<|start|>", "<|channel|>", "<|message|>"};

}  // namespace

// Behind a mark or a call: another call, the end of the calls, or what is no call.
bool ReplyParser::Impl::between_calls() {
  const auto is_mark = [this](std::string_view text) {
    return std::any_of(open_marks.begin(), open_marks.end(), [&](const auto& mark) { return may_begin(text, mark); });
  };
  while (!rest().empty() && std::string_view(" \n\r\t,;[]").find(rest()[0]) != std::string_view::npos) {
    if (is_mark(rest())) break;
    if (raw.empty()) drop(1);
    else keep(1);
  }
  const std::string_view text = rest();
  if (text.empty()) return false;
  for (const std::string& mark : {format.calls_close, std::string("</tool_call>")}) {
    if (mark.empty() || !may_begin(text, mark)) continue;
    if (text.size() < mark.size()) {
      if (!last) return false;
      continue;
    }
    if (!raw.empty()) {  // Nothing in between.
      keep(mark.size());
      give_up();
      return true;
    }
    drop(mark.size());
    enter_content();
    return true;
  }
  for (const std::string& mark : open_marks) {
    if (!may_begin(text, mark)) continue;
    if (text.size() < mark.size()) {
      if (!last) return false;
      continue;
    }
    drop(mark.size());
    if (raw.empty()) raw = mark;
    else raw += mark;
    return true;
  }
  if (text[0] == '{') {
    state = State::object;
    call_object = CallObject();
    return true;
  }
  return begin_other(text);
}

// A call that is not an object.
bool ReplyParser::Impl::begin_other(std::string_view text) {
  switch (format.calls) {
    case CallFormat::tool_call:
      if (raw.empty()) break;  // Text behind the calls.
      if (may_begin(text, kFunctionTags.call_open)) {
        if (text.size() < kFunctionTags.call_open.size() && !last) return false;
        return begin_tagged(kFunctionTags);
      }
      if (text[0] != '<') return begin_tagged(kArgumentTags);
      break;
    case CallFormat::dsml:
      if (may_begin(text, kDsmlTags.call_open)) {
        if (text.size() < kDsmlTags.call_open.size() && !last) return false;
        return begin_tagged(kDsmlTags);
      }
      for (const std::string_view close : {"</｜DSML｜tool_calls>", "</｜DSML｜function_calls>"}) {
        if (!may_begin(text, close)) continue;
        if (text.size() < close.size()) {
          if (!last) return false;
          continue;
        }
        drop(close.size());
        enter_content();
        return true;
      }
      break;
    case CallFormat::gemma: state = State::gemma; return true;
    case CallFormat::mistral:
    case CallFormat::deepseek:
    case CallFormat::kimi:
    case CallFormat::functionary:
      if (raw.empty()) break;
      state = State::named;
      return true;
    default: break;
  }
  if (!raw.empty()) {
    give_up();
  } else {
    enter_content();
  }
  return true;
}

bool ReplyParser::Impl::object() {
  for (;;) {
    if (at == in.size()) {
      flush_object();
      return false;
    }
    const char c = in[at];
    keep(1);
    const CallObject::Next next = call_object.take(c);
    if (next == CallObject::Next::more) continue;
    if (next == CallObject::Next::done && known_enough()) {
      flush_object();
      if (!open_call) begin_call(*call_object.name(), call_object.id());
      if (!call_object.arguments_begun()) put(Kind::arguments, "{}");
      put(Kind::arguments, call_object.take_arguments());
      end_call();
      return true;
    }
    flush_object();
    if (open_call) {  // It went wrong behind the arguments: what came of them stands.
      if (!call_object.arguments_begun()) put(Kind::arguments, "{}");
      end_call();
      state = State::content;
      return true;
    }
    give_up();
    return true;
  }
}

void ReplyParser::Impl::flush_object() {
  if (!call_object.name() || !call_object.arguments_begun() || !known_enough()) return;
  if (!open_call) begin_call(*call_object.name(), call_object.id());
  put(Kind::arguments, call_object.take_arguments());
}

// NAME, what stands between it and the object, and the object's first byte.
bool ReplyParser::Impl::named() {
  const std::string_view text = rest();
  const std::size_t brace = text.find('{');
  // No name and what may surround it are this long; the rest of the answer is not kept waiting for a brace.
  if (brace == std::string_view::npos && text.size() < 512 && !last) return false;
  const auto head = brace == std::string_view::npos ? std::nullopt : name_in(text.substr(0, brace));
  if (!head) {
    keep(text.size());
    give_up();
    return true;
  }
  drop(brace);
  begin_call(head->first, head->second);
  state = State::raw;
  return true;
}

std::optional<std::pair<std::string, std::string>> ReplyParser::Impl::name_in(std::string_view head) const {
  std::string id;
  std::string_view name = head;
  const auto cut = [&](std::string_view mark) {
    const std::size_t found = name.find(mark);
    if (found == std::string_view::npos) return std::string_view();
    const std::string_view behind = name.substr(found + mark.size());
    name = name.substr(0, found);
    return behind;
  };
  switch (format.calls) {
    case CallFormat::mistral:
      cut("[ARGS]");
      id = trimmed(cut("[CALL_ID]"));
      break;
    case CallFormat::deepseek: {
      const std::string_view behind = cut("<｜tool▁sep｜>");
      const std::string_view fence = trimmed(behind.substr(0, behind.find("```")));
      if (!fence.empty()) name = fence;
      break;
    }
    case CallFormat::kimi:
      cut("<|tool_call_argument_begin|>");
      id = trimmed(name);
      if (name.find("functions.") != std::string_view::npos) name = name.substr(name.find("functions.") + 10);
      name = name.substr(0, name.rfind(':'));
      break;
    case CallFormat::functionary: cut(">"); break;
    default: break;
  }
  name = trimmed(name);
  if (name.empty() || name.find_first_of(" \n<>{}\"") != std::string_view::npos) return std::nullopt;
  return std::pair(std::string(name), id);
}

// The bytes of one object; then what closes its call.
bool ReplyParser::Impl::raw_arguments() {
  if (format.calls == CallFormat::harmony) return harmony_call();
  const std::string_view text = rest();
  if (open_call) {
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (!value_end.take(text[i])) continue;
      put(Kind::arguments, text.substr(0, i + 1));
      drop(i + 1);
      open_call = false;
      return true;
    }
    put(Kind::arguments, text);
    drop(text.size());
    return false;
  }
  if (format.calls == CallFormat::mistral) {
    end_call();
    return true;
  }
  const std::string_view close = format.calls == CallFormat::deepseek ? "<｜tool▁call▁end｜>"
                                 : format.calls == CallFormat::kimi   ? "<|tool_call_end|>"
                                                                      : "</function>";
  const std::size_t found = text.find(close);
  if (found == std::string_view::npos && !last && text.size() < 64) return false;
  drop(found == std::string_view::npos ? 0 : found + close.size());
  end_call();
  return true;
}

bool ReplyParser::Impl::begin_tagged(const Tags& how) {
  tags = &how;
  state = State::tagged;
  scanned = 0;
  return true;
}

// The text before `mark`, and the mark, taken together from the front; nothing while it has not come.
std::optional<std::string> ReplyParser::Impl::up_to(std::string_view mark) {
  const std::size_t found = rest().find(mark, scanned);
  if (found == std::string_view::npos) {
    scanned = rest().size() - std::min(rest().size(), mark.size() - 1);
    return std::nullopt;
  }
  scanned = 0;
  std::string text(rest().substr(0, found));
  if (open_call) drop(found + mark.size());
  else keep(found + mark.size());
  return text;
}

bool ReplyParser::Impl::tagged() {
  if (!open_call) return tagged_name();
  const std::size_t n = std::min(rest().find_first_not_of(kSpace), rest().size());
  drop(n);
  scanned = scanned > n ? scanned - n : 0;
  const std::string_view text = rest();
  if (text.empty()) return false;
  if (may_begin(text, tags->param_open)) {
    if (text.size() < tags->param_open.size()) return false;
    return tagged_parameter();
  }
  if (may_begin(text, tags->call_close)) {
    if (text.size() < tags->call_close.size()) return false;
    drop(tags->call_close.size());
  }
  // Anything else ends the call too: what was read of it is whole.
  put(Kind::arguments, first_parameter ? "{}" : "}");
  const bool left = tags == &kArgumentTags;
  end_call();
  if (left) enter_content();
  return true;
}

bool ReplyParser::Impl::tagged_name() {
  if (tags == &kArgumentTags) {  // The name ends with its line, or where a tag begins.
    const std::size_t end = rest().find_first_of("\n<");
    if (end == std::string_view::npos && !last) return rest().size() < 256 ? false : (give_up(), true);
    const std::string name(trimmed(rest().substr(0, end)));
    const bool plain = !name.empty() && name.find_first_of(" {}\"") == std::string::npos;
    if (!plain || end == std::string_view::npos) {
      give_up();
      return true;
    }
    keep(end);
    begin_call(name);
    first_parameter = true;
    return true;
  }
  const auto head = up_to(tags->call_open_end);
  if (!head) {
    if (!last && rest().size() < 512) return false;
    give_up();
    return true;
  }
  const std::string_view name = trimmed(std::string_view(*head).substr(std::min(head->size(), tags->call_open.size())));
  if (!head->starts_with(tags->call_open) || name.empty()) {
    give_up();
    return true;
  }
  begin_call(name);
  first_parameter = true;
  return true;
}

// One whole parameter; while it has not come whole, nothing is taken.
bool ReplyParser::Impl::tagged_parameter() {
  const std::string_view text = rest();
  const std::size_t close = text.find(tags->param_close, std::max(scanned, tags->param_open.size()));
  if (close == std::string_view::npos) {
    scanned = text.size() - std::min(text.size(), tags->param_close.size() - 1);
    return false;
  }
  scanned = 0;
  std::string_view inside = text.substr(tags->param_open.size(), close - tags->param_open.size());
  drop(close + tags->param_close.size());
  const std::size_t key_end = inside.find(tags->param_open_end);
  if (key_end == std::string_view::npos) return true;  // A parameter without a name is none.
  const std::string key(trimmed(inside.substr(0, key_end)));
  inside.remove_prefix(key_end + tags->param_open_end.size());
  bool is_text = is_text_parameter(key);
  if (!tags->value_open.empty()) {
    const std::size_t begin = inside.find(tags->value_open);
    if (begin == std::string_view::npos) return true;
    const std::string_view said = inside.substr(0, begin);
    if (said.find("string=\"true\"") != std::string_view::npos) is_text = true;
    if (said.find("string=\"false\"") != std::string_view::npos) is_text = false;
    inside.remove_prefix(begin + tags->value_open.size());
  }
  if (tags == &kFunctionTags) {  // One line break belongs to each tag.
    if (inside.starts_with('\n')) inside.remove_prefix(1);
    if (inside.ends_with('\n')) inside.remove_suffix(1);
  }
  const bool as_is = !is_text && chat::is_json(inside);
  put(Kind::arguments, std::exchange(first_parameter, false) ? "{" : ", ");
  put(Kind::arguments, chat::json_quoted(key) + ": ");
  put(Kind::arguments, as_is ? std::string(trimmed(inside)) : chat::json_quoted(inside));
  return true;
}

bool ReplyParser::Impl::is_text_parameter(const std::string& key) const {
  const auto tool = text_parameters.find(current_name);
  return tool != text_parameters.end() &&
         std::find(tool->second.begin(), tool->second.end(), key) != tool->second.end();
}

bool ReplyParser::Impl::gemma() {
  const std::string_view text = rest();
  const std::size_t close = text.find(format.calls_close, scanned);
  if (close == std::string_view::npos) {
    if (!last) {
      scanned = text.size() - std::min(text.size(), format.calls_close.size() - 1);
      return false;
    }
  }
  scanned = 0;
  const std::string_view body = text.substr(0, close);
  const std::size_t brace = body.find('{');
  const auto json = body.starts_with("call:") && brace != std::string_view::npos
                        ? chat::json_from_gemma(trimmed(body.substr(brace)))
                        : std::nullopt;
  const std::string name(json ? trimmed(body.substr(5, brace - 5)) : std::string_view());
  const std::size_t taken = close == std::string_view::npos ? text.size() : close + format.calls_close.size();
  if (name.empty()) {
    keep(taken);
    give_up();
    return true;
  }
  drop(taken);
  begin_call(name);
  put(Kind::arguments, *json);
  open_call = false;
  enter_content();
  return true;
}

bool ReplyParser::Impl::harmony_header() {
  const std::string_view text = rest();
  if (text.empty()) return false;
  const std::string_view body_mark = "<|message|>";
  const std::size_t found = text.find(body_mark);
  // A model that keeps to no channel: its text is content.
  const bool header = harmony_begun || may_begin(text, "<|channel|>") || may_begin(text, "<|start|>") ||
                      may_begin(text, " to=") || may_begin(text, body_mark);
  if (!header || (found == std::string_view::npos && last && !text.starts_with("<|") && !harmony_begun)) {
    state = State::content;
    return true;
  }
  if (found == std::string_view::npos) {
    if (last) drop(text.size());
    return false;
  }
  harmony_begun = true;
  const std::string_view head = text.substr(0, found);
  const auto word_behind = [&](std::string_view mark) {
    const std::size_t begin = head.find(mark);
    if (begin == std::string_view::npos) return std::string_view();
    const std::string_view word = head.substr(begin + mark.size());
    return word.substr(0, word.find_first_of(" <\n"));
  };
  std::string_view recipient = word_behind("to=");
  const std::string_view channel = word_behind("<|channel|>");
  if (recipient.starts_with("functions.")) recipient.remove_prefix(10);
  else recipient = {};
  const bool is_call = parse_calls && !recipient.empty();
  const std::string name(recipient);
  const bool think = split && channel == "analysis";
  drop(found + body_mark.size());
  if (is_call) {
    begin_call(name);
    harmony_arguments = false;
    state = State::raw;
  } else if (think) {
    enter_reasoning();
  } else {
    enter_content();
  }
  return true;
}

// Text up to the message's end.
bool ReplyParser::Impl::harmony_body(Kind kind) {
  const std::string_view text = rest();
  const Found found = find_mark(text, kHarmonyEnds);
  const std::size_t end = found.mark || !last ? found.at : text.size();
  put_text(kind, text.substr(0, end));
  drop(end);
  if (!found.mark) return false;
  leave_harmony_body(*found.mark);
  return true;
}

bool ReplyParser::Impl::harmony_call() {
  const std::string_view text = rest();
  const Found found = find_mark(text, kHarmonyEnds);
  const std::size_t end = found.mark || !last ? found.at : text.size();
  if (!trimmed(text.substr(0, end)).empty()) harmony_arguments = true;
  if (harmony_arguments) put(Kind::arguments, text.substr(0, end));
  for (const char c : text.substr(0, end)) harmony_whole |= value_end.take(c);
  drop(end);
  if (!found.mark) return false;
  if (!harmony_arguments) put(Kind::arguments, "{}");
  open_call = false;
  leave_harmony_body(*found.mark);
  return true;
}

void ReplyParser::Impl::leave_harmony_body(const std::string& mark) {
  // <|start|> and <|channel|> belong to the next header.
  if (mark != "<|start|>" && mark != "<|channel|>") drop(mark.size());
  state = State::harmony;
  space.clear();
  harmony_begun = true;
}

}  // namespace lode::text
