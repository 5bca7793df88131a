// Decodes UTF-8 one character at a time. Owns nothing. Any thread; src/text only.
#pragma once

#include <cstdint>
#include <string_view>

namespace lode::text {

// A byte that cannot be part of a character decodes alone, to kInvalidByte + the byte: no such code point exists, so it
// never compares equal to a character.
inline constexpr char32_t kInvalidByte = 0x110000;

struct Utf8Char {
  char32_t code = 0;
  std::uint32_t bytes = 1;  // 1 to 4.
  bool valid() const { return code < kInvalidByte; }
};

// How a multi-byte character continues after its first byte.
struct Utf8Lead {
  std::uint32_t bytes = 0;  // 2 to 4; 0 where the byte starts nothing.
  std::uint8_t second_min = 0x80;
  std::uint8_t second_max = 0xBF;
};

// The narrowed range of the second byte is what excludes overlong forms, surrogates and code points over U+10FFFF.
inline Utf8Lead utf8_lead(std::uint8_t b) {
  if (b >= 0xC2 && b <= 0xDF) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

// The character at text[pos]; pos must be inside the text.
inline Utf8Char utf8_at(std::string_view text, std::size_t pos) {
  const auto* p = reinterpret_cast<const std::uint8_t*>(text.data()) + pos;
  if (p[0] < 0x80) return {p[0], 1};
  const Utf8Char invalid{kInvalidByte + p[0], 1};
  const Utf8Lead lead = utf8_lead(p[0]);
  if (lead.bytes == 0 || lead.bytes > text.size() - pos) return invalid;
  if (p[1] < lead.second_min || p[1] > lead.second_max) return invalid;
  char32_t code = p[0] & (0x7F >> lead.bytes);
  code = code << 6 | (p[1] & 0x3F);
  for (std::uint32_t i = 2; i < lead.bytes; ++i) {
    if ((p[i] & 0xC0) != 0x80) return invalid;
    code = code << 6 | (p[i] & 0x3F);
  }
  return {code, lead.bytes};
}

}  // namespace lode::text
