// Cuts text into the words that byte-level BPE merges within, as tokenizer.ggml.pre names the rule. One table row a
// rule: names, regular expressions, and a hand-written matcher where speed asks for one. Constant after make(): any
// thread. src/text only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lode::text {

// Whether vocabularies of this rule begin with BOS where the file has no add_bos_token.
bool adds_bos_by_name(std::string_view pre);

// Runs a list of regular expressions, each over the pieces that the one before left: every match is a piece, and so is
// every stretch between matches. Look-around never sees beyond its piece.
class RegexSplitter {
 public:
  static Result<RegexSplitter> make(std::span<const std::string_view> patterns);
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;
  ~RegexSplitter();
  void split(std::string_view text, std::vector<std::size_t>& ends) const;

 private:
  RegexSplitter();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class PreTokenizer {
 public:
  enum class Engine { fastest, regex };  // `regex`: never the hand-written matcher; tests hold one against the other.

  // An unknown or missing name gives gpt-2's rule and a line in `warning`.
  static Result<PreTokenizer> make(std::optional<std::string_view> name, Engine engine, std::string* warning);

  // Appends the end of every word; words are never empty and cover the text. A byte that is not UTF-8 is a symbol.
  void split(std::string_view text, std::vector<std::size_t>& ends) const {
    matcher_ ? matcher_(text, ends) : regex_->split(text, ends);
  }
  // A word that is a token as it stands needs no merging.
  bool ignores_merges() const { return ignores_merges_; }

  using Matcher = void (*)(std::string_view text, std::vector<std::size_t>& ends);

 private:
  PreTokenizer() = default;
  Matcher matcher_ = nullptr;
  std::optional<RegexSplitter> regex_;  // Set where matcher_ is null.
  bool ignores_merges_ = false;
};

}  // namespace lode::text
