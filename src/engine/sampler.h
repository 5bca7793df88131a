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

// The same for what is decided beside the draw at a position: whether XTC applies.
double uniform_side_draw(std::uint64_t seed, std::uint32_t choice, std::int64_t position);

class Sampler {
 public:
  // `history_max`: the longest history that sample() will see; only DRY keeps something for each token of it.
  explicit Sampler(std::int64_t vocab, std::int64_t history_max = 0) : vocab_(vocab) {
    candidates_.reserve(static_cast<std::size_t>(vocab));
    adjusted_.reserve(static_cast<std::size_t>(vocab));
    counts_.assign(static_cast<std::size_t>(vocab), 0);
    matches_.reserve(static_cast<std::size_t>(history_max));
  }

  // What may not come at all.
  struct Barred {
    std::span<const std::uint32_t> mask;  // Of a Constraint; empty: everything is allowed.
    std::span<const TokenId> tokens;      // Not these.
  };

  // The token that follows; -1 where `barred` leaves none. `history`: prompt and generated tokens so far (for
  // penalties). Order: bias, penalties, DRY, what is barred, then greedy; or temperature, top_k, typical_p, min_p,
  // top_p, XTC, draw. Ties go to the lower id.
  TokenId sample(std::span<const float> logits, const SamplingParams& params, std::uint32_t choice,
                 std::span<const TokenId> history, const Barred& barred = {});

  // Fills the token's log-probability under softmax(logits), in natural logarithm, and the `top` most likely.
  static void log_probabilities(std::span<const float> logits, std::int32_t top, TokenInfo& info);

 private:
  struct Candidate {
    float logit;
    TokenId id;
  };
  struct Shares;
  std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                                std::span<const TokenId> history, const Barred& barred);
  void penalize(const SamplingParams& params, std::span<const TokenId> history);
  void penalize_repetition(const SamplingParams& params, std::span<const TokenId> history);
  void bar(const Barred& barred);
  void sort_to(std::size_t count);
  void keep_typical(const SamplingParams& params);
  void keep_share(const SamplingParams& params);
  void drop_top(const SamplingParams& params);
  double weight(const Candidate& c) const;
  double total_weight() const;
  TokenId draw(double u, double side, const SamplingParams& params);

  std::int64_t vocab_;
  std::vector<Candidate> candidates_;
  std::size_t sorted_ = 0;                  // Leading candidates that are in descending order.
  double max_logit_ = 0, temperature_ = 1;  // Of the draw that is being made.
  std::vector<float> adjusted_;             // [vocab]
  std::vector<std::int32_t> counts_;        // [vocab]; all zero between uses.
  std::vector<std::int32_t> matches_;       // [history] DRY: how much of the end each earlier place repeats.
};

}  // namespace lode::engine
