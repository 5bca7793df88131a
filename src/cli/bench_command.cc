// The flags of `lode bench`.
#include <memory>

#include "cli/bench.h"
#include "cli/commands.h"

namespace lode::cli {

void add_bench_command(CLI::App& app) {
  struct Flags {
    BenchOptions options;
    bool json = false, quiet = false;
  };
  auto flags = std::make_shared<Flags>();
  BenchOptions& o = flags->options;
  CLI::App* command = app.add_subcommand("bench", "Time to first token cold, warm and after a restart; depth; speed");
  command->footer(
      "A MODEL is served by this program on a free port, with a KV folder of its own under /var/tmp; options after --\n"
      "go to `lode serve`:  lode bench model.gguf --tests ttft -- -t 2 --chunk 256\n"
      "Figures are as a client sees them; with --repeat they are medians, with least and most in brackets. Prompt "
      "speed is\n"
      "prompt tokens over time to first token (in `speed`: the tokens that were not reused). Exit code 1 if a request "
      "failed.");
  command->add_option("target", o.target.target, "A GGUF file, or http://HOST:PORT of an OpenAI-compatible server")
      ->required();
  command->add_option("serve-options", o.target.serve_arguments, "Options for the server of a MODEL, after --");
  // Lists take one argument: CLI11 would otherwise let them swallow the -- that follows.
  command->add_option("--tests", o.tests, "Which of ttft,depth,speed")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--prompt-tokens", o.prompt_tokens, "Prompt of ttft")
      ->check(CLI::Range(64, 10'000'000))
      ->capture_default_str();
  command->add_option("--depths", o.depths, "Prompts of depth, in this order")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(64, 10'000'000))
      ->capture_default_str();
  command->add_option("--max-tokens", o.generated_max, "Most tokens of a depth reply")
      ->check(CLI::Range(2, 1'000'000))
      ->capture_default_str();
  command->add_option("--repeat", o.repeat, "How often each is measured")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--timeout", o.silence_timeout_s, "Seconds a server may be silent")
      ->check([](const std::string& text) {
        double seconds = 0;
        const bool number = CLI::detail::lexical_cast(text, seconds);
        return number && seconds > 0 && seconds <= 1e6
                   ? std::string()
                   : "expected seconds above 0 and up to 1000000, found '" + text + "'";
      })
      ->capture_default_str();
  command->add_option("--seed", o.seed, "Of the prompts; 0: another each time, so that no cache knows them")
      ->capture_default_str();
  command->add_option("--api-key", o.target.api_key, "Sent as a bearer token");
  command->add_flag("--json", flags->json, "Print JSON instead of a table");
  command->add_flag("--no-progress", flags->quiet, "No progress line on a terminal");
  command->callback([flags] {
    if (flags->json) flags->options.format = BenchOptions::Format::json;
    if (flags->quiet) flags->options.progress = BenchOptions::Progress::off;
    if (const int code = run_bench(flags->options); code != 0) exit_with(code);
  });
}

}  // namespace lode::cli
