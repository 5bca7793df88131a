// All texts of a vocabulary's tokens as one tree of bytes. Constant after make(); any thread. Shared by all grammars of
// one model.
//
// Nodes lie in preorder, so a walk is a scan: the next node is the first child, or `skip` where the subtree is left
// out. Tokens are sorted by their bytes; a node's own are [tokens, next node's tokens).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace lode::text::grammar {

class TokenTrie {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;
  // Longer tokens are never allowed: a walk keeps one frame a byte.
  static constexpr std::size_t kTokenBytesMax = 512;

  struct Node {
    std::uint32_t skip = 0;    // The node after this one's subtree.
    std::uint32_t tokens = 0;  // Index of the first token that ends here.
    std::uint16_t depth = 0;   // Bytes from the root, which has 0.
    std::uint8_t byte = 0;     // The last of them.
  };

  // Normal, user-defined and byte tokens are text; control, unknown and unused ones and ends of generation are not.
  static std::shared_ptr<const TokenTrie> make(const Tokenizer& tokenizer);

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(text_at_.size()) - 1; }
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }  // nodes()[0] is the root.
  std::span<const TokenId> tokens(std::uint32_t node) const {
    return std::span(sorted_).subspan(nodes_[node].tokens, nodes_[node + 1].tokens - nodes_[node].tokens);
  }
  bool has_tokens(std::uint32_t node) const { return nodes_[node].tokens != nodes_[node + 1].tokens; }
  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  // Empty for a token that is no text.
  std::string_view text(TokenId id) const;
  std::span<const TokenId> ends() const { return ends_; }  // End-of-generation tokens.
  std::size_t token_bytes_max() const { return token_bytes_max_; }

 private:
  void build(std::vector<TokenId> ids);

  std::vector<char> texts_;
  std::vector<std::uint32_t> text_at_;  // [vocab + 1]
  std::vector<Node> nodes_;             // And one past the last, for its `tokens`.
  std::vector<TokenId> sorted_;
  std::array<std::uint32_t, 256> first_{};  // The root's children.
  std::vector<TokenId> ends_;
  std::size_t token_bytes_max_ = 0;
};

}  // namespace lode::text::grammar
