// `lode eval`: all logits of a list of token ids, as a NumPy file. Needs no tokenizer.
#include <fmt/format.h>

#include <limits>
#include <memory>
#include <vector>

#include "base/npy.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/read_input.h"
#include "serve/fields.h"
#include "serve/json.h"

namespace lode::cli {
namespace {

struct Flags {
  engine::EngineOptions engine;
  std::filesystem::path tokens, logits;
  std::int64_t chunk = 512;
};

Result<std::vector<TokenId>> read_ids(const std::filesystem::path& path) {
  auto text = read_input(path);
  if (!text.ok()) return text.status();
  auto json = serve::parse_json(*text, {.values_max = 1 << 26});
  if (!json.ok()) return Status::invalid(fmt::format("{}: {}", path.string(), json.status().message()));
  if (!json->is_array())
    return Status::invalid(
        fmt::format("{}: expected one array of token ids, found {}", path.string(), serve::describe(*json)));
  std::vector<TokenId> ids;
  for (const auto& value : *json) {
    const auto id = serve::as_integer(value);
    if (!id || *id < 0 || *id > std::numeric_limits<TokenId>::max()) {
      return Status::invalid(fmt::format("{}: entry {}: expected a token id, found {}", path.string(), ids.size(),
                                         serve::describe(value)));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

void run_eval(Flags& flags) {
  auto ids = read_ids(flags.tokens);
  if (!ids.ok()) fail(ids.status());
  auto logits = engine::eval_logits(flags.engine, *ids, flags.chunk);
  if (!logits.ok()) fail(logits.status());
  const auto n = static_cast<std::int64_t>(ids->size());
  const auto vocab = static_cast<std::int64_t>(logits->size()) / n;
  if (const Status written = write_npy(flags.logits, {n, vocab}, *logits); !written.ok()) fail(written);
  fmt::print("{}: float32 [{}, {}]\n", flags.logits.string(), n, vocab);
}

}  // namespace

void add_eval_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("eval", "All logits of a list of token ids, as a NumPy file");
  add_model_argument(command, flags->engine.model);
  command.add_option("--tokens", flags->tokens, "JSON array of token ids; - reads stdin")
      ->required()
      ->type_name("IDS.json");
  command.add_option("--logits", flags->logits, "Where to write float32 [tokens, vocab]")
      ->required()
      ->type_name("OUT.npy");
  command.add_option("--chunk,--ub", flags->chunk, "Tokens in a step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}))
      ->capture_default_str();
  add_compute_flags(command, flags->engine);
  on_run(command, flags, run_eval);
}

}  // namespace lode::cli
