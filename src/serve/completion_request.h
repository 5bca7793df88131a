// The body of /v1/completions -> what the engine is asked. Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "serve/api_error.h"
#include "serve/json.h"
#include "serve/request_fields.h"
#include "text/grammar/grammar_store.h"
#include "text/tokenizer.h"

namespace lode::serve {

inline constexpr std::size_t kChoicesMax = 128;  // Prompts times n.

enum class Echo { no, yes };

struct CompletionRequest : GenerationRequest {
  std::vector<std::vector<TokenId>> prompts;  // Ids, BOS included where the model wants one.
  Echo echo = Echo::no;
};

// Checks every field and tokenizes with the grammars' tokenizer. `context_max` bounds penalty_last_n of -1. A seed that
// is absent or negative is drawn here, so that the reply can name it.
std::variant<CompletionRequest, ApiError> parse_completion_request(const Json& body,
                                                                   text::grammar::GrammarStore& grammars,
                                                                   std::int64_t context_max);

}  // namespace lode::serve
