// Merges the symbols of one piece of text, the best pair first and the leftmost of equals, until no pair merges: what
// both SentencePiece-style and byte-level BPE do once a piece is cut. src/text only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/flat_map.h"

namespace lode::text {

// A run of the piece's bytes; id -1 where no token spells it (yet).
struct Symbol {
  std::uint32_t begin = 0, end = 0;
  TokenId id = -1;
};

// Reused between pieces, so that a text costs no allocation a word. One per encode() call.
struct MergeScratch {
  std::vector<Symbol> symbols;  // In: the piece's characters or bytes, in order. Out: its tokens.
  std::vector<Merge> pairs;     // [i]: what symbols i and its successor merge to.
  std::vector<std::uint32_t> next, prev;
  struct Candidate {
    std::uint64_t order = 0;  // Priority, then position of the left symbol: the smallest goes first.
    std::uint32_t end = 0;    // Of the right symbol.
    TokenId id = -1;
  };
  std::vector<Candidate> heap;
};

// For few symbols a scan for the minimum beats a heap (32 symbols: 2x, tokenizer_bench).
inline constexpr std::size_t kScanMax = 32;

// `look(left, right)` gives the Merge of two neighbouring Symbols, priority kNever where there is none.
template <typename Look>
void merge_by_scan(MergeScratch& s, const Look& look) {
  auto& symbols = s.symbols;
  std::size_t count = symbols.size();
  s.pairs.resize(count);
  for (std::size_t i = 0; i + 1 < count; ++i) s.pairs[i] = look(symbols[i], symbols[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (s.pairs[i].priority < s.pairs[best].priority) best = i;
    }
    if (s.pairs[best].priority == Merge::kNever) break;
    symbols[best] = {symbols[best].begin, symbols[best + 1].end, s.pairs[best].id};
    std::copy(symbols.begin() + best + 2, symbols.begin() + count, symbols.begin() + best + 1);
    std::copy(s.pairs.begin() + best + 2, s.pairs.begin() + count, s.pairs.begin() + best + 1);
    --count;
    if (best > 0) s.pairs[best - 1] = look(symbols[best - 1], symbols[best]);
    if (best + 1 < count) s.pairs[best] = look(symbols[best], symbols[best + 1]);
  }
  symbols.resize(count);
}

// O(n log n) for pieces of any length, such as a megabyte of one letter.
template <typename Look>
void merge_by_heap(MergeScratch& s, const Look& look) {
  using Candidate = MergeScratch::Candidate;
  constexpr std::uint32_t kEnd = 0xFFFFFFFF;
  auto& symbols = s.symbols;
  const auto count = static_cast<std::uint32_t>(symbols.size());
  const auto later = [](const Candidate& a, const Candidate& b) { return a.order > b.order; };
  s.heap.clear();
  s.next.resize(count);
  s.prev.resize(count);
  const auto candidate = [&](std::uint32_t left, std::uint32_t right, Candidate& out) {
    const Merge merge = look(symbols[left], symbols[right]);
    out = {static_cast<std::uint64_t>(merge.priority) << 32 | left, symbols[right].end, merge.id};
    return merge.priority != Merge::kNever;
  };
  Candidate c;
  for (std::uint32_t i = 0; i < count; ++i) {
    s.prev[i] = i == 0 ? kEnd : i - 1;
    s.next[i] = i + 1 == count ? kEnd : i + 1;
    if (i + 1 < count && candidate(i, i + 1, c)) s.heap.push_back(c);
  }
  std::make_heap(s.heap.begin(), s.heap.end(), later);
  const auto push = [&](std::uint32_t left, std::uint32_t right) {
    if (left == kEnd || right == kEnd || !candidate(left, right, c)) return;
    s.heap.push_back(c);
    std::push_heap(s.heap.begin(), s.heap.end(), later);
  };
  while (!s.heap.empty()) {
    const Candidate top = s.heap.front();
    std::pop_heap(s.heap.begin(), s.heap.end(), later);
    s.heap.pop_back();
    const auto left = static_cast<std::uint32_t>(top.order);
    // Stale where the left symbol was merged away (it is empty), or where it or the right one grew (the pair ends
    // elsewhere). Boundaries only vanish, so a pair with the same two ends is the same pair.
    const std::uint32_t right = s.next[left];
    if (symbols[left].begin == symbols[left].end || right == kEnd || symbols[right].end != top.end) continue;
    symbols[left] = {symbols[left].begin, top.end, top.id};
    symbols[right].end = symbols[right].begin;
    s.next[left] = s.next[right];
    if (s.next[right] != kEnd) s.prev[s.next[right]] = left;
    push(s.prev[left], left);
    push(left, s.next[left]);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.begin == symbol.end; });
}

template <typename Look>
void merge_symbols(MergeScratch& s, const Look& look) {
  s.symbols.size() <= kScanMax ? merge_by_scan(s, look) : merge_by_heap(s, look);
}

}  // namespace lode::text
