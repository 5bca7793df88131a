#include "text/grammar/matcher.h"

#include <algorithm>

#include "text/grammar/trie_walk.h"

namespace lode::text::grammar {
namespace {

constexpr std::int64_t kUnbounded = std::int64_t{1} << 40;

void allow(std::span<std::uint32_t> mask, TokenId id) {
  mask[static_cast<std::uint32_t>(id) / 32] |= 1u << (static_cast<std::uint32_t>(id) % 32);
}

}  // namespace

Matcher::Matcher(std::shared_ptr<MaskCache> masks)
    : masks_(std::move(masks)), stacks_(masks_->automaton(), masks_->costs()), frames_(new WalkFrames) {
  before_.resize(static_cast<std::size_t>(masks_->trie()->vocab_size() + 31) / 32);
  short_.resize(before_.size());
  const Stacks::Step step = stacks_.start();
  list_ = stacks_.keep(step.list);
  ended_ = step.ended;
}

Matcher::Matcher(const Matcher& other)
    : masks_(other.masks_),
      stacks_(other.stacks_),
      list_(other.list_),
      ended_(other.ended_),
      frames_(new WalkFrames),
      before_(other.before_.size()),
      short_(other.short_.size()) {}

// Whether a token may be taken that leaves a text to be closed so. Towards the end of a document the depth is free: a
// way out never takes more than kShortestDepthMax rules.
bool Matcher::fits(const Stacks::Close& close, std::int64_t left) const {
  return close.tokens <= left && (close.open <= kOpenSoft || close.tokens < close_now_);
}

void Matcher::fill_mask(std::span<std::uint32_t> given, std::int64_t budget) {
  // A model may have more logits than its vocabulary has tokens, or fewer.
  std::fill(given.begin(), given.end(), 0);
  const bool fits_here = given.size() >= before_.size();
  const std::span<std::uint32_t> mask = fits_here ? given.first(before_.size()) : std::span(short_);
  if (!fits_here) std::fill(mask.begin(), mask.end(), 0);
  close_now_ = stacks_.close(list_).tokens;
  stacks_.set_work(MaskCache::kWorkMax);
  // Behind the next token so many may come.
  std::int64_t left = budget < 0 || close_tokens() > budget ? kUnbounded : budget - 1;
  // A document that may end now has no promise to keep but the one it makes with its next token.
  if (!fill_from_cache(mask, left)) {
    std::fill(mask.begin(), mask.end(), 0);
    fill_by_walk(mask, left);
  }
  if (ended_) {
    for (const TokenId id : masks_->trie()->ends()) allow(mask, id);
  }
  if (!fits_here) std::copy_n(mask.begin(), given.size(), given.begin());
}

bool Matcher::fill_from_cache(std::span<std::uint32_t> mask, std::int64_t left) {
  const std::uint32_t count = list_.end - list_.begin;
  std::int64_t work = MaskCache::kWorkMax;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Stacks::Thread t = stacks_.threads(list_)[i];
    if (t.entered) continue;
    const Stacks::Node node = stacks_.node(t.node);
    bool fit = true;
    masks_->with_mask(t.state, t.count, work, [&](const MaskCache::Mask& m) {
      fit = m.close_tokens_max + node.close_tokens <= left && m.open_max + node.open <= kOpenSoft;
      if (!fit) return;
      add_tokens(mask, m);
      if (!m.behind.empty()) fill_behind(mask, t.node, m, left);
    });
    if (!fit) return false;
  }
  return true;
}

void Matcher::add_tokens(std::span<std::uint32_t> mask, const MaskCache::Mask& from) {
  std::size_t fit = from.far_tokens.size();
  while (fit > 0 && from.far_entered[fit - 1] > from.room) --fit;
  const auto over = from.far_tokens.subspan(fit);  // Tokens with more repetitions than are left.
  if (!over.empty()) std::copy(mask.begin(), mask.end(), before_.begin());
  for (const std::uint32_t id : from.list) allow(mask, static_cast<TokenId>(id));
  for (std::size_t w = 0; w < from.bits.size(); ++w) mask[w] |= from.bits[w];
  for (const std::uint32_t id : over) {  // What another reading allowed of them stays.
    const std::uint32_t bit = 1u << (id % 32);
    mask[id / 32] = (mask[id / 32] & ~bit) | (before_[id / 32] & bit);
  }
}

// The tokens in which the rule of `node` ends: the rest of each must go on where its callers do.
void Matcher::fill_behind(std::span<std::uint32_t> mask, std::uint32_t node, const MaskCache::Mask& from,
                          std::int64_t left) {
  const TokenTrie& trie = *masks_->trie();
  const Stacks::Mark mark = stacks_.mark();
  const Stacks::Step start = stacks_.after(node);
  const auto visit = [&](std::uint32_t n, const Stacks::Step& step) {
    if (!trie.has_tokens(n) || !fits(stacks_.close(step.list), left)) return;
    for (const TokenId id : trie.tokens(n)) allow(mask, id);
  };
  const std::size_t width = from.pure ? 2 : 1;
  for (std::size_t at = 0; at < from.behind.size() && !start.list.empty() && stacks_.has_work();) {
    const auto byte = static_cast<std::uint8_t>(from.behind[at]);
    const std::size_t end = at + 2 + from.behind[at + 1] * width;
    const Stacks::Step step = stacks_.step(start.list, byte);
    for (at += 2; at < end && !step.list.empty() && stacks_.has_work(); at += width) {
      const std::uint32_t n = from.behind[at];
      if (from.pure && (from.behind[at + 1] < from.owed || from.behind[at + 1] > from.room)) continue;
      visit(n, step);
      if (trie.nodes()[n].skip != n + 1) walk_trie(trie, n, stacks_, step.list, *frames_, visit);
    }
    at = end;
  }
  stacks_.cut(mark);
}

void Matcher::fill_by_walk(std::span<std::uint32_t> mask, std::int64_t left) {
  const TokenTrie& trie = *masks_->trie();
  walk_trie(trie, 0, stacks_, list_, *frames_, [&](std::uint32_t n, const Stacks::Step& step) {
    if (!trie.has_tokens(n) || !fits(stacks_.close(step.list), left)) return;
    for (const TokenId id : trie.tokens(n)) allow(mask, id);
  });
}

bool Matcher::accept(TokenId token) {
  const std::string_view bytes = masks_->trie()->text(token);
  return !bytes.empty() && accept_bytes(bytes);
}

bool Matcher::accept_bytes(std::string_view bytes) {
  const Stacks::Mark mark = stacks_.mark();
  Stacks::Step step{list_, ended_, false};
  for (const char c : bytes) {
    step = stacks_.step(step.list, static_cast<std::uint8_t>(c));
    if (step.list.empty()) {
      stacks_.cut(mark);
      return false;
    }
  }
  list_ = stacks_.keep(step.list);
  ended_ = step.ended;
  return true;
}

bool Matcher::done() const {
  if (!ended_) return false;
  const Automaton& a = *masks_->automaton();
  for (const Stacks::Thread& t : stacks_.threads(list_)) {
    const Automaton::State& s = a.states[t.state];
    if (s.edges != s.edges_end && !(s.loop_head && t.count >= a.rules[s.rule].most)) return false;
  }
  return true;
}

void Matcher::forced_bytes(std::string& out, std::size_t most) {
  const Stacks::Mark mark = stacks_.mark();
  Stacks::Step step{list_, ended_, false};
  for (std::size_t n = 0; n < most && !step.ended; ++n) {
    const int byte = stacks_.only_byte(step.list);
    if (byte < 0) break;
    step = stacks_.step(step.list, static_cast<std::uint8_t>(byte));
    if (step.list.empty()) break;
    out += static_cast<char>(byte);
  }
  stacks_.cut(mark);
}

std::array<bool, 256> Matcher::next_bytes() {
  std::array<bool, 256> out{};
  const Stacks::Mark mark = stacks_.mark();
  for (int b = 0; b < 256; ++b) {
    out[b] = !stacks_.step(list_, static_cast<std::uint8_t>(b)).list.empty();
    stacks_.cut(mark);
  }
  return out;
}

}  // namespace lode::text::grammar
