// See pretokenizer.h.
#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <fmt/format.h>

#include <array>

#include "text/utf8.h"

namespace lode::text {
namespace {

// ---- Hand-written matchers. Each follows the regular expressions of its row; pretokenizer_test holds them together.

enum class Kind : std::uint8_t { other, letter, number, space };

Kind kind_of_code(char32_t code) {
  if (code >= kInvalidByte) return Kind::other;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return Kind::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return Kind::number;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return Kind::space;
    default: return (code >= '\t' && code <= '\r') || code == 0x85 ? Kind::space : Kind::other;
  }
}

struct Glyph {
  Kind kind = Kind::other;
  std::uint32_t bytes = 0;  // 0 at the end of the text, where nothing matches.
};

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}
  std::size_t size() const { return text_.size(); }
  char byte(std::size_t pos) const { return pos < text_.size() ? text_[pos] : '\0'; }
  bool is(std::size_t pos, char c) const { return pos < text_.size() && text_[pos] == c; }

  Glyph at(std::size_t pos) const {
    if (pos >= text_.size()) return {};
    const auto b = static_cast<std::uint8_t>(text_[pos]);
    if (b < 0x80) return {ascii_kinds()[b], 1};
    const Utf8Char c = utf8_at(text_, pos);
    return {kind_of_code(c.code), c.bytes};
  }
  // The end of the run of one kind that starts at pos.
  std::size_t run(std::size_t pos, Kind kind) const {
    for (Glyph g = at(pos); g.bytes > 0 && g.kind == kind; g = at(pos)) pos += g.bytes;
    return pos;
  }

 private:
  static const std::array<Kind, 128>& ascii_kinds() {
    static const std::array<Kind, 128> kinds = [] {
      std::array<Kind, 128> out{};
      for (char32_t c = 0; c < 128; ++c) out[c] = kind_of_code(c);
      return out;
    }();
    return kinds;
  }
  std::string_view text_;
};

// 's 't 're 've 'm 'll 'd at pos; 0 where none of them is there. `fold` turns letters to lower case, or does nothing.
template <typename Fold>
std::size_t contraction(const Scanner& s, std::size_t pos, Fold fold) {
  if (!s.is(pos, '\'')) return 0;
  const char a = fold(s.byte(pos + 1)), b = fold(s.byte(pos + 2));
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  return 0;
}

// \s+(?!\S)|\s+ at pos, where the whitespace ends at `end`: all of it where nothing follows, else all but its last
// character, which is left to be the space before a word. A single one before a word stands alone.
std::size_t leave_last_space(const Scanner& s, std::size_t pos, std::size_t end, bool text_follows) {
  if (!text_follows) return end;
  std::size_t last = end - 1;
  while (last > pos && (static_cast<std::uint8_t>(s.byte(last)) & 0xC0) == 0x80) --last;
  return last > pos ? last : end;
}

enum class Digits { together, alone };

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+   after every \p{N} was cut out alone
// where `digits` says so: a digit then is the end of the text for what stands before it.
template <Digits digits>
void match_gpt2(std::string_view text, std::vector<std::size_t>& ends) {
  const Scanner s(text);
  for (std::size_t pos = 0; pos < s.size();) {
    const Glyph first = s.at(pos);
    if (digits == Digits::alone && first.kind == Kind::number) {
      ends.push_back(pos += first.bytes);
      continue;
    }
    if (const std::size_t n = contraction(s, pos, [](char c) { return c; })) {
      ends.push_back(pos += n);
      continue;
    }
    std::size_t word = pos;
    Glyph g = first;
    if (s.is(pos, ' ')) g = s.at(++word);
    const bool cut_number = digits == Digits::alone && g.kind == Kind::number;
    if (g.bytes > 0 && g.kind != Kind::space && !cut_number) {
      ends.push_back(pos = s.run(word, g.kind));
      continue;
    }
    const std::size_t end = s.run(pos, Kind::space);
    const Glyph after = s.at(end);
    const bool follows = after.bytes > 0 && !(digits == Digits::alone && after.kind == Kind::number);
    ends.push_back(pos = leave_last_space(s, pos, end, follows));
  }
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,MAX}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <int digits_max>
void match_llama3(std::string_view text, std::vector<std::size_t>& ends) {
  const Scanner s(text);
  const auto newline = [&s](std::size_t pos) { return s.is(pos, '\r') || s.is(pos, '\n'); };
  for (std::size_t pos = 0; pos < s.size();) {
    const Glyph first = s.at(pos);
    if (const std::size_t n = contraction(s, pos, [](char c) { return c >= 'A' && c <= 'Z' ? char(c | 0x20) : c; })) {
      ends.push_back(pos += n);
      continue;
    }
    if (first.kind == Kind::letter) {
      ends.push_back(pos = s.run(pos, Kind::letter));
      continue;
    }
    if (first.kind != Kind::number && !newline(pos) && s.at(pos + first.bytes).kind == Kind::letter) {
      ends.push_back(pos = s.run(pos + first.bytes, Kind::letter));
      continue;
    }
    if (first.kind == Kind::number) {
      Glyph g = first;
      for (int n = 0; n < digits_max && g.bytes > 0 && g.kind == Kind::number; ++n, g = s.at(pos)) pos += g.bytes;
      ends.push_back(pos);
      continue;
    }
    const std::size_t word = s.is(pos, ' ') ? pos + 1 : pos;
    if (const Glyph g = s.at(word); g.bytes > 0 && g.kind == Kind::other) {
      pos = s.run(word, Kind::other);
      while (newline(pos)) ++pos;
      ends.push_back(pos);
      continue;
    }
    const std::size_t end = s.run(pos, Kind::space);
    std::size_t after_newline = end;
    while (after_newline > pos && !newline(after_newline - 1)) --after_newline;
    pos = after_newline > pos ? after_newline : leave_last_space(s, pos, end, end < s.size());
    ends.push_back(pos);
  }
}

// ---- The table.

#define LODE_GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LODE_LLAMA3_WORDS(digits)                                                                         \
  "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits \
  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

constexpr std::string_view kGpt2[] = {LODE_GPT2_WORDS};
constexpr std::string_view kSmollm[] = {"\\p{N}", LODE_GPT2_WORDS};
constexpr std::string_view kLlama3[] = {LODE_LLAMA3_WORDS("{1,3}")};
constexpr std::string_view kQwen2[] = {LODE_LLAMA3_WORDS("")};
constexpr std::string_view kLines[] = {"\\n+"};

constexpr std::string_view kGpt2Names[] = {"gpt-2", "phi-2", "mpt", "olmo", "jais"};
constexpr std::string_view kSmollmNames[] = {"smollm", "starcoder", "refact", "command-r", "codeshell"};
constexpr std::string_view kLlama3Names[] = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"};
constexpr std::string_view kQwen2Names[] = {"qwen2", "deepseek-r1-qwen", "stablelm2"};
constexpr std::string_view kLinesNames[] = {"gemma4"};

struct Rule {
  std::span<const std::string_view> names;
  std::span<const std::string_view> patterns;
  PreTokenizer::Matcher matcher = nullptr;  // Null: the patterns run as they are.
  bool ignores_merges = false;
  bool adds_bos = false;
};

const Rule kRules[] = {
    {kGpt2Names, kGpt2, match_gpt2<Digits::together>},
    {kSmollmNames, kSmollm, match_gpt2<Digits::alone>},
    {kLlama3Names, kLlama3, match_llama3<3>, true, true},
    {kQwen2Names, kQwen2, match_llama3<1>},
    {kLinesNames, kLines},
};

const Rule* rule_named(std::string_view name) {
  for (const Rule& rule : kRules) {
    for (const std::string_view known : rule.names) {
      if (known == name) return &rule;
    }
  }
  return nullptr;
}

// PCRE2's \s also holds U+180E, which Unicode no longer counts as a space and no tokenizer here does.
std::string with_unicode_spaces(std::string_view pattern) {
  static constexpr std::string_view kSet = "\\t-\\r\\x{85}\\p{Z}";
  std::string out;
  bool in_set = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) {
      const char c = pattern[++i];
      if (c == 's') {
        out += in_set ? std::string(kSet) : fmt::format("[{}]", kSet);
      } else if (c == 'S' && !in_set) {
        out += fmt::format("[^{}]", kSet);
      } else {
        out += {'\\', c};
      }
      continue;
    }
    in_set = pattern[i] == '[' || (in_set && pattern[i] != ']');
    out += pattern[i];
  }
  return out;
}

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchFree {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, MatchFree>;

}  // namespace

bool adds_bos_by_name(std::string_view pre) {
  const Rule* rule = rule_named(pre);
  return rule != nullptr && rule->adds_bos;
}

struct RegexSplitter::Impl {
  std::vector<std::unique_ptr<pcre2_code, CodeFree>> codes;

  static void split_piece(const pcre2_code* code, pcre2_match_data* match, std::string_view piece, std::size_t base,
                          std::vector<std::size_t>& ends) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    std::size_t pos = 0;
    std::size_t from = 0;
    while (from < piece.size()) {
      // A negative result is the end of the matches, or a limit reached: what is left then is one piece.
      if (pcre2_match(code, subject, piece.size(), from, 0, match, nullptr) < 0) break;
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match);
      if (bounds[1] <= bounds[0]) {  // An empty match cuts nothing; go on behind the next character.
        from = std::max(bounds[0], from) + 1;
        while (from < piece.size() && (static_cast<std::uint8_t>(piece[from]) & 0xC0) == 0x80) ++from;
        continue;
      }
      if (bounds[0] > pos) ends.push_back(base + bounds[0]);
      ends.push_back(base + bounds[1]);
      pos = from = bounds[1];
    }
    if (pos < piece.size()) ends.push_back(base + piece.size());
  }
};

RegexSplitter::RegexSplitter() : impl_(std::make_unique<Impl>()) {}
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;
RegexSplitter::~RegexSplitter() = default;

Result<RegexSplitter> RegexSplitter::make(std::span<const std::string_view> patterns) {
  RegexSplitter splitter;
  for (const std::string_view pattern : patterns) {
    const std::string full = with_unicode_spaces(pattern);
    int error = 0;
    PCRE2_SIZE where = 0;
    pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(full.data()), full.size(),
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &where, nullptr);
    if (code == nullptr) {
      PCRE2_UCHAR text[256] = {};
      pcre2_get_error_message(error, text, sizeof text);
      return Status(Code::internal, fmt::format("pre-tokenizer pattern {}: {} at offset {}", full,
                                                reinterpret_cast<const char*>(text), where));
    }
    splitter.impl_->codes.emplace_back(code);
    // Where a system forbids writable and executable memory this fails, and pcre2_match() interprets instead.
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  }
  return splitter;
}

void RegexSplitter::split(std::string_view text, std::vector<std::size_t>& ends) const {
  std::vector<std::size_t> pieces{text.size()}, finer;
  if (text.empty()) return;
  for (const auto& code : impl_->codes) {
    const MatchData match(pcre2_match_data_create_from_pattern(code.get(), nullptr));
    if (!match) break;  // Out of memory: the pieces so far still cover the text.
    finer.clear();
    std::size_t begin = 0;
    for (const std::size_t end : pieces) {
      Impl::split_piece(code.get(), match.get(), text.substr(begin, end - begin), begin, finer);
      begin = end;
    }
    pieces.swap(finer);
  }
  ends.insert(ends.end(), pieces.begin(), pieces.end());
}

Result<PreTokenizer> PreTokenizer::make(std::optional<std::string_view> name, Engine engine, std::string* warning) {
  const Rule* rule = name ? rule_named(*name) : nullptr;
  if (rule == nullptr) {
    rule = &kRules[0];
    *warning = fmt::format(
        "tokenizer.ggml.pre is {}: this build does not know how that tokenizer cuts words and uses "
        "gpt-2's rule, so token ids, and with them answers, may differ from the model's own",
        name ? fmt::format("\"{}\"", name->substr(0, 64)) : "missing");
  }
  PreTokenizer out;
  out.ignores_merges_ = rule->ignores_merges;
  if (engine == Engine::fastest && rule->matcher != nullptr) {
    out.matcher_ = rule->matcher;
    return out;
  }
  auto regex = RegexSplitter::make(rule->patterns);
  if (!regex.ok()) return regex.status();
  out.regex_ = std::move(*regex);
  return out;
}

}  // namespace lode::text
