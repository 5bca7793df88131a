// The pre-tokenizers that tokenizer.ggml.pre names: a table of facts. src/text only.
#pragma once

#include <span>
#include <string_view>

#include "text/word_matchers.h"

namespace lode::text {

// Words that are tokens as they stand, whatever the merges would make of them.
enum class WholeWords { merged, taken, lines_taken };

// One cut over every piece that the step before left. The pattern is the rule; `matcher`, where there is one, does the
// same, faster.
struct PreTokenizerStep {
  std::string_view pattern;
  WordMatcher matcher = nullptr;
};

struct PreTokenizerRule {
  std::span<const std::string_view> names;
  std::span<const PreTokenizerStep> steps;
  WordMatcher all_steps = nullptr;  // One pass that does what all steps do.
  WholeWords whole_words = WholeWords::merged;
  bool adds_bos = false;  // Where the file has no add_bos_token.
};

std::span<const PreTokenizerRule> pretokenizer_rules();
// Null: no rule has the name.
const PreTokenizerRule* pretokenizer_rule(std::string_view name);

}  // namespace lode::text
