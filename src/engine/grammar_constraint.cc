#include "engine/grammar_constraint.h"

#include <algorithm>

#include "text/grammar/forced_tokens.h"

namespace lode::engine {

void GrammarConstraint::remember(TokenId token) {
  if (last_size_ == kLastMax) std::rotate(last_.begin(), last_.begin() + 1, last_.end());
  else ++last_size_;
  last_[last_size_ - 1] = token;
  if (tokens_left_ > 0) --tokens_left_;
}

bool GrammarConstraint::accept(TokenId token) {
  if (!matcher_.accept(token)) return false;
  remember(token);
  return true;
}

void GrammarConstraint::forced(std::vector<TokenId>& out, std::size_t most) {
  const std::size_t before = out.size();
  text::grammar::append_forced(*tokenizer_, std::span(last_).first(last_size_), tokens_left_, most, matcher_, out);
  for (std::size_t i = before; i < out.size(); ++i) remember(out[i]);
}

}  // namespace lode::engine
