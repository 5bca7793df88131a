#include "text/grammar/close_costs.h"

#include <algorithm>

namespace lode::text::grammar {

void ShortestWay::leave() {
  // Where each open rule goes on is the call that its shortest way takes from where it stands.
  open_.pop_back();
  if (open_.empty()) return;
  arrive(a_.calls[a_.states[open_.back().state].shortest_index].to);
}

void ShortestWay::arrive(std::uint32_t to) {
  if (to & Automaton::kCounts) {
    Open& open = open_.back();
    if (open_.size() == 1) return open_.clear();  // The body in which the way began.
    open.state = to & Automaton::kTarget;
    if (--open.repeats == 0) return leave();
    return;
  }
  open_.back().state = to;
  if (a_.states[to].shortest == Automaton::Step::leave) leave();
}

int ShortestWay::next() {
  if (open_.size() == 1 && a_.states[open_[0].state].shortest == Automaton::Step::leave) open_.clear();
  while (!open_.empty()) {
    const Automaton::State& s = a_.states[open_.back().state];
    if (s.shortest == Automaton::Step::edge) {
      const Automaton::Edge& e = a_.edges[s.shortest_index];
      arrive(e.to);
      return Automaton::shown_byte(e);
    }
    if (s.shortest != Automaton::Step::call) return -1;
    const Automaton::Rule& rule = a_.rules[a_.calls[s.shortest_index].rule];
    open_.push_back({rule.start, rule.least});
  }
  return -1;
}

CloseCosts::CloseCosts(const Automaton& automaton, const TokenTrie& trie)
    : automaton_(automaton), tokens_(automaton.states.size(), Automaton::kFar) {
  for (const std::uint32_t s : automaton.order) tokens_[s] = find_tokens(s, trie);
}

std::uint32_t CloseCosts::counted_cost(std::uint32_t state, std::uint32_t count, std::uint32_t own,
                                       std::uint32_t body) const {
  const Automaton::State& s = automaton_.states[state];
  const std::uint64_t least = automaton_.rules[s.rule].least;
  const std::uint64_t done = std::uint64_t{count} + (s.loop_head ? 0 : 1);
  const std::uint64_t owed = least > done ? least - done : 0;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>((s.loop_head ? 0 : own) + owed * body, Automaton::kFar));
}

std::uint32_t CloseCosts::find_tokens(std::uint32_t state, const TokenTrie& trie) const {
  const Automaton::State& s = automaton_.states[state];
  if (s.shortest == Automaton::Step::leave) return 0;
  std::uint64_t best = Automaton::kFar;
  ShortestWay way(automaton_, state);
  std::uint32_t node = 0;
  for (int byte = way.next(); byte >= 0; byte = way.next()) {
    node = trie.child(node, static_cast<std::uint8_t>(byte));
    if (node == TokenTrie::kNone) break;
    if (!trie.has_tokens(node) || way.inside_call()) continue;
    best = std::min<std::uint64_t>(best, 1 + (way.state() == Automaton::kNone ? 0 : tokens_[way.state()]));
  }
  if (s.shortest == Automaton::Step::call) {
    const Automaton::Call& call = automaton_.calls[s.shortest_index];
    const Automaton::Rule& rule = automaton_.rules[call.rule];
    const std::uint64_t times = rule.counted() ? rule.least : 1;
    best = std::min(best, times * tokens_[rule.start] + (call.to & Automaton::kCounts ? 0 : tokens_[call.to]));
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(best, Automaton::kFar));
}

}  // namespace lode::text::grammar
