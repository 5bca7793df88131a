// What an audit found: answers, how two of them compare, the verdicts, a table for people and JSON for programs. Plain
// data and pure functions. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lode::cli {

// One greedy step of an answer.
struct AuditStep {
  std::string token;  // What tells tokens apart: the id, or the text where a server names no ids.
  std::string text;   // For people.
  // The most likely tokens with their log-probabilities (natural), best first.
  std::vector<std::pair<std::string, double>> top;
  bool operator==(const AuditStep&) const = default;
};

struct AuditAnswer {
  std::string text;
  std::vector<AuditStep> steps;
  double first_token_s = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = -1;                                  // -1: the server does not say.
  std::int64_t from_ram = -1, from_disk = -1, from_in_flight = -1;  // Of them; -1: the same.
};

// How an answer differs from the cold one of the same question.
struct AuditDifference {
  bool identical = false;           // Text, tokens and every log-probability, bit for bit.
  double first_token = 0;           // Largest difference among the first token's likeliest, in log-probability.
  double largest = 0;               // The same over all steps up to the first other token.
  std::optional<std::size_t> flip;  // The first step with another token, or without one.
  double lead = 0;                  // There: how far the cold answer's token was ahead of the next.
};
AuditDifference compare_answers(const AuditAnswer& cold, const AuditAnswer& other);

enum class Verdict : std::uint8_t { identical, tolerance, wrong };
// "bit-identical", "within tolerance", "WRONG".
std::string_view verdict_name(Verdict verdict);

// How far apart two log-probabilities of a first token may be: max(0.05, 10 x what two cold runs differ by).
double allowed_difference(double cold_against_cold);
// WRONG: the first token's likeliest differ by more than `allowed`, or a token flips where the cold answer's top two
// are more than twice that apart.
Verdict judge(const AuditDifference& difference, double allowed);

struct AuditQuestion {
  AuditAnswer answer;
  AuditDifference difference;  // Not of a reference.
  Verdict verdict = Verdict::identical;
};

// The same questions, asked in one way.
struct AuditArm {
  std::string kv;    // "f16"; of somebody else's server: "peer".
  std::string name;  // "cold again", "warm", "ram", "ssd", "batched"; the reference is "cold".
  std::vector<AuditQuestion> questions;
  std::string not_possible;  // Why it was not asked; empty: it was.
  std::string failure;       // What ended it early; empty: nothing.
  std::string remark;        // What a reader should know of it.

  std::int64_t count(Verdict verdict) const;
};

struct AuditReport {
  std::string target;                                   // The model's description, or a URL.
  std::string prefix;                                   // "2,000 tokens", "9,000 bytes".
  std::int64_t tokens = 0;                              // Of an answer.
  std::string damage;                                   // What was altered on purpose; empty: nothing.
  std::vector<std::pair<AuditArm, double>> references;  // The cold runs, with the difference that each KV allows.
  std::vector<AuditArm> arms;                           // Compared with the reference of the same KV.

  bool any_wrong() const;
  bool any_failed() const;
};

std::string to_table(const AuditReport& report);
std::string to_json(const AuditReport& report);

}  // namespace lode::cli
