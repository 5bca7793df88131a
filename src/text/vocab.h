// A checked vocabulary: the bytes, kind and role of every token, and the table that merging looks tokens up in.
// `VocabData` is what a file says; `Vocab::make` is the only way from there to a `Vocab`. Owns its own copy of all
// bytes: the file may be closed. Constant after make(): any thread. src/text only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "gguf/gguf.h"
#include "text/flat_map.h"
#include "text/tokenizer.h"

namespace lode::text {

enum class VocabModel {
  spm,       // "llama": scores, U+2581 for space, <0xXX> byte tokens.
  byte_bpe,  // "gpt2": merges over bytes, each byte written as a printable character.
  char_bpe,  // "gemma4": merges over characters, U+2581 for space, <0xXX> byte tokens.
};

// As read from the file; nothing checked but types. Views point into the file's header.
struct VocabData {
  VocabModel model = VocabModel::spm;
  std::optional<std::string_view> pre;
  std::string_view model_name;  // general.name: some tokenizer flags hang on it.
  std::span<const std::string_view> tokens;
  std::vector<double> scores;                               // Empty, or one a token.
  std::vector<std::int64_t> kinds;                          // Empty, or one a token.
  std::span<const std::string_view> merges;                 // "left right"; line number = rank.
  std::optional<std::int64_t> bos, eos, unknown, eot, eom;  // Negative or 0xFFFFFFFF: none.
  // Ends of what a model fills in between two texts: end-of-generation tokens too.
  std::optional<std::int64_t> fim_pad, fim_repo, fim_file;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

// The tokenizer keys of a file. not_found where the file carries no vocabulary at all; unsupported names the model.
Result<VocabData> read_vocab(const gguf::File& file);

class Vocab {
 public:
  static Result<Vocab> make(const VocabData& data);

  std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  bool has(TokenId id) const { return id >= 0 && id < size(); }
  // The bytes a token stands for: U+2581 is a space, <0x0A> a newline, byte-level letters are bytes. Control tokens:
  // their name. Empty for ids outside the vocabulary.
  std::string_view bytes(TokenId id) const { return has(id) ? texts_.text(id) : std::string_view(); }
  TokenKind kind(TokenId id) const { return has(id) ? tokens_[id].kind : TokenKind::unknown; }

  // Whether plain text can become this token.
  bool spellable(TokenId id) const { return has(id) && tokens_[id].spellable; }
  // Finds the token that plain text can become: never a control, unknown or byte token. Priority: for spm the
  // score's order (higher scores first), with tiktoken's ranks the id, else 0.
  Merge find(std::string_view text) const { return texts_.find(text); }
  // Two neighbours merge where find() has their joined text (SentencePiece; tiktoken's ranks), else where find_merge()
  // has the pair.
  bool merges_by_text() const { return merges_by_text_; }
  // The merge of two neighbouring tokens.
  Merge find_merge(TokenId left, TokenId right) const { return merges_.find(left, right); }
  // The token that stands for one byte: <0xXX>, or the byte itself in byte_bpe. -1: none.
  TokenId byte_token(std::uint8_t byte) const { return byte_tokens_[byte]; }
  // What stands for text no token can spell; -1: nothing does, and the text is dropped.
  TokenId replacement() const { return replacement_; }

  VocabModel model() const { return model_; }
  bool escapes_spaces() const { return model_ != VocabModel::byte_bpe; }
  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  bool adds_bos() const { return add_bos_ && bos_ >= 0; }
  bool adds_eos() const { return add_eos_ && eos_ >= 0; }
  bool adds_space_prefix() const { return add_space_prefix_; }
  bool is_end_of_generation(TokenId id) const;

  // Tokens that are cut out of the text before anything else.
  struct Special {
    TokenId id = -1;
    std::string text;           // As it must stand in the text. Never empty.
    bool strips_right = false;  // Whitespace after it is swallowed...
    bool strips_left = false;   // ...or before it.
  };
  std::span<const Special> specials() const { return specials_; }
  std::vector<std::string>& warnings() { return warnings_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Token {
    TokenKind kind = TokenKind::normal;
    bool spellable = false;
  };

  Status add_tokens(const VocabData& data);
  Status add_token(const VocabData& data, TokenId id);
  TokenKind kind_of(std::string_view text, std::int64_t kind) const;
  // Appends a token's bytes to the arena; false where plain text cannot become it.
  bool append_bytes(std::string_view text, TokenKind kind);
  Status add_merges(const VocabData& data);
  Status set_roles(const VocabData& data);
  void find_end_tokens(const VocabData& data);
  void collect_specials(const VocabData& data);
  void check_coverage();

  VocabModel model_ = VocabModel::spm;
  std::vector<char> arena_;  // All tokens' bytes, one after another.
  std::vector<Token> tokens_;
  TextMap texts_;  // Its texts lie in arena_, which never moves after load.
  PairMap merges_;
  std::array<TokenId, 256> byte_tokens_{};
  TokenId bos_ = -1, eos_ = -1, unknown_ = -1, replacement_ = -1;
  bool bytes_by_name_ = false;
  bool merges_by_text_ = false;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false;
  std::vector<TokenId> end_tokens_;  // Sorted.
  std::vector<Special> specials_;
  std::vector<std::string> warnings_;
};

// A tokenizer over data that need not come from a file.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(const VocabData& data);

}  // namespace lode::text
