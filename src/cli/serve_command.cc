// `lode serve`: the listener first, then the model, then requests until a signal.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "serve/server.h"
#include "serve/signals.h"

namespace lode::cli {
namespace {

constexpr std::int64_t kDrainMs = 5000;            // For running requests, after SIGTERM.
constexpr std::chrono::milliseconds kFlush{1000};  // For their last bytes to reach the clients.

struct Flags {
  engine::EngineOptions engine;
  serve::ServerOptions server;
  std::vector<std::string> models;
  std::filesystem::path chat_template;
  bool verbose = false, quiet = false;
};

// What the signal thread and the main thread share.
class StopRequest {
 public:
  void on_signal(int count) {
    const std::lock_guard lock(mutex_);
    if (count > 1) std::_Exit(130);  // The second one means now.
    if (loading_) std::_Exit(0);     // Nothing has been computed yet that could be lost.
    asked_ = true;
    changed_.notify_all();
  }
  void loaded() {
    const std::lock_guard lock(mutex_);
    loading_ = false;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return asked_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool loading_ = true, asked_ = false;
};

void set_up_log(const Flags& flags) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("lode"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  spdlog::set_level(flags.quiet ? spdlog::level::warn : flags.verbose ? spdlog::level::debug : spdlog::level::info);
}

void say_what_is_loaded(const engine::EngineInfo& info, const Flags& flags) {
  if (flags.quiet) {  // Warnings only: a dozen lines of plan are none.
    for (const std::string& note : info.notes) {
      if (note.starts_with("warning: ")) fmt::print(stderr, "{}\n", note);
    }
    return;
  }
  fmt::print(stderr, "{}\n", info.description);
  if (!info.plan_text.empty()) fmt::print(stderr, "{}{}", info.plan_text, info.plan_text.ends_with('\n') ? "" : "\n");
  for (std::string_view note : info.notes) {
    constexpr std::string_view kWarning = "warning: ";  // The plan's own lines have said it already, capitalized.
    const auto words = note.starts_with(kWarning) ? note.substr(kWarning.size()) : note;
    if (info.plan_text.find(words) == std::string::npos) fmt::print(stderr, "{}\n", note);
  }
  fmt::print(stderr, "{} slots of {} tokens, chunk {}, {} threads, {}; loaded in {:.0f} ms\n", info.slots,
             info.context_max, info.chunk, info.threads, info.isa, info.load_ms);
}

// What answers chats. A template that the user gave must be good; without one, or with one in the model that is not,
// the server does everything else, and says why not this.
serve::ChatResult chat_for(const engine::Engine& engine, std::string source) {
  const bool given = !source.empty();
  auto chat = serve::load_chat_template(engine, std::move(source));
  if (chat.ok()) return chat;
  if (given) fail(chat.status());
  fmt::print(stderr, "{}: {}\n", chat.status().code() == Code::not_found ? "note" : "warning", chat.status().message());
  return chat;
}

void run_serve(Flags& flags) {
  if (flags.models.size() > 1)
    throw CLI::ValidationError("serving several models is not in this version: give one MODEL");
  for (const std::string& key : flags.server.api_keys) {
    if (key.find_first_not_of(" \t\r\n") == std::string::npos)
      throw CLI::ValidationError(
          "--api-key is empty, which would let everybody in: give a key, or leave the option out");
  }
  flags.engine.model = flags.models.front();
  const std::string chat_template = read_chat_template(flags.chat_template);
  flags.server.build_info = std::string(kVersion);
  set_up_log(flags);
  StopRequest stop;
  serve::SignalWatch signals([&stop](int count) { stop.on_signal(count); });

  auto server = serve::Server::start(flags.server);
  if (!server.ok()) fail(server.status());
  (*server)->set_loading("loading " + flags.engine.model.filename().string());
  auto engine = engine::Engine::create(flags.engine);
  if (!engine.ok()) fail(engine.status());
  say_what_is_loaded((*engine)->info(), flags);
  stop.loaded();
  (*server)->set_engine(**engine, chat_for(**engine, chat_template));
  fmt::print(stderr, "ready: {}/v1\n", (*server)->url());

  stop.wait();
  spdlog::info("stopping: running requests have {} s", kDrainMs / 1000);
  (*server)->stop_accepting();
  (*engine)->stop(kDrainMs);
  (*server)->finish(kFlush);
  spdlog::info("stopped");
  server->reset();  // Before the engine it refers to.
}

}  // namespace

void add_serve_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("serve", "The OpenAI-compatible server");
  auto* positional = command.add_option("MODEL", flags->models, "A GGUF file, or the first part of a split one");
  auto* named = command.add_option("-m,--model", flags->models, "The same as MODEL")->allow_extra_args(false);
  positional->excludes(named);
  command.add_option("--host", flags->server.host, "Address to listen on")->capture_default_str();
  command.add_option("--port", flags->server.port, "Port to listen on; 0 takes a free one")
      ->check([](const std::string& text) {
        int port = -1;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
        const bool good = error == std::errc() && end == text.data() + text.size() && port >= 0 && port <= 65535;
        return good ? std::string() : fmt::format("expected a port from 0 to 65535, found '{}'", text);
      })
      ->capture_default_str();
  command.add_option("--api-key", flags->server.api_keys, "Key that clients must send; several keep separate caches")
      ->allow_extra_args(false);
  command
      .add_option("--slot-save-path", flags->server.slot_save_path,
                  "Folder for llama-server's slot files; prompts are kept without it, see --kv-disk")
      ->type_name("DIR");
  add_chat_template_flag(command, flags->chat_template);
  command.add_flag("-v,--verbose", flags->verbose, "Log health probes too");
  command.add_flag("-q,--quiet", flags->quiet, "Log only warnings and errors");
  add_engine_flags(command, flags->engine);
  command.parse_complete_callback([flags] {
    if (flags->models.empty()) throw CLI::RequiredError("MODEL");
  });
  on_run(command, flags, run_serve);
}

}  // namespace lode::cli
