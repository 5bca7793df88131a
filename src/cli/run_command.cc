// `lode run`: one answer, or a conversation of plain text in the terminal.
#include <fmt/format.h>

#include <charconv>
#include <condition_variable>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "platform/terminal.h"
#include "serve/completion_reply.h"
#include "serve/json.h"
#include "serve/signals.h"

namespace lode::cli {
namespace {

constexpr std::int64_t kConversationTokens = 256;  // An answer's length in a conversation, unless -n says otherwise.

struct Flags {
  engine::EngineOptions engine;
  std::string prompt;
  CLI::Option* prompt_given = nullptr;
  std::int32_t max_tokens = -1;
  float temperature = 0.8f, top_p = 0.95f, min_p = 0.0f;
  std::int32_t top_k = 40;
  std::optional<std::uint64_t> seed;
  std::vector<std::string> stop;
  bool json = false;
};

// Events on their way from the step thread to this one.
class Inbox {
 public:
  engine::EventSink sink() {
    return [this](engine::Event&& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      arrived_.notify_one();
    };
  }
  engine::Event next() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !events_.empty(); });
    engine::Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<engine::Event> events_;
};

// The request that an interrupt cancels, if there is one.
class Interrupt {
 public:
  explicit Interrupt(engine::Engine& engine) : engine_(engine), watch_([this](int) { on_signal(); }) {}
  void running(std::optional<engine::RequestId> id) {
    const std::lock_guard lock(mutex_);
    running_ = id;
  }

 private:
  void on_signal() {
    const std::lock_guard lock(mutex_);
    if (!running_) std::_Exit(130);
    engine_.cancel(*running_);
    running_.reset();  // A second interrupt ends the program.
  }
  engine::Engine& engine_;
  std::mutex mutex_;
  std::optional<engine::RequestId> running_;
  serve::SignalWatch watch_;  // Last: its thread uses the others.
};

struct Answer {
  std::string text;
  engine::Event last;
};

enum class Print { no, yes };

Result<Answer> ask(engine::Engine& engine, Interrupt& interrupt, const Flags& flags, const std::string& prompt,
                   std::uint64_t seed, Print print) {
  using Options = text::EncodeOptions;
  engine::Request request;
  request.prompt = engine.tokenizer().encode(prompt, {.special = Options::Special::parse, .bos = Options::Bos::model});
  request.max_tokens = flags.max_tokens;
  request.stop = flags.stop;
  request.sampling = {
      .temperature = flags.temperature, .top_p = flags.top_p, .top_k = flags.top_k, .min_p = flags.min_p, .seed = seed};
  // The sink may outlive this call by a moment: the engine drops it after the last event.
  const auto inbox = std::make_shared<Inbox>();
  auto id = engine.submit(std::move(request),
                          [inbox, sink = inbox->sink()](engine::Event&& event) { sink(std::move(event)); });
  if (!id.ok()) return id.status();
  interrupt.running(*id);
  Answer answer;
  for (;;) {
    engine::Event event = inbox->next();
    answer.text += event.text;
    if (print == Print::yes && !event.text.empty()) {
      std::fwrite(event.text.data(), 1, event.text.size(), stdout);
      std::fflush(stdout);
    }
    if (event.kind != engine::Event::Kind::finished && event.kind != engine::Event::Kind::failed) continue;
    interrupt.running(std::nullopt);
    if (event.kind == engine::Event::Kind::failed) return event.error;
    answer.last = std::move(event);
    return answer;
  }
}

void print_json(const engine::Engine& engine, const Answer& answer, std::uint64_t seed) {
  const auto& reuse = answer.last.reuse;
  serve::Json out;
  out["model"] = engine.info().model_name;
  out["text"] = answer.text;
  out["finish_reason"] = answer.last.finish == engine::FinishReason::cancelled
                             ? serve::Json("cancelled")
                             : serve::finish_reason(answer.last.finish);
  out["usage"] = serve::usage_json({.prompt_tokens = reuse.prompt_tokens,
                                    .completion_tokens = answer.last.timings.predicted_n,
                                    .cached_tokens = reuse.tokens_reused});
  out["seed"] = seed;
  out["timings"] = serve::timings_json(answer.last.timings);
  out["cache"] = serve::cache_json(reuse);
  fmt::print("{}\n", serve::dump_json(out));
}

void converse(engine::Engine& engine, Interrupt& interrupt, Flags& flags, std::uint64_t seed) {
  if (flags.max_tokens < 0) flags.max_tokens = kConversationTokens;
  const bool person = platform::is_terminal(platform::StandardStream::in);
  if (person)
    fmt::print(stderr, "{}\nText goes on from what you type; an empty line or Ctrl-D ends.\n",
               engine.info().description);
  std::string history, line;
  for (;;) {
    if (person) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line) || line.empty()) return;
    history += line + "\n";
    auto answer = ask(engine, interrupt, flags, history, seed, Print::yes);
    if (!answer.ok()) fail(answer.status());
    fmt::print("\n");
    std::fflush(stdout);
    history += answer->text + "\n";
  }
}

void run_run(Flags& flags) {
  if (flags.json && flags.prompt_given->count() == 0) throw CLI::ValidationError("--json needs -p TEXT");
  if (flags.engine.slots == 0) flags.engine.slots = 1;
  const std::uint64_t seed = flags.seed.value_or(std::random_device{}());
  auto created = engine::Engine::create(flags.engine);
  if (!created.ok()) fail(created.status());
  engine::Engine& engine = **created;
  Interrupt interrupt(engine);
  if (flags.prompt_given->count() == 0) {
    converse(engine, interrupt, flags, seed);
  } else {
    auto answer = ask(engine, interrupt, flags, flags.prompt, seed, flags.json ? Print::no : Print::yes);
    if (!answer.ok()) fail(answer.status());
    if (flags.json) print_json(engine, *answer, seed);
    else fmt::print("\n");
  }
  engine.stop(0);
}

// CLI11's own Range lets NaN in: it is neither below nor above.
CLI::Validator finite_range(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool number = error == std::errc() && end == text.data() + text.size();
        if (number && value >= low && value <= high) return std::string();
        return fmt::format("expected a number from {} to {}, found '{}'", low, high, text);
      },
      fmt::format("FLOAT in [{} - {}]", low, high));
}

}  // namespace

void add_run_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("run", "One answer to -p TEXT, or a conversation in the terminal");
  add_model_argument(command, flags->engine.model);
  flags->prompt_given = command.add_option("-p,--prompt", flags->prompt, "Print the answer to this text and end");
  command.add_option("-n,--max-tokens", flags->max_tokens, "Most tokens of an answer; -1: until the context is full")
      ->check(CLI::Range(-1, 1 << 30));
  command.add_option("--temp", flags->temperature, "Temperature; 0 is greedy")
      ->check(finite_range(0.0, 1e6))
      ->capture_default_str();
  command.add_option("--top-p", flags->top_p, "Nucleus sampling; 1 is off")
      ->check(finite_range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--top-k", flags->top_k, "Most likely tokens considered; 0 is off")
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
  command.add_option("--min-p", flags->min_p, "Least share of the top token's probability; 0 is off")
      ->check(finite_range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--seed", flags->seed, "Of the random draws; default: another each time");
  command.add_option("--stop", flags->stop, "Text that ends the answer; may be repeated")->allow_extra_args(false);
  command.add_flag("--json", flags->json, "Print text, usage, timings and cache as JSON");
  add_engine_flags(command, flags->engine);
  on_run(command, flags, run_run);
}

}  // namespace lode::cli
