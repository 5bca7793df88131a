// Regular expressions in ECMA-262's notation -> the intermediate form. Pure; any thread. docs/grammar.md lists what is
// read and what is refused.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/grammar/ir.h"

namespace lode::text::grammar {

struct RegexOptions {
  Encoding encoding = Encoding::utf8;
  // `whole`: the text is one match. `search`: a match stands somewhere in it, as JSON Schema's pattern means it.
  enum class Match { whole, search } match = Match::whole;
};

// The texts that the expression matches. Errors name line and column.
Result<NodeId> add_regex(Ir& ir, std::string_view regex, const RegexOptions& options);

}  // namespace lode::text::grammar
