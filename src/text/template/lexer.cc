#include "text/template/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/template/fault.h"
#include "text/template/unicode.h"

namespace lode::text::jinja {
namespace {

constexpr auto npos = std::string_view::npos;

// Line breaks become \n, and one at the very end is dropped, as jinja2 does without keep_trailing_newline.
std::string with_plain_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit_char(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  std::vector<Token> run() {
    while (pos_ < text_.size()) root();
    add(TokenType::end, "");
    return std::move(tokens_);
  }

 private:
  void add(TokenType type, std::string text) { tokens_.push_back({type, line_, std::move(text)}); }

  bool at(std::string_view what, std::size_t pos) const { return text_.substr(pos, what.size()) == what; }

  void advance_to(std::size_t pos) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(pos), '\n'));
    pos_ = pos;
  }

  std::size_t after_space(std::size_t pos) const {
    while (pos < text_.size()) {
      const Utf8Char c = utf8_at(text_, pos);
      if (!is_space(c.code)) break;
      pos += c.bytes;
    }
    return pos;
  }

  // The end of a "{% raw %}" that starts at pos, or npos.
  std::size_t raw_end(std::size_t pos) const {
    std::size_t p = pos + 2;
    if (p < text_.size() && (text_[p] == '-' || text_[p] == '+')) ++p;
    p = after_space(p);
    if (!at("raw", p)) return npos;
    p = after_space(p + 3);
    if (at("%}", p)) return p + 2;
    return at("-%}", p) ? after_space(p + 3) : npos;
  }

  // Text up to a tag, cut by the tag's sign or by lstrip_blocks, as a token where anything is left.
  void put_data(std::size_t end, char sign, bool strips_line) {
    std::string_view data = text_.substr(pos_, end - pos_);
    if (sign == '-') {
      data = strip_space(data, Side::right);
    } else if (sign != '+' && strips_line) {
      const std::size_t break_at = data.rfind('\n');
      const std::size_t line_start = break_at == npos ? 0 : break_at + 1;
      const bool starts_line = line_start > 0 || line_starting_;
      if (starts_line && strip_space(data.substr(line_start), Side::right).empty()) data = data.substr(0, line_start);
    }
    if (!data.empty()) add(TokenType::data, std::string(data));
    advance_to(end);
  }

  void root() {
    std::size_t tag = pos_;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == npos || tag + 1 >= text_.size()) {
        add(TokenType::data, std::string(text_.substr(pos_)));
        advance_to(text_.size());
        return;
      }
      if (text_[tag + 1] == '{' || text_[tag + 1] == '%' || text_[tag + 1] == '#') break;
    }
    const char kind = text_[tag + 1];
    const char next = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    const char sign = next == '-' || next == '+' ? next : '\0';
    put_data(tag, sign, kind != '{');
    if (const std::size_t end = kind == '%' ? raw_end(tag) : npos; end != npos) {
      advance_to(end);
      line_starting_ = text_[end - 1] == '\n';
      raw();
      return;
    }
    const int tag_line = line_;
    advance_to(tag + (sign ? 3 : 2));
    if (kind == '#') return comment(tag_line);
    add(kind == '{' ? TokenType::output_begin : TokenType::block_begin, "");
    inside(kind == '{' ? Tag::output : Tag::block);
  }

  // "%}" or "#}" with what trim_blocks and signs take after it; npos where pos starts no such end.
  std::size_t closing(std::string_view close, std::size_t pos, char first) const {
    if (first == '-' && at("-", pos) && at(close, pos + 1)) return after_space(pos + 1 + close.size());
    if (first == '+' && at("+", pos) && at(close, pos + 1)) return pos + 1 + close.size();
    if (first != '\0' || !at(close, pos)) return npos;
    const std::size_t end = pos + close.size();
    return at("\n", end) ? end + 1 : end;
  }
  std::size_t any_closing(std::string_view close, std::size_t pos) const {
    for (const char sign : {'-', '+', '\0'}) {
      if (const std::size_t end = closing(close, pos, sign); end != npos) return end;
    }
    return npos;
  }

  void leave(std::size_t end) {
    advance_to(end);
    line_starting_ = text_[end - 1] == '\n';
  }

  void comment(int start_line) {
    if (pos_ == text_.size()) return;  // jinja2 does not miss the end of an empty comment at the text's end.
    const std::size_t close = text_.find("#}", pos_);
    if (close == npos) fail_at(start_line, "the comment has no end; expected '#}'");
    const bool has_sign = close > pos_ && (text_[close - 1] == '-' || text_[close - 1] == '+');
    leave(any_closing("#}", has_sign ? close - 1 : close));
  }

  void raw() {
    if (pos_ == text_.size()) return;  // As for comments.
    const int start_line = line_;
    for (std::size_t tag = pos_; (tag = text_.find("{%", tag)) != npos; ++tag) {
      std::size_t p = tag + 2;
      const char sign = p < text_.size() && (text_[p] == '-' || text_[p] == '+') ? text_[p] : '\0';
      p = after_space(sign ? p + 1 : p);
      if (!at("endraw", p)) continue;
      p = after_space(p + 6);
      const std::size_t end = any_closing("%}", p);
      if (end == npos) continue;
      put_data(tag, sign, true);
      leave(end);
      return;
    }
    fail_at(start_line, "the raw block has no end; expected '{% endraw %}'");
  }

  enum class Tag { output, block };

  bool ends(Tag tag) {
    if (!brackets_.empty()) return false;
    std::size_t end = npos;
    if (tag == Tag::block) {
      end = any_closing("%}", pos_);
    } else if (at("-}}", pos_)) {
      end = after_space(pos_ + 3);
    } else if (at("}}", pos_)) {
      end = pos_ + 2;
    }
    if (end == npos) return false;
    add(tag == Tag::output ? TokenType::output_end : TokenType::block_end, "");
    leave(end);
    return true;
  }

  void inside(Tag tag) {
    const int start_line = line_;
    while (pos_ < text_.size()) {
      if (ends(tag)) return;
      const std::size_t blank = after_space(pos_);
      if (blank > pos_) {
        advance_to(blank);
        continue;
      }
      const char c = text_[pos_];
      if (is_digit_char(c)) number();
      else if (c == '\'' || c == '"') string(c);
      else if (name()) continue;
      else op();
    }
    fail_at(start_line, fmt::format("the tag has no end; expected '{}'", tag == Tag::output ? "}}" : "%}"));
  }

  bool name() {
    std::size_t end = pos_;
    while (end < text_.size()) {
      const Utf8Char c = utf8_at(text_, end);
      if (!c.valid() || !is_word(c.code)) break;
      end += c.bytes;
    }
    if (end == pos_) return false;
    add(TokenType::name, std::string(text_.substr(pos_, end - pos_)));
    advance_to(end);
    return true;
  }

  // [pos, end) of digits with single underscores between them.
  std::size_t digits(std::size_t pos) const {
    if (pos >= text_.size() || !is_digit_char(text_[pos])) return pos;
    while (pos < text_.size() && (is_digit_char(text_[pos]) ||
                                  (text_[pos] == '_' && pos + 1 < text_.size() && is_digit_char(text_[pos + 1])))) {
      ++pos;
    }
    return pos;
  }

  std::size_t exponent_end(std::size_t pos) const {
    if (pos >= text_.size() || (text_[pos] != 'e' && text_[pos] != 'E')) return pos;
    std::size_t p = pos + 1;
    if (p < text_.size() && (text_[p] == '+' || text_[p] == '-')) ++p;
    const std::size_t end = digits(p);
    return end > p ? end : pos;
  }

  void number() {
    const std::size_t whole = digits(pos_);
    std::size_t end = whole;
    if (pos_ == 0 || text_[pos_ - 1] != '.') {  // "x.1.2" is items 1 and 2.
      if (at(".", whole) && digits(whole + 1) > whole + 1) end = digits(whole + 1);
      end = exponent_end(end);
    }
    std::string text(text_.substr(pos_, end - pos_));
    std::erase(text, '_');
    if (end > whole) {
      add(TokenType::real, text);
      const auto parsed = std::from_chars(text.data(), text.data() + text.size(), tokens_.back().real);
      if (parsed.ec != std::errc()) tokens_.back().real = std::strtod(text.c_str(), nullptr);
      advance_to(end);
      return;
    }
    integer(whole);
  }

  void integer(std::size_t end) {
    std::string text(text_.substr(pos_, end - pos_));
    std::erase(text, '_');
    int base = 10;
    const char kind = text == "0" && end < text_.size() ? static_cast<char>(text_[end] | 0x20) : '\0';
    if (kind == 'x' || kind == 'o' || kind == 'b') {
      base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
      std::size_t p = end + 1;
      text.clear();
      const auto is_in_base = [base](char c) {
        const int value = is_digit_char(c)                         ? c - '0'
                          : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                   : 99;
        return value < base;
      };
      while (p < text_.size() && (is_in_base(text_[p]) || text_[p] == '_')) text += text_[p++];
      std::erase(text, '_');
      end = p;
    }
    add(TokenType::integer, text);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), tokens_.back().integer, base);
    if (parsed.ec == std::errc::result_out_of_range)
      fail_at(line_, fmt::format("integer {} does not fit 64 bits", text));
    if (parsed.ec != std::errc() || (base == 10 && text.size() > 1 && text[0] == '0' && tokens_.back().integer != 0)) {
      fail_at(line_, fmt::format("'{}' is no integer", text));
    }
    advance_to(end);
  }

  void string(char quote) {
    std::size_t end = pos_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail_at(line_, fmt::format("the string has no end; expected {}", quote));
    add(TokenType::string, unescaped(text_.substr(pos_ + 1, end - pos_ - 1)));
    advance_to(end + 1);
  }

  // Python's escapes; an unknown one stays as written.
  std::string unescaped(std::string_view s) const {
    std::string out;
    for (std::size_t i = 0; i < s.size(); ++i) {
      if (s[i] != '\\' || i + 1 >= s.size()) {
        out += s[i];
        continue;
      }
      const char c = s[++i];
      static constexpr std::string_view kNames = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
      if (const std::size_t known = kNames.find(c); known != npos) out += kValues[known];
      else if (c == '\n') continue;
      else if (c >= '0' && c <= '7') i = octal(s, i, out);
      else if (c == 'x') i = hex(s, i, 2, out);
      else if (c == 'u') i = hex(s, i, 4, out);
      else if (c == 'U') i = hex(s, i, 8, out);
      else if (c == 'N') fail_at(line_, "\\N{...} in a string is not supported; expected the character itself");
      else out += {'\\', c};
    }
    return out;
  }

  static std::size_t octal(std::string_view s, std::size_t i, std::string& out) {
    char32_t code = 0;
    std::size_t n = 0;
    for (; n < 3 && i + n < s.size() && s[i + n] >= '0' && s[i + n] <= '7'; ++n) {
      code = code * 8 + static_cast<char32_t>(s[i + n] - '0');
    }
    append_utf8(out, code);
    return i + n - 1;
  }

  std::size_t hex(std::string_view s, std::size_t i, std::size_t count, std::string& out) const {
    std::uint32_t code = 0;
    const std::string_view text = s.substr(i + 1, count);
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), code, 16);
    if (text.size() != count || parsed.ptr != text.data() + count || code > 0x10FFFF) {
      fail_at(line_, fmt::format("expected {} hexadecimal digits of a character after \\{}", count, s[i]));
    }
    // Halves of a surrogate pair are no characters; Python fails when it prints them.
    append_utf8(out, code >= 0xD800 && code < 0xE000 ? 0xFFFD : static_cast<char32_t>(code));
    return i + count;
  }

  void op() {
    static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                      "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                      ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view o : kOperators) {
      if (!at(o, pos_)) continue;
      balance(o[0]);
      add(TokenType::op, std::string(o));
      advance_to(pos_ + o.size());
      return;
    }
    const Utf8Char c = utf8_at(text_, pos_);
    fail_at(line_, fmt::format("unexpected character '{}'", c.valid() ? text_.substr(pos_, c.bytes) : "\\x.."));
  }

  void balance(char c) {
    if (c == '(' || c == '[' || c == '{') brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) fail_at(line_, fmt::format("unexpected '{}'", c));
    if (brackets_.back() != c) fail_at(line_, fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
    brackets_.pop_back();
  }

  std::string source_;
  std::string_view text_;
  std::size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // The last tag took a line break with it, or none came yet.
  std::string brackets_;       // Closing ones that are due.
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(with_plain_newlines(source)).run();
}

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::data: return "text";
    case TokenType::output_begin: return "'{{'";
    case TokenType::output_end: return "'}}'";
    case TokenType::block_begin: return "'{%'";
    case TokenType::block_end: return "'%}'";
    case TokenType::end: return "the template's end";
    case TokenType::string: return "a string";
    default: return fmt::format("'{}'", token.text);
  }
}

}  // namespace lode::text::jinja
