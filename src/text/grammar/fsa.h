// Finite automata over bytes and rule calls: built as an Nfa, made deterministic, combined. Owns its states. Any
// thread; src/text/grammar only.
//
// A call edge reads whatever one word of the called rule is; here it is a letter like any other. Building is bounded by
// CompileLimits: past a bound the result is an error, and the memory used is in proportion to the bound.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/grammar/limits.h"

namespace lode::text::grammar {

// Steps of building that one grammar may still take; shared by all its parts.
struct Work {
  CompileLimits limits;
  std::int64_t left = limits.work_max;

  // Ok while `steps` more are allowed.
  Status spend(std::int64_t steps);
  Status check_states(std::size_t states) const;
};

struct FsaEdge {
  std::uint8_t lo = 0, hi = 0;
  std::uint32_t to = 0;
  bool operator==(const FsaEdge&) const = default;
};
struct FsaCall {
  std::uint32_t rule = 0, to = 0;
  bool operator==(const FsaCall&) const = default;
};
struct FsaState {
  std::vector<FsaEdge> edges;  // Sorted, disjoint.
  std::vector<FsaCall> calls;  // At most one a rule.
  bool accepts = false;
};
// Deterministic. State 0 is the start; there is always one.
struct Fsa {
  std::vector<FsaState> states;
  bool has_calls() const;
};

class Nfa {
 public:
  explicit Nfa(Work& work) : work_(&work) {}

  std::uint32_t add_state() {
    first_.push_back(kNone);
    return static_cast<std::uint32_t>(first_.size() - 1);
  }
  void add_bytes(std::uint32_t from, std::uint8_t lo, std::uint8_t hi, std::uint32_t to) {
    add({to, first_[from], 0, lo, hi, Kind::bytes}, from);
  }
  void add_call(std::uint32_t from, std::uint32_t rule, std::uint32_t to) {
    add({to, first_[from], rule, 0, 0, Kind::call}, from);
  }
  void add_empty(std::uint32_t from, std::uint32_t to) { add({to, first_[from], 0, 0, 0, Kind::empty}, from); }
  // A copy of `part` between two states.
  void add_fsa(std::uint32_t from, const Fsa& part, std::uint32_t to);
  std::size_t size() const { return first_.size() + edges_.size(); }

  Result<Fsa> determinize(std::uint32_t start, std::uint32_t accept) const;

 private:
  friend class Subsets;
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  enum class Kind : std::uint8_t { empty, bytes, call };
  struct Edge {
    std::uint32_t to, next, rule;
    std::uint8_t lo, hi;
    Kind kind;
  };
  void add(const Edge& edge, std::uint32_t from) {
    edges_.push_back(edge);
    first_[from] = static_cast<std::uint32_t>(edges_.size() - 1);
  }

  Work* work_;
  std::vector<std::uint32_t> first_;  // Of each state: its newest edge; they are linked by `next`.
  std::vector<Edge> edges_;
};

// Words of both, or of `a` alone. Neither may have calls.
enum class Combine { both, only_first };
Result<Fsa> combine(const Fsa& a, const Fsa& b, Combine how, Work& work);

// The smallest automaton with the same words; `fsa` is trimmed and has no calls.
Result<Fsa> minimize(const Fsa& fsa, Work& work);

// Drops the states that no accepted word passes. An automaton without any word keeps its start alone.
Fsa trim(const Fsa& fsa);
bool accepts_nothing(const Fsa& trimmed);
// Whether the automaton, without calls, accepts the word.
bool accepts(const Fsa& fsa, std::string_view word);

}  // namespace lode::text::grammar
