// `lode run`: one answer, or a conversation in the terminal; by the model's chat template, or as plain text that goes
// on.
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
#include "platform/clock.h"
#include "platform/terminal.h"
#include "serve/completion_reply.h"
#include "serve/json.h"
#include "serve/server.h"
#include "serve/signals.h"
#include "text/chat/reply_parser.h"

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
  std::string system;
  std::filesystem::path chat_template;
  bool json = false, no_chat = false;
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
  std::string text, reasoning;
  engine::Event last;
};

enum class Print { no, yes };

// Where an answer's text goes: as it is, or apart what is reasoning.
class Writer {
 public:
  Writer(Print print, std::optional<text::ReplyParser> parser) : print_(print), parser_(std::move(parser)) {}

  void take(const engine::Event& event, Answer& answer) {
    if (!parser_) {
      answer.text += event.text;
      return show(event.text);
    }
    std::vector<text::ReplyDelta> deltas;
    parser_->push(event.text, deltas);
    if (event.kind == engine::Event::Kind::finished) parser_->finish(deltas);
    for (const text::ReplyDelta& delta : deltas) {
      const bool reasoning = delta.kind == text::ReplyDelta::Kind::reasoning;
      if (!reasoning && !answer.reasoning.empty() && answer.text.empty()) show("\n\n");
      (reasoning ? answer.reasoning : answer.text) += delta.text;
      show(delta.text);
    }
  }

 private:
  void show(const std::string& text) const {
    if (print_ == Print::no || text.empty()) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  const Print print_;
  std::optional<text::ReplyParser> parser_;
};

// A prompt, and how its answer is read.
struct Question {
  std::vector<TokenId> ids, shown;
  std::vector<std::int64_t> marks;
  std::optional<text::ReplyParser> parser;
};

Question plain_question(const engine::Engine& engine, const std::string& prompt) {
  using Options = text::EncodeOptions;
  return {.ids = engine.tokenizer().encode(prompt, {.special = Options::Special::parse, .bos = Options::Bos::model})};
}

Result<Question> chat_question(const text::ChatTemplate& chat, const serve::Json& messages) {
  const std::tm t = platform::local_time(platform::system_clock().wall_seconds());
  auto prompt =
      chat.prompt({.messages = messages,
                   .now = text::DateTime{t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec}});
  if (!prompt.ok())
    return Status(prompt.status().code(), fmt::format("the chat template: {}", prompt.status().message()));
  using Start = text::ReplyParser::Options::Start;
  return Question{.ids = std::move(prompt->ids),
                  .shown = chat.shown_tokens(chat.format().reasoning_marks),
                  .marks = std::move(prompt->marks),
                  .parser = text::ReplyParser(chat.format(),
                                              {.start = prompt->in_reasoning ? Start::in_reasoning : Start::outside})};
}

Result<Answer> ask(engine::Engine& engine, Interrupt& interrupt, const Flags& flags, Question question,
                   std::uint64_t seed, Print print) {
  engine::Request request;
  request.prompt = std::move(question.ids);
  request.shown = std::move(question.shown);
  request.marks = std::move(question.marks);
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
  Writer writer(print, std::move(question.parser));
  for (;;) {
    engine::Event event = inbox->next();
    writer.take(event, answer);
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
  if (!answer.reasoning.empty()) out["reasoning"] = answer.reasoning;
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
    auto answer = ask(engine, interrupt, flags, plain_question(engine, history), seed, Print::yes);
    if (!answer.ok()) fail(answer.status());
    fmt::print("\n");
    std::fflush(stdout);
    history += answer->text + "\n";
  }
}

serve::Json first_messages(const Flags& flags) {
  serve::Json messages = serve::Json::array();
  if (!flags.system.empty()) messages.push_back({{"role", "system"}, {"content", flags.system}});
  return messages;
}

// Turns of a chat until the end of the input. A line is a message; /clear forgets, /bye ends.
void chat_on(engine::Engine& engine, Interrupt& interrupt, const Flags& flags, const text::ChatTemplate& chat,
             std::uint64_t seed) {
  const bool person = platform::is_terminal(platform::StandardStream::in);
  if (person)
    fmt::print(stderr, "{}\nA line is a message; /clear starts anew, /bye or Ctrl-D ends.\n",
               engine.info().description);
  serve::Json messages = first_messages(flags);
  std::string line;
  for (;;) {
    if (person) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line) || line == "/bye" || line == "/exit") return;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/clear") {
      messages = first_messages(flags);
      continue;
    }
    messages.push_back({{"role", "user"}, {"content", line}});
    auto question = chat_question(chat, messages);
    if (!question.ok()) fail(question.status());
    auto answer = ask(engine, interrupt, flags, std::move(*question), seed, Print::yes);
    if (!answer.ok()) fail(answer.status());
    fmt::print("\n");
    std::fflush(stdout);
    serve::Json said = {{"role", "assistant"}, {"content", answer->text}};
    if (!answer->reasoning.empty()) said["reasoning_content"] = answer->reasoning;
    messages.push_back(std::move(said));
  }
}

// The chat template to use; null: the text goes on as it is, because the user says so or the model has none.
std::shared_ptr<const text::ChatTemplate> chat_for(const engine::Engine& engine, const Flags& flags) {
  if (flags.no_chat) return nullptr;
  std::string source = read_chat_template(flags.chat_template);
  const bool given = !source.empty();
  auto chat = serve::load_chat_template(engine, std::move(source));
  if (chat.ok()) return *chat;
  if (given) fail(chat.status());
  if (chat.status().code() == Code::not_found)
    fmt::print(stderr, "This model's file has no chat template: your text goes on as it is.\n");
  else fmt::print(stderr, "warning: {}; your text goes on as it is\n", chat.status().message());
  return nullptr;
}

void run_run(Flags& flags) {
  if (flags.json && flags.prompt_given->count() == 0) throw CLI::ValidationError("--json needs -p TEXT");
  if (flags.no_chat && !flags.system.empty()) throw CLI::ValidationError("--system is for a chat: leave out --no-chat");
  if (flags.engine.slots == 0) flags.engine.slots = 1;
  const std::uint64_t seed = flags.seed.value_or(std::random_device{}());
  auto created = engine::Engine::create(flags.engine);
  if (!created.ok()) fail(created.status());
  engine::Engine& engine = **created;
  Interrupt interrupt(engine);
  const auto chat = chat_for(engine, flags);
  if (flags.prompt_given->count() == 0) {
    if (chat) chat_on(engine, interrupt, flags, *chat, seed);
    else converse(engine, interrupt, flags, seed);
  } else {
    Result<Question> question = plain_question(engine, flags.prompt);
    if (chat) {
      serve::Json messages = first_messages(flags);
      messages.push_back({{"role", "user"}, {"content", flags.prompt}});
      question = chat_question(*chat, messages);
    }
    if (!question.ok()) fail(question.status());
    auto answer = ask(engine, interrupt, flags, std::move(*question), seed, flags.json ? Print::no : Print::yes);
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
  command.add_option("--system,--sys", flags->system, "The system message of a chat");
  add_chat_template_flag(command, flags->chat_template);
  command.add_flag("--no-chat,--raw", flags->no_chat, "No chat template: the answer goes on from the text as it is");
  command.add_flag("--json", flags->json, "Print text, usage, timings and cache as JSON");
  add_engine_flags(command, flags->engine);
  on_run(command, flags, run_run);
}

}  // namespace lode::cli
