// See regex_splitter.h.
#include "text/regex_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include <string>

namespace lode::text {
namespace {

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
struct ContextFree {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct RegexSplitter::Impl {
  std::unique_ptr<pcre2_code, CodeFree> code;
  // The interpreter's default limit of ten million steps is less than a long text's longest word may take.
  std::unique_ptr<pcre2_match_context, ContextFree> context;
  std::uint32_t options = PCRE2_NO_UTF_CHECK;  // A check would read the text again for every word.

  int match(std::string_view piece, std::size_t from, pcre2_match_data* data) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    const int found = pcre2_match(code.get(), subject, piece.size(), from, options, data, context.get());
    if (found != PCRE2_ERROR_JIT_STACKLIMIT) return found;
    return pcre2_match(code.get(), subject, piece.size(), from, options | PCRE2_NO_JIT, data, context.get());
  }
};

struct RegexSplitter::Scratch::Data {
  std::unique_ptr<pcre2_match_data, MatchFree> match;
};

RegexSplitter::Scratch::Scratch(const RegexSplitter& splitter) : data_(std::make_unique<Data>()) {
  data_->match.reset(pcre2_match_data_create_from_pattern(splitter.impl_->code.get(), nullptr));
}
RegexSplitter::Scratch::~Scratch() = default;

RegexSplitter::RegexSplitter() : impl_(std::make_unique<Impl>()) {}
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;
RegexSplitter::~RegexSplitter() = default;

Result<RegexSplitter> RegexSplitter::make(std::string_view pattern, Engine engine) {
  RegexSplitter splitter;
  const std::string full = with_unicode_spaces(pattern);
  int error = 0;
  PCRE2_SIZE where = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(full.data()), full.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &where, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR text[256] = {};
    pcre2_get_error_message(error, text, sizeof text);
    return Status(Code::internal, fmt::format("pre-tokenizer pattern {}: {} at offset {}", full,
                                              reinterpret_cast<const char*>(text), where));
  }
  splitter.impl_->code.reset(code);
  if (engine == Engine::interpreter) {
    splitter.impl_->options |= PCRE2_NO_JIT;
  } else {
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // Where it fails, pcre2_match() interprets.
  }
  splitter.impl_->context.reset(pcre2_match_context_create(nullptr));
  if (splitter.impl_->context) pcre2_set_match_limit(splitter.impl_->context.get(), 0xFFFFFFFF);
  return splitter;
}

void RegexSplitter::split(std::string_view piece, std::size_t base, Scratch& scratch,
                          std::vector<std::size_t>& ends) const {
  pcre2_match_data* data = scratch.data_->match.get();
  std::size_t pos = 0;  // All before it is cut.
  for (std::size_t from = 0; data != nullptr && from < piece.size();) {
    if (impl_->match(piece, from, data) < 0) break;  // The rest of the piece is one word.
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
    const std::size_t begin = bounds[0], end = bounds[1];
    if (begin > pos) ends.push_back(base + begin);
    if (end > begin) ends.push_back(base + end);
    pos = from = std::max(begin, end);
    if (end > begin) continue;
    do ++from;  // Behind an empty match, on from the next character.
    while (from < piece.size() && (static_cast<unsigned char>(piece[from]) & 0xC0) == 0x80);
  }
  if (pos < piece.size()) ends.push_back(base + piece.size());
}

}  // namespace lode::text
