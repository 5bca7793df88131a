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
#include "text/byte_range.h"

namespace lode::text {

enum class TokenKind : std::uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct EncodeOptions {
  enum class Special { text, parse };  // `parse`: control and user-defined tokens written out in the text become ids.
  // `model`: BOS (and EOS) as the file's add_bos_token / add_eos_token say, and never a second BOS where the text
  // already starts with one. `start`: the same without EOS, for a text that something will follow.
  enum class Bos { none, model, start };
  Special special = Special::text;
  Bos bos = Bos::none;
  // Parts of the text (ascending, apart from each other) that nobody vouches for: a control token that is written
  // there, or reaches into there, is plain text even with Special::parse. User-defined tokens are found all the same.
  std::span<const ByteRange> plain = {};
};

class Tokenizer {
 public:
  // not_found where the file carries no vocabulary (tokenizer.ggml.model missing or "none"). The file may be closed
  // after.
  static Result<std::unique_ptr<Tokenizer>> load(const gguf::File& file);
  virtual ~Tokenizer() = default;

  // Never fails: bytes that are not UTF-8 become byte tokens or the unknown token. Where the vocabulary has neither
  // (byte-level BPE that lacks some bytes), they are dropped, as those models' own tokenizers do.
  // Special::text never gives a control token; user-defined tokens are found either way.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const = 0;
  // The raw bytes of one token: may be part of a character. Control and unknown tokens give their text only with
  // Control::show. Ids outside the vocabulary give nothing.
  enum class Control { hide, show };
  virtual std::string token_bytes(TokenId id, Control control) const = 0;
  // Whole text back, always valid UTF-8 (U+FFFD for bytes that are not); encode(decode(x)) need not be x, but
  // decode(encode(text)) is text, unless the vocabulary cannot spell it. U+2581 comes back as a space from vocabularies
  // that write spaces so. Equals what a Detokenizer gives for the same ids.
  virtual std::string decode(std::span<const TokenId> ids, Control control) const = 0;

  // The most bytes of text that one token can stand for, so that a text of n bytes has at least n / that many tokens.
  // 0: there is no such bound, since some text becomes no token at all.
  virtual std::size_t text_bytes_max() const = 0;

  virtual std::int32_t vocab_size() const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  virtual TokenId bos() const = 0;  // -1: none.
  virtual TokenId eos() const = 0;
  // Every token that ends a turn: eos, eot, eom, and well-known names (<|im_end|>, <end_of_turn>, <|eot_id|>, ...).
  virtual bool is_end_of_generation(TokenId id) const = 0;
  // encode() puts a space before text at the start and after special tokens, which decode() takes away again.
  virtual bool adds_space_prefix() const = 0;
  // Lines worth showing once at load, such as an unknown pre-tokenizer name.
  virtual const std::vector<std::string>& warnings() const = 0;
};

// Turns a stream of tokens into text that never holds half a character. One per choice; not shared between threads.
class Detokenizer {
 public:
  // `continuation`: the tokens follow others (a reply after its prompt), so a leading space is text, and stays.
  enum class Start { whole, continuation };
  struct Options {
    Tokenizer::Control control = Tokenizer::Control::hide;
    Start start = Start::whole;
  };
  explicit Detokenizer(const Tokenizer& tokenizer) : Detokenizer(tokenizer, Options()) {}
  Detokenizer(const Tokenizer& tokenizer, const Options& options)
      : tokenizer_(&tokenizer), options_(options), strip_space_(options.start == Start::whole) {}
  // The text that became certain with this token; bytes that may still grow into a character are held (at most 3),
  // bytes that cannot are replaced by U+FFFD.
  std::string push(TokenId id) { return push(id, options_.control); }
  // The same for one token that is to be shown, or hidden, unlike others.
  std::string push(TokenId id, Tokenizer::Control control);
  // What is still held, as U+FFFD.
  std::string flush();

 private:
  const Tokenizer* tokenizer_;
  Options options_;
  std::string held_;
  bool strip_space_;
};

}  // namespace lode::text
