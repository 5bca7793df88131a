// JSON Schema's string formats as regular expressions. Pure; any thread; src/text/grammar only.
#pragma once

#include <optional>
#include <string_view>

namespace lode::text::grammar {

enum class FormatKind {
  enforced,  // format_regex() has it.
  refused,   // JSON Schema defines it, and it is not done here.
  unknown,   // An annotation of somebody else's (int64, password, ...): ignored, as JSON Schema asks.
};
FormatKind format_kind(std::string_view name);
// Matches the whole text. Empty for formats that are not enforced.
std::string_view format_regex(std::string_view name);

}  // namespace lode::text::grammar
