// The body of /v1/messages, Anthropic's shape -> a body of chat, which chat_request.h reads. Owns nothing. Any thread.
#pragma once

#include <cstddef>
#include <variant>
#include <vector>

#include "serve/api_error.h"
#include "serve/json.h"
#include "text/chat/chat_template.h"

namespace lode::serve {

// A prompt has at most so many `cache_control` places, as Anthropic's own: each costs a run of the template.
inline constexpr std::size_t kCacheControlsMax = 4;

struct MessagesBody {
  Json chat;
  std::vector<text::ChatMark> marks;  // Where `cache_control` stands.
};

// `needed`: a request for an answer, which must say max_tokens; count_tokens need not.
enum class MaxTokens { needed, optional };

// Errors name the field as Anthropic's clients wrote it: messages[2].content[0].type.
std::variant<MessagesBody, ApiError> read_messages_body(const Json& body, MaxTokens max_tokens);

}  // namespace lode::serve
