// GBNF, llama.cpp's grammar notation -> the intermediate form. Pure; any thread. docs/grammar.md lists what is read.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/ir.h"

namespace lode::text::grammar {

// The rule named "root". Errors name line and column.
Result<RuleId> add_gbnf(Ir& ir, std::string_view text);

}  // namespace lode::text::grammar
