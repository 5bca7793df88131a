// `lode plan`: what would go where, without serving.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/engine_flags.h"

namespace lode::cli {
namespace {

struct Flags {
  engine::EngineOptions engine;
};

void run_plan(Flags& flags) {
  auto engine = engine::Engine::create(flags.engine);
  if (!engine.ok()) fail(engine.status());
  const auto& info = (*engine)->info();
  fmt::print("{}{}", info.plan_text, info.plan_text.ends_with('\n') ? "" : "\n");
}

}  // namespace

void add_plan_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("plan", "What would go where, and what it would cost");
  add_model_argument(command, flags->engine.model);
  add_engine_flags(command, flags->engine);
  on_run(command, flags, run_plan);
}

}  // namespace lode::cli
