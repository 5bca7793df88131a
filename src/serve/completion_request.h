// The body of /v1/completions -> what the engine is asked. Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "serve/api_error.h"
#include "serve/json.h"
#include "text/tokenizer.h"

namespace lode::serve {

inline constexpr std::size_t kStopStringsMax = 16;
inline constexpr std::size_t kStopBytesMax = 4096;
inline constexpr std::int64_t kChoicesPerPromptMax = 16;
inline constexpr std::size_t kChoicesMax = 128;  // Prompts times n.
inline constexpr std::int64_t kLogprobsMax = 20;

enum class Delivery { whole, stream };
enum class Echo { no, yes };
enum class StreamUsage { no, yes };  // stream_options.include_usage

struct CompletionRequest {
  std::vector<std::vector<TokenId>> prompts;  // Ids, BOS included where the model wants one.
  std::int64_t n = 1;                         // Choices a prompt; choice c of prompt p has index p * n + c.
  engine::Request shared;                     // Everything but prompt and choice.
  Delivery delivery = Delivery::whole;
  Echo echo = Echo::no;
  StreamUsage stream_usage = StreamUsage::no;
};

// Checks every field and tokenizes. `context_max` bounds penalty_last_n of -1. A seed that is absent or negative is
// drawn here, so that the reply can name it.
std::variant<CompletionRequest, ApiError> parse_completion_request(const Json& body, const text::Tokenizer& tokenizer,
                                                                   std::int64_t context_max);

}  // namespace lode::serve
