// Which eviction policy keeps the right experts: LRU, SLRU, LFU, LFRU, the hottest ones, mixtures, Lode's own, Belady's
// optimum, over recorded routing and sizes (docs/expert-cache.md).
//
//   expert_sim [--tokens 8192] [--json FILE] ROUTING.npy...
//
// 0: at 25% and 50% the shipped policy closes a quarter of the gap between LRU and the optimum on every trace. 1: not.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "experts/trace_sim.h"

int main(int argc, char** argv) {
  using namespace lode::experts::sim;
  std::uint32_t tokens = 8192;
  std::string json;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--tokens" && i + 1 < argc) tokens = static_cast<std::uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    else if (word == "--json" && i + 1 < argc) json = argv[++i];
    else files.emplace_back(word);
  }
  if (files.empty()) {
    std::fprintf(stderr, "usage: expert_sim [--tokens N] [--json FILE] ROUTING.npy...\n");
    return 2;
  }
  bool holds = true;
  nlohmann::json runs = nlohmann::json::array();
  for (const std::string& file : files) {
    const auto trace = read_trace(file, tokens);
    if (!trace.ok()) {
      std::fprintf(stderr, "expert_sim: %s\n", trace.status().message().c_str());
      return 2;
    }
    const Trace& t = trace.value();
    std::printf("%s: %u tokens, %u layers, %u of %u experts\n%-6s", file.c_str(), t.tokens, t.layers, t.used, t.experts,
                "share");
    for (const char* rule : kRules) std::printf(" %10s", rule);
    std::printf(" %10s\n", "gap closed");
    for (const double share : {0.0625, 0.125, 0.25, 0.375, 0.5, 0.75}) {
      const auto slots = static_cast<std::uint32_t>(share * t.layers * t.experts);
      if (slots < t.layers * t.used) continue;
      std::printf("%5.1f%%", 100 * share);
      nlohmann::json rates;
      for (const char* rule : kRules) {
        rates[rule] = hit_rate_of(t, slots, rule);
        std::printf(" %10.4f", rates[rule].get<double>());
        std::fflush(stdout);
      }
      const double lru = rates["lru"], best = rates["belady"], lode = rates["lode"];
      const double closed = (lode - lru) / (best - lru);
      std::printf(" %9.1f%%\n", 100 * closed);
      if (share == 0.25 || share == 0.5) holds = holds && closed >= 0.25;
      runs.push_back({{"trace", file.substr(file.find_last_of('/') + 1)}, {"share", share}, {"rates", rates}});
    }
  }
  if (!json.empty()) std::ofstream(json) << nlohmann::json{{"tokens", tokens}, {"runs", runs}}.dump(1) << "\n";
  return holds ? 0 : 1;
}
