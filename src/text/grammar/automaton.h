// The pushdown automaton that a grammar compiles to: one deterministic automaton a rule, over bytes and calls of rules.
// Constant after it is built: any thread. automaton_builder.h makes it, stacks.h runs it.
//
// A rule never matches the empty word (the callers know which rules may be left out), so a rule that was entered ends
// only after a byte: entering and leaving cannot chase each other. A counted rule is one repetition of a body with
// bounds: its start is the loop head, and edges that end the body lead back to it and add one to the count.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/grammar/limits.h"

namespace lode::text::grammar {

struct Automaton {
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  // Targets carry a flag: the edge ends a body of its counted rule.
  static constexpr std::uint32_t kCounts = 0x80000000u;
  static constexpr std::uint32_t kTarget = 0x7FFFFFFFu;

  struct Edge {
    std::uint8_t lo = 0, hi = 0;
    std::uint32_t to = 0;  // With kCounts.
  };
  struct Call {
    std::uint32_t rule = 0;
    std::uint32_t to = 0;  // Where to go on after it; with kCounts.
  };
  enum class Step : std::uint8_t { none, leave, edge, call };
  struct State {
    std::uint32_t edges = 0, edges_end = 0;
    std::uint32_t calls = 0, calls_end = 0;
    std::uint32_t row = kNone;  // Of `rows`, for states with many edges.
    std::uint32_t rule = 0;
    bool accepts = false;    // In a counted rule: once the count is large enough.
    bool loop_head = false;  // Of a counted rule: edges and calls only while the count is below the most.
    bool plain = false;      // Neither accepts, nor calls, nor is a loop head: only edges.
    bool last = false;       // Accepts and goes nowhere: nothing of its rule can follow.
    // The first step of the shortest way out of the rule (in a counted rule: to its loop head).
    Step shortest = Step::none;
    std::uint32_t shortest_index = 0;  // Of the edge or call.
    std::uint32_t close_bytes = 0;     // Length of that way.
    bool operator==(const State&) const = default;
  };
  struct Rule {
    std::uint32_t start = 0;
    std::uint32_t least = 0, most = 0;  // Of a counted rule, which has most > 0; kNoBound: no bound.
    std::uint32_t close_bytes = 0;      // The shortest word. Saturates at kFar.
    bool counted() const { return most != 0; }
    // A counted rule without calls: all that its bounds decide about a token is how many repetitions the token makes.
    bool pure = false;
    // Where the first rule with the same body starts: masks of pure rules are shared by their bodies.
    std::uint32_t twin = 0;
    std::bitset<256> follow;  // Bytes that may come behind the rule, whoever called it (or its twin).
  };
  static constexpr std::uint32_t kFar = 0x3FFFFFFFu;

  std::vector<State> states;
  std::vector<Edge> edges;
  std::vector<Call> calls;
  std::vector<std::array<std::uint32_t, 256>> rows;  // Target by byte; kNone where there is none.
  std::vector<Rule> rules;
  std::vector<std::uint32_t> order;  // States, each after those its shortest way leads through.
  std::uint32_t root = 0;            // The document: a rule that calls the grammar's own root and that nobody calls.
  bool empty_word = false;           // The grammar also accepts the empty document.

  // Target of a byte, with kCounts; kNone where there is none.
  std::uint32_t next(const State& s, std::uint8_t byte) const {
    if (s.row != kNone) return rows[s.row][byte];
    for (std::uint32_t e = s.edges; e != s.edges_end; ++e) {
      if (edges[e].lo <= byte && byte <= edges[e].hi) return edges[e].to;
    }
    return kNone;
  }
  // A readable byte of a range: what the shortest way writes.
  static std::uint8_t shown_byte(const Edge& e) {
    for (const std::uint8_t b : {'a', '0'}) {
      if (e.lo <= b && b <= e.hi) return b;
    }
    return e.lo;
  }
};

}  // namespace lode::text::grammar
