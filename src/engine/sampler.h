// Logits -> token. Owns its candidate buffer; allocates nothing after construction. Step thread only.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"

namespace lode::engine {

// A uniform number in [0, 1) that depends on these three alone, so that neither batching nor drafting nor preemption
// changes a text.
double uniform_draw(std::uint64_t seed, std::uint32_t choice, std::int64_t position);

class Sampler {
 public:
  explicit Sampler(std::int64_t vocab) : vocab_(vocab) {
    candidates_.reserve(static_cast<std::size_t>(vocab));
    adjusted_.reserve(static_cast<std::size_t>(vocab));
  }

  // The token that follows. `history`: prompt and generated tokens so far (for penalties). Order: bias, penalties,
  // then greedy; or temperature, top_k, min_p, top_p, draw. Ties go to the lower id.
  TokenId sample(std::span<const float> logits, const SamplingParams& params, std::uint32_t choice,
                 std::span<const TokenId> history);

  // Fills the token's log-probability under softmax(logits), in natural logarithm, and the `top` most likely.
  static void log_probabilities(std::span<const float> logits, std::int32_t top, TokenInfo& info);

 private:
  struct Candidate {
    float logit;
    TokenId id;
  };
  std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                                std::span<const TokenId> history);
  TokenId draw(double u, const SamplingParams& params);

  std::int64_t vocab_;
  std::vector<Candidate> candidates_;
  std::vector<float> adjusted_;
};

}  // namespace lode::engine
