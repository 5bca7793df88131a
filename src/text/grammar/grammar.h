// Grammars for constrained output: a JSON Schema, a regular expression, a GBNF text or a list of choices -> an
// automaton. The door of this folder: whoever constrains a text compiles here, makes one MaskCache a grammar and
// vocabulary, and one Matcher a text. Pure; any thread. docs/grammar.md has the whole picture.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/grammar/automaton.h"
#include "text/grammar/limits.h"

namespace lode::text::grammar {

using Compiled = std::shared_ptr<const Automaton>;

// Errors of all: one line that names the place, or the bound that was passed (resource_exhausted). `unsupported`: what
// is asked for is well-formed and not done here.
Result<Compiled> compile_regex(std::string_view regex, const CompileLimits& limits = {});
Result<Compiled> compile_gbnf(std::string_view text, const CompileLimits& limits = {});
// One of the texts, as it stands.
Result<Compiled> compile_choice(std::span<const std::string> choices, const CompileLimits& limits = {});
// Compact JSON that the schema accepts. Errors name the JSON pointer of the place and the keyword.
Result<Compiled> compile_json_schema(const nlohmann::ordered_json& schema, const CompileLimits& limits = {});
// Any JSON object ("json_object").
Result<Compiled> compile_json_object(const CompileLimits& limits = {});

}  // namespace lode::text::grammar
