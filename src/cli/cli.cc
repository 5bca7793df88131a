#include "cli/cli.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"

namespace lode::cli {
namespace {

constexpr int kUsageError = 2;

using AddCommand = void (*)(CLI::App&);
constexpr AddCommand kCommands[] = {
    add_run_command,  add_serve_command, add_bench_command, add_audit_command,    add_cache_command,
    add_info_command, add_plan_command,  add_eval_command,  add_tokenize_command, add_template_command,
};

// llama.cpp's flags of two and three letters after a single dash, which CLI11 would read as -c with the value "tk".
struct ShortFlag {
  std::string_view typed, full;
};
constexpr ShortFlag kShortFlags[] = {
    {"-ctk", "--ctk"}, {"-ctv", "--ctv"}, {"-np", "--np"}, {"-ub", "--ub"}, {"-ngl", "--ngl"}};

std::string full_flag(std::string_view typed) {
  for (const auto& flag : kShortFlags) {
    if (typed == flag.typed) return std::string(flag.full);
    if (typed.starts_with(flag.typed) && typed[flag.typed.size()] == '=') {
      return std::string(flag.full) + std::string(typed.substr(flag.typed.size()));
    }
  }
  return std::string(typed);
}

std::string one_line(std::string_view text) {
  std::string out(text);
  while (!out.empty() && (out.back() == '\n' || out.back() == ' ')) out.pop_back();
  for (char& c : out) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return out;
}

// Output that nobody got is a failure: a full disk shows only when the last bytes are flushed.
int flushed(int code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed) return code;
  fmt::print(stderr, "lode: cannot write to standard output: {}\n",
             errno != 0 ? std::strerror(errno) : "an earlier write failed");
  return code == 0 ? 1 : code;
}

// Options that take one value take the last one given, as llama.cpp's do; those that collect stay lists.
void take_last(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    if (!option->get_positional() && option->get_items_expected_max() == 1 &&
        option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw)
      option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

int usage_error(std::string_view message) {
  fmt::print(stderr, "lode: {} (lode --help, lode COMMAND --help)\n", one_line(message));
  return kUsageError;
}

}  // namespace

void fail(const Status& status) {
  std::fflush(stdout);
  fmt::print(stderr, "lode: {}\n", one_line(status.message()));
  exit_with(1);
}

void exit_with(int code) {
  throw CLI::RuntimeError(code);
}

int main(int argc, const char* const* argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // A file past `ulimit -f` is a write error (EFBIG), not the end of the program.
  CLI::App app("Lode: a local LLM engine that computes a long prompt once and keeps it, across restarts.", "lode");
  app.set_version_flag("--version", std::string(kVersion), "Print the version");
  app.require_subcommand(1);
  for (const AddCommand add : kCommands) add(app);
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) take_last(*command);

  // CLI11 takes its arguments from the last to the first.
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) arguments.emplace_back(argv[i]);
  const auto is_named = [&](CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands(is_named).empty())
    return usage_error(fmt::format("'{}' is not a command", argv[1]));
  bool ours = true;  // What follows "--" is meant for somebody else.
  for (auto it = arguments.rbegin(); it != arguments.rend(); ++it) {
    ours = ours && *it != "--";
    if (ours) *it = full_flag(*it);
  }
  try {
    app.parse(arguments);
    return flushed(0);
  } catch (const CLI::RuntimeError& e) {  // A command's own end: see exit_with.
    return flushed(e.get_exit_code());
  } catch (const CLI::Success& e) {  // --help, --version
    return flushed(app.exit(e));
  } catch (const CLI::ParseError& e) {
    return usage_error(e.what());
  } catch (const std::exception& e) {  // Out of memory, say: one line, not a core dump.
    fmt::print(stderr, "lode: {}\n", one_line(e.what()));
    return 1;
  }
}

}  // namespace lode::cli
