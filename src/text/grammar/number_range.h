// Numbers within bounds, and multiples, as automata over their decimal digits. Pure; any thread; src/text/grammar only.
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "text/grammar/decimal.h"
#include "text/grammar/fsa.h"

namespace lode::text::grammar {

struct NumberRange {
  struct Bound {
    Decimal value;
    bool open = false;  // The bound itself is outside.
  };
  std::optional<Bound> low, high;
  std::vector<Decimal> multiples;  // Positive. The number is a multiple of each.
  bool integer = false;

  bool bounded() const { return low || high || !multiples.empty(); }
  // Replaces a bound where the new one is narrower.
  void at_least(const Decimal& value, bool open);
  void at_most(const Decimal& value, bool open);
  bool holds(const Decimal& value) const;  // The bounds alone.
};

// Every number of the range in plain digits: no leading zeros, no exponent, no "-0". Integers have up to 20 digits, or
// as many as a bound has; other numbers 15 significant ones, or as many as a bound needs, so that their doubles keep
// the order that their digits have.
Result<Fsa> number_automaton(const NumberRange& range, Work& work);

}  // namespace lode::text::grammar
