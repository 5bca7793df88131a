// Decimal numbers of any length, as JSON writes them: the bounds of numeric schemas. Plain data. Any thread;
// src/text/grammar only.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lode::text::grammar {

struct Decimal {
  bool negative = false;  // Never with zero.
  std::string whole;      // Without leading zeros: "" is 0.
  std::string fraction;   // Without trailing zeros.

  // The number as written; a fraction that needs more than 17 digits, or an integer beyond 64 bits, is what a double
  // holds of it. nullopt for what is no finite number.
  static std::optional<Decimal> of(const nlohmann::ordered_json& number);
  bool zero() const { return whole.empty() && fraction.empty(); }
  bool integer() const { return fraction.empty(); }
  Decimal negated() const { return {!negative && !zero(), whole, fraction}; }
  std::string text() const;
};

// -1, 0, 1.
int compare(const Decimal& a, const Decimal& b);

}  // namespace lode::text::grammar
