// A model's chat template with all that is known of it: messages -> the prompt's ids. Immutable once made; any thread.
//
// Who wrote what: texts of messages, tools and template variables are the client's, everything else is the template's.
// A control token counts as one only where the template wrote all of it (Template::render_marked,
// EncodeOptions::plain), so a message that says "<|im_end|>" is told to the model as those ten characters.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/chat/format.h"
#include "text/template/template.h"
#include "text/tokenizer.h"

namespace lode::text {

// A place in the messages behind which a client expects other prompts to go on differently.
struct ChatMark {
  std::size_t messages = 0;  // So many from the first; 0: behind the tools.
  std::size_t parts = 0;     // Of the last one's parts, so many from the first; 0: all of it.
};

// Messages of OpenAI's shape, already checked: objects with a role; content is a string or an array of text parts.
struct ChatTurns {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;                                         // An array, or null.
  nlohmann::ordered_json tool_choice;                                   // As sent, or null.
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // chat_template_kwargs
  // start: the assistant answers; none: the messages alone; go_on: the last message, an assistant's, is continued.
  enum class Next : std::uint8_t { start, none, go_on } next = Next::start;
  std::optional<DateTime> now;
  std::vector<ChatMark> marks;  // Beside those that every prompt has.
};

struct ChatPrompt {
  std::string text;
  std::vector<ByteRange> given;  // What of it is the client's.
  std::vector<TokenId> ids;
  // Where other prompts are expected to go on differently, in tokens: behind the system prompt and tools, and before
  // the assistant's turn. Ascending.
  std::vector<std::int64_t> marks;
  std::int64_t asked_mark = 0;  // The last that ChatTurns::marks asked for; 0: none.
  bool in_reasoning = false;    // The answer begins inside of reasoning.
};

// What a template makes of messages that not every template knows; found by trying.
struct ChatTraits {
  bool text_content = true;      // content may be a string...
  bool list_content = false;     // ...or a list of parts.
  bool object_arguments = true;  // A call's arguments are an object; else JSON text.
  bool system_role = true;       // Without one, system messages go before the first user message's text.
  bool developer_role = false;   // Without one, it is a system message.
};

class ChatTemplate {
 public:
  // The tokenizer outlives it. Errors: what Template::parse says.
  static Result<std::shared_ptr<const ChatTemplate>> make(std::string source, const Tokenizer& tokenizer);

  // Errors: what the template says of these messages, with its line; unsupported where it cannot continue a message.
  Result<ChatPrompt> prompt(const ChatTurns& turns) const;
  // The two halves of it: the text alone, and then its ids and marks.
  Result<ChatPrompt> render(const ChatTurns& turns) const;
  // Of a prompt of `tokens_max` or more, which nobody will compute, marks are not looked for.
  void tokenize(const ChatTurns& turns, ChatPrompt& prompt,
                std::int64_t tokens_max = std::numeric_limits<std::int64_t>::max()) const;

  const std::string& source() const { return source_; }
  const ChatFormat& format() const { return format_; }
  const ChatTraits& traits() const { return traits_; }
  // Ids of the control tokens among `marks`, which answers must show: sorted.
  std::vector<TokenId> shown_tokens(const std::vector<std::string>& marks) const;

 private:
  ChatTemplate(std::string source, std::shared_ptr<const Template> parsed, const Tokenizer& tokenizer);
  enum class GenerationPrompt : std::uint8_t { no, yes };
  void find_traits();
  nlohmann::ordered_json adapted(const nlohmann::ordered_json& messages) const;
  Result<Rendered> run(const nlohmann::ordered_json& messages, const ChatTurns& turns,
                       GenerationPrompt generation) const;
  Status cut_behind_last(const nlohmann::ordered_json& messages, ChatPrompt& out) const;
  std::vector<TokenId> encode(std::string_view text, std::span<const ByteRange> given) const;
  void add_marks(const ChatTurns& turns, ChatPrompt& out) const;
  std::int64_t shared_tokens(const nlohmann::ordered_json& messages, const ChatTurns& turns,
                             const ChatPrompt& prompt) const;
  std::int64_t mark_of(const ChatMark& mark, const ChatTurns& turns, const ChatPrompt& prompt) const;
  std::int64_t mark_before_answer(const ChatTurns& turns, const ChatPrompt& prompt) const;

  std::string source_;
  std::shared_ptr<const Template> template_;
  const Tokenizer* tokenizer_;
  ChatFormat format_;
  ChatTraits traits_;
};

}  // namespace lode::text
