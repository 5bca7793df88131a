// See harness.h.
#include "harness.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <regex>
#include <string_view>

#include <nlohmann/json.hpp>

#include "ceilings.h"

namespace lode::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::string isa, filter;
  int rounds = 5;
  double seconds = 0.05;
  enum class Output : std::uint8_t { table, json, list } output = Output::table;
};

constexpr const char* kUsage =
    "usage: %s [--isa NAME] [--filter REGEX] [--rounds N] [--seconds S] [--json] [--list]\n"
    "Each case is sampled N times (5) for about S seconds (0.05) beside a look at the machine's ceilings. Figures are\n"
    "medians, shares of a ceiling medians of the rounds' own shares, with the least and the most in brackets.\n";

template <typename T>
bool parse(std::string_view text, T& out, T least, T most) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= least && out <= most;
}

// nullopt: wrong arguments.
std::optional<Options> parse_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string_view name = argv[i];
    if (name == "--json") o.output = Options::Output::json;
    else if (name == "--list") o.output = Options::Output::list;
    else {
      std::string_view value;
      if (const std::size_t at = name.find('='); at != std::string_view::npos) {
        value = name.substr(at + 1);
        name = name.substr(0, at);
      } else if (i + 1 < argc) {
        value = argv[++i];
      } else {
        return std::nullopt;
      }
      if (name == "--isa") o.isa = value;
      else if (name == "--filter") o.filter = value;
      else if (name == "--rounds" && parse(value, o.rounds, 1, 1000)) continue;
      else if (name == "--seconds" && parse(value, o.seconds, 0.0001, 60.0)) continue;
      else return std::nullopt;
    }
  }
  return o;
}

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t half = v.size() / 2;
  return {v.size() % 2 ? v[half] : (v[half - 1] + v[half]) / 2, v.front(), v.back()};
}
Json json_of(const Spread& s) {
  return {{"median", s.median}, {"min", s.least}, {"max", s.most}};
}

struct Figures {
  Spread us, peak_share, stream_share;
  Ceilings ceilings;  // Medians of the rounds'.
};

// Seconds of one run out of `runs`.
double sample(Work& work, std::int64_t runs) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < runs; ++i) work.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(runs);
}

Figures measure(const Case& c, const kernels::Table& table, const Options& o) {
  const std::unique_ptr<Work> work = c.make(table);
  CeilingMeter& meter = meter_for(c.threads, table.name);
  work->run();  // Touches every page.
  const double once = sample(*work, 1);
  const auto runs = std::max<std::int64_t>(1, static_cast<std::int64_t>(o.seconds / std::max(once, 1e-9)));
  std::vector<double> us, peak, stream, stream_gb, int8, f32;
  for (int round = 0; round < o.rounds; ++round) {
    const Ceilings now = meter.measure();
    work->run();  // The look has emptied the caches.
    const double seconds = sample(*work, runs);
    us.push_back(seconds * 1e6);
    peak.push_back(c.macs * 1e-9 / seconds / (c.peak == Case::Peak::int8 ? now.int8_gmac_s : now.f32_gmac_s));
    stream.push_back(c.read_bytes * 1e-9 / seconds / now.stream_gb_s);
    stream_gb.push_back(now.stream_gb_s);
    int8.push_back(now.int8_gmac_s);
    f32.push_back(now.f32_gmac_s);
  }
  return {.us = spread_of(us),
          .peak_share = spread_of(peak),
          .stream_share = spread_of(stream),
          .ceilings = {.stream_gb_s = spread_of(stream_gb).median,
                       .int8_gmac_s = spread_of(int8).median,
                       .f32_gmac_s = spread_of(f32).median}};
}

const char* peak_name(const Case& c) {
  return c.peak == Case::Peak::int8 ? "int8" : "f32";
}

void print_row(const Case& c, const Figures& f) {
  std::printf("%-44s %d %12.2f us", c.name.c_str(), c.threads, f.us.median);
  const auto share = [](const Spread& s, double of, const char* unit, const char* what) {
    std::printf("  %3.0f%% [%3.0f-%3.0f] of %6.1f %s %s", 100 * s.median, 100 * s.least, 100 * s.most, of, unit, what);
  };
  if (c.macs > 0) {
    std::printf("  %8.2f GMAC/s", c.macs * 1e-3 / f.us.median);
    share(f.peak_share, c.peak == Case::Peak::int8 ? f.ceilings.int8_gmac_s : f.ceilings.f32_gmac_s, "GMAC/s",
          peak_name(c));
  }
  if (c.read_bytes > 0) {
    std::printf("  %7.2f GB/s", c.read_bytes * 1e-3 / f.us.median);
    if (c.reads == Case::Reads::memory) share(f.stream_share, f.ceilings.stream_gb_s, "GB/s", "stream");
  }
  std::printf("\n");
  std::fflush(stdout);
}

Json json_row(const Case& c, const Figures& f) {
  Json row = {{"name", c.name}, {"threads", c.threads}, {"us", json_of(f.us)}};
  if (c.macs > 0) {
    row["gmac_per_s"] = c.macs * 1e-3 / f.us.median;
    row["peak"] = peak_name(c);
    row["peak_gmac_per_s"] = c.peak == Case::Peak::int8 ? f.ceilings.int8_gmac_s : f.ceilings.f32_gmac_s;
    row["of_peak"] = json_of(f.peak_share);
  }
  if (c.read_bytes > 0) {
    row["gb_per_s"] = c.read_bytes * 1e-3 / f.us.median;
    if (c.reads == Case::Reads::memory) {
      row["stream_gb_per_s"] = f.ceilings.stream_gb_s;
      row["of_stream"] = json_of(f.stream_share);
    }
  }
  return row;
}

}  // namespace

int run_cases(const char* program, int argc, char** argv, const std::vector<Case>& cases) {
  const std::optional<Options> options = parse_options(argc, argv);
  if (!options) {
    std::fprintf(stderr, kUsage, program);
    return 2;
  }
  const Result<const kernels::Table*> table = kernels::select_table(options->isa);
  if (!table.ok()) {
    std::fprintf(stderr, "%s: %s\n", program, table.status().message().c_str());
    return 2;
  }
  std::vector<const Case*> chosen;
  try {
    const std::regex filter(options->filter);
    for (const Case& c : cases) {
      if (std::regex_search(c.name, filter)) chosen.push_back(&c);
    }
  } catch (const std::regex_error& e) {
    std::fprintf(stderr, "%s: --filter %s: %s\n", program, options->filter.c_str(), e.what());
    return 2;
  }
  if (options->output == Options::Output::list) {
    for (const Case* c : chosen) std::printf("%s\n", c->name.c_str());
    return 0;
  }
  const CeilingLoops& loops = loops_for((*table)->name);
  const bool json = options->output == Options::Output::json;
  Json out = {{"program", program}, {"table", (*table)->name}, {"int8_peak", loops.int8}, {"f32_peak", loops.f32}};
  out["cases"] = Json::array();
  if (!json) {
    std::printf("table %.*s; int8 peak: %.*s; f32 peak: %.*s\n", static_cast<int>((*table)->name.size()),
                (*table)->name.data(), static_cast<int>(loops.int8.size()), loops.int8.data(),
                static_cast<int>(loops.f32.size()), loops.f32.data());
  }
  for (const Case* c : chosen) {
    const Figures figures = measure(*c, **table, *options);
    if (json) out["cases"].push_back(json_row(*c, figures));
    else print_row(*c, figures);
  }
  if (json) std::printf("%s\n", out.dump(1).c_str());
  return 0;
}

}  // namespace lode::bench
