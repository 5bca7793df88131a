#include "text/grammar/token_trie.h"

#include <algorithm>

namespace lode::text::grammar {

std::shared_ptr<const TokenTrie> TokenTrie::make(const Tokenizer& tokenizer) {
  auto out = std::make_shared<TokenTrie>();
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    out->text_at_.push_back(static_cast<std::uint32_t>(out->texts_.size()));
    if (tokenizer.is_end_of_generation(id)) {
      out->ends_.push_back(id);
      continue;
    }
    const TokenKind kind = tokenizer.kind(id);
    if (kind != TokenKind::normal && kind != TokenKind::user_defined && kind != TokenKind::byte) continue;
    // After such a token a detokenizer of these vocabularies takes a space away: the text would not be what was
    // matched.
    if (kind == TokenKind::user_defined && tokenizer.adds_space_prefix()) continue;
    const std::string bytes = tokenizer.token_bytes(id, Tokenizer::Control::hide);
    if (bytes.empty() || bytes.size() > kTokenBytesMax) continue;
    out->texts_.insert(out->texts_.end(), bytes.begin(), bytes.end());
    out->token_bytes_max_ = std::max(out->token_bytes_max_, bytes.size());
    ids.push_back(id);
  }
  out->text_at_.push_back(static_cast<std::uint32_t>(out->texts_.size()));
  out->build(std::move(ids));
  return out;
}

void TokenTrie::build(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end(), [this](TokenId a, TokenId b) {
    const int order = text(a).compare(text(b));
    return order != 0 ? order < 0 : a < b;
  });
  sorted_ = std::move(ids);
  std::vector<std::uint32_t> path{0};  // Nodes from the root to the last token's end.
  nodes_.push_back({});
  std::string_view last;
  const auto close_to = [&](std::size_t depth) {
    for (; path.size() > depth + 1; path.pop_back())
      nodes_[path.back()].skip = static_cast<std::uint32_t>(nodes_.size());
  };
  for (std::uint32_t i = 0; i < sorted_.size(); ++i) {
    const std::string_view bytes = text(sorted_[i]);
    const auto shared = static_cast<std::size_t>(
        std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    close_to(shared);
    for (std::size_t d = shared; d < bytes.size(); ++d) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back(
          {.tokens = i, .depth = static_cast<std::uint16_t>(d + 1), .byte = static_cast<std::uint8_t>(bytes[d])});
    }
    last = bytes;
  }
  close_to(0);
  nodes_[0].skip = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({.skip = nodes_[0].skip, .tokens = static_cast<std::uint32_t>(sorted_.size())});
  first_.fill(kNone);
  for (std::uint32_t n = 1; n < nodes_[0].skip; n = nodes_[n].skip) first_[nodes_[n].byte] = n;
}

std::uint32_t TokenTrie::child(std::uint32_t node, std::uint8_t byte) const {
  if (node == 0) return first_[byte];
  for (std::uint32_t n = node + 1; n < nodes_[node].skip; n = nodes_[n].skip) {
    if (nodes_[n].byte == byte) return n;
  }
  return kNone;
}

std::string_view TokenTrie::text(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return std::string_view(texts_.data() + text_at_[id], text_at_[id + 1] - text_at_[id]);
}

}  // namespace lode::text::grammar
