// The flags that every command with an engine shares. Owns nothing. Main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "engine/engine.h"

namespace lode::cli {

// MODEL as a positional argument, or -m MODEL; one of them is required.
void add_model_argument(CLI::App& command, std::filesystem::path& model);
// -t, -ctk, -ctv, --isa, --load-mode.
void add_compute_flags(CLI::App& command, engine::EngineOptions& options);
// All of the common flags. Those that later versions will honour are refused by name, unless they ask for what holds
// anyway (-ngl 0, --draft off).
void add_engine_flags(CLI::App& command, engine::EngineOptions& options);

// --chat-template-file FILE.
void add_chat_template_flag(CLI::App& command, std::filesystem::path& file);
// The file's text; empty where none was given. Fails with one line where it cannot be read, or is empty.
std::string read_chat_template(const std::filesystem::path& file);

// Runs `body` as the command's callback. The callback owns what `body` captured.
template <typename Flags>
void on_run(CLI::App& command, std::shared_ptr<Flags> flags, void (*body)(Flags&)) {
  command.callback([flags = std::move(flags), body] { body(*flags); });
}

}  // namespace lode::cli
