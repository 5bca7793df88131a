// `lode bench MODEL|URL`: time to first token cold, warm and after a restart; depth with a hidden fact; prompt and
// generation speed. Everything is measured as a client sees it, over HTTP. Owns the run. Main thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/bench_report.h"
#include "cli/bench_target.h"

namespace lode::cli {

struct BenchOptions {
  TargetOptions target;
  std::vector<std::string> tests = {"ttft", "depth", "speed"};
  std::int64_t prompt_tokens = 16000;                       // The prompt of `ttft`.
  std::vector<std::int64_t> depths = {25000, 77000, 1000};  // The short one last: what came before must not slow it.
  std::int64_t generated_max = 1200;                        // Tokens a `depth` reply may have.
  std::int64_t speed_prompt_tokens = 512, speed_generated_tokens = 64, speed_depth_tokens = 4096;
  int repeat = 1;
  double silence_timeout_s = 1800;  // Without a byte from the server.
  std::uint64_t seed = 0;           // 0: another for each run, so that no cache knows the prompts.
  enum class Progress : std::uint8_t { automatic, off } progress = Progress::automatic;  // automatic: on a terminal.
  enum class Format : std::uint8_t { table, json } format = Format::table;
};

// Measures; a failed request is a failure in its row, a target that cannot be reached is an error.
Result<BenchReport> measure(const BenchOptions& options);

// Measures and prints the report on stdout. Returns the exit code: 0 only if every request succeeded.
int run_bench(const BenchOptions& options);

}  // namespace lode::cli
