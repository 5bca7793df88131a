// What this machine can do at most, for 1 to N threads: memory read as a stream, int8 and f32 multiply-adds, with every
// instruction set that the kernels have here. Medians of rounds taken in turns, with the least and the most.
//
//   machine_bench [--threads N] [--isa NAME] [--rounds N] [--json]
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "ceilings.h"
#include "kernels/kernels.h"

namespace {

using namespace lode;
using namespace lode::bench;
using Json = nlohmann::ordered_json;

struct Options {
  int threads = 0, rounds = 5;  // threads 0: 1 to all of the machine's.
  std::string isa;
  bool json = false;
};

bool parse_options(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--json") {
      o.json = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const std::string_view value = argv[++i];
    const auto number = [&](int& out) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
      return error == std::errc() && end == value.data() + value.size() && out >= 1 && out <= 1024;
    };
    if (name == "--isa") o.isa = value;
    else if (!(name == "--threads" && number(o.threads)) && !(name == "--rounds" && number(o.rounds))) return false;
  }
  return true;
}

struct Row {
  CeilingMeter* meter;
  std::vector<double> stream, int8, f32;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const std::size_t half = v.size() / 2;
  return v.size() % 2 ? v[half] : (v[half - 1] + v[half]) / 2;
}
Json json_of(const std::vector<double>& v) {
  return {{"median", median(v)},
          {"min", *std::min_element(v.begin(), v.end())},
          {"max", *std::max_element(v.begin(), v.end())}};
}
void print(const char* what, const std::vector<double>& v, const char* unit) {
  std::printf("  %s %7.1f %s [%.1f-%.1f]", what, median(v), unit, *std::min_element(v.begin(), v.end()),
              *std::max_element(v.begin(), v.end()));
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse_options(argc, argv, o)) {
    std::fprintf(stderr, "usage: machine_bench [--threads N] [--isa NAME] [--rounds N] [--json]\n");
    return 2;
  }
  std::vector<std::string_view> names;
  for (const kernels::Table* table : kernels::available_tables()) names.push_back(table->name);
  if (!o.isa.empty()) {
    const auto table = kernels::select_table(o.isa);
    if (!table.ok()) {
      std::fprintf(stderr, "machine_bench: %s\n", table.status().message().c_str());
      return 2;
    }
    names = {(*table)->name};
  } else if (names.size() > 1) {
    names.pop_back();  // "generic" has no peak of its own.
  }
  std::vector<Row> rows;
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (const std::string_view name : names) {
    if (o.threads > 0) {
      rows.push_back({&meter_for(o.threads, name)});
      continue;
    }
    for (int threads = 1; threads < 2 * all; threads *= 2) rows.push_back({&meter_for(std::min(threads, all), name)});
  }
  for (int round = 0; round < o.rounds; ++round) {
    for (Row& row : rows) {
      const Ceilings now = row.meter->measure();
      row.stream.push_back(now.stream_gb_s);
      row.int8.push_back(now.int8_gmac_s);
      row.f32.push_back(now.f32_gmac_s);
    }
  }
  Json out = {{"program", "machine_bench"}, {"rows", Json::array()}};
  for (const Row& row : rows) {
    const CeilingLoops& loops = row.meter->loops();
    if (o.json) {
      out["rows"].push_back({{"isa", loops.name},
                             {"threads", row.meter->threads()},
                             {"stream_gb_per_s", json_of(row.stream)},
                             {"stream_way",
                              {{"streams", row.meter->streams()},
                               {"prefetch_bytes", row.meter->prefetch_bytes()},
                               {"buffer_bytes", row.meter->buffer_bytes()}}},
                             {"int8_gmac_per_s", json_of(row.int8)},
                             {"int8_instructions", loops.int8},
                             {"f32_gmac_per_s", json_of(row.f32)},
                             {"f32_instructions", loops.f32}});
      continue;
    }
    std::printf("%-8s %3d thread%s", std::string(loops.name).c_str(), row.meter->threads(),
                row.meter->threads() == 1 ? " " : "s");
    print("stream", row.stream, "GB/s");
    print("int8", row.int8, "GMAC/s");
    print("f32", row.f32, "GMAC/s");
    std::printf("  (%d streams, %zu bytes ahead)\n", row.meter->streams(), row.meter->prefetch_bytes());
  }
  if (o.json) std::printf("%s\n", out.dump(1).c_str());
  return 0;
}
