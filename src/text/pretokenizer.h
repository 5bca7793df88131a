// Cuts text into the words that BPE merges within, as tokenizer.ggml.pre names the rule. Constant after make(): any
// thread. src/text only.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/pretokenizer_rules.h"
#include "text/regex_splitter.h"

namespace lode::text {

class PreTokenizer {
 public:
  // `regex`: never a hand-written matcher. `interpreter`: what `fastest` is where no code may be made at run time.
  // Tests hold them together.
  enum class Engine { fastest, regex, interpreter };

  // An unknown or missing name gives the rule "default" and a line in `warning`.
  static Result<PreTokenizer> make(std::optional<std::string_view> name, Engine engine, std::string* warning);

  // Appends the end of every word; words are never empty and cover the text. A byte that is not UTF-8 counts as a
  // control character.
  void split(std::string_view text, std::vector<std::size_t>& ends) const;

  WholeWords whole_words() const { return whole_words_; }

 private:
  struct Cut {
    WordMatcher matcher = nullptr;
    std::optional<RegexSplitter> regex;  // Set where matcher is null.
  };
  PreTokenizer() = default;
  void split_by_steps(std::string_view text, std::vector<std::size_t>& ends) const;

  std::vector<Cut> cuts_;  // At least one.
  WholeWords whole_words_ = WholeWords::merged;
};

}  // namespace lode::text
