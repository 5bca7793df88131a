// What /v1/completions and /v1/chat/completions have in common: the fields of a body that ask for a generation. Owns
// nothing. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "serve/fields.h"
#include "text/tokenizer.h"

namespace lode::serve {

inline constexpr std::size_t kStopStringsMax = 16;
inline constexpr std::size_t kStopBytesMax = 4096;
inline constexpr std::int64_t kChoicesPerPromptMax = 16;
inline constexpr std::int64_t kLogprobsMax = 20;
inline constexpr std::size_t kDryBreakersMax = 64;

enum class Delivery { whole, stream };
enum class StreamUsage { no, yes };  // stream_options.include_usage

struct GenerationRequest {
  std::int64_t n = 1;      // Choices a prompt; choice c of prompt p has index p * n + c.
  engine::Request shared;  // Everything but prompt and choice.
  Delivery delivery = Delivery::whole;
  StreamUsage stream_usage = StreamUsage::no;
};

// Model, salt, lengths, n, delivery, stop, end tokens and sampling. `context_max` bounds windows of -1. A seed that is
// absent or negative is drawn here, so that the reply can name it.
void read_generation(Fields& fields, const text::Tokenizer& tokenizer, std::int64_t context_max,
                     GenerationRequest& out);

// Fields that would change the answer and that this version cannot honour, each with a number that means "off" (1 is
// also `true`, all others `false`), as null, an empty string and an empty array or object do for all.
struct Unsupported {
  std::string_view name;
  double off = 0;
};
// Those that no endpoint honours, and then `more`: refused by name rather than ignored.
void refuse_unsupported(Fields& fields, std::span<const Unsupported> more);

// The token with this id, if `value` is one.
std::optional<TokenId> token_id(const Json& value, const text::Tokenizer& tokenizer);
std::string id_range(const text::Tokenizer& tokenizer);  // "token ids from 0 to 49151"

// An error where a text of so many bytes cannot fit the context, whatever it says: known without tokenizing megabytes.
std::optional<ApiError> too_long(std::size_t bytes, const text::Tokenizer& tokenizer, std::int64_t context_max);

}  // namespace lode::serve
