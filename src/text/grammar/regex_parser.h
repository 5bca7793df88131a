// A regular expression's text -> its tree. src/text/grammar/regex.cc only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/grammar/code_points.h"
#include "text/grammar/limits.h"
#include "text/grammar/source.h"

namespace lode::text::grammar {

struct RegexNode {
  enum class Kind : std::uint8_t { set, concat, alt, repeat, begin, end } kind = Kind::concat;
  std::size_t at = 0;  // In the text.
  CodePointSet set;
  std::vector<std::uint32_t> children;  // Of concat, alt, repeat.
  std::uint32_t min = 0, max = 0;
};
struct RegexTree {
  std::vector<RegexNode> nodes;
  std::uint32_t root = 0;
};

Result<RegexTree> parse_regex(Source& source, const CompileLimits& limits);

// What \d, \w, \s and their opposites mean; the opposites leave out what any usual engine counts in.
CodePointSet regex_class(char letter);

}  // namespace lode::text::grammar
