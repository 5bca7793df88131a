#include "cli/audit_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/bench_report.h"

namespace lode::cli {
namespace {

using Json = nlohmann::ordered_json;

bool same_bits(const AuditStep& a, const AuditStep& b) {
  return a.token == b.token && a.top.size() == b.top.size() &&
         std::equal(a.top.begin(), a.top.end(), b.top.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && std::memcmp(&x.second, &y.second, sizeof x.second) == 0;
         });
}

// A token that one list lacks is at most as likely there as that list's last: the difference counts from that one,
// which never makes it larger than it is.
double one_sided(const AuditStep& from, const AuditStep& to) {
  double most = 0;
  for (const auto& [token, logprob] : from.top) {
    const auto found = std::find_if(to.top.begin(), to.top.end(), [&](const auto& t) { return t.first == token; });
    const double difference = found != to.top.end() ? std::abs(logprob - found->second)
                              : to.top.empty()      ? 0
                                                    : logprob - to.top.back().second;
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    most = std::max(most, difference);
  }
  return most;
}

double difference_of(const AuditStep& a, const AuditStep& b) {
  return std::max(one_sided(a, b), one_sided(b, a));
}

std::string small(double value) {
  return value == 0 ? "0" : std::isinf(value) ? "not a number" : fmt::format("{:.3g}", value);
}

double median_first_token(const AuditArm& arm) {
  std::vector<double> seconds;
  for (const auto& q : arm.questions) seconds.push_back(q.answer.first_token_s);
  const auto spread = spread_of(seconds);
  return spread ? spread->median : 0;
}

// "1,984 of 2,020": medians over the questions.
std::string reused(const AuditArm& arm) {
  std::vector<double> tokens, prompts;
  for (const auto& q : arm.questions) {
    tokens.push_back(static_cast<double>(q.answer.reused_tokens));
    prompts.push_back(static_cast<double>(q.answer.prompt_tokens));
  }
  const auto some = spread_of(tokens), all = spread_of(prompts);
  if (!some || some->least < 0) return "?";
  return fmt::format("{:.0f} of {:.0f}", some->median, all->median);
}

std::vector<std::string> cells_of(const AuditArm& arm, bool reference) {
  if (!arm.not_possible.empty()) return {arm.kv, arm.name, "not possible here: " + arm.not_possible};
  if (!arm.failure.empty()) return {arm.kv, arm.name, "failed: " + arm.failure};
  const std::string first = fmt::format("{:.3f}", median_first_token(arm));
  if (reference) return {arm.kv, arm.name, "reference", "", "", "", reused(arm), first};
  double largest = 0;
  for (const auto& q : arm.questions) largest = std::max(largest, q.difference.largest);
  return {arm.kv,
          arm.name,
          fmt::format("{} of {}", arm.count(Verdict::identical), arm.questions.size()),
          std::to_string(arm.count(Verdict::tolerance)),
          std::to_string(arm.count(Verdict::wrong)),
          small(largest),
          reused(arm),
          first};
}

const std::pair<AuditArm, double>* reference_of(const AuditReport& report, const AuditArm& arm) {
  for (const auto& reference : report.references)
    if (reference.first.kv == arm.kv) return &reference;
  return nullptr;
}

std::string quoted(const AuditAnswer& answer, std::size_t step) {
  if (step >= answer.steps.size()) return "no token";
  return Json(answer.steps[step].text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Why a question's verdict is not bit-identical.
std::string explain(const AuditQuestion& q, const AuditAnswer& cold, double allowed) {
  const AuditDifference& d = q.difference;
  std::string text =
      fmt::format("the first token's likeliest differ by {} (allowed {:.3g})", small(d.first_token), allowed);
  if (d.flip)
    text += fmt::format("; token {} is {}, cold {} with a lead of {:.3g} (allowed {:.3g})", *d.flip + 1,
                        quoted(q.answer, *d.flip), quoted(cold, *d.flip), d.lead, 2 * allowed);
  return text;
}

std::string line_of(const std::vector<std::string>& row, const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < row.size(); ++i)
    line += i < 2 || row.size() < widths.size() ? fmt::format("{:<{}}  ", row[i], widths[i])
                                                : fmt::format("{:>{}}  ", row[i], widths[i]);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

// One line a question that is not bit-identical, the wrong ones first; the rest only counted.
std::string differences(const AuditReport& report) {
  constexpr int kLines = 20;
  std::string text;
  int left = kLines, untold = 0;
  for (const Verdict verdict : {Verdict::wrong, Verdict::tolerance})
    for (const AuditArm& arm : report.arms) {
      const auto* reference = reference_of(report, arm);
      for (std::size_t i = 0; reference && i < arm.questions.size(); ++i) {
        const AuditQuestion& q = arm.questions[i];
        if (q.verdict != verdict) continue;
        if (--left < 0) ++untold;
        else
          text += fmt::format("{}: {} {}, question {}: {}\n", verdict_name(verdict), arm.kv, arm.name, i + 1,
                              explain(q, reference->first.questions[i].answer, reference->second));
      }
    }
  if (untold > 0) text += fmt::format("and {} more (--json has them all)\n", untold);
  return text.empty() ? text : "\n" + text;
}

std::string conclusion(const AuditReport& report) {
  std::int64_t asked = 0, identical = 0, wrong = 0;
  for (const AuditArm& arm : report.arms) {
    asked += static_cast<std::int64_t>(arm.questions.size());
    identical += arm.count(Verdict::identical);
    wrong += arm.count(Verdict::wrong);
  }
  if (wrong > 0) return fmt::format("WRONG: {} of {} answers are not what the cold run gave.", wrong, asked);
  if (asked == 0) return "Nothing was compared.";
  if (identical == asked) return fmt::format("All {} answers are bit-identical to the cold run's.", asked);
  return fmt::format("Nothing is WRONG: {} of {} answers are bit-identical to the cold run's, {} within tolerance.",
                     identical, asked, asked - identical);
}

Json answer_json(std::size_t i, const AuditAnswer& a) {
  Json json = {{"question", i + 1}, {"first_token_s", a.first_token_s}, {"prompt_tokens", a.prompt_tokens}};
  json["reused_tokens"] = a.reused_tokens < 0 ? Json(nullptr) : Json(a.reused_tokens);
  if (a.from_ram >= 0)
    json["reused_by_tier"] = {{"ram", a.from_ram}, {"disk", a.from_disk}, {"in_flight", a.from_in_flight}};
  json["text"] = a.text;
  return json;
}

Json question_json(std::size_t i, const AuditQuestion& q) {
  const AuditDifference& d = q.difference;
  Json json = answer_json(i, q.answer);
  json["verdict"] = verdict_name(q.verdict);
  json["first_token_difference"] = d.first_token;
  json["largest_difference"] = d.largest;
  json["flipped_at"] = d.flip ? Json(*d.flip + 1) : Json(nullptr);
  if (d.flip) json["cold_lead_there"] = d.lead;
  return json;
}

Json arm_json(const AuditArm& arm) {
  Json json = {{"name", arm.name}, {"kv", arm.kv}};
  if (!arm.not_possible.empty()) json["not_possible"] = arm.not_possible;
  if (!arm.failure.empty()) json["failure"] = arm.failure;
  if (!arm.remark.empty()) json["remark"] = arm.remark;
  return json;
}

}  // namespace

AuditDifference compare_answers(const AuditAnswer& cold, const AuditAnswer& other) {
  AuditDifference d;
  const std::size_t steps = std::min(cold.steps.size(), other.steps.size());
  d.identical = cold.text == other.text && cold.steps.size() == other.steps.size() &&
                std::equal(cold.steps.begin(), cold.steps.end(), other.steps.begin(), same_bits);
  for (std::size_t i = 0; i < steps; ++i) {
    const double difference = difference_of(cold.steps[i], other.steps[i]);
    if (i == 0) d.first_token = difference;
    d.largest = std::max(d.largest, difference);
    if (cold.steps[i].token == other.steps[i].token) continue;
    d.flip = i;
    break;
  }
  if (!d.flip && cold.steps.size() != other.steps.size()) d.flip = steps;
  if (d.flip && *d.flip < cold.steps.size()) {
    const auto& top = cold.steps[*d.flip].top;
    if (top.size() > 1) d.lead = top[0].second - top[1].second;
  }
  return d;
}

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::identical: return "bit-identical";
    case Verdict::tolerance: return "within tolerance";
    case Verdict::wrong: break;
  }
  return "WRONG";
}

double allowed_difference(double cold_against_cold) {
  return std::max(0.05, 10 * cold_against_cold);
}

Verdict judge(const AuditDifference& d, double allowed) {
  if (d.identical) return Verdict::identical;
  // Written so that what is not a number is wrong.
  const bool near = d.first_token <= allowed && (!d.flip || d.lead <= 2 * allowed);
  return near ? Verdict::tolerance : Verdict::wrong;
}

std::int64_t AuditArm::count(Verdict verdict) const {
  return std::count_if(questions.begin(), questions.end(), [&](const auto& q) { return q.verdict == verdict; });
}

bool AuditReport::any_wrong() const {
  return std::any_of(arms.begin(), arms.end(), [](const AuditArm& arm) { return arm.count(Verdict::wrong) > 0; });
}

bool AuditReport::any_failed() const {
  const auto failed = [](const AuditArm& arm) { return !arm.failure.empty(); };
  return std::any_of(arms.begin(), arms.end(), failed) ||
         std::any_of(references.begin(), references.end(), [&](const auto& r) { return failed(r.first); });
}

std::string to_table(const AuditReport& report) {
  std::vector<std::vector<std::string>> rows = {
      {"KV", "arm", "identical", "tolerance", "WRONG", "largest", "reused", "first"},
      {"", "", "", "", "", "difference", "tokens", "token, s"}};
  std::string remarks;
  std::size_t questions = 0;
  const auto add = [&](const AuditArm& arm, bool reference) {
    rows.push_back(cells_of(arm, reference));
    if (!arm.remark.empty()) remarks += fmt::format("{} {}: {}\n", arm.kv, arm.name, arm.remark);
    questions = std::max(questions, arm.questions.size());
  };
  for (const auto& reference : report.references) {
    add(reference.first, true);
    for (const AuditArm& arm : report.arms)
      if (arm.kv == reference.first.kv) add(arm, false);
  }
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size() && (i < 2 || row.size() == widths.size()); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  std::string text = fmt::format("{}\nprefix of {}, {} questions, {} greedy tokens each, top 5 at every step\n",
                                 report.target, report.prefix, questions, report.tokens);
  if (!report.damage.empty()) text += "on purpose: " + report.damage + "\n";
  text += "\n";
  for (const auto& row : rows) text += line_of(row, widths);
  if (!remarks.empty()) text += "\n" + remarks;
  return text + differences(report) + "\n" + conclusion(report) + "\n";
}

std::string to_json(const AuditReport& report) {
  Json json = {{"target", report.target}, {"prefix", report.prefix}, {"tokens", report.tokens}};
  if (!report.damage.empty()) json["damage"] = report.damage;
  json["verdict"] = report.any_wrong() ? "WRONG" : report.any_failed() ? "failed" : "nothing is wrong";
  json["arms"] = Json::array();
  for (const AuditArm& arm : report.arms) {
    Json entry = arm_json(arm);
    for (const Verdict v : {Verdict::identical, Verdict::tolerance, Verdict::wrong})
      entry[v == Verdict::identical ? "identical" : v == Verdict::tolerance ? "tolerance" : "wrong"] = arm.count(v);
    entry["questions"] = Json::array();
    for (std::size_t i = 0; i < arm.questions.size(); ++i)
      entry["questions"].push_back(question_json(i, arm.questions[i]));
    json["arms"].push_back(std::move(entry));
  }
  json["cold"] = Json::array();
  for (const auto& [arm, allowed] : report.references) {
    Json entry = arm_json(arm);
    entry["allowed_difference"] = allowed;
    entry["questions"] = Json::array();
    for (std::size_t i = 0; i < arm.questions.size(); ++i)
      entry["questions"].push_back(answer_json(i, arm.questions[i].answer));
    json["cold"].push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lode::cli
