#include "text/grammar/mask_cache.h"

#include <algorithm>
#include <bit>

#include "text/grammar/trie_walk.h"

namespace lode::text::grammar {

MaskCache::MaskCache(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
                     const MaskCacheOptions& options)
    : automaton_(std::move(automaton)),
      trie_(std::move(trie)),
      costs_(std::make_shared<CloseCosts>(*automaton_, *trie_)),
      stacks_(automaton_, costs_) {
  const auto words = static_cast<std::size_t>((trie_->vocab_size() + 31) / 32);
  // At least two masks with all that can belong to them.
  const std::size_t most = words + trie_->nodes().size();
  slab_words_ = static_cast<std::uint32_t>(std::max(options.bytes / 4, 2 * most));
  slab_ = std::make_unique_for_overwrite<std::uint32_t[]>(slab_words_);
  entries_.resize(std::bit_ceil(std::size_t{2} * (slab_words_ / 8 + 1) / 4));
  bits_.resize(words);
  list_.reserve(words);
  ends_.reserve(trie_->nodes().size());
}

// A mask hangs on the count only where a token could reach a bound: beyond a token's length all counts are alike.
std::uint64_t MaskCache::key(std::uint32_t state, std::uint32_t count) const {
  const Automaton::Rule& rule = automaton_->rules[automaton_->states[state].rule];
  std::uint64_t owed = 0, room = 0;
  if (rule.counted()) {
    const auto reach = static_cast<std::uint32_t>(trie_->token_bytes_max()) + 1;
    owed = std::min(rule.least > count ? rule.least - count : 0, reach);
    room = std::min(rule.most - count, reach);
  }
  return 1 + (std::uint64_t{state} << 20 | owed << 10 | room);
}

MaskCache::Entry& MaskCache::slot(std::uint64_t key) {
  const std::size_t mask = entries_.size() - 1;
  std::size_t i = static_cast<std::size_t>(key * 0x9E3779B97F4A7C15ull >> 20) & mask;
  while (entries_[i].key != 0 && entries_[i].key != key) i = (i + 1) & mask;
  return entries_[i];
}

MaskCache::Mask MaskCache::find(std::uint32_t state, std::uint32_t count) {
  const std::uint64_t wanted = key(state, count);
  Entry* entry = &slot(wanted);
  if (entry->key == 0) {
    Entry made;
    build(state, count, made);
    const std::size_t need = made.tokens + made.ends;
    if (used_ + need > slab_words_ || entries_used_ * 2 >= entries_.size()) {
      std::fill(entries_.begin(), entries_.end(), Entry());
      used_ = entries_used_ = 0;
      ++flushes_;
    }
    store(made);
    made.key = wanted;
    entry = &slot(wanted);
    *entry = made;
    ++entries_used_;
  }
  const std::uint32_t* at = slab_.get() + entry->at;
  Mask out{.close_tokens_max = entry->close_tokens_max + costs_->owed_tokens(state, count), .open_max = entry->open_max};
  (entry->bits ? out.bits : out.list) = {at, entry->tokens};
  out.ends = {at + entry->tokens, entry->ends};
  return out;
}

void MaskCache::build(std::uint32_t state, std::uint32_t count, Entry& entry) {
  ++misses_;
  std::fill(bits_.begin(), bits_.end(), 0);
  list_.clear();
  ends_.clear();
  std::size_t tokens = 0;
  const auto nodes = trie_->nodes();
  const std::int64_t owed = costs_->owed_tokens(state, count);
  entry.close_tokens_max = -owed;
  const Stacks::Step start = stacks_.start_at(state, count);
  walk_trie(*trie_, 0, stacks_, start.list, [&](std::uint32_t node, const Stacks::Step& step) {
    if (trie_->has_tokens(node)) {
      const Stacks::Close close = stacks_.close(step.list);
      entry.close_tokens_max = std::max(entry.close_tokens_max, close.tokens - owed);
      entry.open_max = std::max(entry.open_max, close.open);
      for (const TokenId id : trie_->tokens(node)) {
        bits_[static_cast<std::uint32_t>(id) / 32] |= 1u << (static_cast<std::uint32_t>(id) % 32);
        if (++tokens <= bits_.size()) list_.push_back(static_cast<std::uint32_t>(id));
      }
    }
    if (step.left && nodes[node].skip != node + 1) ends_.push_back(node);
  });
  entry.bits = tokens > bits_.size();
  entry.tokens = static_cast<std::uint32_t>(entry.bits ? bits_.size() : tokens);
  entry.ends = static_cast<std::uint32_t>(ends_.size());
}

void MaskCache::store(Entry& entry) {
  entry.at = used_;
  std::uint32_t* at = slab_.get() + used_;
  if (entry.bits) std::copy_n(bits_.begin(), entry.tokens, at);
  else std::copy_n(list_.begin(), entry.tokens, at);
  std::copy_n(ends_.begin(), entry.ends, at + entry.tokens);
  used_ += entry.tokens + entry.ends;
}

}  // namespace lode::text::grammar
