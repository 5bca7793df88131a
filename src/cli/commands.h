// The commands of `lode`, one function and one file each. A command's callback returns on success and calls fail() or
// exit_with() otherwise. Main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>

#include "base/status.h"

namespace lode::cli {

inline constexpr std::string_view kVersion = "lode 0.1.0";

void add_run_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_cache_command(CLI::App& app);
void add_audit_command(CLI::App& app);
void add_info_command(CLI::App& app);
void add_plan_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_tokenize_command(CLI::App& app);
void add_template_command(CLI::App& app);

// Prints "lode: <message>" on stderr as one line and ends the program with code 1.
[[noreturn]] void fail(const Status& status);
// Ends the program with a code, everything having been said.
[[noreturn]] void exit_with(int code);

}  // namespace lode::cli
