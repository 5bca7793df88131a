#include "text/grammar/mask_cache.h"

#include <algorithm>
#include <bit>

namespace lode::text::grammar {

MaskCache::MaskCache(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const TokenTrie> trie,
                     const MaskCacheOptions& options)
    : automaton_(std::move(automaton)),
      trie_(std::move(trie)),
      costs_(std::make_shared<CloseCosts>(*automaton_, *trie_)),
      stacks_(automaton_, costs_) {
  const auto words = static_cast<std::size_t>((trie_->vocab_size() + 31) / 32);
  // At least two masks with all that can belong to them.
  const std::size_t nodes = trie_->nodes().size();
  const std::size_t most = words + 4 * nodes + 512;
  slab_words_ = static_cast<std::uint32_t>(std::max(options.bytes / 4, 2 * most));
  slab_ = std::make_unique_for_overwrite<std::uint32_t[]>(slab_words_);
  entries_.resize(std::bit_ceil(std::size_t{2} * (slab_words_ / 8 + 1) / 4));
  bits_.resize(words);
  list_.reserve(words);
  far_.reserve(nodes);
  ends_.reserve(nodes);
  behind_.reserve(2 * nodes + 512);
}

// In a pure counted rule the count matters where few repetitions are left; elsewhere one mask serves every count, and
// every rule with the body. In other counted rules it matters where a token could reach a bound.
std::uint64_t MaskCache::key(std::uint32_t state, std::uint32_t count) const {
  const Automaton::Rule& rule = rule_of(state);
  std::uint64_t owed = 0, room = 0;
  if (rule.pure) {
    state = rule.twin + (state - rule.start);
    room = std::min(rule.most - count, kRoomExact + 1);
  } else if (rule.counted()) {
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
    // A mask that the work did not suffice for is kept only if it had all the work there is: else the next try has
    // more.
    const bool all_work = stacks_.work() >= kWorkMax;
    Entry made;
    build(state, count, made);
    if (!stacks_.has_work() && !all_work) return Mask();
    const std::size_t need = made.tokens + 2 * made.far + made.behind;
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
  const Automaton::Rule& rule = rule_of(state);
  Mask out{.pure = rule.pure,
           .close_tokens_max = entry->close_tokens_max + costs_->owed_tokens(state, count),
           .open_max = entry->open_max};
  if (rule.pure) {
    out.owed = rule.least > count ? rule.least - count : 0;
    out.room = rule.most - count;
  }
  (entry->bits ? out.bits : out.list) = {at, entry->tokens};
  out.far_tokens = {at + entry->tokens, entry->far};
  out.far_entered = {at + entry->tokens + entry->far, entry->far};
  out.behind = {at + entry->tokens + 2 * entry->far, entry->behind};
  return out;
}

void MaskCache::add_tokens(std::uint32_t node, std::uint32_t entered) {
  for (const TokenId id : trie_->tokens(node)) {
    bits_[static_cast<std::uint32_t>(id) / 32] |= 1u << (static_cast<std::uint32_t>(id) % 32);
    if (++tokens_ <= bits_.size()) list_.push_back(static_cast<std::uint32_t>(id));
    if (entered > kRoomExact) far_.emplace_back(entered, static_cast<std::uint32_t>(id));
  }
}

void MaskCache::add_behind(std::uint32_t node, const std::bitset<256>& follow, std::uint32_t repeats) {
  const auto nodes = trie_->nodes();
  for (std::uint32_t n = node + 1; n < nodes[node].skip; n = nodes[n].skip) {
    if (follow[nodes[n].byte]) ends_.push_back({n, repeats, nodes[n].byte});
  }
}

void MaskCache::build(std::uint32_t state, std::uint32_t count, Entry& entry) {
  ++misses_;
  std::fill(bits_.begin(), bits_.end(), 0);
  list_.clear();
  far_.clear();
  ends_.clear();
  tokens_ = 0;
  const Automaton::Rule& rule = rule_of(state);
  const std::bitset<256>& follow = automaton_->rules[automaton_->states[rule.twin].rule].follow;
  if (rule.pure) {
    const std::uint32_t room = rule.most - count;
    // Beyond the exact ones no bound: 2^30 repetitions are more than any token has.
    const Stacks::Step start = stacks_.start_counting(state, room <= kRoomExact ? room : kCountMax);
    walk_trie(*trie_, 0, stacks_, start.list, frames_, [&](std::uint32_t node, const Stacks::Step& step) {
      std::uint32_t entered = kNoBound, repeats = 0;
      for (const Stacks::Thread& t : stacks_.threads(step.list)) {
        entered = std::min(entered, t.count + (automaton_->states[t.state].loop_head ? 0 : 1));
        if (automaton_->states[t.state].loop_head) repeats = std::max(repeats, t.count);
        entry.close_tokens_max = std::max<std::int64_t>(entry.close_tokens_max, costs_->own_tokens(t.state));
      }
      add_tokens(node, entered);
      if (step.left) add_behind(node, follow, repeats);
    });
  } else {
    const std::int64_t owed = costs_->owed_tokens(state, count);
    entry.close_tokens_max = -owed;
    const Stacks::Thread none{Automaton::kNone, 0, 0, false};
    Stacks::Thread last = none;
    const Stacks::Step start = stacks_.start_at(state, count);
    walk_trie(*trie_, 0, stacks_, start.list, frames_, [&](std::uint32_t node, const Stacks::Step& step) {
      if (trie_->has_tokens(node)) {
        const Stacks::Thread& t = stacks_.threads(step.list)[0];
        // Most tokens end where one before ended.
        if (step.list.end - step.list.begin > 1 || t.state != last.state || t.count != last.count ||
            t.node != last.node) {
          const Stacks::Close close = stacks_.close(step.list);
          entry.close_tokens_max = std::max(entry.close_tokens_max, close.tokens - owed);
          entry.open_max = std::max(entry.open_max, close.open);
          last = step.list.end - step.list.begin > 1 || t.node != Stacks::kUnknown ? none : t;
        }
        add_tokens(node, 0);
      }
      if (step.left) add_behind(node, follow, 0);
    });
  }
  pack(entry, rule.pure);
}

void MaskCache::pack(Entry& entry, bool pure) {
  entry.bits = tokens_ > bits_.size();
  entry.tokens = static_cast<std::uint32_t>(entry.bits ? bits_.size() : tokens_);
  entry.far = static_cast<std::uint32_t>(far_.size());
  std::sort(far_.begin(), far_.end());
  // Without std::stable_sort, which allocates: the nodes are already in order within a byte once ties go by node.
  std::sort(ends_.begin(), ends_.end(),
            [](const Behind& a, const Behind& b) { return a.byte != b.byte ? a.byte < b.byte : a.node < b.node; });
  behind_.clear();
  for (std::size_t i = 0; i < ends_.size();) {
    const std::size_t from = i;
    while (i < ends_.size() && ends_[i].byte == ends_[from].byte) ++i;
    behind_.push_back(ends_[from].byte);
    behind_.push_back(static_cast<std::uint32_t>(i - from));
    for (std::size_t k = from; k < i; ++k) {
      behind_.push_back(ends_[k].node);
      if (pure) behind_.push_back(ends_[k].repeats);
    }
  }
  entry.behind = static_cast<std::uint32_t>(behind_.size());
}

void MaskCache::store(Entry& entry) {
  entry.at = used_;
  std::uint32_t* at = slab_.get() + used_;
  at = entry.bits ? std::copy_n(bits_.begin(), entry.tokens, at) : std::copy_n(list_.begin(), entry.tokens, at);
  for (const auto& [entered, token] : far_) *at++ = token;
  for (const auto& [entered, token] : far_) *at++ = entered;
  at = std::copy(behind_.begin(), behind_.end(), at);
  used_ = static_cast<std::uint32_t>(at - slab_.get());
}

}  // namespace lode::text::grammar
