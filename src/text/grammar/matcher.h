// One text against one grammar, token by token: which tokens may come, what must come, what closing takes. Owns the
// readings of its text (1.6 MB of address space, touched as needed); what it shares with others lies in the MaskCache.
// One thread at a time. Nothing allocates but the constructors and the vectors that a caller hands in.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "text/grammar/mask_cache.h"
#include "text/grammar/stacks.h"

namespace lode::text::grammar {

class Matcher {
 public:
  explicit Matcher(std::shared_ptr<MaskCache> masks);
  Matcher(const Matcher& other);  // The same state, to go on from independently.

  static constexpr std::int64_t kNoBudget = -1;
  // Writes every word of `given` ((vocab + 31) / 32 of them; token t is bit t % 32 of word t / 32): the tokens that may
  // come now, and every end-of-generation token exactly where the document may end. `budget`: tokens that may still
  // come, the next one included, an end token not. Where it holds close_tokens(), only tokens are allowed after which
  // the rest still fits; where it does not, there is no such restriction.
  void fill_mask(std::span<std::uint32_t> given, std::int64_t budget = kNoBudget);
  // False: the token may not come, and nothing changed. End-of-generation tokens are never accepted: they end a text.
  bool accept(TokenId token);
  bool accept_bytes(std::string_view bytes);

  // The document may end here; nothing but its end may follow.
  bool may_end() const { return ended_; }
  bool done() const;
  // At most so many tokens, and exactly so many bytes, lead to an end from here; 0 where it may end.
  std::uint32_t close_tokens() const { return ended_ ? 0 : stacks_.close(list_).tokens; }
  std::uint32_t close_bytes() const { return ended_ ? 0 : stacks_.close(list_).bytes; }
  // Appends the bytes that must come next, whatever is chosen: up to the first place with a choice, or where the
  // document may end. At most `most`.
  void forced_bytes(std::string& out, std::size_t most);
  // Bytes that may come next, as a set.
  std::array<bool, 256> next_bytes();
  // Readings were dropped at a bound: the grammar is more ambiguous or deeper than is followed. What is accepted is
  // still right; some words of the grammar are refused.
  bool dropped() const { return stacks_.dropped(); }

  const MaskCache& masks() const { return *masks_; }

 private:
  bool fill_from_cache(std::span<std::uint32_t> mask, std::int64_t left);
  void add_tokens(std::span<std::uint32_t> mask, const MaskCache::Mask& from);
  void fill_behind(std::span<std::uint32_t> mask, std::uint32_t node, const MaskCache::Mask& from, std::int64_t left);
  void fill_by_walk(std::span<std::uint32_t> mask, std::int64_t left);
  bool fits(const Stacks::Close& close, std::int64_t left) const;

  std::shared_ptr<MaskCache> masks_;
  Stacks stacks_;
  Stacks::List list_;
  bool ended_ = false;
  std::uint32_t close_now_ = 0;  // Of the mask being filled.
  std::unique_ptr<WalkFrames> frames_;
  std::vector<std::uint32_t> before_;  // A mask before one reading's tokens came into it.
  std::vector<std::uint32_t> short_;   // The whole mask, where the caller's has no room for it.
};

}  // namespace lode::text::grammar
