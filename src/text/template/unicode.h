// Characters and bytes of UTF-8 text as Python's str sees them. Owns nothing. Any thread; src/text/template only.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/utf8.h"

namespace lode::text::jinja {

// What str.isspace says of one character: Unicode's White_Space and the separators 0x1C to 0x1F.
bool is_space(char32_t c);
bool is_alpha(char32_t c);      // str.isalpha
bool is_alnum(char32_t c);      // str.isalnum
bool is_decimal(char32_t c);    // str.isdecimal
bool is_digit(char32_t c);      // str.isdigit: decimals and, say, superscripts
bool is_numeric(char32_t c);    // str.isnumeric: digits and, say, fractions
bool is_printable(char32_t c);  // str.isprintable
bool is_word(char32_t c);       // \w
enum class Case { none, lower, upper, title };
Case case_of(char32_t c);

void append_utf8(std::string& out, char32_t c);
// Whole texts, with Unicode's special casing: one character may become several.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);    // str.title
std::string to_capital(std::string_view text);  // str.capitalize
std::string swap_case(std::string_view text);   // str.swapcase
std::string fold_case(std::string_view text);   // str.casefold

std::size_t count_chars(std::string_view text);
// The byte at which character `index` starts; text.size() where there are fewer.
std::size_t byte_of_char(std::string_view text, std::size_t index);

// Byte positions, in time linear in both texts; npos: not there.
std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from = 0);
std::size_t find_last_bytes(std::string_view text, std::string_view needle);

enum class Side { both, left, right };
std::string_view strip_space(std::string_view text, Side side);
std::string_view strip_chars(std::string_view text, std::string_view chars, Side side);
// Length in bytes of the line break at text[pos] that str.splitlines knows, or 0.
std::size_t line_break_at(std::string_view text, std::size_t pos);

}  // namespace lode::text::jinja
