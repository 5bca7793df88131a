// main() of the kernels' micro-benchmarks: --isa NAME picks the table, as it does for lode. Owns the choice.
#pragma once

#include <benchmark/benchmark.h>

#include <cstdio>
#include <string_view>

#include "kernels/kernels.h"

namespace lode::kernels {

inline const Table*& bench_choice() {
  static const Table* table = available_tables().front();
  return table;
}
inline const Table& bench_table() {
  return *bench_choice();
}

// Takes --isa NAME or --isa=NAME out of the arguments; 0, or the exit code of a wrong name.
inline int choose_table(int& argc, char** argv) {
  std::string_view name;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--isa=")) {
      name = arg.substr(6);
    } else if (arg == "--isa" && i + 1 < argc) {
      name = argv[++i];
    } else {
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  const Result<const Table*> table = select_table(name);
  if (!table.ok()) {
    std::fprintf(stderr, "%s\n", table.status().message().c_str());
    return 2;
  }
  bench_choice() = *table;
  std::printf("table: %.*s\n", static_cast<int>((*table)->name.size()), (*table)->name.data());
  return 0;
}

}  // namespace lode::kernels

#define LODE_BENCH_MAIN()                                                                    \
  int main(int argc, char** argv) {                                                          \
    if (const int wrong = lode::kernels::choose_table(argc, argv); wrong != 0) return wrong; \
    benchmark::Initialize(&argc, argv);                                                      \
    benchmark::RunSpecifiedBenchmarks();                                                     \
    return 0;                                                                                \
  }
