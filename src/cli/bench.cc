#include "cli/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/bench_text.h"
#include "platform/terminal.h"

namespace lode::cli {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// What is asked of one arm's reply, and what its row shows.
struct Ask {
  std::string prompt = {};
  std::int64_t tokens_max = 32;
  enum class End : std::uint8_t {
    model,
    length
  } end = End::model;       // length: ends at tokens_max, whatever the model says.
  std::string answer = {};  // What a right answer contains; empty: not checked.
  enum class PromptSpeed : std::uint8_t { none, whole, uncached } prompt_speed = PromptSpeed::none;
  enum class GenerationSpeed : std::uint8_t { no, yes } generation_speed = GenerationSpeed::no;
};

// One line on a terminal's stderr, redrawn.
class Bar {
 public:
  explicit Bar(BenchOptions::Progress wanted)
      : shown_(wanted == BenchOptions::Progress::automatic && platform::is_terminal(platform::StandardStream::error)) {}

  void begin(std::string what) {
    what_ = std::move(what);
    begin_ = Clock::now();
  }
  void draw(const StreamMeter& meter) {
    if (!shown_) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
    const auto& progress = meter.progress();
    const double share =
        progress.total > 0 ? static_cast<double>(progress.processed) / static_cast<double>(progress.total) : 0;
    const auto filled = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * 24);
    const std::string state = meter.chunks() > 0 ? fmt::format("{} pieces of text", meter.chunks())
                              : progress.total > 0
                                  ? fmt::format("{} of {} prompt tokens", progress.processed, progress.total)
                                  : std::string("waiting for the first token");
    fmt::print(stderr, "\r\033[K{}: [{:<24}] {}, {:.0f} s", what_, std::string(filled, '#'), state, seconds);
    std::fflush(stderr);
  }
  void end() {
    if (shown_) fmt::print(stderr, "\r\033[K");
  }

 private:
  bool shown_;
  std::string what_;
  Clock::time_point begin_;
};

class Run {
 public:
  Run(const BenchOptions& options, BenchTarget& target)
      : options_(options),
        target_(target),
        bar_(options.progress),
        seed_(options.seed ? options.seed : std::random_device()()) {}

  // Learns how many bytes of filler make a token, from one short request.
  Status calibrate();
  Status ttft();
  void depth();
  void speed();
  std::vector<BenchRow> rows() && { return std::move(rows_); }

 private:
  BenchRow& row(const std::string& test, const std::string& arm);
  std::optional<Sample> send(BenchRow& row, const Ask& ask);
  std::string text(std::int64_t tokens) {
    return filler(++seed_, static_cast<std::size_t>(static_cast<double>(tokens) * bytes_per_token_));
  }
  // Empty: it fits (or nobody knows).
  std::string misfit(std::int64_t tokens) const;

  const BenchOptions& options_;
  BenchTarget& target_;
  Bar bar_;
  std::uint64_t seed_;
  double bytes_per_token_ = 4.5;
  std::vector<BenchRow> rows_;
};

BenchRow& Run::row(const std::string& test, const std::string& arm) {
  const auto found =
      std::find_if(rows_.begin(), rows_.end(), [&](const BenchRow& r) { return r.test == test && r.arm == arm; });
  if (found != rows_.end()) return *found;
  rows_.push_back({.test = test, .arm = arm});
  return rows_.back();
}

std::string Run::misfit(std::int64_t tokens) const {
  if (target_.context() < 0 || tokens <= target_.context()) return {};
  return fmt::format("needs about {} tokens, the context has {}", tokens, target_.context());
}

// Sends one request and enters its figures into the row; nullopt (and a failure in the row) where it went wrong.
std::optional<Sample> Run::send(BenchRow& row, const Ask& ask) {
  Json body = {{"prompt", ask.prompt},
               {"max_tokens", ask.tokens_max},
               {"temperature", 0},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  body["model"] = target_.model().empty() ? "default" : target_.model();
  if (ask.end == Ask::End::length) body["ignore_eos"] = true;
  if (target_.owns_server())
    body["return_progress"] = true;  // A strict server of somebody else's might refuse the field.
  bar_.begin(fmt::format("{} {} #{}", row.test, row.arm, row.attempts + 1));
  auto sample = stream_completion(target_.endpoint(), {.body = body.dump(),
                                                       .silence_timeout_s = options_.silence_timeout_s,
                                                       .tick = [this](const StreamMeter& meter) { bar_.draw(meter); }});
  bar_.end();
  ++row.attempts;
  if (!sample.ok()) {
    row.failures.push_back(sample.status().message());
    return std::nullopt;
  }
  row.prompt_tokens = sample->prompt_tokens;
  row.cached_tokens = sample->cached_tokens;
  row.generated_tokens = sample->generated_tokens;
  row.by_tier = sample->by_tier;
  row.resident_bytes = target_.resident_bytes();
  row.ttft_s.push_back(sample->ttft_s);
  if (ask.prompt_speed != Ask::PromptSpeed::none && sample->ttft_s > 0) {
    const std::int64_t reused =
        ask.prompt_speed == Ask::PromptSpeed::uncached ? std::max<std::int64_t>(sample->cached_tokens, 0) : 0;
    row.prompt_tokens_per_s.push_back(static_cast<double>(sample->prompt_tokens - reused) / sample->ttft_s);
  }
  if (ask.generation_speed == Ask::GenerationSpeed::yes) {
    if (const auto rate = sample->generation_tokens_per_s()) row.generation_tokens_per_s.push_back(*rate);
  }
  if (!ask.answer.empty()) {
    ++row.facts_asked;
    if (sample->text.find(ask.answer) != std::string::npos) ++row.facts_found;
  }
  return std::move(*sample);
}

Status Run::calibrate() {
  BenchRow scratch{.test = "calibrate", .arm = "filler"};
  const std::string prompt = filler(++seed_, 2000);
  const auto sample = send(scratch, {.prompt = prompt, .tokens_max = 4, .end = Ask::End::length});
  if (!sample) return Status(Code::unavailable, "the first short request failed: " + scratch.failures.front());
  bytes_per_token_ = static_cast<double>(prompt.size()) / static_cast<double>(sample->prompt_tokens);
  return Status::success();
}

// One long prompt: nobody has seen it; asked again with another question; and again after a restart.
Status Run::ttft() {
  const std::string misfits = misfit(options_.prompt_tokens + 128);
  if (!misfits.empty()) {
    row("ttft", "cold").skipped = misfits;
    return Status::success();
  }
  for (int i = 0; i < options_.repeat; ++i) {
    const Needle needle = make_needle(++seed_);
    const std::string prompt = hide(text(options_.prompt_tokens), needle);
    const auto with = [&](std::string_view question) {
      return fmt::format("{}\n\nQuestion: {}\nAnswer:", prompt, question);
    };
    // A small model may answer with its end token alone, and a time to no token is no figure: all run to their length.
    send(row("ttft", "cold"), {.prompt = with(needle.question),
                               .end = Ask::End::length,
                               .answer = needle.answer,
                               .prompt_speed = Ask::PromptSpeed::whole});
    send(row("ttft", "warm, other question"),
         {.prompt = with("Who is named first in this text?"), .end = Ask::End::length});
    if (!target_.owns_server()) continue;
    LODE_RETURN_IF_ERROR(target_.restart());
    send(row("ttft", "after restart"),
         {.prompt = with(needle.question), .end = Ask::End::length, .answer = needle.answer});
  }
  if (!target_.owns_server()) row("ttft", "after restart").skipped = "the server belongs to somebody else";
  return Status::success();
}

void Run::depth() {
  for (const std::int64_t tokens : options_.depths) {
    BenchRow& at = row("depth", fmt::format("{} tokens", tokens));
    // A reply needs some room beside its prompt; where all 1,200 tokens do not fit, it may have what is left.
    std::int64_t room = options_.generated_max;
    if (target_.context() > 0) room = std::min(room, target_.context() - tokens - tokens / 20 - 96);
    if (room < std::min<std::int64_t>(options_.generated_max, 64)) {
      at.skipped = misfit(tokens + tokens / 20 + 96 + std::min<std::int64_t>(options_.generated_max, 64));
      continue;
    }
    for (int i = 0; i < options_.repeat; ++i) {
      const Needle needle = make_needle(++seed_);
      send(at, {.prompt = fmt::format(
                    "{}\n\nQuestion: {} Say the code first, then tell the story of the text in many words.\nAnswer:",
                    hide(text(tokens), needle), needle.question),
                .tokens_max = room,
                .answer = needle.answer,
                .prompt_speed = Ask::PromptSpeed::whole,
                .generation_speed = Ask::GenerationSpeed::yes});
    }
  }
}

// Short measurements as llama-bench makes them, at the start of the context and behind a prefix that is warm.
void Run::speed() {
  const std::string pp = fmt::format("pp{}", options_.speed_prompt_tokens),
                    tg = fmt::format("tg{}", options_.speed_generated_tokens);
  const Ask prompt_ask{
      .prompt = {}, .tokens_max = 2, .end = Ask::End::length, .answer = {}, .prompt_speed = Ask::PromptSpeed::uncached};
  const Ask generate_ask{.prompt = {},
                         .tokens_max = options_.speed_generated_tokens + 1,
                         .end = Ask::End::length,
                         .answer = {},
                         .prompt_speed = Ask::PromptSpeed::none,
                         .generation_speed = Ask::GenerationSpeed::yes};
  for (const std::int64_t depth : {std::int64_t{0}, options_.speed_depth_tokens}) {
    const std::string at = depth > 0 ? fmt::format(" @d{}", depth) : "";
    const std::string misfits = misfit(depth + options_.speed_prompt_tokens + options_.speed_generated_tokens + 64);
    if (!misfits.empty()) {
      row("speed", pp + at).skipped = misfits;
      row("speed", tg + at).skipped = misfits;
      continue;
    }
    const std::string prefix = depth > 0 ? text(depth) + "\n\n" : "";
    if (depth > 0) {
      BenchRow scratch{.test = "speed", .arm = fmt::format("prefix of {} tokens", depth)};
      Ask ask = prompt_ask;
      ask.prompt = prefix;
      send(scratch, ask);
    }
    for (int i = 0; i < options_.repeat; ++i) {
      Ask ask = prompt_ask;
      ask.prompt = prefix + text(options_.speed_prompt_tokens);
      send(row("speed", pp + at), ask);
      ask = generate_ask;
      ask.prompt = prefix + text(16);
      send(row("speed", tg + at), ask);
    }
  }
}

}  // namespace

Result<BenchReport> measure(const BenchOptions& options) {
  for (const std::string& test : options.tests) {
    if (test != "ttft" && test != "depth" && test != "speed") {
      return Status::invalid(fmt::format("there is no test {}; the tests are ttft, depth and speed", test));
    }
  }
  auto target = BenchTarget::open(options.target);
  if (!target.ok()) return target.status();
  Run run(options, **target);
  LODE_RETURN_IF_ERROR(run.calibrate());
  const auto wanted = [&](std::string_view test) {
    return std::find(options.tests.begin(), options.tests.end(), test) != options.tests.end();
  };
  if (wanted("ttft")) LODE_RETURN_IF_ERROR(run.ttft());
  if (wanted("depth")) run.depth();
  if (wanted("speed")) run.speed();
  BenchReport report;
  report.target = options.target.target;
  report.model = (*target)->model();
  report.context = (*target)->context();
  report.ready_s = (*target)->ready_s();
  report.rows = std::move(run).rows();
  return report;
}

int run_bench(const BenchOptions& options) {
  auto report = measure(options);
  if (!report.ok()) {
    fmt::print(stderr, "lode bench: {}\n", report.status().message());
    return 1;
  }
  const std::string text = options.format == BenchOptions::Format::json ? to_json(*report) : to_table(*report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return report->all_succeeded() ? 0 : 1;
}

}  // namespace lode::cli
