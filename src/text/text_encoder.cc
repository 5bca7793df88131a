// See text_encoder.h.
#include "text/text_encoder.h"

#include <algorithm>
#include <atomic>

#include "text/utf8.h"
#include "text/word_cache.h"

namespace lode::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581.
// Positions inside a piece are 32-bit. A longer piece, a gigabyte with nowhere to cut, is cut here.
constexpr std::size_t kPieceMax = std::size_t{1} << 30;

}  // namespace

std::uint32_t WordCache::next_serial() {
  static std::atomic<std::uint32_t> last{0};
  std::uint32_t serial = ++last;
  return serial == 0 ? ++last : serial;
}

void JoinTable::add_token(std::string_view text) {
  if (text.empty()) return;
  Utf8Char left = utf8_at(text, 0);
  for (std::size_t pos = left.bytes; pos < text.size();) {
    const Utf8Char right = utf8_at(text, pos);
    if (left.code < 128 && right.code < 128) {
      ascii_[left.code] |= static_cast<unsigned __int128>(1) << right.code;
    } else {
      const std::size_t bit = place(left.code, right.code);
      hashed_[bit / 64] |= std::uint64_t{1} << (bit % 64);
    }
    pos += right.bytes;
    left = right;
  }
}

TextEncoder::TextEncoder(const Vocab& vocab) : vocab_(&vocab), serial_(WordCache::next_serial()) {
  for (int c = 0; c < 128; ++c) {
    const char byte = static_cast<char>(c);
    ascii_[c] = vocab.find({&byte, 1}).id;
  }
}

Result<TextEncoder> TextEncoder::make(const Vocab& vocab, std::optional<std::string_view> pre,
                                      std::vector<std::string>& warnings) {
  TextEncoder encoder(vocab);
  if (vocab.model() != VocabModel::spm) {
    std::string warning;
    auto words = PreTokenizer::make(pre, PreTokenizer::Engine::fastest, &warning);
    if (!words.ok()) return words.status();
    encoder.words_ = std::move(*words);
    if (!warning.empty()) warnings.push_back(std::move(warning));
  }
  if (vocab.escapes_spaces()) {
    encoder.joins_ = std::make_unique<JoinTable>();
    for (TokenId id = 0; id < vocab.size(); ++id) {
      if (vocab.spellable(id)) encoder.joins_->add_token(vocab.bytes(id));
    }
  }
  return encoder;
}

void TextEncoder::encode(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
  if (vocab_->escapes_spaces() && text.find(kSpaceMark) != std::string_view::npos) {
    // To these vocabularies U+2581 in the text is the same as a space.
    std::string& plain = scratch.text;
    plain.clear();
    for (std::size_t pos = 0; pos < text.size();) {
      const std::size_t mark = std::min(text.find(kSpaceMark, pos), text.size());
      plain.append(text, pos, mark - pos);
      if (mark == text.size()) break;
      plain.push_back(' ');
      pos = mark + kSpaceMark.size();
    }
    text = plain;
  }
  if (!words_) return encode_joined(text, scratch, out);
  scratch.ends.clear();
  words_->split(text, scratch.ends);
  std::size_t begin = 0;
  for (const std::size_t end : scratch.ends) {
    const std::string_view word = text.substr(begin, end - begin);
    joins_ ? encode_joined(word, scratch, out) : encode_piece(word, scratch, out);
    begin = end;
  }
}

void TextEncoder::encode_joined(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  std::size_t begin = 0;
  Utf8Char left = utf8_at(text, 0);
  for (std::size_t pos = left.bytes; pos < text.size();) {
    const Utf8Char right = utf8_at(text, pos);
    if (!joins_->can_join(left.code, right.code)) {
      encode_piece(text.substr(begin, pos - begin), scratch, out);
      begin = pos;
    }
    pos += right.bytes;
    left = right;
  }
  encode_piece(text.substr(begin), scratch, out);
}

void TextEncoder::encode_piece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (piece.size() > WordCache::kTextMax) {
    for (; piece.size() > kPieceMax; piece.remove_prefix(kPieceMax))
      merge_piece(piece.substr(0, kPieceMax), scratch, out);
    return merge_piece(piece, scratch, out);
  }
  WordCache::Entry& entry = WordCache::of_this_thread().entry(piece);
  if (entry.holds(serial_, piece)) {
    out.insert(out.end(), entry.ids, entry.ids + entry.ids_size);
    return;
  }
  const std::size_t before = out.size();
  merge_piece(piece, scratch, out);
  entry.set(serial_, piece, std::span<const TokenId>(out).subspan(before));
}

void TextEncoder::add_symbols(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.clear();
  if (vocab_->model() == VocabModel::byte_bpe) {
    symbols.reserve(piece.size());
    for (std::uint32_t i = 0; i < piece.size(); ++i) {
      symbols.push_back({i, i + 1, vocab_->byte_token(static_cast<std::uint8_t>(piece[i]))});
    }
    return;
  }
  for (std::uint32_t pos = 0; pos < piece.size();) {
    const Utf8Char c = utf8_at(piece, pos);
    const std::uint32_t end = pos + c.bytes;
    symbols.push_back({pos, end, c.code < 128 ? ascii_[c.code] : vocab_->find(piece.substr(pos, c.bytes)).id});
    pos = end;
  }
}

bool TextEncoder::takes_whole(std::string_view piece) const {
  if (!words_ || words_->whole_words() == WholeWords::merged) return false;
  return words_->whole_words() == WholeWords::taken || piece.find_first_not_of('\n') == std::string_view::npos;
}

void TextEncoder::merge_piece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
  if (takes_whole(piece)) {
    if (const TokenId whole = vocab_->find(piece).id; whole >= 0) {
      out.push_back(whole);
      return;
    }
  }
  MergeScratch& merge = scratch.merge;
  add_symbols(piece, merge.symbols);
  if (vocab_->merges_by_text()) {
    // Two neighbours merge where their joined text is a token, the best score first.
    merge_symbols(merge, [this, piece](const Symbol& left, const Symbol& right) {
      return vocab_->find(piece.substr(left.begin, right.end - left.begin));
    });
  } else {
    merge_symbols(merge,
                  [this](const Symbol& left, const Symbol& right) { return vocab_->find_merge(left.id, right.id); });
  }
  for (const Symbol& s : merge.symbols) append_symbol(piece.substr(s.begin, s.end - s.begin), s.id, out);
}

void TextEncoder::append_symbol(std::string_view bytes, TokenId id, std::vector<TokenId>& out) const {
  if (id >= 0) {
    out.push_back(id);
    return;
  }
  for (const char c : bytes) {
    const TokenId token = vocab_->byte_token(static_cast<std::uint8_t>(c));
    const TokenId shown = token >= 0 ? token : vocab_->replacement();
    if (shown >= 0) out.push_back(shown);
  }
}

}  // namespace lode::text
