// Tokenizer over one checked vocabulary: special tokens are cut out, the text between them is encoded, BOS and EOS go
// around it.
#include "text/tokenizer.h"

#include <algorithm>

#include "text/special_matcher.h"
#include "text/text_encoder.h"
#include "text/vocab.h"

namespace lode::text {
namespace {

class VocabTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> make(const VocabData& data) {
    auto vocab = Vocab::make(data);
    if (!vocab.ok()) return vocab.status();
    std::unique_ptr<VocabTokenizer> out(new VocabTokenizer(std::move(*vocab)));
    auto encoder = TextEncoder::make(out->vocab_, data.pre, out->vocab_.warnings());
    if (!encoder.ok()) return encoder.status();
    out->encoder_.emplace(std::move(*encoder));
    return std::unique_ptr<Tokenizer>(std::move(out));
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<SpecialMatcher::Fragment> fragments;
    if (options.special == EncodeOptions::Special::text) always_.split(text, fragments);
    else if (options.plain.empty()) parsed_.split(text, fragments);
    else split_around(text, options.plain, fragments);
    std::vector<TokenId> out;
    out.reserve(text.size() / 3 + 8);
    const bool around = options.bos != EncodeOptions::Bos::none;
    // A template or a client that wrote BOS into the text keeps the one it wrote.
    if (around && vocab_.adds_bos() && (fragments.empty() || fragments.front().id != vocab_.bos())) {
      out.push_back(vocab_.bos());
    }
    TextEncoder::Scratch scratch;
    std::string prefixed;
    for (const SpecialMatcher::Fragment& f : fragments) {
      if (f.id >= 0) {
        out.push_back(f.id);
        continue;
      }
      std::string_view plain = text.substr(f.begin, f.end - f.begin);
      if (vocab_.adds_space_prefix()) {  // At the start, and after every special token.
        prefixed.assign(1, ' ').append(plain);
        plain = prefixed;
      }
      encoder_->encode(plain, scratch, out);
    }
    if (options.bos == EncodeOptions::Bos::model && vocab_.adds_eos() &&
        (fragments.empty() || fragments.back().id != vocab_.eos())) {
      out.push_back(vocab_.eos());
    }
    return out;
  }

  std::string token_bytes(TokenId id, Control control) const override {
    const TokenKind k = vocab_.kind(id);
    if (control == Control::hide && (k == TokenKind::control || k == TokenKind::unknown)) return {};
    return std::string(vocab_.bytes(id));
  }

  std::string decode(std::span<const TokenId> ids, Control control) const override {
    Detokenizer stream(*this, {.control = control});
    std::string out;
    for (const TokenId id : ids) out += stream.push(id);
    out += stream.flush();
    return out;
  }

  std::size_t text_bytes_max() const override { return text_bytes_max_; }
  std::int32_t vocab_size() const override { return vocab_.size(); }
  TokenKind kind(TokenId id) const override { return vocab_.kind(id); }
  TokenId bos() const override { return vocab_.bos(); }
  TokenId eos() const override { return vocab_.eos(); }
  bool is_end_of_generation(TokenId id) const override { return vocab_.is_end_of_generation(id); }
  bool adds_space_prefix() const override { return vocab_.adds_space_prefix(); }
  const std::vector<std::string>& warnings() const override { return vocab_.warnings(); }

 private:
  explicit VocabTokenizer(Vocab vocab) : vocab_(std::move(vocab)) {
    const auto specials = vocab_.specials();
    std::vector<Vocab::Special> always;
    for (const Vocab::Special& s : specials) {
      if (vocab_.kind(s.id) == TokenKind::user_defined) always.push_back(s);
    }
    always_ = SpecialMatcher(std::move(always));
    parsed_ = SpecialMatcher({specials.begin(), specials.end()});
    text_bytes_max_ = find_text_bytes_max();
  }

  // Control tokens only where all of their bytes are outside `plain`.
  void split_around(std::string_view text, std::span<const ByteRange> plain,
                    std::vector<SpecialMatcher::Fragment>& fragments) const {
    parsed_.split(text, fragments, [&](TokenId id, std::size_t begin, std::size_t end) {
      if (vocab_.kind(id) == TokenKind::user_defined) return true;
      const auto behind =
          std::partition_point(plain.begin(), plain.end(), [&](const ByteRange& r) { return r.end <= begin; });
      return behind == plain.end() || behind->begin >= end;
    });
  }

  std::size_t find_text_bytes_max() const {
    for (int b = 0; b < 256; ++b) {
      if (vocab_.byte_token(static_cast<std::uint8_t>(b)) < 0 && vocab_.replacement() < 0) return 0;  // Dropped.
    }
    std::size_t most = 1;
    for (TokenId id = 0; id < vocab_.size(); ++id) most = std::max(most, vocab_.bytes(id).size());
    if (vocab_.escapes_spaces()) most *= 3;  // U+2581, three bytes, is read as a space.
    for (const Vocab::Special& s : vocab_.specials()) {
      if (s.strips_left || s.strips_right) return 0;  // Swallows any amount of whitespace.
      most = std::max(most, s.text.size());
    }
    return most;
  }

  Vocab vocab_;
  std::size_t text_bytes_max_ = 0;
  SpecialMatcher always_;               // User-defined tokens: cut out of every text.
  SpecialMatcher parsed_;               // With control tokens: Special::parse only.
  std::optional<TextEncoder> encoder_;  // Set by make(), once vocab_ has its final address.
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const VocabData& data) {
  return VocabTokenizer::make(data);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const gguf::File& file) {
  auto data = read_vocab(file);
  if (!data.ok()) return data.status();
  auto out = VocabTokenizer::make(*data);
  if (out.ok()) return out;
  return Status(out.status().code(), file.path().string() + ": " + out.status().message());
}

}  // namespace lode::text
