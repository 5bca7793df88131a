#include "text/no_text.h"

namespace lode::text {
namespace {

class NoText final : public Tokenizer {
 public:
  explicit NoText(std::int32_t vocab) : vocab_(vocab) {}
  std::vector<TokenId> encode(std::string_view, const EncodeOptions&) const override { return {}; }
  std::string token_bytes(TokenId, Control) const override { return {}; }
  std::string decode(std::span<const TokenId>, Control) const override { return {}; }
  std::size_t text_bytes_max() const override { return 0; }
  std::int32_t vocab_size() const override { return vocab_; }
  TokenKind kind(TokenId) const override { return TokenKind::normal; }
  TokenId bos() const override { return -1; }
  TokenId eos() const override { return -1; }
  bool is_end_of_generation(TokenId) const override { return false; }
  bool adds_space_prefix() const override { return false; }
  const std::vector<std::string>& warnings() const override { return warnings_; }

 private:
  const std::int32_t vocab_;
  const std::vector<std::string> warnings_;
};

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_without_text(std::int32_t vocab) {
  return std::make_unique<NoText>(vocab);
}

}  // namespace lode::text
