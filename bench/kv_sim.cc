// Which eviction policy saves the most seconds of computing: LRU, LFU, SLRU, GDSF and Lode's own, over generated or
// recorded traces, cache shapes and sizes (docs/eviction.md).
//
//   kv_sim [--seeds 31,32,33] [--requests 500] [--trace FILE]... [--json FILE] [--write FOLDER]
//
// A size is a share of all bytes that the trace would store were nothing evicted; with an SSD, that holds four times
// the RAM. `saved` is the seconds of computing that reuse saves, less those of reading. The score of a policy is the
// sum over everything of saved / saved without a limit, so that no trace counts for more because it is longer.
// The policy was made with seeds 1, 2, 11 and 12; the default ones are others.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "kv/trace_sim.h"

namespace {

using namespace lode;
using namespace lode::kv::sim;

struct Options {
  std::vector<std::uint32_t> seeds = {31, 32, 33};
  int requests = 500;
  std::vector<std::string> files;
  std::string json, write;
};

struct Workload {
  std::string name;
  Trace trace;
};

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "kv_sim: %s\n", why.c_str());
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (++i == argc) die("every option has a value: --seeds, --requests, --trace, --json, --write");
    const std::string value = argv[i];
    if (name == "--requests") o.requests = std::atoi(value.c_str());
    else if (name == "--trace") o.files.push_back(value);
    else if (name == "--json") o.json = value;
    else if (name == "--write") o.write = value;
    else if (name == "--seeds") {
      o.seeds.clear();
      for (std::size_t at = 0; at <= value.size();) {
        const std::size_t comma = std::min(value.find(',', at), value.size());
        o.seeds.push_back(static_cast<std::uint32_t>(std::strtoul(value.substr(at, comma - at).c_str(), nullptr, 10)));
        at = comma + 1;
      }
    } else {
      die("unknown option " + std::string(name));
    }
  }
  if (o.requests < 10) die("--requests must be at least 10");
  return o;
}

std::vector<Workload> workloads(const Options& o) {
  std::vector<Workload> all;
  for (const std::string& path : o.files) {
    std::ifstream in(path);
    if (!in) die("cannot read " + path);
    auto trace = parse_trace({std::istreambuf_iterator<char>(in), {}});
    if (!trace.ok()) die(path + ": " + trace.status().message());
    all.push_back({path.substr(path.find_last_of('/') + 1), std::move(trace).value()});
  }
  if (!o.files.empty()) return all;
  for (const NamedTrace& t : kTraces)
    for (const std::uint32_t seed : o.seeds) all.push_back({t.name, t.make(seed, o.requests)});
  return all;
}

class Report {
 public:
  explicit Report(const Options& options) : options_(options) {}

  void add(const Comparison& c, const std::string& trace) {
    std::array<double, kPolicies.size()>& row = sums_[c.model + " " + trace];
    if (rows_.empty() || rows_.back() != c.model + " " + trace) rows_.push_back(c.model + " " + trace);
    nlohmann::json saved;
    for (std::size_t p = 0; p < kPolicies.size(); ++p) {
      row[p] += c.saved[p];
      scores_[p] += c.saved[p] / c.unbounded;
      saved[kPolicies[p].second] = c.saved[p];
    }
    runs_.push_back({{"model", c.model},
                     {"trace", trace},
                     {"ssd", c.ssd},
                     {"share", c.share},
                     {"unbounded", c.unbounded},
                     {"saved", std::move(saved)}});
  }
  // Seconds saved by row, each as a share of the row's best; then the scores. True: the claim holds.
  bool print() const {
    std::printf("%-18s", "saved seconds");
    for (const auto& [kind, name] : kPolicies) std::printf(" %16s", name);
    std::printf("\n");
    double worst = 1;
    for (const std::string& name : rows_) {
      const auto& row = sums_.at(name);
      const double best = *std::max_element(row.begin(), row.end());
      std::printf("%-18s", name.c_str());
      for (const double saved : row) std::printf(" %9.0f %5.1f%%", saved, 100 * saved / best);
      std::printf("\n");
      worst = std::min(worst, row.back() / best);
    }
    std::printf("%-18s", "score");
    for (const double score : scores_) std::printf(" %16.3f", score);
    const bool best = scores_.back() >= *std::max_element(scores_.begin(), scores_.end());
    std::printf("\nlode: %s score; on its worst trace %.1f%% of the best policy's seconds\n",
                best ? "the best" : "not the best", 100 * worst);
    return best && worst >= 0.97;
  }
  void write_json() const {
    if (options_.json.empty()) return;
    nlohmann::json scores;
    for (std::size_t p = 0; p < kPolicies.size(); ++p) scores[kPolicies[p].second] = scores_[p];
    std::ofstream(options_.json) << nlohmann::json{{"seeds", options_.seeds},
                                                   {"requests", options_.requests},
                                                   {"scores", scores},
                                                   {"runs", runs_}}
                                        .dump(1)
                                 << "\n";
  }

 private:
  const Options& options_;
  std::map<std::string, std::array<double, kPolicies.size()>> sums_;
  std::vector<std::string> rows_;
  std::array<double, kPolicies.size()> scores_{};
  nlohmann::json runs_ = nlohmann::json::array();
};

}  // namespace

// 0: the shipped policy has the best score, and at least 97% of the best one's seconds on every trace. 1: it has not.
int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const std::vector<Workload> all = workloads(options);
  if (!options.write.empty())
    for (std::size_t i = 0; i < all.size(); ++i)
      std::ofstream(options.write + "/" + std::to_string(i) + "-" + all[i].name + ".trace") << to_text(all[i].trace);
  Report report(options);
  for (const SimModel& model : sim_models())
    for (const Workload& w : all)
      for (const Comparison& c : compare(model, w.trace, {0.01, 0.03, 0.1, 0.3})) report.add(c, w.name);
  const bool holds = report.print();
  report.write_json();
  return holds ? 0 : 1;
}
