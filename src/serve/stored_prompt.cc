#include "serve/stored_prompt.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "serve/completion_request.h"
#include "serve/fields.h"

namespace lode::serve {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

// The texts of a message, in the order that a template shows them.
std::vector<std::string> texts_of(const Json& message) {
  std::vector<std::string> out;
  const auto content = message.find("content");
  if (content == message.end()) return out;
  if (content->is_string()) out.push_back(content->get<std::string>());
  if (content->is_array())
    for (const Json& part : *content)
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        out.push_back(part["text"].get<std::string>());
  return out;
}

void place_messages(const Json& messages, StoredPrompt& out) {
  std::size_t from = 0;
  for (const Json& message : messages) {
    StoredPrompt::Message placed{.role = message.value("role", std::string()), .part = std::nullopt};
    for (const std::string& text : texts_of(message)) {
      const std::string_view wanted = trimmed(text);
      const std::size_t at = wanted.empty() ? std::string::npos : out.text.find(wanted, from);
      if (at == std::string::npos) continue;
      from = at + wanted.size();
      if (!placed.part) placed.part = StoredPrompt::Part{at, from};
      placed.part->end = from;
    }
    out.messages.push_back(std::move(placed));
  }
}

// What of the text is there because of the tools: where it parts from the text without them, from both ends.
void place_tools(const text::ChatTurns& turns, const text::ChatTemplate& chat, StoredPrompt& out) {
  if (!turns.tools.is_array() || turns.tools.empty()) return;
  text::ChatTurns without = turns;
  without.tools = nullptr;
  const auto bare = chat.render(without);
  if (!bare.ok() || bare->text == out.text) return;
  const std::string &a = out.text, &b = bare->text;
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t begin = 0, tail = 0;
  while (begin < most && a[begin] == b[begin]) ++begin;
  while (tail < most - begin && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  out.tools = StoredPrompt::Part{begin, a.size() - tail};
}

std::variant<StoredPrompt, ApiError> read_chat(const Json& body, const ChatContext& context) {
  auto parsed = parse_chat_request(body, context);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& request = std::get<ChatRequest>(parsed);
  StoredPrompt out{.ids = std::move(request.prompt.ids), .salt = std::move(request.shared.salt), .chat = true};
  out.text = std::move(request.prompt.text);
  const auto turns = parse_chat_turns(body, context);
  if (const auto* good = std::get_if<text::ChatTurns>(&turns)) {
    text::ChatTurns told = *good;
    told.tools = request.tools;  // Without those that tool_choice hides.
    place_tools(told, context.chat, out);
    place_messages(told.messages, out);
  }
  return out;
}

std::variant<StoredPrompt, ApiError> read_tokens(const Json& body, const text::Tokenizer& tokenizer) {
  Fields fields(body);
  StoredPrompt out;
  fields.string("cache_salt", out.salt, 1024);
  const Json& tokens = *fields.find("tokens");
  if (!tokens.is_array() || tokens.empty()) fields.fail("tokens", "an array of token ids", describe(tokens));
  else
    for (const Json& value : tokens) {
      const auto id = token_id(value, tokenizer);
      if (!id) {
        fields.fail("tokens", "made of " + id_range(tokenizer), describe(value));
        break;
      }
      out.ids.push_back(*id);
    }
  if (fields.error()) return *fields.error();
  return out;
}

}  // namespace

std::variant<StoredPrompt, ApiError> read_stored_prompt(const Json& body, text::grammar::GrammarStore& grammars,
                                                        std::int64_t context_max,
                                                        const std::optional<ChatContext>& chat) {
  Fields fields(body);
  if (fields.find("tokens") != nullptr) return read_tokens(body, grammars.tokenizer());
  if (fields.find("messages") != nullptr) {
    if (!chat) return invalid_field("messages", "this model has no chat template: send 'prompt' or 'tokens'");
    return read_chat(body, *chat);
  }
  if (fields.find("prompt") == nullptr)
    return invalid_field("", "the body names no prompt: send 'messages', 'prompt' or 'tokens'");
  auto parsed = parse_completion_request(body, grammars, context_max);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& request = std::get<CompletionRequest>(parsed);
  if (request.prompts.size() != 1) return invalid_field("prompt", "one prompt at a time");
  return StoredPrompt{.ids = std::move(request.prompts.front()), .salt = std::move(request.shared.salt)};
}

Json StoredPrompt::part_of(std::int64_t token, const text::Tokenizer& tokenizer) const {
  using Control = text::Tokenizer::Control;
  if (!chat || token < 0 || token >= static_cast<std::int64_t>(ids.size())) return nullptr;
  std::size_t begin = 0;
  for (std::int64_t i = 0; i < token; ++i) {
    const std::string bytes = tokenizer.token_bytes(ids[static_cast<std::size_t>(i)], Control::show);
    // The tokenizer's own beginning, which is no part of the text.
    if (i == 0 && ids.front() == tokenizer.bos() && !text.starts_with(bytes)) continue;
    begin += bytes.size();
  }
  const std::size_t end = begin + tokenizer.token_bytes(ids[static_cast<std::size_t>(token)], Control::show).size();
  // A token may reach into the part from before it; one right behind it says that the part ends here.
  const auto meets = [&](const Part& part) { return begin <= part.end && end > part.begin; };
  const auto inside = [&](const Part& part) { return begin < part.end && end > part.begin; };
  std::size_t next = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& part = messages[i].part;
    if (part && inside(*part)) return {{"in", "message"}, {"index", i}, {"role", messages[i].role}};
    if (part && part->end <= begin) next = i + 1;
  }
  if (tools && inside(*tools)) return {{"in", "tools"}};
  for (std::size_t i = 0; i < messages.size(); ++i)
    if (messages[i].part && meets(*messages[i].part))
      return {{"in", "message"}, {"index", i}, {"role", messages[i].role}, {"at", "end"}};
  Json out = {{"in", "template"}};
  out["before_message"] = next < messages.size() ? Json(next) : Json(nullptr);
  return out;
}

}  // namespace lode::serve
