// Cuts special tokens (control, user-defined) out of a text before anything else: the longest token first, each from
// left to right, ties by lower id. Constant after construction: any thread. src/text only.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace lode::text {

class SpecialMatcher {
 public:
  // A stretch of plain text (id -1) or one special token. In text order; swallowed whitespace is in none.
  struct Fragment {
    std::size_t begin = 0, end = 0;
    TokenId id = -1;
  };

  SpecialMatcher() = default;
  explicit SpecialMatcher(std::vector<Vocab::Special> specials);

  void split(std::string_view text, std::vector<Fragment>& out) const;
  // Only tokens that `admits` where they stand; those it does not are text, as if they were not in the vocabulary.
  using Admits = std::function<bool(TokenId id, std::size_t begin, std::size_t end)>;
  void split(std::string_view text, std::vector<Fragment>& out, const Admits& admits) const;

 private:
  struct Found {
    std::uint32_t rank = 0;  // Index into specials_.
    std::size_t begin = 0;
  };
  struct Island;

  void build_trie();
  void find_runs();
  template <typename Fn>
  void each_match(std::string_view text, std::size_t pos, Fn&& fn) const;
  std::size_t take_run(std::string_view text, std::size_t pos, const Admits& admits,
                       std::vector<Fragment>& tokens) const;
  void resolve(std::string_view text, Island& island, std::vector<Fragment>& tokens) const;

  // Trie nodes; the edges of a node lie together, sorted by byte.
  struct Node {
    std::uint32_t first_edge = 0;
    std::uint16_t edges = 0;
    std::int32_t rank = -1;  // Of the token that ends here.
  };
  struct Edge {
    std::uint8_t byte = 0;
    std::uint32_t node = 0;
  };

  std::vector<Vocab::Special> specials_;  // By descending length, then id.
  bool strips_ = false;                   // Some token swallows whitespace.
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::bitset<256> first_;   // Bytes that start some token...
  std::bitset<65536> pair_;  // ...and pairs of bytes (one-byte tokens: with any second byte).
  // Bytes that occur only in tokens made of that byte alone, such as Gemma's runs of newlines: such a run is resolved
  // by division instead of by collecting its n * 31 overlapping matches. Ranks by descending length.
  std::array<std::vector<std::uint32_t>, 256> runs_;
};

}  // namespace lode::text
