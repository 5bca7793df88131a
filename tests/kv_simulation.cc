// Simulations of whole KV stores (src/kv/store_simulation.h), as long as wanted.
//
//   kv_simulation [--seconds 60] [--operations 2000] [--seed N]   seeds from N (1) on, so many operations each, until
//                                                                  the time is over; 0 seconds: one seed alone
//   kv_simulation --total 1000000                                  until so many operations were done
//   kv_simulation --seed N --operations M --shrink                 which operations of a failing run are needed
//
// A failure prints the seed, the operation's number, what it was and how to repeat it. Exit code 1.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "kv/store_simulation.h"

namespace {

using lode::kv::test::Simulation;

// For the message of a broken invariant, which ends the process.
unsigned long long g_seed = 0, g_operation = 0, g_operations = 0;
const char* g_what = "";

void say_where() {
  std::fprintf(stderr,
               "FAILED: seed %llu, operation %llu (%s)\nrepeat: kv_simulation --seconds 0 --seed %llu "
               "--operations %llu\n",
               g_seed, g_operation, g_what, g_seed, g_operations);
}
void on_abort(int) {
  say_where();
  std::_Exit(1);
}

// False: something failed.
bool run(std::uint64_t seed, const std::vector<std::uint64_t>& operations, std::uint64_t* digest = nullptr) {
  g_seed = seed;
  Simulation s(seed);
  for (const std::uint64_t i : operations) {
    g_operation = i;
    s.operate(i);
    g_what = s.last().c_str();
    if (::testing::Test::HasFailure()) {
      std::fprintf(stderr, "%s\n", s.setup().text().c_str());
      say_where();
      return false;
    }
  }
  if (digest) *digest = s.digest();
  s.finish();
  g_what = s.last().c_str();
  if (!::testing::Test::HasFailure()) return true;
  std::fprintf(stderr, "%s\n", s.setup().text().c_str());
  say_where();
  return false;
}

bool passes_elsewhere(std::uint64_t seed, const std::vector<std::uint64_t>& operations) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!std::freopen("/dev/null", "w", stderr) || !std::freopen("/dev/null", "w", stdout)) std::_Exit(2);
    std::_Exit(run(seed, operations) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Leaves out ever smaller runs of operations, as long as it still fails.
int shrink(std::uint64_t seed, std::vector<std::uint64_t> operations) {
  if (passes_elsewhere(seed, operations)) {
    std::printf("seed %llu passes\n", static_cast<unsigned long long>(seed));
    return 0;
  }
  for (std::size_t size = operations.size() / 2; size > 0; size /= 2)
    for (std::size_t at = 0; at < operations.size();) {
      auto fewer = operations;
      const auto first = fewer.begin() + static_cast<std::ptrdiff_t>(at);
      fewer.erase(first, first + static_cast<std::ptrdiff_t>(std::min(size, fewer.size() - at)));
      if (passes_elsewhere(seed, fewer)) at += size;
      else operations = std::move(fewer);
    }
  std::printf("needed, %zu of them:", operations.size());
  for (const auto i : operations) std::printf(" %llu", static_cast<unsigned long long>(i));
  std::printf("\n");
  std::fflush(stdout);
  return run(seed, operations) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::uint64_t seconds = 60, operations = 2000, seed = 1, total = ~0ull;
  bool shrinks = false;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--shrink") {
      shrinks = true;
      continue;
    }
    std::uint64_t* const value = flag == "--seconds"      ? &seconds
                                 : flag == "--operations" ? &operations
                                 : flag == "--seed"       ? &seed
                                 : flag == "--total"      ? &total
                                                          : nullptr;
    if (!value || ++i == argc) {
      std::fprintf(stderr, "unknown or unfinished option %s; see the head of tests/kv_simulation.cc\n", flag.c_str());
      return 2;
    }
    *value = std::strtoull(argv[i], nullptr, 10);
  }
  if (total != ~0ull) seconds = ~0ull >> 32;
  spdlog::set_level(spdlog::level::off);  // Its faults are deliberate.
  std::signal(SIGABRT, on_abort);
  std::signal(SIGSEGV, on_abort);
  g_operations = operations;
  std::vector<std::uint64_t> all(operations);
  std::iota(all.begin(), all.end(), 0);
  if (shrinks) return shrink(seed, all);
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::uint64_t done = 0, seeds = 0, digest = 0;
  do {
    if (!run(seed + seeds, all, &digest)) return 1;
    done += operations;
    ++seeds;
  } while (spent() < static_cast<double>(seconds) && done < total);
  std::printf("%llu operations of %llu seeds from %llu on in %.0f s: no lie, no leak; the last digest %016llx\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(seeds),
              static_cast<unsigned long long>(seed), spent(), static_cast<unsigned long long>(digest));
  return 0;
}
