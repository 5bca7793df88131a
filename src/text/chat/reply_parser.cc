// The answer's state, one stretch after another: start -> (reasoning) -> content <-> calls. Each state takes what it is
// sure of from the front of the text that waits, and says whether it got any further.
#include "text/chat/reply_parser.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "text/chat/call_json.h"

namespace lode::text {
namespace {

using chat::CallObject;
using chat::is_json_space;
using Json = nlohmann::ordered_json;
using Kind = ReplyDelta::Kind;

constexpr std::string_view kSpace = " \n\r\t";

// Where one of `marks` stands first, and which; without any, how much of the text cannot be the start of one.
struct Found {
  std::size_t at = 0;
  const std::string* mark = nullptr;
};

std::size_t safe_length(std::string_view text, std::span<const std::string> marks) {
  std::size_t held = 0;
  for (const std::string& mark : marks) {
    for (std::size_t n = std::min(mark.size() - 1, text.size()); n > held; --n) {
      if (text.ends_with(std::string_view(mark).substr(0, n))) held = n;
    }
  }
  return text.size() - held;
}

Found find_mark(std::string_view text, std::span<const std::string> marks) {
  Found out{std::string_view::npos};
  for (const std::string& mark : marks) {
    const std::size_t at = text.find(mark);
    if (at < out.at || (at == out.at && out.mark && mark.size() > out.mark->size())) out = {at, &mark};
  }
  if (!out.mark) out.at = safe_length(text, marks);
  return out;
}

bool may_begin(std::string_view text, std::string_view mark) {
  return mark.starts_with(text) || text.starts_with(mark);
}

std::string_view trimmed(std::string_view s) {
  const std::size_t begin = s.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
}

// How calls with a tag for each parameter are written.
struct Tags {
  std::string call_open, call_open_end, call_close, param_open, param_open_end, value_open, param_close;
};
const Tags kFunctionTags{"<function=", ">", "</function>", "<parameter=", ">", "", "</parameter>"};
const Tags kDsmlTags{"<｜DSML｜invoke name=\"", "\">", "</｜DSML｜invoke>", "<｜DSML｜parameter name=\"", "\"", ">",
                     "</｜DSML｜parameter>"};
const Tags kArgumentTags{"", "\n", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};

const std::array<std::string, 6> kHarmonyEnds{"<|end|>",   "<|call|>",    "<|return|>",
                                              "<|start|>", "<|channel|>", "<|message|>"};

}  // namespace

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
    else if (options.start == Options::Start::in_reasoning) enter_reasoning();
    if (options.tools_json == nullptr || !options.tools_json->is_array()) return;
    for (const Json& tool : *options.tools_json) add_tool(tool);
  }

  // A tool's name, and which of its parameters are texts.
  void add_tool(const Json& tool) {
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

  // ---- output

  void put(Kind kind, std::string_view text, std::string id = {}) {
    if (text.empty()) return;
    if (kind != Kind::call && !out->empty() && out->back().kind == kind) out->back().text += text;
    else out->push_back({kind, std::string(text), std::move(id)});
  }

  // Content or reasoning: white space waits until text follows, and is dropped where something else does.
  void put_text(Kind kind, std::string_view text) {
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

  void begin_call(std::string_view name, std::string id = {}) {
    ++calls;
    open_call = true;
    current_name = name;
    value_end = chat::ValueEnd();
    harmony_whole = false;
    put(Kind::call, name, std::move(id));
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
    put_text(Kind::content, text);
  }

  std::string_view rest() const { return std::string_view(in).substr(at); }
  void drop(std::size_t bytes) { at += bytes; }
  // Moves bytes into `raw`, from which give_up() restores them.
  void keep(std::size_t bytes) {
    raw.append(in, at, bytes);
    at += bytes;
  }

  // ---- states. True: there may be more to do.

  bool step() {
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

  bool start() {
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
      call_object = CallObject();
      return true;
    }
    state = State::content;
    return true;
  }

  bool content() {
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

  bool reasoning() {
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
  bool reason_up_to(std::size_t end) {
    const std::string_view text = rest().substr(0, end);
    if (!text.empty()) last_byte = text.back();
    put_text(Kind::reasoning, text);
    drop(end);
    return false;
  }

  // Behind a mark or a call: another call, the end of the calls, or what is no call.
  bool between_calls() {
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
  bool begin_other(std::string_view text) {
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

  bool object() {
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
  // Llama's calls are told from an answer in JSON by their name alone.
  bool known_enough() const {
    return format.calls != CallFormat::llama || text_parameters.contains(*call_object.name());
  }
  void flush_object() {
    if (!call_object.name() || !call_object.arguments_begun() || !known_enough()) return;
    if (!open_call) begin_call(*call_object.name(), call_object.id());
    put(Kind::arguments, call_object.take_arguments());
  }

  // NAME, what stands between it and the object, and the object's first byte.
  bool named() {
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

  std::optional<std::pair<std::string, std::string>> name_in(std::string_view head) const {
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
  bool raw_arguments() {
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

  // ---- a tag for each parameter

  bool begin_tagged(const Tags& how) {
    tags = &how;
    state = State::tagged;
    scanned = 0;
    return true;
  }

  // The text before `mark`, and the mark, taken together from the front; nothing while it has not come.
  std::optional<std::string> up_to(std::string_view mark) {
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

  bool tagged() {
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

  bool tagged_name() {
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
    const std::string_view name =
        trimmed(std::string_view(*head).substr(std::min(head->size(), tags->call_open.size())));
    if (!head->starts_with(tags->call_open) || name.empty()) {
      give_up();
      return true;
    }
    begin_call(name);
    first_parameter = true;
    return true;
  }

  // One whole parameter; while it has not come whole, nothing is taken.
  bool tagged_parameter() {
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

  bool is_text_parameter(const std::string& key) const {
    const auto tool = text_parameters.find(current_name);
    return tool != text_parameters.end() &&
           std::find(tool->second.begin(), tool->second.end(), key) != tool->second.end();
  }
  bool gemma() {
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

  // ---- harmony

  bool harmony_header() {
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
  bool harmony_body(Kind kind) {
    const std::string_view text = rest();
    const Found found = find_mark(text, kHarmonyEnds);
    const std::size_t end = found.mark || !last ? found.at : text.size();
    put_text(kind, text.substr(0, end));
    drop(end);
    if (!found.mark) return false;
    leave_harmony_body(*found.mark);
    return true;
  }
  bool harmony_call() {
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
  void leave_harmony_body(const std::string& mark) {
    // <|start|> and <|channel|> belong to the next header.
    if (mark != "<|start|>" && mark != "<|channel|>") drop(mark.size());
    state = State::harmony;
    space.clear();
    harmony_begun = true;
  }

  // The end: what still waits is what it looks like.
  void finish() {
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
  CallObject call_object;
  chat::ValueEnd value_end;
  const Tags* tags = nullptr;
  bool first_parameter = true;
  std::size_t scanned = 0;  // Bytes of what waits that were searched already.
  bool harmony_begun = false, harmony_arguments = false, harmony_whole = false;
};

ReplyParser::ReplyParser(const ChatFormat& format, const Options& options)
    : impl_(std::make_unique<Impl>(format, options)) {}
ReplyParser::~ReplyParser() = default;
ReplyParser::ReplyParser(ReplyParser&&) noexcept = default;

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
