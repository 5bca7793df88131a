// JSON Schema -> the intermediate form. Pure; any thread; src/text/grammar only. docs/grammar.md says which keywords
// are done, how exactly, and which are refused.
#pragma once

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "text/grammar/ir.h"

namespace lode::text::grammar {

// A rule for the compact JSON documents that `schema` accepts. Errors name the JSON pointer of the place and the
// keyword.
Result<RuleId> add_schema(Ir& ir, const nlohmann::ordered_json& schema, Work& work);

}  // namespace lode::text::grammar
