// What a client asks of the engine and what it gets back. Plain data; made on any thread, then moved into the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/constraint.h"
#include "kv/store.h"

namespace lode::engine {

struct SamplingParams {
  float temperature = 1.0f;  // <= 1e-4: greedy. Must be finite and >= 0.
  float top_p = 1.0f;        // 1: off.
  std::int32_t top_k = 0;    // 0 or -1: off.
  float min_p = 0.0f;        // 0: off.
  float repeat_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;  // 1, 0, 0: off.
  std::int32_t penalty_last_n = 64;
  float typical_p = 1.0f;  // Locally typical sampling; 1: off.
  // Exclude top choices: with this chance, all tokens of at least `xtc_threshold` but the least likely of them go.
  float xtc_probability = 0.0f, xtc_threshold = 0.1f;  // 0: off; a threshold over 0.5 never finds two.
  // Don't repeat yourself: a token that would lengthen a repetition of n >= dry_allowed_length tokens loses
  // dry_multiplier * dry_base^(n - dry_allowed_length).
  float dry_multiplier = 0.0f, dry_base = 1.75f;  // 0: off.
  std::int32_t dry_allowed_length = 2;
  std::int32_t dry_penalty_last_n = -1;  // Tokens looked back at; -1: all.
  std::vector<TokenId> dry_breakers;     // Sorted; no repetition reaches across one of these.
  std::uint64_t seed = 0;                // Draws are keyed by (seed, choice, position).
  std::vector<std::pair<TokenId, float>> logit_bias;
};

struct Request {
  std::vector<TokenId> prompt;   // At least one id; all within the vocabulary.
  std::int32_t max_tokens = -1;  // -1: until the context is full.
  SamplingParams sampling;
  std::vector<std::string> stop;   // Non-empty strings; the text ends before the first that appears.
  std::int32_t top_logprobs = -1;  // -1: none; 0: the chosen token's; n: and the n most likely.
  std::uint32_t choice = 0;        // Index among the choices of one client request; part of the draw's key.
  std::string salt;                // KV namespace.
  // Prompt lengths in tokens after which other prompts are expected to go on differently (a system prompt's end, the
  // place before the assistant's turn): the store keeps resume points there. The prompt's end is one of itself.
  std::vector<std::int64_t> marks;
  std::int32_t slot = -1;            // The slot to run in, where that is free; -1: any.
  std::int32_t min_tokens = 0;       // No end-of-generation token before this many.
  std::vector<TokenId> stop_tokens;  // Sorted; each ends the answer as an end-of-generation token does.
  std::vector<TokenId> shown;        // Sorted; control tokens whose text is part of the answer's text.
  // What the answer may look like; each choice works on its own clone. Null: anything.
  std::shared_ptr<const Constraint> constraint;
  enum class EndTokens { stop, ignore } end_tokens = EndTokens::stop;  // ignore_eos.
  enum class Progress { no, yes } progress = Progress::no;             // Send prefill progress events.
};

struct TokenInfo {
  TokenId id = -1;
  std::string bytes;  // Raw bytes; may be part of a character.
  float logprob = 0;  // Natural log, of the model's own distribution (before temperature and filters).
  std::vector<std::pair<TokenId, float>> top;  // Descending; top[0] is the greedy choice.
};

enum class FinishReason : std::uint8_t { none, stop, length, cancelled };

struct Timings {
  std::int64_t prompt_n = 0;  // Prompt tokens computed here.
  std::int64_t cache_n = 0;   // Prompt tokens reused.
  std::int64_t predicted_n = 0;
  double queue_ms = 0, prompt_ms = 0, predicted_ms = 0;
};

// One thing that happened to a request.
struct Event {
  enum class Kind : std::uint8_t {
    progress,  // processed of total prompt tokens are done.
    delta,     // New text and/or tokens.
    finished,  // The last event of a request that went well. May carry a last piece of text.
    failed,    // The last event of one that did not.
  };
  Kind kind = Kind::delta;
  std::string text;               // Whole characters only; never part of a stop string.
  std::vector<TokenInfo> tokens;  // Tokens whose text is (partly) in this or an earlier event.
  std::int64_t processed = 0, total = 0;
  FinishReason finish = FinishReason::none;
  std::string stop_string;  // Which one matched, if any.
  Status error;
  Timings timings;  // finished and failed.
  kv::Reuse reuse;  // progress, first delta, finished, failed.
};

// Called on the step thread, in order; must not block (hand it to your own thread).
using EventSink = std::function<void(Event&&)>;

using RequestId = std::uint64_t;

}  // namespace lode::engine
