// A grammar as the engine's Constraint: masks, forced text and closing costs of one answer. Owns the answer's matcher;
// the compiled grammar and its masks are shared (text/grammar locks them). The tokenizer must outlive it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/constraint.h"
#include "text/grammar/matcher.h"
#include "text/tokenizer.h"

namespace lode::engine {

class GrammarConstraint final : public Constraint {
 public:
  GrammarConstraint(std::shared_ptr<text::grammar::MaskCache> masks, const text::Tokenizer& tokenizer)
      : matcher_(std::move(masks)), tokenizer_(&tokenizer) {}

  void fill_mask(std::span<std::uint32_t> mask) override { matcher_.fill_mask(mask, tokens_left_); }
  bool accept(TokenId token) override;
  bool done() const override { return matcher_.done(); }
  void forced(std::vector<TokenId>& out, std::size_t most) override;
  std::int64_t closing_cost() const override { return matcher_.close_tokens(); }
  void set_tokens_left(std::int64_t tokens) override { tokens_left_ = tokens; }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<GrammarConstraint>(*this); }

 private:
  void remember(TokenId token);

  text::grammar::Matcher matcher_;
  const text::Tokenizer* tokenizer_;
  std::int64_t tokens_left_ = text::grammar::Matcher::kNoBudget;
  // The latest tokens, oldest first: enough context for a tokenizer to spell what follows as it would in the whole
  // text.
  static constexpr std::size_t kLastMax = 4;
  std::array<TokenId, kLastMax> last_{};
  std::size_t last_size_ = 0;
};

}  // namespace lode::engine
