// Text <-> token ids for one GGUF vocabulary. Immutable after load; any thread may use one Tokenizer at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "gguf/gguf.h"

namespace lode::text {

enum class TokenKind : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct EncodeOptions {
  enum class Special { text, parse };      // `parse`: control and user-defined tokens written out in the text become ids.
  enum class Bos { none, model };          // `model`: BOS (and EOS) as the file's add_bos_token / add_eos_token say, and
                                           // never a second BOS where the text already starts with one.
  Special special = Special::text;
  Bos bos = Bos::none;
};

class Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> load(const gguf::File& file);
  virtual ~Tokenizer() = default;

  // Never fails: bytes that are not UTF-8 become byte tokens or the unknown token.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const = 0;
  // The raw bytes of one token: may be part of a character. Control tokens give their text only where `with_control`.
  enum class Control { hide, show };
  virtual std::string token_bytes(TokenId id, Control control) const = 0;
  // Whole text back; encode(decode(x)) need not be x, but decode(encode(text)) is text.
  virtual std::string decode(std::span<const TokenId> ids, Control control) const = 0;

  virtual std::int32_t vocab_size() const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  virtual TokenId bos() const = 0;         // -1: none.
  virtual TokenId eos() const = 0;
  // Every token that ends a turn: eos, eot, eom, and well-known names (<|im_end|>, <end_of_turn>, <|eot_id|>, ...).
  virtual bool is_end_of_generation(TokenId id) const = 0;
  // Lines worth showing once at load, such as an unknown pre-tokenizer name.
  virtual const std::vector<std::string>& warnings() const = 0;
};

// Turns a stream of tokens into text that never holds half a character. One per choice; not shared between threads.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}
  // The text that became certain with this token; bytes that may still grow into a character are held (at most 3), bytes
  // that cannot are replaced by U+FFFD.
  std::string push(TokenId id);
  // What is still held, as U+FFFD.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  std::string held_;
  bool first_ = true;
};

}  // namespace lode::text
