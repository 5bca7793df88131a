// Fuzz target: arbitrary bytes as the body of /v1/completions. Whatever is sent gives a request within its bounds or
// one line of error; what parses prints as JSON that parses to the same value.
#include <cstdint>
#include <string_view>
#include <variant>

#include "base/status.h"
#include "serve/completion_request.h"
#include "serve/fake_engine.h"
#include "serve/json.h"

namespace {

using namespace lode;
using namespace lode::serve;

constexpr std::int64_t kContext = 4096;

void check_request(const CompletionRequest& r, const ByteTokenizer& tokenizer) {
  LODE_CHECK(!r.prompts.empty() && r.n >= 1 && r.n <= kChoicesPerPromptMax);
  LODE_CHECK(r.prompts.size() * static_cast<std::size_t>(r.n) <= kChoicesMax);
  for (const auto& prompt : r.prompts)
    for (const TokenId id : prompt) LODE_CHECK(id >= 0 && id < tokenizer.vocab_size());
  LODE_CHECK(r.shared.top_logprobs <= kLogprobsMax);
  LODE_CHECK(r.shared.sampling.temperature >= 0 && r.shared.sampling.top_p <= 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const ByteTokenizer tokenizer;
  static text::grammar::GrammarStore grammars(tokenizer);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto json = parse_json(text);
  if (!json.ok()) {
    LODE_CHECK(!json.status().message().empty() && is_valid_utf8(json.status().message()));
    return 0;
  }
  const std::string printed = dump_json(*json);
  LODE_CHECK(is_valid_utf8(printed));
  const auto again = parse_json(printed);
  LODE_CHECK(again.ok() && dump_json(*again) == printed);
  const auto request = parse_completion_request(*json, grammars, kContext);
  if (const auto* error = std::get_if<ApiError>(&request)) LODE_CHECK(!error->message.empty());
  else check_request(std::get<CompletionRequest>(request), tokenizer);
  return 0;
}
