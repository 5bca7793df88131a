// How many tokens and bytes the shortest way to a document's end takes from each state: what must be kept in reserve at
// max_tokens. Constant after make(); any thread; src/text/grammar only.
//
// Bytes are exact. Tokens are an upper bound: the least number of tokens that spell the shortest byte string, where no
// token crosses the end of a rule that was open before it (docs/grammar.md, "Closing"). Every state that costs n > 0
// has a token after which the rest costs at most n - 1, so a budget that holds the bound once holds it to the end.
#pragma once

#include <cstdint>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/token_trie.h"

namespace lode::text::grammar {

class CloseCosts {
 public:
  // Keeps a reference to the automaton, none to the trie.
  CloseCosts(const Automaton& automaton, const TokenTrie& trie);

  // To leave the rule that the state is in, whose counter stands at `count`. Saturates at Automaton::kFar.
  std::uint32_t tokens(std::uint32_t state, std::uint32_t count) const {
    const Automaton::Rule& rule = automaton_.rules[automaton_.states[state].rule];
    if (!rule.counted()) return tokens_[state];
    return counted_cost(state, count, tokens_[state], tokens_[rule.start]);
  }
  std::uint32_t bytes(std::uint32_t state, std::uint32_t count) const {
    const Automaton::Rule& rule = automaton_.rules[automaton_.states[state].rule];
    if (!rule.counted()) return automaton_.states[state].close_bytes;
    return counted_cost(state, count, automaton_.states[state].close_bytes, automaton_.states[rule.start].close_bytes);
  }
  // The tokens of the repetitions that a counted rule still owes at `count`; 0 for other rules.
  std::int64_t owed_tokens(std::uint32_t state, std::uint32_t count) const {
    const Automaton::Rule& rule = automaton_.rules[automaton_.states[state].rule];
    return rule.least > count ? std::int64_t{rule.least - count} * tokens_[rule.start] : 0;
  }
  // To the end of the rule, or in a counted rule to its loop head, whatever is owed.
  std::uint32_t own_tokens(std::uint32_t state) const {
    return automaton_.states[state].loop_head ? 0 : tokens_[state];
  }

 private:
  // `own`: to the loop head; `body`: one repetition.
  std::uint32_t counted_cost(std::uint32_t state, std::uint32_t count, std::uint32_t own, std::uint32_t body) const;
  std::uint32_t find_tokens(std::uint32_t state, const TokenTrie& trie) const;

  const Automaton& automaton_;
  std::vector<std::uint32_t> tokens_;  // By state; in a counted rule: to its loop head, and the head's own: one body.
};

// The bytes of the shortest way out of one state, one after another.
class ShortestWay {
 public:
  ShortestWay(const Automaton& automaton, std::uint32_t state) : a_(automaton) {
    open_.reserve(kShortestDepthMax + 2);
    open_.push_back({state, 0});
  }
  // The next byte, or -1 at the end: the rule is left, or, in a counted rule, its body.
  int next();
  // The state of the rule it began in, while no other rule is open; kNone at the end.
  bool inside_call() const { return open_.size() > 1; }
  std::uint32_t state() const { return open_.empty() ? Automaton::kNone : open_.back().state; }

 private:
  struct Open {
    std::uint32_t state;
    std::uint32_t repeats;  // Of a counted rule that was called: bodies still to come, this one included.
  };
  void arrive(std::uint32_t to);  // Goes on at a target of the innermost open rule.
  void leave();

  const Automaton& a_;
  std::vector<Open> open_;
};

}  // namespace lode::text::grammar
