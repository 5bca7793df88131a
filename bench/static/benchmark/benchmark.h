// As much of Google Benchmark's interface as matmul_bench and attention_bench use, in one header, for binaries that
// link statically (Debian has the library as a shared one only): LODE_STATIC_KERNELS in src/kernels/static.cmake.
// Flags: --benchmark_filter=REGEX, --benchmark_min_time=SECONDS.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace benchmark {

enum TimeUnit { kNanosecond, kMicrosecond, kMillisecond };

struct Counter {
  enum Flags { kDefaults, kIsIterationInvariantRate };
  enum OneK { kIs1000, kIs1024 };
  double value = 0;  // A rate: of one iteration.
  Counter() = default;
  Counter(double v, Flags, OneK = kIs1000) : value(v) {}
};

class State {
 public:
  State(std::vector<std::int64_t> args, std::int64_t iterations) : args_(std::move(args)), iterations_(iterations) {}
  std::int64_t range(std::size_t i = 0) const { return args_.at(i); }
  std::int64_t iterations() const { return iterations_; }
  void SetItemsProcessed(std::int64_t items) { items_ = items; }
  void SetBytesProcessed(std::int64_t bytes) { bytes_ = bytes; }

  struct [[gnu::unused]] Nothing {};
  class Iterator {
   public:
    Iterator(State* state, std::int64_t left) : state_(state), left_(left) {}
    bool operator!=(const Iterator&) {
      if (left_ > 0) return true;
      state_->seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - state_->begin_).count();
      return false;
    }
    void operator++() { --left_; }
    Nothing operator*() const { return {}; }

   private:
    State* state_;
    std::int64_t left_;
  };
  Iterator begin() {
    begin_ = std::chrono::steady_clock::now();
    return {this, iterations_};
  }
  Iterator end() { return {this, 0}; }

  double seconds() const { return seconds_; }
  void report(const std::string& name) const {
    std::printf("%-48s %12.1f us %10lld", name.c_str(), seconds_ * 1e6 / static_cast<double>(iterations_),
                static_cast<long long>(iterations_));
    if (items_ > 0) std::printf("  %8.2f G items/s", static_cast<double>(items_) / seconds_ * 1e-9);
    if (bytes_ > 0) std::printf("  %8.2f GB/s", static_cast<double>(bytes_) / seconds_ * 1e-9);
    for (const auto& [counter, rate] : counters)
      std::printf("  %8.2f %s", rate.value * static_cast<double>(iterations_) / seconds_, counter.c_str());
    std::printf("\n");
    std::fflush(stdout);
  }

  std::map<std::string, Counter> counters;

 private:
  std::vector<std::int64_t> args_;
  std::int64_t iterations_;
  std::int64_t items_ = 0, bytes_ = 0;
  std::chrono::steady_clock::time_point begin_;
  double seconds_ = 0;
};

class Benchmark {
 public:
  Benchmark(std::string name, std::function<void(State&)> fn) : name_(std::move(name)), fn_(std::move(fn)) {}
  Benchmark* Arg(std::int64_t arg) { return Args({arg}); }
  Benchmark* Args(std::vector<std::int64_t> args) {
    args_.push_back(std::move(args));
    return this;
  }
  Benchmark* UseRealTime() { return this; }
  Benchmark* Unit(TimeUnit) { return this; }

  void run(const std::regex& filter, double seconds_min) const {
    for (const std::vector<std::int64_t>& args : args_) {
      std::string name = name_;
      for (const std::int64_t arg : args) name += "/" + std::to_string(arg);
      if (!std::regex_search(name, filter)) continue;
      for (std::int64_t iterations = 1;;) {
        State state(args, iterations);
        fn_(state);
        if (state.seconds() >= seconds_min) {
          state.report(name);
          break;
        }
        const double more = state.seconds() > 0 ? 1.4 * seconds_min / state.seconds() : 10;
        iterations = static_cast<std::int64_t>(static_cast<double>(iterations) * (more > 10 ? 10 : more)) + 1;
      }
    }
  }

 private:
  std::string name_;
  std::function<void(State&)> fn_;
  std::vector<std::vector<std::int64_t>> args_;
};

inline std::vector<std::unique_ptr<Benchmark>>& all_benchmarks() {
  static std::vector<std::unique_ptr<Benchmark>> all;
  return all;
}
inline Benchmark* add_benchmark(std::string name, std::function<void(State&)> fn) {
  all_benchmarks().push_back(std::make_unique<Benchmark>(std::move(name), std::move(fn)));
  return all_benchmarks().back().get();
}

struct Options {
  std::string filter;
  double seconds_min = 0.3;
};
inline Options& options() {
  static Options options;
  return options;
}
inline void Initialize(int* argc, char** argv) {
  for (int i = 1; i < *argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.starts_with("--benchmark_filter=")) options().filter = arg.substr(19);
    if (arg.starts_with("--benchmark_min_time=")) options().seconds_min = std::atof(argv[i] + 21);
  }
}
inline void RunSpecifiedBenchmarks() {
  const std::regex filter(options().filter);
  for (const auto& one : all_benchmarks()) one->run(filter, options().seconds_min);
}

template <typename T>
inline void DoNotOptimize(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}
inline void ClobberMemory() {
  asm volatile("" : : : "memory");
}

}  // namespace benchmark

#define LODE_BENCHMARK_NAME2(line) benchmark_##line
#define LODE_BENCHMARK_NAME1(line) LODE_BENCHMARK_NAME2(line)
#define LODE_BENCHMARK_NAME [[maybe_unused]] static benchmark::Benchmark* LODE_BENCHMARK_NAME1(__LINE__)
#define BENCHMARK(fn) LODE_BENCHMARK_NAME = benchmark::add_benchmark(#fn, fn)
#define BENCHMARK_CAPTURE(fn, name, ...) \
  LODE_BENCHMARK_NAME = benchmark::add_benchmark(#fn "/" #name, [](benchmark::State& state) { fn(state, __VA_ARGS__); })
