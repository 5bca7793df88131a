// The pieces of a reply of /v1/completions, as JSON: pure functions of what the engine said. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "serve/json.h"
#include "text/tokenizer.h"

namespace lode::serve {

// OpenAI's legacy logprobs object, built token by token: tokens, token_logprobs, top_logprobs, text_offset. Offsets
// count characters from the start of the choice's text. A log-probability of minus infinity is written as -9999, as
// OpenAI does for "very unlikely": JSON has no infinity.
class LegacyLogprobs {
 public:
  // Prompt tokens that `echo` repeats: their probabilities are not computed, so they are null.
  void add_prompt_token(TokenId id, const text::Tokenizer& tokenizer);
  void add(const engine::TokenInfo& token, const text::Tokenizer& tokenizer);
  bool empty() const { return tokens_.empty(); }
  // What was added since the last take (offsets go on counting).
  Json take();

 private:
  Json tokens_ = Json::array(), token_logprobs_ = Json::array(), top_logprobs_ = Json::array(),
       text_offset_ = Json::array();
  std::int64_t offset_ = 0;  // Characters.
};

// A token's text; one that is not whole UTF-8 as "bytes:\xe2\x80", so that nothing is lost and keys stay distinct.
std::string token_text(std::string_view bytes);

// A log-probability as JSON can say it: from -9999 (also for what is no number) to 0.
double json_logprob(float logprob);

// "stop" or "length"; null while unfinished.
Json finish_reason(engine::FinishReason reason);

struct Usage {
  std::int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};
Json usage_json(const Usage& usage);
// llama-server's names. Every figure is finite: a rate over no time is 0.
Json timings_json(const engine::Timings& timings);
Json cache_json(const kv::Reuse& reuse);
// llama-server's prompt_progress.
Json progress_json(const engine::Event& event, double elapsed_ms);

// Several choices as one: counts add up, times are the longest (choices run side by side), the first reason is kept.
void merge(engine::Timings& into, const engine::Timings& more);
void merge(kv::Reuse& into, const kv::Reuse& more);

}  // namespace lode::serve
