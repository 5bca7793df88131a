// A grammar's text while it is parsed: a place in it, and errors that name line and column. Owns nothing.
// src/text/grammar only.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/utf8.h"

namespace lode::text::grammar {

class Source {
 public:
  static constexpr std::uint32_t kEnd = 0xFFFFFFFFu;

  // `what`: "regular expression", "GBNF grammar": the errors begin with it.
  Source(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  std::size_t at() const { return at_; }
  void go(std::size_t at) { at_ = at; }
  bool at_end() const { return at_ >= text_.size(); }
  std::string_view rest() const { return text_.substr(at_); }
  std::string_view text(std::size_t from) const { return text_.substr(from, at_ - from); }
  // The character here, or kEnd.
  std::uint32_t peek() const { return at_end() ? kEnd : static_cast<std::uint32_t>(utf8_at(text_, at_).code); }
  std::uint32_t take() {
    const Utf8Char c = utf8_at(text_, at_);
    at_ += c.bytes;
    return static_cast<std::uint32_t>(c.code);
  }
  bool take_if(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_if(std::string_view s) {
    if (!rest().starts_with(s)) return false;
    at_ += s.size();
    return true;
  }

  Status error(std::size_t at, std::string_view why) const { return {Code::invalid_argument, place(at, why)}; }
  Status unsupported(std::size_t at, std::string_view why) const { return {Code::unsupported, place(at, why)}; }
  // Fails where a byte belongs to no character.
  Status check_utf8() const {
    for (std::size_t pos = 0; pos < text_.size();) {
      const Utf8Char c = utf8_at(text_, pos);
      if (!c.valid()) return error(pos, "this byte is not part of a UTF-8 character");
      pos += c.bytes;
    }
    return Status::success();
  }

  // "hex" digits, exactly so many, as a number; kEnd where they are not there.
  std::uint32_t take_hex(int digits) {
    std::uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = at_ + i < text_.size() ? text_[at_ + i] : 'x';
      const int d = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
      if (d < 0) return kEnd;
      value = value << 4 | static_cast<std::uint32_t>(d);
    }
    at_ += static_cast<std::size_t>(digits);
    return value;
  }
  // A decimal number that stops growing past `most`; kEnd where there is no digit.
  std::uint32_t take_number(std::uint32_t most) {
    if (at_end() || text_[at_] < '0' || text_[at_] > '9') return kEnd;
    std::uint64_t value = 0;
    for (; !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value =
          std::min<std::uint64_t>(value * 10 + static_cast<std::uint64_t>(text_[at_] - '0'), std::uint64_t{most} + 1);
    }
    return static_cast<std::uint32_t>(value);
  }

 private:
  std::string place(std::size_t at, std::string_view why) const {
    std::size_t line = 1, column = 1;
    for (std::size_t i = 0; i < at && i < text_.size(); ++i) {
      if (text_[i] == '\n') ++line, column = 1;
      else if ((text_[i] & 0xC0) != 0x80) ++column;
    }
    return fmt::format("{}: line {}, column {}: {}", what_, line, column, why);
  }

  std::string_view text_, what_;
  std::size_t at_ = 0;
};

}  // namespace lode::text::grammar
