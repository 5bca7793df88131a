// One grammar over one vocabulary: which tokens each state of the automaton allows, found once and kept. Owns the masks
// and the tables of closing costs. Shared by all matchers of the grammar; a lock makes that safe from any thread.
//
// Most tokens are decided by the state alone. Those during which the state's rule ends depend on its callers: a mask
// keeps the places in the vocabulary's tree where that happens, and the matcher walks on from there with its stack.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/close_costs.h"
#include "text/grammar/stacks.h"
#include "text/grammar/token_trie.h"
#include "text/grammar/trie_walk.h"

namespace lode::text::grammar {

struct MaskCacheOptions {
  // Reserved at once and used as masks come; when it is full, all masks go. 16 MiB hold 860 masks of 150,000 tokens.
  std::size_t bytes = std::size_t{16} << 20;
};

class MaskCache {
 public:
  MaskCache(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
            const MaskCacheOptions& options = {});

  // The tokens that one state allows, whoever called its rule. Valid until the next find().
  struct Mask {
    // One of the two: few tokens as a list, many as bits (token t is bit t % 32 of word t / 32).
    std::span<const std::uint32_t> list, bits;
    // In a pure counted rule: tokens that enter more than kRoomExact repetitions, and how many, ascending.
    std::span<const std::uint32_t> far_tokens, far_entered;
    // Nodes of the trie behind which the state's rule has ended with the byte before: groups of one byte, each as byte,
    // number of nodes, nodes. In a pure counted rule each node is followed by the number of repetitions before it.
    std::span<const std::uint32_t> behind;
    std::uint32_t owed = 0,
                  room = kNoBound;  // Of a pure rule at the count asked for; others have theirs in the tokens.
    bool pure = false;
    std::int64_t close_tokens_max = 0;  // Over those tokens: the most that it takes to the rule's end behind one.
    std::uint32_t open_max = 0;         // And the most rules open above the caller.
  };
  // Steps of readings that finding one text's next tokens may take, a tenth of a second. The dearest mask of a schema
  // takes 0.6 million, over 262,144 tokens; grammars of many readings can ask for any number.
  static constexpr std::int64_t kWorkMax = 6'000'000;
  // `use` gets the Mask under the cache's lock. `work`: steps that making one may take; what it took is subtracted.
  // Where they do not suffice the mask lacks tokens.
  template <typename Use>
  void with_mask(std::uint32_t state, std::uint32_t count, std::int64_t& work, Use use) {
    const std::lock_guard lock(mutex_);
    stacks_.set_work(work);
    use(find(state, count));
    work = stacks_.work();
  }

  const std::shared_ptr<const Automaton>& automaton() const { return automaton_; }
  const std::shared_ptr<const TokenTrie>& trie() const { return trie_; }
  const std::shared_ptr<const CloseCosts>& costs() const { return costs_; }
  std::int64_t misses() const { return misses_; }
  std::int64_t flushes() const { return flushes_; }

 private:
  struct Entry {
    std::uint64_t key = 0;  // 0: free.
    std::uint32_t at = 0;   // In slab_: the tokens, the far ones and their counts, then `behind`.
    std::uint32_t tokens = 0, far = 0, behind = 0;
    bool bits = false;
    std::int64_t close_tokens_max = 0;  // Without what the rule owes where the token began.
    std::uint32_t open_max = 0;
  };
  Mask find(std::uint32_t state, std::uint32_t count);
  std::uint64_t key(std::uint32_t state, std::uint32_t count) const;
  Entry& slot(std::uint64_t key);
  void build(std::uint32_t state, std::uint32_t count, Entry& entry);
  void add_tokens(std::uint32_t node, std::uint32_t entered);
  void add_behind(std::uint32_t node, const std::bitset<256>& follow, std::uint32_t repeats);
  void pack(Entry& entry, bool pure);
  void store(Entry& entry);
  const Automaton::Rule& rule_of(std::uint32_t state) const {
    return automaton_->rules[automaton_->states[state].rule];
  }
  // Repetitions that a token may enter are exact up to here; above it far_entered tells.
  static constexpr std::uint32_t kRoomExact = 16;

  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<const CloseCosts> costs_;
  std::mutex mutex_;
  Stacks stacks_;
  std::unique_ptr<std::uint32_t[]> slab_;
  std::uint32_t slab_words_ = 0, used_ = 0;
  std::vector<Entry> entries_;  // A hash table with open addressing, at most half full.
  std::uint32_t entries_used_ = 0;
  // Of the mask being built.
  std::vector<std::uint32_t> bits_, list_, behind_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> far_;  // Repetitions entered, token.
  struct Behind {
    std::uint32_t node, repeats;
    std::uint8_t byte;
  };
  std::vector<Behind> ends_;
  std::size_t tokens_ = 0;
  WalkFrames frames_;
  std::int64_t misses_ = 0, flushes_ = 0;
};

}  // namespace lode::text::grammar
