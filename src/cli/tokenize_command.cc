// `lode tokenize`: text -> one JSON array of ids. Works on vocabulary-only files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/read_input.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

namespace lode::cli {
namespace {

struct Flags {
  std::filesystem::path model, file;
  bool no_bos = false, special = false;
};

void run_tokenize(Flags& flags) {
  auto file = gguf::File::open(flags.model, {.metadata_only = true});
  if (!file.ok()) fail(file.status());
  auto tokenizer = text::Tokenizer::load(**file);
  if (!tokenizer.ok()) fail(tokenizer.status());
  for (const auto& warning : (*tokenizer)->warnings()) fmt::print(stderr, "lode: warning: {}\n", warning);
  auto text = read_input(flags.file);
  if (!text.ok()) fail(text.status());
  using Options = text::EncodeOptions;
  const auto ids = (*tokenizer)
                       ->encode(*text, {.special = flags.special ? Options::Special::parse : Options::Special::text,
                                        .bos = flags.no_bos ? Options::Bos::none : Options::Bos::model});
  fmt::print("[{}]\n", fmt::join(ids, ", "));
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("tokenize", "Text to one JSON array of token ids");
  command.add_option("MODEL", flags->model, "A GGUF file; one with a vocabulary only will do")->required();
  command.add_option("FILE", flags->file, "Text to read; default: stdin. Every byte counts, a last line end too");
  command.add_flag("--no-bos", flags->no_bos, "Add no BOS or EOS, whatever the file says");
  command.add_flag("--special", flags->special, "Turn control tokens that the text spells out into their ids");
  on_run(command, flags, run_tokenize);
}

}  // namespace lode::cli
