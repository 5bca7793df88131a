#include "text/grammar/fsa.h"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <unordered_map>
#include <utility>

namespace lode::text::grammar {

Status Work::spend(std::int64_t steps) {
  left -= steps;
  if (left >= 0) return Status::success();
  return Status::exhausted(
      fmt::format("the grammar takes more than {} steps to compile; make its alternatives or repetitions simpler",
                  limits.work_max));
}

Status Work::check_states(std::size_t states) const {
  if (states <= limits.states_max) return Status::success();
  return Status::exhausted(fmt::format(
      "the grammar needs more than {} states; make its patterns, bounds or enumerations smaller", limits.states_max));
}

bool Fsa::has_calls() const {
  return std::any_of(states.begin(), states.end(), [](const FsaState& s) { return !s.calls.empty(); });
}

void Nfa::add_fsa(std::uint32_t from, const Fsa& part, std::uint32_t to) {
  const auto base = static_cast<std::uint32_t>(first_.size());
  for (std::size_t i = 0; i < part.states.size(); ++i) add_state();
  add_empty(from, base);
  for (std::size_t i = 0; i < part.states.size(); ++i) {
    const auto state = base + static_cast<std::uint32_t>(i);
    for (const FsaEdge& e : part.states[i].edges) add_bytes(state, e.lo, e.hi, base + e.to);
    for (const FsaCall& c : part.states[i].calls) add_call(state, c.rule, base + c.to);
    if (part.states[i].accepts) add_empty(state, to);
  }
}

namespace {

struct SetHash {
  std::size_t operator()(const std::vector<std::uint32_t>& set) const {
    std::uint64_t h = 1469598103934665603ull;
    for (const std::uint32_t v : set) h = (h ^ v) * 1099511628211ull;
    return static_cast<std::size_t>(h ^ h >> 29);
  }
};

}  // namespace

// The subset construction of one Nfa.
class Subsets {
 public:
  Subsets(const Nfa& nfa, std::uint32_t accept, Work& work)
      : nfa_(nfa), accept_(accept), work_(work), seen_(nfa.first_.size(), 0) {}

  Result<Fsa> run(std::uint32_t start) {
    LODE_RETURN_IF_ERROR(intern({start}).status());
    for (std::size_t i = 0; i < sets_.size(); ++i) {
      LODE_RETURN_IF_ERROR(expand(i));
    }
    return std::move(fsa_);
  }

 private:
  struct ByteEdge {
    std::uint8_t lo, hi;
    std::uint32_t to;
  };

  // The id of the set of states that `from` reaches without a letter.
  Result<std::uint32_t> intern(std::vector<std::uint32_t> from) {
    ++stamp_;
    std::vector<std::uint32_t> set;  // Only what matters: states with letters, and the accepting one.
    std::int64_t steps = 1;
    while (!from.empty()) {
      const std::uint32_t s = from.back();
      from.pop_back();
      if (seen_[s] == stamp_) continue;
      seen_[s] = stamp_;
      bool letters = s == accept_;
      for (std::uint32_t e = nfa_.first_[s]; e != Nfa::kNone; e = nfa_.edges_[e].next, ++steps) {
        const Nfa::Edge& edge = nfa_.edges_[e];
        if (edge.kind == Nfa::Kind::empty) from.push_back(edge.to);
        else letters = true;
      }
      if (letters) set.push_back(s);
    }
    std::sort(set.begin(), set.end());
    LODE_RETURN_IF_ERROR(work_.spend(steps + static_cast<std::int64_t>(set.size()) * 4));
    kept_ += set.size();
    if (kept_ > 40 * work_.limits.states_max) return work_.check_states(work_.limits.states_max + 1);
    const auto [it, fresh] = ids_.try_emplace(std::move(set), static_cast<std::uint32_t>(fsa_.states.size()));
    if (fresh) {
      LODE_RETURN_IF_ERROR(work_.check_states(fsa_.states.size() + 1));
      fsa_.states.emplace_back();
      fsa_.states.back().accepts = std::binary_search(it->first.begin(), it->first.end(), accept_);
      sets_.push_back(&it->first);
    } else {
      kept_ -= it->first.size();
    }
    return it->second;
  }

  Status expand(std::size_t id) {
    std::vector<ByteEdge> bytes;
    std::vector<FsaCall> calls;
    for (const std::uint32_t s : *sets_[id]) {
      for (std::uint32_t e = nfa_.first_[s]; e != Nfa::kNone; e = nfa_.edges_[e].next) {
        const Nfa::Edge& edge = nfa_.edges_[e];
        if (edge.kind == Nfa::Kind::bytes) bytes.push_back({edge.lo, edge.hi, edge.to});
        if (edge.kind == Nfa::Kind::call) calls.push_back({edge.rule, edge.to});
      }
    }
    LODE_RETURN_IF_ERROR(work_.spend(static_cast<std::int64_t>(bytes.size() + calls.size()) * 8));
    LODE_RETURN_IF_ERROR(expand_bytes(id, bytes));
    std::sort(calls.begin(), calls.end(), [](const FsaCall& a, const FsaCall& b) { return a.rule < b.rule; });
    for (std::size_t i = 0; i < calls.size();) {
      std::vector<std::uint32_t> to;
      const std::uint32_t rule = calls[i].rule;
      for (; i < calls.size() && calls[i].rule == rule; ++i) to.push_back(calls[i].to);
      const auto next = intern(std::move(to));
      if (!next.ok()) return next.status();
      fsa_.states[id].calls.push_back({rule, *next});
    }
    return Status::success();
  }

  // Cuts the ranges at each other's ends; each piece leads to the set of all that cover it.
  Status expand_bytes(std::size_t id, const std::vector<ByteEdge>& bytes) {
    std::bitset<257> cut;
    for (const ByteEdge& e : bytes) {
      cut.set(e.lo);
      cut.set(e.hi + 1u);
    }
    for (std::size_t lo = 0; lo < 256;) {
      std::size_t end = lo + 1;
      while (end < 256 && !cut[end]) ++end;
      std::vector<std::uint32_t> to;
      for (const ByteEdge& e : bytes) {
        if (e.lo <= lo && lo <= e.hi) to.push_back(e.to);
      }
      LODE_RETURN_IF_ERROR(work_.spend(static_cast<std::int64_t>(bytes.size())));
      if (!to.empty()) {
        const auto next = intern(std::move(to));
        if (!next.ok()) return next.status();
        std::vector<FsaEdge>& edges = fsa_.states[id].edges;
        if (!edges.empty() && edges.back().to == *next && edges.back().hi + 1u == lo) {
          edges.back().hi = static_cast<std::uint8_t>(end - 1);
        } else {
          edges.push_back({static_cast<std::uint8_t>(lo), static_cast<std::uint8_t>(end - 1), *next});
        }
      }
      lo = end;
    }
    return Status::success();
  }

  const Nfa& nfa_;
  std::uint32_t accept_;
  Work& work_;
  std::vector<std::uint32_t> seen_;  // Of each state of the Nfa: the last stamp that visited it.
  std::uint32_t stamp_ = 0;
  std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, SetHash> ids_;
  std::vector<const std::vector<std::uint32_t>*> sets_;  // By id; the map's keys never move.
  std::size_t kept_ = 0;                                 // Members of all sets: what the memory hangs on.
  Fsa fsa_;
};

Result<Fsa> Nfa::determinize(std::uint32_t start, std::uint32_t accept) const {
  LODE_RETURN_IF_ERROR(work_->spend(static_cast<std::int64_t>(size())));
  auto out = Subsets(*this, accept, *work_).run(start);
  if (!out.ok()) return out;
  return trim(*out);
}

namespace {

constexpr std::uint32_t kDead = 0xFFFFFFFFu;

std::uint32_t step(const Fsa& fsa, std::uint32_t state, std::uint8_t byte) {
  if (state == kDead) return kDead;
  for (const FsaEdge& e : fsa.states[state].edges) {
    if (e.lo <= byte && byte <= e.hi) return e.to;
  }
  return kDead;
}

}  // namespace

Result<Fsa> combine(const Fsa& a, const Fsa& b, Combine how, Work& work) {
  LODE_CHECK(!a.has_calls() && !b.has_calls());
  Fsa out;
  std::unordered_map<std::uint64_t, std::uint32_t> ids;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  const auto intern = [&](std::uint32_t x, std::uint32_t y) {
    const auto [it, fresh] = ids.try_emplace(std::uint64_t{x} << 32 | y, static_cast<std::uint32_t>(pairs.size()));
    if (fresh) {
      pairs.emplace_back(x, y);
      out.states.emplace_back();
      const bool second = y != kDead && b.states[y].accepts;
      out.states.back().accepts = a.states[x].accepts && second == (how == Combine::both);
    }
    return it->second;
  };
  intern(0, 0);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs[i];
    LODE_RETURN_IF_ERROR(work.check_states(pairs.size()));
    std::bitset<257> cut;
    for (const FsaEdge& e : a.states[x].edges) cut.set(e.lo), cut.set(e.hi + 1u);
    if (y != kDead) {
      for (const FsaEdge& e : b.states[y].edges) cut.set(e.lo), cut.set(e.hi + 1u);
    }
    for (std::size_t lo = 0; lo < 256;) {
      std::size_t end = lo + 1;
      while (end < 256 && !cut[end]) ++end;
      LODE_RETURN_IF_ERROR(work.spend(8));
      const std::uint32_t nx = step(a, x, static_cast<std::uint8_t>(lo));
      const std::uint32_t ny = step(b, y, static_cast<std::uint8_t>(lo));
      if (nx != kDead && (how == Combine::only_first || ny != kDead)) {
        const std::uint32_t to = intern(nx, ny);
        out.states[i].edges.push_back({static_cast<std::uint8_t>(lo), static_cast<std::uint8_t>(end - 1), to});
      }
      lo = end;
    }
  }
  return trim(out);
}

Result<Fsa> minimize(const Fsa& fsa, Work& work) {
  LODE_CHECK(!fsa.has_calls());
  const std::size_t n = fsa.states.size();
  // Classes of states that look alike, split until their edges agree too.
  std::vector<std::uint32_t> of(n, 0);
  std::size_t classes = 0;
  while (true) {
    std::unordered_map<std::vector<std::uint32_t>, std::uint32_t, SetHash> ids;
    std::vector<std::uint32_t> next(n);
    for (std::size_t s = 0; s < n; ++s) {
      std::vector<std::uint32_t> look{of[s], fsa.states[s].accepts};
      for (const FsaEdge& e : fsa.states[s].edges) {
        // Neighbouring ranges into one class are one range.
        if (look.size() > 2 && look.back() == of[e.to] && (look[look.size() - 2] & 0xFF) + 1 == e.lo) {
          look[look.size() - 2] = (look[look.size() - 2] & ~0xFFu) | e.hi;
        } else {
          look.push_back(std::uint32_t{e.lo} << 8 | e.hi);
          look.push_back(of[e.to]);
        }
      }
      LODE_RETURN_IF_ERROR(work.spend(static_cast<std::int64_t>(look.size())));
      next[s] = ids.try_emplace(std::move(look), static_cast<std::uint32_t>(ids.size())).first->second;
    }
    of = std::move(next);
    if (ids.size() == classes) break;
    classes = ids.size();
  }
  // The start is state 0, so its class has number 0 and comes first.
  Fsa out;
  out.states.resize(classes);
  std::vector<char> done(classes, 0);
  for (std::size_t s = 0; s < n; ++s) {
    if (std::exchange(done[of[s]], 1)) continue;
    FsaState& state = out.states[of[s]];
    state.accepts = fsa.states[s].accepts;
    for (const FsaEdge& e : fsa.states[s].edges) {
      if (!state.edges.empty() && state.edges.back().to == of[e.to] && state.edges.back().hi + 1 == e.lo) {
        state.edges.back().hi = e.hi;
      } else {
        state.edges.push_back({e.lo, e.hi, of[e.to]});
      }
    }
  }
  return out;
}

Fsa trim(const Fsa& fsa) {
  const std::size_t n = fsa.states.size();
  std::vector<std::vector<std::uint32_t>> before(n);
  std::vector<std::uint32_t> stack;
  std::vector<char> alive(n, 0);
  for (std::uint32_t s = 0; s < n; ++s) {
    for (const FsaEdge& e : fsa.states[s].edges) before[e.to].push_back(s);
    for (const FsaCall& c : fsa.states[s].calls) before[c.to].push_back(s);
    if (fsa.states[s].accepts) stack.push_back(s), alive[s] = 1;
  }
  while (!stack.empty()) {
    const std::uint32_t s = stack.back();
    stack.pop_back();
    for (const std::uint32_t p : before[s]) {
      if (!alive[p]) alive[p] = 1, stack.push_back(p);
    }
  }
  const bool any = alive[0] != 0;  // Else the start stays, with no way to go.
  std::vector<std::uint32_t> id(n, kDead);
  if (!any) return Fsa{{FsaState{}}};
  std::uint32_t next = 0;
  for (std::size_t s = 0; s < n; ++s) {
    if (alive[s]) id[s] = next++;
  }
  Fsa out;
  out.states.resize(next);
  for (std::size_t s = 0; s < n; ++s) {
    if (!alive[s]) continue;
    FsaState& state = out.states[id[s]];
    state.accepts = fsa.states[s].accepts;
    for (const FsaEdge& e : fsa.states[s].edges) {
      if (alive[e.to]) state.edges.push_back({e.lo, e.hi, id[e.to]});
    }
    for (const FsaCall& c : fsa.states[s].calls) {
      if (alive[c.to]) state.calls.push_back({c.rule, id[c.to]});
    }
  }
  return out;
}

bool accepts_nothing(const Fsa& trimmed) {
  const FsaState& start = trimmed.states[0];
  return !start.accepts && start.edges.empty() && start.calls.empty();
}

bool accepts(const Fsa& fsa, std::string_view word) {
  std::uint32_t s = 0;
  for (const char c : word) s = step(fsa, s, static_cast<std::uint8_t>(c));
  return s != kDead && fsa.states[s].accepts;
}

}  // namespace lode::text::grammar
