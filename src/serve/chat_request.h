// The body of /v1/chat/completions -> what the engine is asked. Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "serve/api_error.h"
#include "serve/json.h"
#include "serve/request_fields.h"
#include "text/chat/chat_template.h"
#include "text/chat/reply_parser.h"
#include "text/grammar/grammar_store.h"
#include "text/tokenizer.h"

namespace lode::serve {

inline constexpr std::size_t kMessagesMax = 16'384;
inline constexpr std::size_t kToolsMax = 1024;

enum class ParallelCalls { no, yes };

struct ChatRequest : GenerationRequest {
  text::ChatPrompt prompt;
  text::ChatFormat format;
  text::ReplyParser::Options parser;  // tools_json points into `tools` once the request has its place: see new_parser.
  Json tools;
  ParallelCalls parallel_calls = ParallelCalls::yes;
  std::string
      forced_start;  // How the answer begins, because tool_choice says so: part of the prompt and of the answer.

  text::ReplyParser new_parser() const;
};

struct ChatContext {
  const text::ChatTemplate& chat;
  text::grammar::GrammarStore& grammars;
  std::int64_t context_max = 0;
  text::DateTime now;

  const text::Tokenizer& tokenizer() const { return grammars.tokenizer(); }
};

// Checks every field, renders and tokenizes. `marks`: places beside those that every prompt has.
std::variant<ChatRequest, ApiError> parse_chat_request(const Json& body, const ChatContext& context,
                                                       std::vector<text::ChatMark> marks = {});

// The fields that make a prompt, for /apply-template: messages, tools, chat_template_kwargs, ...
std::variant<text::ChatTurns, ApiError> parse_chat_turns(const Json& body, const ChatContext& context);

}  // namespace lode::serve
