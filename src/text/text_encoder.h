// Plain text (no special tokens in it) -> ids. Cuts the text into pieces that no token crosses, remembers what short
// pieces became, and merges the others. Constant after make(): any thread. src/text only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge.h"
#include "text/pretokenizer.h"
#include "text/vocab.h"

namespace lode::text {

// Which two characters can stand side by side inside a token. Between all others the text may be cut with no effect on
// the result: a merge joins neighbours into a token, so no symbol ever spans such a boundary. ASCII pairs are exact;
// the others are hashed into 2^20 bits, where a false "can join" only makes a piece longer (Gemma: 9% of bits set).
class JoinTable {
 public:
  void add_token(std::string_view text);
  bool can_join(char32_t left, char32_t right) const {
    if (left < 128 && right < 128) return ascii_[left] >> right & 1;
    const std::size_t bit = place(left, right);
    return hashed_[bit / 64] >> (bit % 64) & 1;
  }

 private:
  static std::size_t place(char32_t left, char32_t right) {
    const std::uint64_t key = static_cast<std::uint64_t>(left) << 32 | right;
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 44);
  }
  unsigned __int128 ascii_[128] = {};
  std::vector<std::uint64_t> hashed_ = std::vector<std::uint64_t>((1u << 20) / 64);
};

class TextEncoder {
 public:
  struct Scratch {
    MergeScratch merge;
    std::vector<std::size_t> ends;
    std::vector<TokenId> ids;
    std::string text;
  };

  // The vocabulary must outlive the encoder, at the same address. Warnings go to `warnings`.
  static Result<TextEncoder> make(const Vocab& vocab, std::optional<std::string_view> pre,
                                  std::vector<std::string>& warnings);

  void encode(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  explicit TextEncoder(const Vocab& vocab);
  void encode_joined(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_piece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;
  // Whether a piece that is a token as it stands needs no merging.
  bool takes_whole(std::string_view piece) const;
  void merge_piece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const;
  void add_symbols(std::string_view piece, std::vector<Symbol>& symbols) const;
  void append_symbol(std::string_view bytes, TokenId id, std::vector<TokenId>& out) const;

  const Vocab* vocab_;
  std::uint32_t serial_;               // Of this encoder's entries in the word caches.
  std::optional<PreTokenizer> words_;  // BPE models.
  std::array<TokenId, 128> ascii_;     // The token of each ASCII character.
  std::unique_ptr<JoinTable> joins_;   // Models whose symbols are characters.
};

}  // namespace lode::text
