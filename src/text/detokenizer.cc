// Detokenizer: bytes of tokens -> whole characters, in a stream. Whole-text decoding runs through it too, which is why
// the two always agree.
#include "text/tokenizer.h"

#include "text/utf8.h"

namespace lode::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD.

// Length of the start of a character at bytes[pos..] that the end of the bytes cuts short; 0 where it is not one.
std::size_t unfinished(std::string_view bytes, std::size_t pos) {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
  const Utf8Lead lead = utf8_lead(at(pos));
  const std::size_t size = bytes.size() - pos;
  if (lead.bytes == 0 || size >= lead.bytes) return 0;
  if (size > 1 && (at(pos + 1) < lead.second_min || at(pos + 1) > lead.second_max)) return 0;
  if (size > 2 && (at(pos + 2) & 0xC0) != 0x80) return 0;
  return size;
}

// Bytes at pos that start a character but do not finish it: one U+FFFD stands for all of them, as Unicode recommends
// and as other decoders do. At least 1.
std::size_t broken(std::string_view bytes, std::size_t pos) {
  std::size_t size = 1;
  while (pos + size < bytes.size() && unfinished(bytes.substr(0, pos + size + 1), pos) == size + 1) ++size;
  return size;
}

}  // namespace

std::string Detokenizer::push(TokenId id, Tokenizer::Control control) {
  std::string bytes = tokenizer_->token_bytes(id, control);
  const TokenKind kind = tokenizer_->kind(id);
  const bool special = kind == TokenKind::control || kind == TokenKind::user_defined || kind == TokenKind::unknown;
  if (special) {
    strip_space_ = true;
  } else if (!bytes.empty()) {
    if (strip_space_ && bytes[0] == ' ' && tokenizer_->adds_space_prefix()) bytes.erase(0, 1);
    strip_space_ = false;
  }
  held_ += bytes;
  std::string out;
  std::size_t pos = 0;
  while (pos < held_.size()) {
    if (const Utf8Char c = utf8_at(held_, pos); c.valid()) {
      out.append(held_, pos, c.bytes);
      pos += c.bytes;
    } else if (unfinished(held_, pos) > 0) {
      break;
    } else {
      out += kReplacement;
      pos += broken(held_, pos);
    }
  }
  held_.erase(0, pos);
  return out;
}

std::string Detokenizer::flush() {
  // What is held is always the start of one character.
  std::string out(held_.empty() ? std::string_view() : kReplacement);
  held_.clear();
  return out;
}

}  // namespace lode::text
