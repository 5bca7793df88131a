// The prompt that a body asks about, of whatever shape: what the same body would be computed from as a request. Owns
// nothing. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "serve/api_error.h"
#include "serve/chat_request.h"
#include "serve/json.h"

namespace lode::serve {

struct StoredPrompt {
  std::vector<TokenId> ids;
  std::string salt;  // As the body names it.
  // Of a chat: the rendered text, what of it the tools made, and where each message's text lies.
  struct Part {
    std::size_t begin = 0, end = 0;  // Bytes of `text`.
  };
  struct Message {
    std::string role;
    std::optional<Part> part;  // Nothing where the template shows no text of it.
  };
  bool chat = false;
  std::string text;
  std::optional<Part> tools;
  std::vector<Message> messages;

  // In which part the token at this place lies, for chats: {"in": "message", "index": 2, "role": "user"},
  // {"in": "tools"}, {"in": "template", "before_message": 2}. Null for others.
  Json part_of(std::int64_t token, const text::Tokenizer& tokenizer) const;
};

// `messages` (as /v1/chat/completions takes them; needs `chat`), `prompt` (as /v1/completions; one) or `tokens`, an
// array of ids.
std::variant<StoredPrompt, ApiError> read_stored_prompt(const Json& body, text::grammar::GrammarStore& grammars,
                                                        std::int64_t context_max,
                                                        const std::optional<ChatContext>& chat);

}  // namespace lode::serve
