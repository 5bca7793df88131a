#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"

namespace lode::cli {
namespace {

using Json = nlohmann::ordered_json;

// "12.3" or "12.3 (11.9-13.0)": the spread is shown where there is more than one value.
std::string figure(const std::vector<double>& values, int decimals) {
  const auto spread = spread_of(values);
  if (!spread) return "-";
  if (values.size() == 1) return fmt::format("{:.{}f}", spread->median, decimals);
  return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", spread->median, decimals, spread->least, decimals, spread->most,
                     decimals);
}

std::string count(std::int64_t n) {
  return n > 0 ? std::to_string(n) : "-";
}

std::vector<std::string> cells_of(const BenchRow& row) {
  if (!row.skipped.empty()) return {row.test, row.arm, "skipped: " + row.skipped};
  std::string reused = row.by_tier.empty() ? (row.cached_tokens < 0 ? "?" : count(row.cached_tokens)) : row.by_tier;
  std::string fact = row.facts_asked == 0 ? "-" : fmt::format("{}/{}", row.facts_found, row.facts_asked);
  std::string resident = row.resident_bytes == 0 ? "-" : format_size(row.resident_bytes);
  return {row.test,
          row.arm,
          count(row.prompt_tokens),
          std::move(reused),
          figure(row.ttft_s, 3),
          figure(row.prompt_tokens_per_s, 1),
          count(row.generated_tokens),
          figure(row.generation_tokens_per_s, 1),
          std::move(fact),
          std::move(resident),
          fmt::format("{}/{}", row.failures.size(), row.attempts)};
}

Json figure_json(const std::vector<double>& values) {
  const auto spread = spread_of(values);
  if (!spread) return nullptr;
  return {{"median", spread->median}, {"min", spread->least}, {"max", spread->most}, {"n", values.size()}};
}

}  // namespace

bool BenchReport::all_succeeded() const {
  return std::all_of(rows.begin(), rows.end(), [](const BenchRow& row) { return row.failures.empty(); });
}

std::optional<Spread> spread_of(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median = values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
  return Spread{median, values.front(), values.back()};
}

std::string to_table(const BenchReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"test", "arm", "prompt", "reused", "first token", "prompt speed", "generated", "generation", "fact", "resident",
       "failed"},
      {"", "", "tokens", "tokens", "s", "tokens/s", "tokens", "tokens/s", "found", "", ""}};
  for (const BenchRow& row : report.rows) rows.push_back(cells_of(row));
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; row.size() == widths.size() && i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {  // Skipped rows have a test and an arm too.
    for (std::size_t i = 0; i < 2; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = fmt::format("{}{}{}\n\n", report.target, report.model.empty() ? "" : ", model " + report.model,
                                 report.context > 0 ? fmt::format(", context {} tokens", report.context) : "");
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i < 2 || row.size() < widths.size() ? fmt::format("{:<{}}  ", row[i], widths[i])
                                                  : fmt::format("{:>{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (!report.ready_s.empty()) text += fmt::format("\nserver ready after a start: {} s\n", figure(report.ready_s, 2));
  for (const BenchRow& row : report.rows) {
    for (const std::string& failure : row.failures)
      text += fmt::format("failed: {} {}: {}\n", row.test, row.arm, failure);
  }
  return text;
}

std::string to_json(const BenchReport& report) {
  Json rows = Json::array();
  for (const BenchRow& row : report.rows) {
    Json json = {{"test", row.test}, {"arm", row.arm}};
    if (!row.skipped.empty()) {
      json["skipped"] = row.skipped;
      rows.push_back(std::move(json));
      continue;
    }
    json["attempts"] = row.attempts;
    json["failures"] = row.failures;
    json["prompt_tokens"] = row.prompt_tokens;
    json["cached_tokens"] = row.cached_tokens < 0 ? Json(nullptr) : Json(row.cached_tokens);
    json["by_tier"] = row.by_tier;
    json["generated_tokens"] = row.generated_tokens;
    json["ttft_s"] = figure_json(row.ttft_s);
    json["prompt_tokens_per_s"] = figure_json(row.prompt_tokens_per_s);
    json["generation_tokens_per_s"] = figure_json(row.generation_tokens_per_s);
    if (row.facts_asked > 0) json["facts_found"] = row.facts_found;
    if (row.resident_bytes > 0) json["resident_bytes"] = row.resident_bytes;
    rows.push_back(std::move(json));
  }
  Json json = {{"target", report.target}, {"model", report.model}, {"rows", std::move(rows)}};
  if (report.context > 0) json["context"] = report.context;
  if (!report.ready_s.empty()) json["ready_s"] = figure_json(report.ready_s);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lode::cli
