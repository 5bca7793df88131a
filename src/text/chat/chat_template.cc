#include "text/chat/chat_template.h"

#include <algorithm>
#include <utility>

namespace lode::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSpace = " \n\r\t";

const Json* member(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

bool is_role(const Json& message, std::string_view role) {
  const Json* said = member(message, "role");
  return said != nullptr && *said == role;
}

std::string_view trimmed(std::string_view s) {
  const std::size_t begin = s.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(kSpace) - begin + 1);
}

// Parts joined with a line break, as other servers do.
std::string joined(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string out;
  if (!content.is_array()) return out;
  bool first = true;
  for (const Json& part : content) {
    const Json* text = member(part, "text");
    if (text == nullptr || !text->is_string()) continue;
    if (!std::exchange(first, false)) out += '\n';
    out += text->get_ref<const std::string&>();
  }
  return out;
}

Json message(std::string_view role, Json content) {
  Json out;
  out["role"] = role;
  out["content"] = std::move(content);
  return out;
}

Json text_parts(std::string text) {
  return Json::array({{{"type", "text"}, {"text", std::move(text)}}});
}

void clip(std::vector<ByteRange>& ranges, std::size_t size) {
  while (!ranges.empty() && ranges.back().begin >= size) ranges.pop_back();
  if (!ranges.empty()) ranges.back().end = std::min(ranges.back().end, size);
}

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin()).first -
      a.begin());
}

// System messages that the template has no role for: before the first user message's text.
void merge_system(Json& messages) {
  std::string said;
  Json out = Json::array();
  for (Json& m : messages) {
    if (is_role(m, "system")) {
      const Json* content = member(m, "content");
      if (content == nullptr) continue;
      const std::string text = joined(*content);
      if (!said.empty() && !text.empty()) said += "\n\n";
      said += text;
      continue;
    }
    if (is_role(m, "user") && !said.empty()) {
      const Json* content = member(m, "content");
      m["content"] = std::exchange(said, {}) + "\n\n" + (content == nullptr ? std::string() : joined(*content));
    }
    out.push_back(std::move(m));
  }
  if (!said.empty()) out.push_back(message("user", std::move(said)));
  messages = std::move(out);
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::shared_ptr<const Template> parsed, const Tokenizer& tokenizer)
    : source_(std::move(source)), template_(std::move(parsed)), tokenizer_(&tokenizer), format_(chat_format(source_)) {}

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::make(std::string source, const Tokenizer& tokenizer) {
  auto parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.status();
  std::shared_ptr<ChatTemplate> out(new ChatTemplate(std::move(source), std::move(*parsed), tokenizer));
  out->find_traits();
  return std::shared_ptr<const ChatTemplate>(std::move(out));
}

void ChatTemplate::find_traits() {
  constexpr std::string_view kSign = "Q7wK";  // No template says it of itself.
  traits_.developer_role = source_.find("developer") != std::string::npos;
  const auto shown = [&](const Json& messages) -> std::string {
    ChatTurns turns{.now = DateTime{}};
    const auto text = run(messages, turns, GenerationPrompt::yes);
    return text.ok() && text->text.find(kSign) != std::string::npos ? text->text : std::string();
  };
  const auto printed = [](const std::string& text, const char* key) {  // As a list or dict, instead of its text.
    return text.find(std::string("'") + key + "'") != std::string::npos ||
           text.find(std::string("\"") + key + "\"") != std::string::npos;
  };
  traits_.text_content = !shown(Json::array({message("user", std::string(kSign))})).empty();
  const std::string list = shown(Json::array({message("user", text_parts(std::string(kSign)))}));
  traits_.list_content = !list.empty() && !printed(list, "type");
  if (!traits_.list_content) traits_.text_content = true;
  const auto content = [&](std::string_view text) -> Json {
    if (traits_.text_content) return std::string(text);
    return text_parts(std::string(text));
  };
  traits_.system_role = !shown(Json::array({message("system", content(kSign)), message("user", content("x"))})).empty();

  const auto with_call = [&](Json arguments) {
    Json call = message("assistant", content(""));
    call["tool_calls"] = Json::array({{{"id", "call00001"},
                                       {"type", "function"},
                                       {"function", {{"name", "f"}, {"arguments", std::move(arguments)}}}}});
    Json result = message("tool", content("1"));
    result["tool_call_id"] = "call00001";
    result["name"] = "f";
    return shown(Json::array({message("user", content("x")), std::move(call), std::move(result)}));
  };
  const std::string as_object = with_call({{"key", std::string(kSign)}});
  const std::string as_text = with_call("{\"key\": \"" + std::string(kSign) + "\"}");
  const bool python = as_object.find("{'key'") != std::string::npos;
  traits_.object_arguments = (!as_object.empty() && !python) || as_text.empty();
}

// Messages as this template takes them.
Json ChatTemplate::adapted(const Json& messages) const {
  Json out = Json::array();
  std::vector<std::pair<std::string, std::string>> names;  // Of calls, by id: some templates print a result's.
  for (const Json& original : messages) {
    Json m = original;
    if (is_role(m, "developer") && !traits_.developer_role) m["role"] = "system";
    const Json* content = member(m, "content");
    if (content == nullptr) m["content"] = "";  // None would be printed as such.
    else if (content->is_array() && !traits_.list_content) m["content"] = joined(*content);
    if (!traits_.text_content && m["content"].is_string()) m["content"] = text_parts(m["content"].get<std::string>());
    // Both of the names that clients and templates use.
    const Json* reasoning = member(m, "reasoning_content");
    if (reasoning == nullptr) reasoning = member(m, "reasoning");
    if (reasoning != nullptr && reasoning->is_string()) {
      const Json text = *reasoning;
      m["reasoning_content"] = text;
      m["reasoning"] = text;
      if (format_.calls == CallFormat::harmony) m["thinking"] = text;
    }
    if (const auto calls = m.find("tool_calls"); calls != m.end()) {
      if (calls->is_null() || calls->empty()) {
        m.erase("tool_calls");
      } else {
        for (Json& call : *calls) {
          Json& function = call["function"];
          Json& arguments = function["arguments"];
          if (call.contains("id") && call["id"].is_string()) names.emplace_back(call["id"], function["name"]);
          if (traits_.object_arguments && arguments.is_string()) {
            const auto& text = arguments.get_ref<const std::string&>();
            Json parsed = Json::parse(text.begin(), text.end(), nullptr, false);
            if (parsed.is_object()) arguments = std::move(parsed);
            else if (trimmed(text).empty()) arguments = Json::object();
          } else if (!traits_.object_arguments && !arguments.is_string()) {
            arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
          }
        }
      }
    }
    if (is_role(m, "tool") && member(m, "name") == nullptr) {
      const Json* id = member(m, "tool_call_id");
      for (const auto& [call_id, name] : names) {
        if (id == nullptr || *id != call_id) continue;
        m["name"] = name;  // Moves the members: `id` points nowhere from here on.
        break;
      }
    }
    out.push_back(std::move(m));
  }
  if (!traits_.system_role) merge_system(out);
  return out;
}

Result<Rendered> ChatTemplate::run(const Json& messages, const ChatTurns& turns, GenerationPrompt generation) const {
  Json given = turns.variables;
  given["messages"] = messages;
  given["tools"] = turns.tools.is_array() && turns.tools.empty() ? Json() : turns.tools;
  if (!given.contains("documents")) given["documents"] = nullptr;
  if (!turns.tool_choice.is_null()) given["tool_choice"] = turns.tool_choice;
  const auto token = [this](TokenId id) {
    return id >= 0 ? tokenizer_->token_bytes(id, Tokenizer::Control::show) : std::string();
  };
  Json own;
  own["bos_token"] = token(tokenizer_->bos());
  own["eos_token"] = token(tokenizer_->eos());
  own["add_generation_prompt"] = generation == GenerationPrompt::yes;
  return template_->render_marked(given, own, {.now = turns.now});
}

Result<ChatPrompt> ChatTemplate::render(const ChatTurns& turns) const {
  const Json messages = adapted(turns.messages);
  auto rendered =
      run(messages, turns, turns.next == ChatTurns::Next::start ? GenerationPrompt::yes : GenerationPrompt::no);
  if (!rendered.ok()) return rendered.status();
  ChatPrompt out{.text = std::move(rendered->text), .given = std::move(rendered->given)};
  if (turns.next == ChatTurns::Next::go_on) LODE_RETURN_IF_ERROR(cut_behind_last(messages, out));
  if (turns.next == ChatTurns::Next::start) {
    const std::string_view tail = std::string_view(out.text).substr(0, out.text.find_last_not_of(kSpace) + 1);
    out.in_reasoning = tail.ends_with(format_.think_open);
  }
  return out;
}

// The prompt ends with the last message's own text: what the template writes to end a turn is cut off.
Status ChatTemplate::cut_behind_last(const Json& messages, ChatPrompt& out) const {
  const Json& last = messages.back();
  const Json* content = member(last, "content");
  std::string said = content == nullptr ? std::string() : joined(*content);
  if (trimmed(said).empty()) {
    const Json* reasoning = member(last, "reasoning_content");
    if (reasoning != nullptr && reasoning->is_string()) said = reasoning->get<std::string>();
    out.in_reasoning = !trimmed(said).empty();
  }
  for (const std::string_view words : {std::string_view(said), trimmed(said)}) {
    if (words.empty()) continue;
    const std::size_t at = out.text.rfind(words);
    if (at == std::string::npos) continue;
    out.text.resize(at + words.size());
    clip(out.given, out.text.size());
    return Status::success();
  }
  return Status(Code::unsupported,
                "the last message cannot be continued: the chat template does not print its text as it is; send "
                "\"add_generation_prompt\": true for a new answer");
}

std::vector<TokenId> ChatTemplate::encode(std::string_view text, std::span<const ByteRange> given) const {
  return tokenizer_->encode(
      text, {.special = EncodeOptions::Special::parse, .bos = EncodeOptions::Bos::start, .plain = given});
}

Result<ChatPrompt> ChatTemplate::prompt(const ChatTurns& turns) const {
  auto out = render(turns);
  if (!out.ok()) return out;
  tokenize(turns, *out);
  if (out->ids.empty()) return Status::invalid("the chat template makes an empty prompt of these messages");
  return out;
}

void ChatTemplate::tokenize(const ChatTurns& turns, ChatPrompt& prompt, std::int64_t tokens_max) const {
  prompt.ids = encode(prompt.text, prompt.given);
  if (static_cast<std::int64_t>(prompt.ids.size()) < tokens_max) add_marks(turns, prompt);
}

// How many of the prompt's tokens a prompt of other messages shares with it; 0 where the template refuses them (some
// want more turns).
std::int64_t ChatTemplate::shared_tokens(const Json& messages, const ChatTurns& turns, const ChatPrompt& prompt) const {
  const auto other = run(adapted(messages), turns, GenerationPrompt::no);
  if (!other.ok()) return 0;
  const std::size_t bytes = common_prefix(prompt.text, other->text);
  std::vector<ByteRange> given = prompt.given;
  clip(given, bytes);
  const auto ids = encode(std::string_view(prompt.text).substr(0, bytes), given);
  return std::mismatch(ids.begin(), ids.end(), prompt.ids.begin(), prompt.ids.end()).first - ids.begin();
}

std::int64_t ChatTemplate::mark_of(const ChatMark& mark, const ChatTurns& turns, const ChatPrompt& prompt) const {
  const std::size_t count = std::min(mark.messages, turns.messages.size());
  Json head = Json::array();
  for (std::size_t i = 0; i < count; ++i) head.push_back(turns.messages[i]);
  if (mark.parts > 0 && count > 0 && head.back()["content"].is_array()) {
    Json& parts = head.back()["content"];
    while (parts.size() > mark.parts) parts.erase(parts.size() - 1);
  }
  // A template may insist on a user's turn behind the system prompt; no message begins so.
  if (count == 0 || is_role(head.back(), "system") || is_role(head.back(), "developer"))
    head.push_back(message("user", "\x01"));
  return shared_tokens(head, turns, prompt);
}

// As many tokens from the end as the generation prompt has bytes; 0: not known.
std::int64_t ChatTemplate::mark_before_answer(const ChatTurns& turns, const ChatPrompt& prompt) const {
  const auto without = run(adapted(turns.messages), turns, GenerationPrompt::no);
  if (!without.ok()) return 0;
  std::size_t bytes = prompt.text.size() - common_prefix(prompt.text, without->text);
  auto mark = static_cast<std::int64_t>(prompt.ids.size());
  while (bytes > 0 && mark > 0) {
    const std::size_t of_token =
        tokenizer_->token_bytes(prompt.ids[static_cast<std::size_t>(--mark)], Tokenizer::Control::show).size();
    bytes -= std::min(bytes, std::max<std::size_t>(of_token, 1));
  }
  return mark;
}

void ChatTemplate::add_marks(const ChatTurns& turns, ChatPrompt& out) const {
  std::vector<std::int64_t> marks;
  // Behind what does not change with the question.
  std::size_t system = 0;
  for (const Json& m : turns.messages) {
    if (!is_role(m, "system") && !is_role(m, "developer")) break;
    ++system;
  }
  if (system > 0 || turns.tools.is_array()) marks.push_back(mark_of({.messages = system}, turns, out));
  for (const ChatMark& mark : turns.marks) {
    marks.push_back(mark_of(mark, turns, out));
    out.asked_mark = std::max(out.asked_mark, marks.back());
  }
  if (turns.next == ChatTurns::Next::start) marks.push_back(mark_before_answer(turns, out));
  std::sort(marks.begin(), marks.end());
  for (const std::int64_t mark : marks) {
    const bool new_one = out.marks.empty() || mark > out.marks.back();
    if (new_one && mark > 0 && mark < static_cast<std::int64_t>(out.ids.size())) out.marks.push_back(mark);
  }
}

std::vector<TokenId> ChatTemplate::shown_tokens(const std::vector<std::string>& marks) const {
  std::vector<TokenId> out;
  for (const std::string& mark : marks) {
    const auto ids = tokenizer_->encode(mark, {.special = EncodeOptions::Special::parse});
    if (ids.size() == 1 && tokenizer_->kind(ids[0]) == TokenKind::control) out.push_back(ids[0]);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace lode::text
