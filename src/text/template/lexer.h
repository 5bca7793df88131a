// A template's text -> tokens, with trim_blocks and lstrip_blocks applied. Owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lode::text::jinja {

enum class TokenType : std::uint8_t {
  data,
  output_begin,
  output_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  real,
  op,
  end
};

struct Token {
  TokenType type = TokenType::end;
  int line = 1;
  std::string text;  // Data, a name, a string's value, or an operator as written.
  std::int64_t integer = 0;
  double real = 0;
};

// Throws Fault with the line. The last token is `end`.
std::vector<Token> tokenize(std::string_view source);
// How a message calls a token: "'endif'", "end of print statement", ...
std::string describe(const Token& token);

}  // namespace lode::text::jinja
