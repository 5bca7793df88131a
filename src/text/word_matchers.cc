// See word_matchers.h.
#include "text/word_matchers.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "text/utf8.h"

namespace lode::text {
namespace {

// What a character is, one bit a kind, so that a pattern's class is a sum of kinds. 0: the end of the piece.
using Kinds = std::uint16_t;
constexpr Kinds kOther = 1, kSpace = 2, kDigit = 4, kNumeral = 8;  // Digit: Nd. Numeral: Nl, No.
constexpr Kinds kUpper = 16, kLower = 32, kCaseless = 64;          // Lu Lt; Ll; Lm Lo.
constexpr Kinds kMark = 128, kJoiner = 256, kHan = 512;            // kHan: a letter, only where a rule asks for it.
constexpr Kinds kNumber = kDigit | kNumeral;
constexpr Kinds kLetter = kUpper | kLower | kCaseless | kHan;
constexpr Kinds kSymbol = kOther | kMark | kJoiner;  // [^\s\p{L}\p{N}]

Kinds kinds_of_code(char32_t code) {
  if (code >= kInvalidByte) return kOther;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kUpper;
    case UTF8PROC_CATEGORY_LL: return kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kCaseless;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark;
    case UTF8PROC_CATEGORY_ND: return kDigit;
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumeral;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return kSpace;
    default: break;
  }
  if ((code >= '\t' && code <= '\r') || code == 0x85) return kSpace;
  return code == 0x200C || code == 0x200D ? kJoiner : kOther;
}

// Script=Han, from Unicode's Scripts.txt (15.1).
bool is_han(char32_t code) {
  struct Range {
    char32_t first, last;
  };
  static constexpr Range kRanges[] = {{0x2E80, 0x2E99},   {0x2E9B, 0x2EF3},   {0x2F00, 0x2FD5},   {0x3005, 0x3005},
                                      {0x3007, 0x3007},   {0x3021, 0x3029},   {0x3038, 0x303B},   {0x3400, 0x4DBF},
                                      {0x4E00, 0x9FFF},   {0xF900, 0xFA6D},   {0xFA70, 0xFAD9},   {0x16FE2, 0x16FE3},
                                      {0x16FF0, 0x16FF1}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B739}, {0x2B740, 0x2B81D},
                                      {0x2B820, 0x2CEA1}, {0x2CEB0, 0x2EBE0}, {0x2EBF0, 0x2EE5D}, {0x2F800, 0x2FA1D},
                                      {0x30000, 0x3134A}, {0x31350, 0x323AF}};
  if (code < kRanges[0].first) return false;
  for (const Range& range : kRanges) {
    if (code <= range.last) return code >= range.first;
  }
  return false;
}

struct Glyph {
  Kinds kind = 0;
  std::uint32_t bytes = 0;  // 0 at the end of the piece, where nothing matches.
  bool is(Kinds wanted) const { return (kind & wanted) != 0; }
};

enum class Han { as_others, apart };  // `apart`: kHan in place of kCaseless, and Han marks are symbols.

template <Han han = Han::as_others>
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  std::size_t size() const { return text_.size(); }
  char byte(std::size_t pos) const { return pos < text_.size() ? text_[pos] : '\0'; }
  bool is(std::size_t pos, char c) const { return pos < text_.size() && text_[pos] == c; }
  bool newline(std::size_t pos) const { return is(pos, '\r') || is(pos, '\n'); }

  Glyph at(std::size_t pos) const {
    if (pos >= text_.size()) return {};
    const auto b = static_cast<std::uint8_t>(text_[pos]);
    if (b < 0x80) return {ascii_kinds()[b], 1};
    const Utf8Char c = utf8_at(text_, pos);
    const Kinds kind = kinds_of_code(c.code);
    if (han == Han::apart && (kind & (kCaseless | kMark)) && is_han(c.code)) {
      return {kind == kCaseless ? kHan : kOther, c.bytes};
    }
    return {kind, c.bytes};
  }
  bool han_at(std::size_t pos) const {
    return pos < text_.size() && static_cast<std::uint8_t>(text_[pos]) >= 0xE2 && is_han(utf8_at(text_, pos).code);
  }
  // The end of the run of these kinds that starts at pos.
  std::size_t run(std::size_t pos, Kinds kinds) const {
    for (Glyph g = at(pos); g.is(kinds); g = at(pos)) pos += g.bytes;
    return pos;
  }
  std::size_t before(std::size_t pos) const {  // Where the character that ends at pos begins.
    do --pos;
    while (pos > 0 && !starts_character(pos));
    return pos;
  }

 private:
  // A continuation byte starts nothing, unless the bytes before it do not reach it (it is not UTF-8 then).
  bool starts_character(std::size_t pos) const {
    if ((static_cast<std::uint8_t>(text_[pos]) & 0xC0) != 0x80) return true;
    for (std::size_t back = 1; back <= 3 && back <= pos; ++back) {
      if ((static_cast<std::uint8_t>(text_[pos - back]) & 0xC0) != 0x80) {
        return utf8_at(text_, pos - back).bytes <= back;
      }
    }
    return true;
  }
  static const std::array<Kinds, 128>& ascii_kinds() {
    static const std::array<Kinds, 128> kinds = [] {
      std::array<Kinds, 128> out{};
      for (char32_t c = 0; c < 128; ++c) out[c] = kinds_of_code(c);
      return out;
    }();
    return kinds;
  }
  std::string_view text_;
};

enum class Case { exact, folded };

// The bytes of 's 't 're 've 'm 'll 'd at pos; 0 where none of them is there. Folded: U+017F is an s too.
template <Case fold, typename Text>
std::size_t contraction(const Text& s, std::size_t pos) {
  if (!s.is(pos, '\'')) return 0;
  const auto letter = [&s](std::size_t at) {
    const char c = s.byte(at);
    return fold == Case::folded && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  };
  const char a = letter(pos + 1), b = letter(pos + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return fold == Case::folded && a == '\xC5' && b == '\xBF' ? 3 : 0;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at pos, or without its first part. `text_follows`: what stands behind the whitespace counts
// as text. Whitespace before text leaves its last character to be the space before a word; a single one stands alone.
enum class Lines { as_spaces, end_words };
template <Lines lines, typename Text>
std::size_t whitespace_end(const Text& s, std::size_t pos, std::size_t end, bool text_follows) {
  if (lines == Lines::end_words) {
    std::size_t after_newline = end;
    while (after_newline > pos && !s.newline(after_newline - 1)) --after_newline;
    if (after_newline > pos) return after_newline;
  }
  if (!text_follows) return end;
  const std::size_t last = s.before(end);
  return last > pos ? last : end;
}

enum class Digits { together, alone };

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+   after every \p{N} was cut out alone
// where `digits` says so: a digit then is the end of the text for what stands before it.
template <Digits digits>
void gpt2_words(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  const Scanner s(piece);
  for (std::size_t pos = 0; pos < s.size(); ends.push_back(base + pos)) {
    const Glyph first = s.at(pos);
    if (digits == Digits::alone && first.is(kNumber)) {
      pos += first.bytes;
      continue;
    }
    if (const std::size_t n = contraction<Case::exact>(s, pos)) {
      pos += n;
      continue;
    }
    std::size_t word = pos;
    Glyph g = first;
    if (s.is(pos, ' ')) g = s.at(++word);
    const bool cut_number = digits == Digits::alone && g.is(kNumber);
    if (g.bytes > 0 && !g.is(kSpace) && !cut_number) {
      pos = s.run(word, g.is(kLetter) ? kLetter : g.is(kNumber) ? kNumber : kSymbol);
      continue;
    }
    const std::size_t end = s.run(pos, kSpace);
    const Glyph after = s.at(end);
    const bool follows = after.bytes > 0 && !(digits == Digits::alone && after.is(kNumber));
    pos = whitespace_end<Lines::as_spaces>(s, pos, end, follows);
  }
}

enum class Contractions { none, apart, end_words };
enum class Tail { none, newlines, newlines_and_slashes };  // What symbols take with them.

template <Tail tail, typename Text>
std::size_t tail_end(const Text& s, std::size_t pos) {
  if (tail == Tail::none) return pos;
  while (s.newline(pos) || (tail == Tail::newlines_and_slashes && s.is(pos, '/'))) ++pos;
  return pos;
}

// \p{N}{1,MAX}; 0: as many as there are.
template <int digits_max, typename Text>
std::size_t number_end(const Text& s, std::size_t pos) {
  Glyph g = s.at(pos);
  for (int n = 0; (digits_max == 0 || n < digits_max) && g.is(kNumber); ++n, g = s.at(pos)) pos += g.bytes;
  return pos;
}

struct WordRule {
  int digits_max = 3;
  Kinds word = kLetter;    // What words are made of, behind their first character.
  Kinds symbol = kSymbol;  // What symbols are made of.
  Contractions contractions = Contractions::apart;
  Tail tail = Tail::newlines;
};

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?WORD+|\p{N}{1,MAX}| ?SYMBOL+TAIL|\s*[\r\n]+|\s+(?!\S)|\s+
template <WordRule rule>
void llama3_words(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  const Scanner s(piece);
  for (std::size_t pos = 0; pos < s.size(); ends.push_back(base + pos)) {
    const Glyph first = s.at(pos);
    if (rule.contractions == Contractions::apart) {
      if (const std::size_t n = contraction<Case::folded>(s, pos)) {
        pos += n;
        continue;
      }
    }
    if (first.is(rule.word)) {
      pos = s.run(pos, rule.word);
    } else if (!first.is(kNumber) && !s.newline(pos) && s.at(pos + first.bytes).is(rule.word)) {
      pos = s.run(pos + first.bytes, rule.word);
    } else if (first.is(kNumber)) {
      pos = number_end<rule.digits_max>(s, pos);
    } else if (const std::size_t word = s.is(pos, ' ') ? pos + 1 : pos; s.at(word).is(rule.symbol)) {
      pos = tail_end<rule.tail>(s, s.run(word, rule.symbol));
    } else {
      const std::size_t end = s.run(pos, kSpace);
      pos = whitespace_end<Lines::end_words>(s, pos, end, end < s.size());
    }
  }
}

struct CasedRule {
  int digits_max = 3;
  Contractions contractions = Contractions::end_words;
  Tail tail = Tail::newlines_and_slashes;
  Han han = Han::as_others;
};

// HEAD*TAIL+ from pos, HEAD being [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and TAIL [\p{Ll}\p{Lm}\p{Lo}\p{M}]; 0: no match.
// What backtracking would find: the run of HEAD, and behind it lower case; where none follows, HEAD gives back what it
// took down to its last character that is TAIL too.
template <typename Text>
std::size_t capitals_then_rest(const Text& s, std::size_t pos) {
  constexpr Kinds kHead = kUpper | kCaseless | kMark, kTail = kLower | kCaseless | kMark;
  std::size_t end = pos, last_both = 0;
  for (Glyph g = s.at(end); g.is(kHead); g = s.at(end)) {
    end += g.bytes;
    if (g.is(kTail)) last_both = end;
  }
  return s.at(end).is(kLower) ? s.run(end, kTail) : last_both;
}

// [^\r\n\p{L}\p{N}]?HEAD*TAIL+|[^\r\n\p{L}\p{N}]?HEAD+TAIL* at pos; 0: no match.
template <typename Text>
std::size_t cased_word(const Text& s, std::size_t pos, const Glyph& first) {
  const bool prefix = !first.is(kLetter | kNumber) && !s.newline(pos);
  const std::size_t begin = prefix ? pos + first.bytes : pos;
  if (const std::size_t end = capitals_then_rest(s, begin)) return end;
  if (prefix && first.is(kMark)) return begin;  // The mark is no prefix then, but the word.
  const std::size_t capitals = s.run(begin, kUpper);
  return capitals > begin ? capitals : 0;
}

// HAN+|cased words, with contractions behind them|\p{N}{1,MAX}| ?SYMBOL+TAIL|\s*[\r\n]+|\s+(?!\S)|\s+
template <CasedRule rule>
void cased_words(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  const Scanner<rule.han> s(piece);
  for (std::size_t pos = 0; pos < s.size(); ends.push_back(base + pos)) {
    if (rule.han == Han::apart && s.han_at(pos)) {
      while (s.han_at(pos)) pos += s.at(pos).bytes;
      continue;
    }
    const Glyph first = s.at(pos);
    if (const std::size_t end = cased_word(s, pos, first)) {
      pos = end;
      if (rule.contractions == Contractions::end_words) pos += contraction<Case::folded>(s, pos);
    } else if (first.is(kNumber)) {
      pos = number_end<rule.digits_max>(s, pos);
    } else if (const std::size_t word = s.is(pos, ' ') ? pos + 1 : pos; s.at(word).is(kSymbol)) {
      pos = tail_end<rule.tail>(s, s.run(word, kSymbol));
    } else {
      const std::size_t end = s.run(pos, kSpace);
      pos = whitespace_end<Lines::end_words>(s, pos, end, end < s.size());
    }
  }
}

// Oniguruma's \w: letters, marks, digits, connecting punctuation and what else Unicode calls alphabetic.
bool is_word_character(std::string_view text, std::size_t pos) {
  if (pos >= text.size()) return false;
  const char32_t code = utf8_at(text, pos).code;
  if (code >= kInvalidByte) return false;
  if ((code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
      (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189)) {
    return true;  // Letters in circles and squares.
  }
  if (code == 0xB2 || code == 0xB3 || code == 0xB9 || (code >= 0xBC && code <= 0xBE))
    return true;  // Its Latin-1 table.
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(code));
  return (kinds_of_code(code) & (kLetter | kMark | kDigit)) != 0 || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC;
}

// A run of digits (or other kinds) from pos: where it ends and how many characters it has.
struct Run {
  std::size_t end = 0, count = 0;
};
Run measure(const Scanner<>& s, std::size_t pos, Kinds kinds) {
  Run run{pos, 0};
  for (Glyph g = s.at(pos); g.is(kinds); g = s.at(run.end), ++run.count) run.end += g.bytes;
  return run;
}

enum class Follow { any, no_word };

// Cuts out runs of `kinds`, in groups of three from the right; with `no_word` only those that no word character
// follows.
template <Kinds kinds, Follow follow>
void grouped_runs(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  const Scanner s(piece);
  std::size_t done = 0;  // All before it is cut.
  for (std::size_t pos = 0; pos < s.size();) {
    const Glyph g = s.at(pos);
    if (!g.is(kinds)) {
      pos += g.bytes;
      continue;
    }
    const Run run = measure(s, pos, kinds);
    if (follow == Follow::no_word && is_word_character(piece, run.end)) {
      pos = run.end;
      continue;
    }
    if (pos > done) ends.push_back(base + pos);
    for (std::size_t left = run.count; left > 0; --left) {
      pos += s.at(pos).bytes;
      if (left % 3 == 1) ends.push_back(base + pos);
    }
    done = run.end;
  }
  if (done < s.size()) ends.push_back(base + s.size());
}

}  // namespace

void match_gpt2(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  gpt2_words<Digits::together>(piece, base, ends);
}
void match_gpt2_digits_alone(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  gpt2_words<Digits::alone>(piece, base, ends);
}
void match_llama3(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  llama3_words<WordRule{}>(piece, base, ends);
}
void match_qwen2(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  llama3_words<WordRule{.digits_max = 1}>(piece, base, ends);
}
void match_qwen35(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  llama3_words<WordRule{.digits_max = 1, .word = kLetter | kMark, .symbol = kOther | kJoiner}>(piece, base, ends);
}
void match_k2_horizon(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  llama3_words<WordRule{.word = kLetter | kMark | kJoiner}>(piece, base, ends);
}
void match_seed_coder(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  llama3_words<WordRule{.digits_max = 1, .tail = Tail::none}>(piece, base, ends);
}
void match_ufakzeka(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  llama3_words<WordRule{.digits_max = 1, .contractions = Contractions::none}>(piece, base, ends);
}
void match_minicpm5(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  llama3_words<WordRule{.digits_max = 0}>(piece, base, ends);
}

void match_gpt4o(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  cased_words<CasedRule{}>(piece, base, ends);
}
void match_youtu(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  cased_words<CasedRule{.digits_max = 1}>(piece, base, ends);
}
void match_tekken(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  cased_words<CasedRule{.digits_max = 1, .contractions = Contractions::none}>(piece, base, ends);
}
void match_kimi(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  cased_words<CasedRule{.tail = Tail::newlines, .han = Han::apart}>(piece, base, ends);
}

void match_lines(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  for (std::size_t pos = 0; pos < piece.size();) {
    const std::size_t end = piece[pos] == '\n' ? piece.find_first_not_of('\n', pos) : piece.find('\n', pos);
    pos = std::min(end, piece.size());
    ends.push_back(base + pos);
  }
}

void match_trailing_space(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  const Scanner s(piece);
  std::size_t begin = piece.size();
  while (begin > 0) {
    const std::size_t last = s.before(begin);
    if (!s.at(last).is(kSpace)) break;
    begin = last;
  }
  if (begin > 0) ends.push_back(base + begin);
  if (begin < piece.size()) ends.push_back(base + piece.size());
}

void match_thousands(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  const Scanner s(piece);
  for (std::size_t pos = 0; pos < s.size();) {
    const Glyph g = s.at(pos);
    if (!g.is(kDigit)) {
      pos += g.bytes;
      continue;
    }
    for (std::size_t left = measure(s, pos, kDigit).count; left > 0; --left) {
      if (left % 3 == 0 && pos > 0) ends.push_back(base + pos);
      pos += s.at(pos).bytes;
    }
  }
  if (!piece.empty()) ends.push_back(base + piece.size());
}
void match_thousands_words(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  grouped_runs<kDigit, Follow::no_word>(piece, base, ends);
}
void match_number_groups(std::string_view piece, std::size_t base, std::vector<std::size_t>& ends) {
  grouped_runs<kNumber, Follow::any>(piece, base, ends);
}

}  // namespace lode::text
