// `lode template`: a chat template and one case -> the prompt, byte for byte.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/read_input.h"
#include "gguf/gguf.h"
#include "platform/clock.h"
#include "serve/json.h"
#include "text/template/template.h"

namespace lode::cli {
namespace {

struct Flags {
  std::filesystem::path source, input;
  std::string now;
};

// The text of a template file, or a GGUF's own template.
std::string read_template(const std::filesystem::path& path) {
  auto bytes = [&]() -> Result<std::string> {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    char magic[4] = {};
    const bool gguf_file = file && std::fread(magic, 1, 4, file) == 4 && std::string_view(magic, 4) == "GGUF";
    if (file) std::fclose(file);
    if (!gguf_file) return read_input(path);
    auto opened = gguf::File::open(path, {.metadata_only = true});
    if (!opened.ok()) return opened.status();
    const auto text = (*opened)->get_string("tokenizer.chat_template");
    if (!text.ok()) return text.status();
    if (!*text) {
      return Status::not_found(
          fmt::format("{} has no tokenizer.chat_template; give a template's file instead", path.string()));
    }
    return std::string(**text);
  }();
  if (!bytes.ok()) fail(bytes.status());
  return std::move(*bytes);
}

text::DateTime parse_time(const std::string& text) {
  text::DateTime t;
  int used = 0;
  const int fields = std::sscanf(text.c_str(), "%4d-%2d-%2d%nT%2d:%2d:%2d%n", &t.year, &t.month, &t.day, &used, &t.hour,
                                 &t.minute, &t.second, &used);
  const bool whole = (fields == 3 || fields == 6) && static_cast<std::size_t>(used) == text.size();
  const bool valid =
      t.month >= 1 && t.month <= 12 && t.day >= 1 && t.day <= 31 && t.hour < 24 && t.minute < 60 && t.second < 60;
  if (!whole || !valid) {
    fail(Status::invalid(fmt::format("--now {}: expected YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS", text)));
  }
  return t;
}

text::DateTime local_now() {
  const std::tm t = platform::local_time(platform::system_clock().wall_seconds());
  return {t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec};
}

void run_template(Flags& flags) {
  const auto parsed = text::Template::parse(read_template(flags.source));
  const auto with_file = [&](const Status& s) {
    return Status(s.code(), fmt::format("{}: {}", flags.source.string(), s.message()));
  };
  if (!parsed.ok()) fail(with_file(parsed.status()));
  auto bytes = read_input(flags.input);
  if (!bytes.ok()) fail(bytes.status());
  auto json = serve::parse_json(*bytes);
  if (!json.ok())
    fail(Status(json.status().code(), fmt::format("{}: {}", flags.input.string(), json.status().message())));
  const bool wrapped =
      json->is_object() && !json->contains("messages") && json->contains("input") && (*json)["input"].is_object();
  const auto prompt = (*parsed)->render(wrapped ? (*json)["input"] : *json,
                                        {.now = flags.now.empty() ? local_now() : parse_time(flags.now)});
  if (!prompt.ok()) fail(with_file(prompt.status()));
  std::fwrite(prompt->data(), 1, prompt->size(), stdout);
}

}  // namespace

void add_template_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("template", "One prompt, as a chat template renders a case");
  command.add_option("TEMPLATE", flags->source, "A Jinja file, or a GGUF whose own template is taken")->required();
  command.add_option("CASE", flags->input,
                     "JSON of the template's variables (messages, tools, ...), or an object with them under \"input\"; "
                     "default: stdin");
  command.add_option("--now", flags->now, "What strftime_now prints: YYYY-MM-DD or YYYY-MM-DDTHH:MM:SS; default: now");
  on_run(command, flags, run_template);
}

}  // namespace lode::cli
