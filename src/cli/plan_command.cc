// `lode plan`: what would go where, without serving.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/engine_flags.h"

namespace lode::cli {
namespace {

struct Flags {
  engine::EngineOptions engine;
  bool json = false;
};

void run_plan(Flags& flags) {
  const auto plan = engine::make_plan(flags.engine);
  if (!plan.ok()) fail(plan.status());
  if (flags.json) fmt::print("{}\n", plan->json().dump(2));
  else fmt::print("{}", plan->text());
}

}  // namespace

void add_plan_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("plan", "What would go where, and what it would cost");
  add_model_argument(command, flags->engine.model);
  add_engine_flags(command, flags->engine);
  command.add_flag("--json", flags->json, "Print JSON instead of a table");
  on_run(command, flags, run_plan);
}

}  // namespace lode::cli
