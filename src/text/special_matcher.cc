// See special_matcher.h.
#include "text/special_matcher.h"

#include <algorithm>

namespace lode::text {
namespace {

// The C locale's isspace, whatever the process's locale is.
bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

// Matches that overlap, directly or through others; matches of different islands cannot compete for a byte.
struct SpecialMatcher::Island {
  std::size_t begin = 0, end = 0;
  std::vector<Found> found;
  std::vector<std::uint8_t> taken;  // [end - begin]
};

SpecialMatcher::SpecialMatcher(std::vector<Vocab::Special> specials) : specials_(std::move(specials)) {
  std::erase_if(specials_, [](const Vocab::Special& s) { return s.text.empty(); });
  std::stable_sort(specials_.begin(), specials_.end(), [](const Vocab::Special& a, const Vocab::Special& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });
  for (const Vocab::Special& s : specials_) {
    strips_ |= s.strips_right || s.strips_left;
    const auto b0 = static_cast<std::uint8_t>(s.text[0]);
    first_.set(b0);
    for (int b1 = 0; b1 < 256; ++b1) {
      if (s.text.size() == 1 || static_cast<std::uint8_t>(s.text[1]) == b1) pair_.set(b0 << 8 | b1);
    }
  }
  build_trie();
  find_runs();
}

void SpecialMatcher::build_trie() {
  // Specials sorted by text make each trie node a range of them; nodes are laid out breadth first, so the edges of a
  // node lie together.
  std::vector<std::uint32_t> order(specials_.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [this](std::uint32_t a, std::uint32_t b) { return specials_[a].text < specials_[b].text; });
  struct Range {
    std::size_t begin, end, depth;
  };
  std::vector<Range> ranges{{0, order.size(), 0}};
  nodes_.push_back({});
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    const auto [range_begin, end, depth] = ranges[n];
    std::size_t begin = range_begin;
    // Texts that end here come first; of duplicates the best rank counts.
    for (; begin < end && specials_[order[begin]].text.size() == depth; ++begin) {
      if (nodes_[n].rank < 0) nodes_[n].rank = static_cast<std::int32_t>(order[begin]);
    }
    nodes_[n].first_edge = static_cast<std::uint32_t>(edges_.size());
    while (begin < end) {
      const char byte = specials_[order[begin]].text[depth];
      std::size_t next = begin;
      while (next < end && specials_[order[next]].text[depth] == byte) ++next;
      edges_.push_back({static_cast<std::uint8_t>(byte), static_cast<std::uint32_t>(nodes_.size())});
      nodes_.push_back({});
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
    nodes_[n].edges = static_cast<std::uint16_t>(edges_.size() - nodes_[n].first_edge);
  }
}

void SpecialMatcher::find_runs() {
  if (strips_) return;  // Swallowed whitespace could reach into a run; the general way handles that.
  std::bitset<256> mixed;
  const auto uniform = [](const std::string& text) { return text.find_first_not_of(text[0]) == std::string::npos; };
  for (const Vocab::Special& s : specials_) {
    if (uniform(s.text)) continue;
    for (const char c : s.text) mixed.set(static_cast<std::uint8_t>(c));
  }
  for (std::uint32_t rank = 0; rank < specials_.size(); ++rank) {
    const std::string& text = specials_[rank].text;
    const auto byte = static_cast<std::uint8_t>(text[0]);
    if (!mixed.test(byte) && uniform(text)) runs_[byte].push_back(rank);
  }
}

template <typename Fn>
void SpecialMatcher::each_match(std::string_view text, std::size_t pos, Fn&& fn) const {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  const Node* node = &nodes_[0];
  for (; pos < text.size(); ++pos) {
    const Edge* edge = edges_.data() + node->first_edge;
    const Edge* last = edge + node->edges;
    edge = std::lower_bound(edge, last, bytes[pos], [](const Edge& e, std::uint8_t b) { return e.byte < b; });
    if (edge == last || edge->byte != bytes[pos]) return;
    node = &nodes_[edge->node];
    if (node->rank >= 0) fn(static_cast<std::uint32_t>(node->rank));
  }
}

// The run of one byte at pos, cut greedily into its longest tokens; returns the run's end.
std::size_t SpecialMatcher::take_run(std::string_view text, std::size_t pos, const Admits& admits,
                                     std::vector<Fragment>& tokens) const {
  const std::size_t end = std::min(text.find_first_not_of(text[pos], pos), text.size());
  for (const std::uint32_t rank : runs_[static_cast<std::uint8_t>(text[pos])]) {
    const std::size_t size = specials_[rank].text.size();
    for (; end - pos >= size; pos += size) {
      if (admits && !admits(specials_[rank].id, pos, pos + size)) break;
      tokens.push_back({pos, pos + size, specials_[rank].id});
    }
  }
  return end;
}

void SpecialMatcher::resolve(std::string_view text, Island& island, std::vector<Fragment>& tokens) const {
  if (island.found.size() == 1 && !strips_) {
    const Found& f = island.found[0];
    tokens.push_back({f.begin, f.begin + specials_[f.rank].text.size(), specials_[f.rank].id});
    island.found.clear();
    return;
  }
  std::sort(island.found.begin(), island.found.end(),
            [](const Found& a, const Found& b) { return a.rank != b.rank ? a.rank < b.rank : a.begin < b.begin; });
  island.taken.assign(island.end - island.begin, 0);
  const std::size_t first = tokens.size();
  for (const Found& f : island.found) {
    const std::size_t size = specials_[f.rank].text.size();
    const std::size_t at = f.begin - island.begin;
    // What was taken before is at least as long, so it covers one of the ends if it overlaps at all.
    if (island.taken[at] || island.taken[at + size - 1]) continue;
    std::size_t begin = at, end = at + size;
    if (specials_[f.rank].strips_left) {
      while (begin > 0 && !island.taken[begin - 1] && is_space(text[island.begin + begin - 1])) --begin;
    }
    if (specials_[f.rank].strips_right) {
      while (island.begin + end < text.size() && !island.taken[end] && is_space(text[island.begin + end])) ++end;
    }
    std::fill(island.taken.begin() + begin, island.taken.begin() + end, 1);
    tokens.push_back({island.begin + begin, island.begin + end, specials_[f.rank].id});
  }
  std::sort(tokens.begin() + first, tokens.end(),
            [](const Fragment& a, const Fragment& b) { return a.begin < b.begin; });
  island.found.clear();
}

void SpecialMatcher::split(std::string_view text, std::vector<Fragment>& out) const {
  split(text, out, {});
}

void SpecialMatcher::split(std::string_view text, std::vector<Fragment>& out, const Admits& admits) const {
  out.clear();
  if (text.empty()) return;
  std::vector<Fragment> tokens;
  Island island;
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  for (std::size_t pos = 0; pos < text.size();) {
    if (!island.found.empty() && pos >= island.end && !strips_) resolve(text, island, tokens);
    if (!first_.test(bytes[pos]) || (pos + 1 < text.size() && !pair_.test(bytes[pos] << 8 | bytes[pos + 1]))) {
      ++pos;
      continue;
    }
    if (!runs_[bytes[pos]].empty()) {
      pos = take_run(text, pos, admits, tokens);
      continue;
    }
    each_match(text, pos, [&](std::uint32_t rank) {
      if (admits && !admits(specials_[rank].id, pos, pos + specials_[rank].text.size())) return;
      if (island.found.empty()) island.begin = strips_ ? 0 : pos;  // Whitespace may be swallowed from anywhere.
      const std::size_t end = pos + specials_[rank].text.size();
      island.end = island.found.empty() ? end : std::max(island.end, end);
      island.found.push_back({rank, pos});
    });
    ++pos;
  }
  if (!island.found.empty()) {
    if (strips_) island.end = text.size();  // Whitespace may be swallowed up to the end.
    resolve(text, island, tokens);
  }
  std::size_t pos = 0;
  for (const Fragment& token : tokens) {
    if (token.begin > pos) out.push_back({pos, token.begin, -1});
    out.push_back(token);
    pos = token.end;
  }
  if (pos < text.size()) out.push_back({pos, text.size(), -1});
}

}  // namespace lode::text
