// Runs benchmark cases in rounds, each beside a look at the machine's ceilings, and prints what share of them a case
// reaches: on a shared machine only neighbours in time compare. Owns the report. Benchmarks only, main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernel_work.h"
#include "kernels/kernels.h"

namespace lode::bench {

struct Case {
  // What the multiply-adds are measured against.
  enum class Peak : std::uint8_t { int8, f32 };

  std::string name;
  int threads = 1;
  double macs = 0;        // Multiply-adds of one run; 0: not shown.
  double read_bytes = 0;  // Bytes of weights, K and V that one run reads; 0: not shown.
  Peak peak = Peak::int8;
  // Whether memory is the bound, so that the share of the stream's bandwidth means something: the bytes do not fit into
  // the last cache.
  enum class Reads : std::uint8_t { cache, memory } reads = Reads::cache;
  std::function<std::unique_ptr<Work>(const kernels::Table&)> make;
};

// main() of a benchmark: takes --isa NAME, --filter REGEX, --rounds N, --seconds S (of one sample), --json, --list.
// Returns the exit code.
int run_cases(const char* program, int argc, char** argv, const std::vector<Case>& cases);

}  // namespace lode::bench
