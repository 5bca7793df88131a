// Merges the symbols of one piece of text, the best pair first and the leftmost of equals, until no pair merges: what
// both SentencePiece-style and byte-level BPE do once a piece is cut. src/text only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>
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
  // Of merge_by_bucket; all empty between pieces.
  std::vector<std::vector<std::uint32_t>> buckets;             // [bucket]: left symbols of the pairs of one priority.
  std::unordered_map<std::uint32_t, std::uint32_t> bucket_of;  // Priority -> bucket.
  std::vector<std::uint32_t> open;                             // Min-heap of the priorities whose buckets wait.
  std::vector<std::uint64_t> urgent;                           // Min-heap of priority << 32 | left symbol.
};

// Past this many symbols a heap leaves the cache: each step of a pop is a miss (1.0 MB/s on 12 MB of blanks).
inline constexpr std::size_t kHeapMax = 4096;

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

// The same order, by walking: the pairs of one priority lie in one bucket, and a bucket is merged from left to right,
// so that millions of symbols are read as they lie in memory. A merge nearly always makes pairs of later priorities;
// those that come no later than the bucket being merged wait in `urgent`.
template <typename Look>
class BucketMerger {
 public:
  BucketMerger(MergeScratch& s, const Look& look) : s_(s), look_(look) {}

  void run() {
    const auto count = static_cast<std::uint32_t>(s_.symbols.size());
    s_.pairs.assign(count, {});
    s_.next.resize(count);
    s_.prev.resize(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      s_.prev[i] = i == 0 ? kEnd : i - 1;
      s_.next[i] = i + 1 == count ? kEnd : i + 1;
      if (i + 1 < count) look_at(i, i + 1);
    }
    while (!s_.open.empty()) {
      now_ = pop(s_.open);
      std::vector<std::uint32_t> lefts = std::move(s_.buckets[s_.bucket_of.at(now_)]);
      merge_bucket(lefts);  // Nothing is added to this bucket any more: what has its priority is urgent.
    }
    s_.buckets.clear();
    s_.bucket_of.clear();
    std::erase_if(s_.symbols, [](const Symbol& symbol) { return symbol.begin == symbol.end; });
  }

 private:
  static constexpr std::uint32_t kEnd = 0xFFFFFFFF;

  template <typename T>
  static void push(std::vector<T>& heap, T value) {
    heap.push_back(value);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  template <typename T>
  static T pop(std::vector<T>& heap) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const T value = heap.back();
    heap.pop_back();
    return value;
  }
  static std::uint64_t order(std::uint32_t priority, std::uint32_t left) {
    return static_cast<std::uint64_t>(priority) << 32 | left;
  }

  // The pair of two neighbours: noted as the one that `left` begins, and queued if it merges.
  void look_at(std::uint32_t left, std::uint32_t right) {
    if (left == kEnd) return;
    const Merge merge = s_.pairs[left] = right == kEnd ? Merge{} : look_(s_.symbols[left], s_.symbols[right]);
    if (merge.priority == Merge::kNever) return;
    if (now_ != kEnd && merge.priority <= now_) push(s_.urgent, order(merge.priority, left));
    else bucket(merge.priority).push_back(left);
  }

  std::vector<std::uint32_t>& bucket(std::uint32_t priority) {
    if (priority == last_priority_) return s_.buckets[last_bucket_];
    const auto [it, fresh] = s_.bucket_of.try_emplace(priority, static_cast<std::uint32_t>(s_.buckets.size()));
    if (fresh) {
      s_.buckets.emplace_back();
      push(s_.open, priority);
    }
    last_priority_ = priority;
    last_bucket_ = it->second;
    return s_.buckets[last_bucket_];
  }

  void merge_bucket(std::vector<std::uint32_t>& lefts) {
    if (!std::is_sorted(lefts.begin(), lefts.end())) std::sort(lefts.begin(), lefts.end());
    for (std::size_t at = 0; at < lefts.size() || !s_.urgent.empty();) {
      const bool from_bucket = at < lefts.size() && (s_.urgent.empty() || order(now_, lefts[at]) <= s_.urgent.front());
      const std::uint64_t next = from_bucket ? order(now_, lefts[at++]) : pop(s_.urgent);
      const auto left = static_cast<std::uint32_t>(next);
      // Stale where the pair that `left` begins is another by now, or none. Where it has the same priority by chance,
      // it is due here just as well.
      if (s_.pairs[left].priority == next >> 32) merge(left);
    }
  }

  void merge(std::uint32_t left) {
    const std::uint32_t right = s_.next[left];
    s_.symbols[left] = {s_.symbols[left].begin, s_.symbols[right].end, s_.pairs[left].id};
    s_.symbols[right].end = s_.symbols[right].begin;
    s_.pairs[right] = {};
    s_.next[left] = s_.next[right];
    if (s_.next[right] != kEnd) s_.prev[s_.next[right]] = left;
    look_at(s_.prev[left], left);
    look_at(left, s_.next[left]);
  }

  MergeScratch& s_;
  const Look& look_;
  std::uint32_t now_ = kEnd;                              // The priority being merged; kEnd before the first.
  std::uint32_t last_priority_ = kEnd, last_bucket_ = 0;  // Of the last look-up.
};

template <typename Look>
void merge_by_bucket(MergeScratch& s, const Look& look) {
  BucketMerger<Look>(s, look).run();
}

template <typename Look>
void merge_symbols(MergeScratch& s, const Look& look) {
  if (s.symbols.size() <= kScanMax) merge_by_scan(s, look);
  else if (s.symbols.size() <= kHeapMax) merge_by_heap(s, look);
  else merge_by_bucket(s, look);
}

}  // namespace lode::text
