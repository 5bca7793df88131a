// What a benchmark found, as a table for people and as JSON for programs. Plain data. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_client.h"

namespace lode::cli {

// One line of the report: the same request, repeated. Only replies that succeeded enter the figures.
struct BenchRow {
  std::string test = {};  // "ttft", "depth", "speed".
  std::string arm = {};   // "cold", "25000 tokens", "pp512 @d4096".
  std::vector<double> ttft_s = {};
  std::vector<double> prompt_tokens_per_s = {};  // Empty: this arm does not measure it.
  std::vector<double> generation_tokens_per_s = {};
  std::int64_t prompt_tokens = 0;   // Of the last reply, as are the next three.
  std::int64_t cached_tokens = -1;  // -1: the server does not say.
  std::int64_t generated_tokens = 0;
  std::string by_tier = {};
  std::uint64_t resident_bytes = 0;  // Of our own server after the last reply; 0: not ours.
  int attempts = 0;
  int facts_asked = 0, facts_found = 0;
  std::vector<std::string> failures = {};  // One line a failed attempt.
  std::string skipped = {};                // Why nothing was sent.
};

struct BenchReport {
  std::string target, model;
  std::int64_t context = -1;    // Tokens; -1: unknown.
  std::vector<double> ready_s;  // Each start of our own server until it answered.
  std::vector<BenchRow> rows;

  bool all_succeeded() const;
};

struct Spread {
  double median = 0, least = 0, most = 0;
};
// nullopt for no values. The median of an even count is the mean of the middle two.
std::optional<Spread> spread_of(std::vector<double> values);

std::string to_table(const BenchReport& report);
std::string to_json(const BenchReport& report);

}  // namespace lode::cli
