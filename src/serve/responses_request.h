// The body of /v1/responses, OpenAI's Responses API -> a body of chat, which chat_request.h reads. Owns nothing. Any
// thread.
#pragma once

#include <variant>

#include "serve/api_error.h"
#include "serve/chat_request.h"
#include "serve/json.h"

namespace lode::serve {

struct ResponsesBody {
  Json chat;
  Json echo;  // The request's fields as every response repeats them, in OpenAI's order: instructions, tools, ...
};

// Errors name the field as the client wrote it: input[2].content[0].type. What would need responses kept on the server
// (previous_response_id, conversation, background, item_reference) is refused by name.
std::variant<ResponsesBody, ApiError> read_responses_body(const Json& body);

struct ResponsesRequest {
  ChatRequest chat;
  Json echo;
};

}  // namespace lode::serve
