// One regular expression (PCRE2) that cuts pieces of text: every match is a word, and so is every stretch between
// matches; an empty match cuts and takes nothing. Constant after make(): any thread. src/text only.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace lode::text {

class RegexSplitter {
 public:
  // Where the system forbids memory that is both writable and executable, patterns are interpreted.
  enum class Engine { jit, interpreter };
  // `pattern`: PCRE2's syntax in UTF and UCP mode, where \s and \S are Unicode's White_Space.
  static Result<RegexSplitter> make(std::string_view pattern, Engine engine);
  RegexSplitter(RegexSplitter&&) noexcept;
  RegexSplitter& operator=(RegexSplitter&&) noexcept;
  ~RegexSplitter();

  // One call's memory, reused over the pieces of a text.
  class Scratch {
   public:
    explicit Scratch(const RegexSplitter& splitter);
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

   private:
    friend class RegexSplitter;
    struct Data;
    std::unique_ptr<Data> data_;
  };
  // Appends base + the end of every word of `piece`, which must be valid UTF-8. Look-around sees the piece alone.
  void split(std::string_view piece, std::size_t base, Scratch& scratch, std::vector<std::size_t>& ends) const;

 private:
  RegexSplitter();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lode::text
