#include "text/template/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

namespace lode::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return c < kInvalidByte ? utf8proc_category(static_cast<utf8proc_int32_t>(c)) : UTF8PROC_CATEGORY_CO;
}

bool is_letter(utf8proc_category_t k) {
  return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

struct SpecialCase {
  char32_t code;
  const char* upper;
  const char* title;
};
constexpr SpecialCase kSpecialCases[] = {
#include "text/template/unicode_case.inc"
};

const SpecialCase* special_case(char32_t c) {
  if (c < 0xDF) return nullptr;
  const auto* it = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                    [](const SpecialCase& s, char32_t code) { return s.code < code; });
  return it != std::end(kSpecialCases) && it->code == c ? it : nullptr;
}

char32_t simple(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t c) {
  return c < kInvalidByte ? static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c))) : c;
}

void append_upper(std::string& out, char32_t c) {
  const SpecialCase* s = special_case(c);
  if (s && *s->upper) out += s->upper;
  else append_utf8(out, simple(utf8proc_toupper, c));
}

void append_title(std::string& out, char32_t c) {
  const SpecialCase* s = special_case(c);
  if (s && *s->title) out += s->title;
  else append_utf8(out, simple(utf8proc_totitle, c));
}

bool is_cased(char32_t c) {
  return case_of(c) != Case::none;
}

// Marks and punctuation that a sigma at a word's end may stand before or after (Unicode's Case_Ignorable, in short).
bool is_case_ignorable(char32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xB7 || c == 0x2019) return true;
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
         k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK;
}

constexpr char32_t kCapitalSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2, kCapitalDottedI = 0x130;
// Looked at this far for a word's end: marks in a row are few, and a hostile run must not cost its square.
constexpr int kIgnorableMax = 32;

bool ends_word(std::string_view text, std::size_t next) {
  for (int i = 0; next < text.size() && i < kIgnorableMax; ++i) {
    const Utf8Char c = utf8_at(text, next);
    if (!is_case_ignorable(c.code)) return !is_cased(c.code);
    next += c.bytes;
  }
  return true;
}

// The lower case of the character at text[pos]; `in_word`: a cased character came before it.
void append_lower(std::string& out, std::string_view text, std::size_t pos, bool in_word) {
  const Utf8Char c = utf8_at(text, pos);
  if (c.code == kCapitalDottedI) out += "i\xCC\x87";
  else if (c.code == kCapitalSigma)
    append_utf8(out, in_word && ends_word(text, pos + c.bytes) ? kFinalSigma : kSmallSigma);
  else append_utf8(out, simple(utf8proc_tolower, c.code));
}

template <typename Each>
std::string map_chars(std::string_view text, const Each& each) {
  std::string out;
  out.reserve(text.size());
  bool in_word = false;  // The last character that counts had a case.
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    each(out, pos, c.code, in_word);
    if (is_cased(c.code)) in_word = true;
    else if (!is_case_ignorable(c.code)) in_word = false;
    pos += c.bytes;
  }
  return out;
}

}  // namespace

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_alpha(char32_t c) {
  return is_letter(category(c));
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(char32_t c) {
  if (is_decimal(c)) return true;
  static constexpr char32_t kRanges[][2] = {
      {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
      {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
      {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
      {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return std::any_of(std::begin(kRanges), std::end(kRanges), [c](const auto& r) { return c >= r[0] && c <= r[1]; });
}

bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_alnum(char32_t c) {
  return is_alpha(c) || is_numeric(c);
}

bool is_word(char32_t c) {
  return c == '_' || is_alnum(c);
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

Case case_of(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? Case::lower : c >= 'A' && c <= 'Z' ? Case::upper : Case::none;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU: return Case::upper;
    case UTF8PROC_CATEGORY_LL: return Case::lower;
    case UTF8PROC_CATEGORY_LT: return Case::title;
    default: break;
  }
  return c == 0xAA || c == 0xBA ? Case::lower : Case::none;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c >= kInvalidByte) {  // A byte that was no character stays as it was.
    out += static_cast<char>(c - kInvalidByte);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string to_upper(std::string_view text) {
  return map_chars(text, [](std::string& out, std::size_t, char32_t c, bool) { append_upper(out, c); });
}

std::string to_lower(std::string_view text) {
  return map_chars(text, [text](std::string& out, std::size_t pos, char32_t, bool in_word) {
    append_lower(out, text, pos, in_word);
  });
}

std::string to_title(std::string_view text) {
  bool inside = false;  // Python begins a word after anything without a case, an apostrophe too.
  return map_chars(text, [&](std::string& out, std::size_t pos, char32_t c, bool in_word) {
    if (inside) append_lower(out, text, pos, in_word);
    else append_title(out, c);
    inside = is_cased(c);
  });
}

std::string to_capital(std::string_view text) {
  return map_chars(text, [text](std::string& out, std::size_t pos, char32_t c, bool in_word) {
    if (pos == 0) append_title(out, c);
    else append_lower(out, text, pos, in_word);
  });
}

std::string swap_case(std::string_view text) {
  return map_chars(text, [text](std::string& out, std::size_t pos, char32_t c, bool in_word) {
    if (case_of(c) == Case::upper) append_lower(out, text, pos, in_word);
    else if (case_of(c) == Case::lower) append_upper(out, c);
    else append_utf8(out, c);
  });
}

std::string fold_case(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  if (size < 0) return to_lower(text);
  std::string out(reinterpret_cast<const char*>(folded), static_cast<std::size_t>(size));
  std::free(folded);
  return out;
}

std::size_t count_chars(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t pos = 0; pos < text.size(); pos += utf8_at(text, pos).bytes) ++count;
  return count;
}

std::size_t byte_of_char(std::string_view text, std::size_t index) {
  std::size_t pos = 0;
  while (pos < text.size() && index-- > 0) pos += utf8_at(text, pos).bytes;
  return pos;
}

std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (needle.size() > text.size() - from) return std::string_view::npos;
  // memmem is the C library's linear search; std::string_view::find takes the product of both lengths on bad input.
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at ? static_cast<std::size_t>(static_cast<const char*>(at) - text.data()) : std::string_view::npos;
}

std::size_t find_last_bytes(std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  if (needle.empty()) return text.size();
  const std::string back(text.rbegin(), text.rend()), back_needle(needle.rbegin(), needle.rend());
  const std::size_t at = find_bytes(back, back_needle);
  return at == std::string_view::npos ? at : text.size() - at - needle.size();
}

namespace {

// Where the character that ends at text[end] starts.
std::size_t char_before(std::string_view text, std::size_t end) {
  for (std::size_t back = 1; back <= 4 && back <= end; ++back) {
    const Utf8Char c = utf8_at(text.substr(0, end), end - back);
    if (c.valid() && c.bytes == back) return end - back;
  }
  return end - 1;
}

template <typename Drop>
std::string_view strip(std::string_view text, Side side, const Drop& drop) {
  std::size_t begin = 0, end = text.size();
  while (side != Side::right && begin < end) {
    const Utf8Char c = utf8_at(text, begin);
    if (!drop(c.code)) break;
    begin += c.bytes;
  }
  while (side != Side::left && end > begin) {
    const std::size_t start = char_before(text, end);
    if (start < begin || !drop(utf8_at(text, start).code)) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

std::string_view strip_space(std::string_view text, Side side) {
  return strip(text, side, is_space);
}

std::string_view strip_chars(std::string_view text, std::string_view chars, Side side) {
  std::u32string set;
  for (std::size_t pos = 0; pos < chars.size();) {
    const Utf8Char c = utf8_at(chars, pos);
    set += c.code;
    pos += c.bytes;
  }
  std::sort(set.begin(), set.end());
  return strip(text, side, [&](char32_t c) { return std::binary_search(set.begin(), set.end(), c); });
}

std::size_t line_break_at(std::string_view text, std::size_t pos) {
  const auto c = static_cast<unsigned char>(text[pos]);
  if (c == '\r') return pos + 1 < text.size() && text[pos + 1] == '\n' ? 2 : 1;
  if ((c >= 0x0A && c <= 0x0C) || (c >= 0x1C && c <= 0x1E)) return 1;
  if (c < 0x80) return 0;
  const Utf8Char u = utf8_at(text, pos);
  return u.code == 0x85 || u.code == 0x2028 || u.code == 0x2029 ? u.bytes : 0;
}

}  // namespace lode::text::jinja
