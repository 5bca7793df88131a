#include "text/grammar/automaton_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

namespace lode::text::grammar {
namespace {

// A repetition that takes at most so many states is written out; longer ones are counted.
constexpr std::uint64_t kWrittenOutMax = 256;
// A rule of at most so many states that does not lead to itself is copied to where it is used: a call costs time with
// each byte, and a mask knows less of what follows.
constexpr std::uint64_t kCopiedMax = 200;
constexpr int kTreeDepthMax = 4000;  // Of one rule's expression; a visit takes about 200 bytes of stack a level.

// Which nodes and rules of the form accept the empty word, and which rules are copied where they are used.
struct Facts {
  std::vector<char> nullable;       // By node.
  std::vector<char> rule_nullable;  // By rule.
  std::vector<char> copied;         // By rule.

  bool of(const Ir& ir, const Ir::Node& n) const {
    switch (n.op) {
      case Ir::Op::empty: return true;
      case Ir::Op::nothing:
      case Ir::Op::bytes:
      case Ir::Op::range: return false;
      case Ir::Op::concat:
        for (const NodeId c : ir.children(n)) {
          if (!nullable[c.v]) return false;
        }
        return true;
      case Ir::Op::alt:
        for (const NodeId c : ir.children(n)) {
          if (nullable[c.v]) return true;
        }
        return false;
      case Ir::Op::repeat: return n.min == 0 || nullable[n.a];
      case Ir::Op::rule: return rule_nullable[n.a];
      case Ir::Op::fsa: return ir.fsa(n).states[0].accepts;
      case Ir::Op::list:
        for (const Ir::ListItem& item : ir.list(n).items) {
          if (item.kind == Ir::ListItem::Kind::required) return nullable[item.node.v];
        }
        return ir.list(n).may_be_empty;
    }
    return false;
  }
};

Result<Facts> find_facts(const Ir& ir, Work& work) {
  Facts facts;
  facts.nullable.assign(ir.node_count(), 0);
  facts.rule_nullable.assign(ir.rules().size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    LODE_RETURN_IF_ERROR(work.spend(static_cast<std::int64_t>(ir.node_count())));
    // A node's children have smaller ids: one pass settles everything but rules.
    for (std::uint32_t i = 0; i < ir.node_count(); ++i) facts.nullable[i] = facts.of(ir, ir.node(NodeId{i}));
    for (std::size_t r = 0; r < ir.rules().size(); ++r) {
      const NodeId body = ir.rules()[r].body;
      if (!body.valid() || !facts.nullable[body.v] || facts.rule_nullable[r]) continue;
      facts.rule_nullable[r] = 1;
      changed = true;
    }
  }
  return facts;
}

// Calls `visit` with each rule that the tree under `root` names.
template <typename Visit>
Status for_each_rule(const Ir& ir, NodeId root, Work& work, Visit visit) {
  std::vector<NodeId> stack{root};
  while (!stack.empty()) {
    LODE_RETURN_IF_ERROR(work.spend(1));
    const Ir::Node& n = ir.node(stack.back());
    stack.pop_back();
    switch (n.op) {
      case Ir::Op::concat:
      case Ir::Op::alt: stack.insert(stack.end(), ir.children(n).begin(), ir.children(n).end()); break;
      case Ir::Op::repeat: stack.push_back(NodeId{n.a}); break;
      case Ir::Op::rule: visit(n.a); break;
      case Ir::Op::list: {
        const Ir::List& list = ir.list(n);
        for (const Ir::ListItem& item : list.items) stack.push_back(item.node);
        stack.push_back(list.separator);
        if (list.more.valid()) stack.push_back(list.more);
        if (list.tail.valid()) stack.push_back(list.tail);
        break;
      }
      default: break;
    }
  }
  return Status::success();
}

// Peels off the rules that lead to no cycle, callees first; the small ones among them are copied.
Status find_copied(const Ir& ir, Facts& facts, Work& work) {
  const std::size_t n = ir.rules().size();
  std::vector<std::vector<std::uint32_t>> callers(n), callees(n);
  std::vector<std::uint32_t> open(n, 0), ready;
  for (std::uint32_t r = 0; r < n; ++r) {
    if (!ir.rules()[r].body.valid()) continue;
    LODE_RETURN_IF_ERROR(for_each_rule(ir, ir.rules()[r].body, work, [&](std::uint32_t callee) {
      callers[callee].push_back(r);
      callees[r].push_back(callee);
      ++open[r];
    }));
  }
  for (std::uint32_t r = 0; r < n; ++r) {
    if (open[r] == 0) ready.push_back(r);
  }
  std::vector<std::uint64_t> sizes(n, 0);
  facts.copied.assign(n, 0);
  while (!ready.empty()) {
    const std::uint32_t r = ready.back();
    ready.pop_back();
    const Ir::Rule& rule = ir.rules()[r];
    if (rule.body.valid()) {
      sizes[r] = ir.node(rule.body).size;
      for (const std::uint32_t c : callees[r]) sizes[r] += facts.copied[c] ? sizes[c] : 1;
      facts.copied[r] = rule.sharing == Ir::Rule::Sharing::copied && sizes[r] <= kCopiedMax;
    }
    for (const std::uint32_t caller : callers[r]) {
      if (--open[caller] == 0) ready.push_back(caller);
    }
  }
  return Status::success();
}

// Writes expressions as states of an Nfa.
class Writer {
 public:
  enum class Repeats { count_long, write_out };
  // Gives the rule that counts a repetition.
  class Counter {
   public:
    virtual ~Counter() = default;
    virtual std::uint32_t counted_rule(NodeId child, std::uint32_t min, std::uint32_t max) = 0;
    virtual std::uint32_t called_rule(std::uint32_t ir_rule) = 0;
  };

  Writer(const Ir& ir, const Facts& facts, Work& work, Counter* counter)
      : ir_(ir), facts_(facts), work_(work), counter_(counter), nfa_(work) {}

  Result<Fsa> automaton(NodeId root) {
    const std::uint32_t start = nfa_.add_state(), accept = nfa_.add_state();
    LODE_RETURN_IF_ERROR(write(root, start, accept));
    return nfa_.determinize(start, accept);
  }

 private:
  Status write(NodeId id, std::uint32_t from, std::uint32_t to) {
    const Ir::Node& n = ir_.node(id);
    LODE_RETURN_IF_ERROR(work_.spend(1));
    if (n.depth > kTreeDepthMax || ++depth_ > kTreeDepthMax) {
      return Status::exhausted(fmt::format("the grammar nests deeper than {} levels", kTreeDepthMax));
    }
    if (nfa_.size() > 20 * work_.limits.states_max) return work_.check_states(work_.limits.states_max + 1);
    const Status out = write_node(n, from, to);
    --depth_;
    return out;
  }

  Status write_node(const Ir::Node& n, std::uint32_t from, std::uint32_t to) {
    switch (n.op) {
      case Ir::Op::empty: nfa_.add_empty(from, to); break;
      case Ir::Op::nothing: break;
      case Ir::Op::range: nfa_.add_bytes(from, n.lo, n.hi, to); break;
      case Ir::Op::bytes: {
        const std::string_view bytes = ir_.bytes(n);
        LODE_RETURN_IF_ERROR(work_.spend(static_cast<std::int64_t>(bytes.size())));
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          const std::uint32_t next = i + 1 == bytes.size() ? to : nfa_.add_state();
          nfa_.add_bytes(from, static_cast<std::uint8_t>(bytes[i]), static_cast<std::uint8_t>(bytes[i]), next);
          from = next;
        }
        break;
      }
      case Ir::Op::concat: {
        const auto parts = ir_.children(n);
        for (std::size_t i = 0; i < parts.size(); ++i) {
          const std::uint32_t next = i + 1 == parts.size() ? to : nfa_.add_state();
          LODE_RETURN_IF_ERROR(write(parts[i], from, next));
          from = next;
        }
        break;
      }
      case Ir::Op::alt:
        // Each between states of its own: a loop inside one must not be open to another.
        for (const NodeId part : ir_.children(n)) LODE_RETURN_IF_ERROR(write(part, from, to));
        break;
      case Ir::Op::repeat: return write_repeat(n, from, to);
      case Ir::Op::rule: return write_rule(n.a, from, to);
      case Ir::Op::fsa:
        LODE_RETURN_IF_ERROR(work_.spend(static_cast<std::int64_t>(ir_.fsa(n).states.size()) * 4));
        nfa_.add_fsa(from, ir_.fsa(n), to);
        break;
      case Ir::Op::list: return write_list(ir_.list(n), from, to);
    }
    return Status::success();
  }

  Status write_rule(std::uint32_t rule, std::uint32_t from, std::uint32_t to) {
    const NodeId body = ir_.rules()[rule].body;
    if (!body.valid()) return Status::success();
    if (counter_ == nullptr || facts_.copied[rule]) return write(body, from, to);
    if (facts_.rule_nullable[rule]) nfa_.add_empty(from, to);
    nfa_.add_call(from, counter_->called_rule(rule), to);
    return Status::success();
  }

  Status write_repeat(const Ir::Node& n, std::uint32_t from, std::uint32_t to) {
    const NodeId child{n.a};
    const bool endless = n.max == kNoBound;
    const bool simple = n.max == 1 || (endless && n.min <= 1);
    if (counter_ != nullptr && !simple && n.size > kWrittenOutMax) {
      if (n.min == 0 || facts_.nullable[child.v]) nfa_.add_empty(from, to);
      nfa_.add_call(from, counter_->counted_rule(child, facts_.nullable[child.v] ? 0 : n.min, n.max), to);
      return Status::success();
    }
    for (std::uint32_t i = 0; i < n.min; ++i) {
      const std::uint32_t next = nfa_.add_state();
      LODE_RETURN_IF_ERROR(write(child, from, next));
      from = next;
    }
    if (endless) {
      const std::uint32_t loop = nfa_.add_state(), end = nfa_.add_state();
      nfa_.add_empty(from, loop);
      LODE_RETURN_IF_ERROR(write(child, loop, end));
      nfa_.add_empty(end, loop);
      nfa_.add_empty(loop, to);
      return Status::success();
    }
    for (std::uint32_t i = n.min; i < n.max; ++i) {
      const std::uint32_t next = nfa_.add_state();
      nfa_.add_empty(from, to);
      LODE_RETURN_IF_ERROR(write(child, from, next));
      from = next;
    }
    nfa_.add_empty(from, to);
    return Status::success();
  }

  // Two rows of states: before the first member that is there, and after one; each member stands between them once.
  Status write_list(const Ir::List& list, std::uint32_t from, std::uint32_t to) {
    std::uint32_t none_yet = from, some = nfa_.add_state();
    for (const Ir::ListItem& item : list.items) {
      const std::uint32_t member = nfa_.add_state(), none_after = nfa_.add_state(), some_after = nfa_.add_state();
      nfa_.add_empty(none_yet, member);
      LODE_RETURN_IF_ERROR(write(list.separator, some, member));
      LODE_RETURN_IF_ERROR(write(item.node, member, some_after));
      if (item.kind == Ir::ListItem::Kind::skippable) {
        nfa_.add_empty(none_yet, none_after);
        nfa_.add_empty(some, some_after);
      } else if (item.kind == Ir::ListItem::Kind::last_stop) {
        nfa_.add_empty(none_yet, to);
        nfa_.add_empty(some, to);
      }
      none_yet = none_after;
      some = some_after;
    }
    if (list.more.valid()) {
      const std::uint32_t member = nfa_.add_state(), end = nfa_.add_state();
      nfa_.add_empty(none_yet, member);
      LODE_RETURN_IF_ERROR(write(list.separator, some, member));
      LODE_RETURN_IF_ERROR(write(list.more, member, end));
      nfa_.add_empty(end, some);
    }
    if (list.may_be_empty) nfa_.add_empty(none_yet, to);
    if (list.tail.valid()) return write(list.tail, some, to);
    nfa_.add_empty(some, to);
    return Status::success();
  }

  const Ir& ir_;
  const Facts& facts_;
  Work& work_;
  Counter* counter_;  // Null: no calls and no counting.
  Nfa nfa_;
  int depth_ = 0;
};

// The same words but the empty one; no edge leads back to the start.
Fsa without_empty_word(Fsa fsa) {
  bool entered = false;
  const auto n = static_cast<std::uint32_t>(fsa.states.size());
  for (FsaState& s : fsa.states) {
    for (FsaEdge& e : s.edges) {
      if (e.to == 0) e.to = n, entered = true;
    }
    for (FsaCall& c : s.calls) {
      if (c.to == 0) c.to = n, entered = true;
    }
  }
  if (entered) fsa.states.push_back(fsa.states[0]);
  fsa.states[0].accepts = false;
  return fsa;
}

bool ends_are_final(const Fsa& fsa) {
  return std::all_of(fsa.states.begin(), fsa.states.end(),
                     [](const FsaState& s) { return !s.accepts || (s.edges.empty() && s.calls.empty()); });
}

// Makes the automaton of every rule that the root leads to.
class Builder : public Writer::Counter {
 public:
  Builder(const Ir& ir, const Facts& facts, Work& work) : ir_(ir), facts_(facts), work_(work) {}

  struct Made {
    Fsa fsa;
    std::uint32_t least = 0, most = 0;
    std::uint32_t twin = 0;  // The first rule with this body; itself for most.
  };

  Status run(RuleId root) {
    // The document's own rule, so that a recursive root is a rule like others.
    wanted_.push_back({NodeId::none(), 0, 0});
    const std::uint32_t called = called_rule(root.v);
    made_.push_back({Fsa{{FsaState{.calls = {{called, 1}}}, FsaState{.accepts = true}}}, 0, 0, 0});
    for (std::size_t i = 1; i < wanted_.size(); ++i) {
      const Wanted want = wanted_[i];
      auto fsa = Writer(ir_, facts_, work_, this).automaton(want.body);
      if (!fsa.ok()) return fsa.status();
      Made made{without_empty_word(std::move(*fsa)), want.least, want.most, static_cast<std::uint32_t>(i)};
      if (want.most != 0) {
        made.twin = by_body_.try_emplace(want.body.v, made.twin).first->second;
      }
      if (want.most != 0 && !ends_are_final(made.fsa)) {
        // The end of a body must be certain: the body becomes a rule, which the counted one calls.
        const auto body = static_cast<std::uint32_t>(wanted_.size());
        wanted_.push_back({want.body, 0, 0});
        made.fsa = Fsa{{FsaState{.calls = {{body, 1}}}, FsaState{.accepts = true}}};
      }
      states_ += made.fsa.states.size();
      LODE_RETURN_IF_ERROR(work_.check_states(states_));
      made_.push_back(std::move(made));
    }
    return Status::success();
  }

  std::uint32_t called_rule(std::uint32_t rule) override {
    const auto [it, fresh] = by_rule_.try_emplace(rule, static_cast<std::uint32_t>(wanted_.size()));
    if (fresh) wanted_.push_back({ir_.rules()[rule].body, 0, 0});
    return it->second;
  }
  std::uint32_t counted_rule(NodeId child, std::uint32_t min, std::uint32_t max) override {
    const auto [it, fresh] = by_count_.try_emplace({child.v, min, max}, static_cast<std::uint32_t>(wanted_.size()));
    if (fresh) wanted_.push_back({child, std::max(min, 1u), max});
    return it->second;
  }
  std::vector<Made>& made() { return made_; }

 private:
  struct Wanted {
    NodeId body;
    std::uint32_t least = 0, most = 0;
  };
  const Ir& ir_;
  const Facts& facts_;
  Work& work_;
  std::vector<Wanted> wanted_;
  std::vector<Made> made_;
  std::map<std::uint32_t, std::uint32_t> by_rule_, by_body_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::uint32_t> by_count_;
  std::size_t states_ = 0;
};

void flatten(const std::vector<Builder::Made>& made, Automaton& out) {
  for (std::uint32_t r = 0; r < made.size(); ++r) {
    const auto base = static_cast<std::uint32_t>(out.states.size());
    const Builder::Made& rule = made[r];
    const bool counted = rule.most != 0;
    out.rules.push_back({.start = base, .least = rule.least, .most = rule.most});
    out.rules.back().pure = counted && !rule.fsa.has_calls();
    out.rules.back().twin = out.rules[rule.twin].start;
    const auto target = [&](std::uint32_t to) {
      // A counted rule's accepting states are final: to end the body is to be at the loop head again.
      return counted && rule.fsa.states[to].accepts ? base | Automaton::kCounts : base + to;
    };
    for (std::uint32_t s = 0; s < rule.fsa.states.size(); ++s) {
      const FsaState& from = rule.fsa.states[s];
      Automaton::State state{.edges = static_cast<std::uint32_t>(out.edges.size()),
                             .calls = static_cast<std::uint32_t>(out.calls.size()),
                             .rule = r,
                             .accepts = counted ? s == 0 : from.accepts,
                             .loop_head = counted && s == 0};
      for (const FsaEdge& e : from.edges) out.edges.push_back({e.lo, e.hi, target(e.to)});
      for (const FsaCall& c : from.calls) out.calls.push_back({c.rule, target(c.to)});
      state.edges_end = static_cast<std::uint32_t>(out.edges.size());
      state.calls_end = static_cast<std::uint32_t>(out.calls.size());
      out.states.push_back(state);
    }
  }
}

// The shortest way out of every state, by Knuth's generalization of Dijkstra's algorithm: a call costs the called
// rule's shortest word. States that no document can leave keep `Step::none`.
class Shortest {
 public:
  explicit Shortest(Automaton& a) : a_(a), final_(a.states.size(), 0), rule_final_(a.rules.size(), 0) {
    edges_to_.resize(a.states.size());
    calls_to_.resize(a.states.size());
    calls_of_.resize(a.rules.size());
  }

  void run() {
    for (Automaton::State& s : a_.states) s.close_bytes = Automaton::kFar;
    for (Automaton::Rule& r : a_.rules) r.close_bytes = Automaton::kFar;
    for (std::uint32_t s = 0; s < a_.states.size(); ++s) {
      const Automaton::State& state = a_.states[s];
      for (std::uint32_t e = state.edges; e < state.edges_end; ++e) {
        if (a_.edges[e].to & Automaton::kCounts) improve(s, 1, Automaton::Step::edge, e);
        else edges_to_[a_.edges[e].to].push_back({s, e});
      }
      for (std::uint32_t c = state.calls; c < state.calls_end; ++c) {
        calls_of_[a_.calls[c].rule].push_back({s, c});
        if (!(a_.calls[c].to & Automaton::kCounts)) calls_to_[a_.calls[c].to].push_back({s, c});
      }
      if (state.accepts && !state.loop_head) improve(s, 0, Automaton::Step::leave, 0);
    }
    while (!heap_.empty()) {
      const auto [cost, s] = heap_.top();
      heap_.pop();
      if (final_[s] || cost != a_.states[s].close_bytes) continue;
      settle(s);
    }
  }

 private:
  struct Site {
    std::uint32_t state, index;
  };

  void improve(std::uint32_t s, std::uint64_t cost, Automaton::Step step, std::uint32_t index) {
    cost = std::min<std::uint64_t>(cost, Automaton::kFar - 1);
    Automaton::State& state = a_.states[s];
    if (final_[s] || cost >= state.close_bytes) return;
    state.close_bytes = static_cast<std::uint32_t>(cost);
    state.shortest = step;
    state.shortest_index = index;
    heap_.push({state.close_bytes, s});
  }

  void improve_by_call(const Site& site) {
    const Automaton::Call& call = a_.calls[site.index];
    if (!rule_final_[call.rule]) return;
    std::uint64_t cost = a_.rules[call.rule].close_bytes;
    if (!(call.to & Automaton::kCounts)) {
      if (!final_[call.to]) return;
      cost += a_.states[call.to].close_bytes;
    }
    improve(site.state, cost, Automaton::Step::call, site.index);
  }

  void settle(std::uint32_t s) {
    final_[s] = 1;
    a_.order.push_back(s);
    const std::uint64_t cost = a_.states[s].close_bytes;
    Automaton::Rule& rule = a_.rules[a_.states[s].rule];
    if (rule.start == s) {
      const std::uint64_t times = rule.counted() ? rule.least : 1;
      rule.close_bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(cost * times, Automaton::kFar - 1));
      rule_final_[a_.states[s].rule] = 1;
      for (const Site& site : calls_of_[a_.states[s].rule]) improve_by_call(site);
    }
    for (const Site& site : edges_to_[s]) improve(site.state, cost + 1, Automaton::Step::edge, site.index);
    for (const Site& site : calls_to_[s]) improve_by_call(site);
  }

  Automaton& a_;
  std::vector<char> final_, rule_final_;
  std::vector<std::vector<Site>> edges_to_, calls_to_, calls_of_;
  std::priority_queue<std::pair<std::uint32_t, std::uint32_t>, std::vector<std::pair<std::uint32_t, std::uint32_t>>,
                      std::greater<>>
      heap_;
};

// Takes out what leads nowhere: every edge that is left can be part of a document.
void prune(Automaton& a) {
  const auto dead = [&a](std::uint32_t to) {
    return !(to & Automaton::kCounts) && a.states[to].shortest == Automaton::Step::none;
  };
  std::vector<Automaton::Edge> edges;
  std::vector<Automaton::Call> calls;
  for (Automaton::State& s : a.states) {
    const bool from_dead = s.shortest == Automaton::Step::none;
    const auto edges_at = static_cast<std::uint32_t>(edges.size()), calls_at = static_cast<std::uint32_t>(calls.size());
    for (std::uint32_t e = s.edges; e < s.edges_end && !from_dead; ++e) {
      if (s.shortest == Automaton::Step::edge && s.shortest_index == e) {
        s.shortest_index = static_cast<std::uint32_t>(edges.size());
        edges.push_back(a.edges[e]);
      } else if (!dead(a.edges[e].to)) {
        edges.push_back(a.edges[e]);
      }
    }
    for (std::uint32_t c = s.calls; c < s.calls_end && !from_dead; ++c) {
      if (a.rules[a.calls[c].rule].close_bytes == Automaton::kFar || dead(a.calls[c].to)) continue;
      if (s.shortest == Automaton::Step::call && s.shortest_index == c) {
        s.shortest_index = static_cast<std::uint32_t>(calls.size());
      }
      calls.push_back(a.calls[c]);
    }
    s.edges = edges_at;
    s.edges_end = static_cast<std::uint32_t>(edges.size());
    s.calls = calls_at;
    s.calls_end = static_cast<std::uint32_t>(calls.size());
    s.plain = !s.accepts && !s.loop_head && calls_at == s.calls_end;
    s.last = s.accepts && !s.loop_head && calls_at == s.calls_end && edges_at == s.edges_end;
  }
  a.edges = std::move(edges);
  a.calls = std::move(calls);
}

// States with more than four edges look their target up. 8,192 distinct rows are 8 MiB; further states search.
void add_rows(Automaton& a) {
  constexpr std::size_t kRowsMax = 8192;
  std::map<std::array<std::uint32_t, 256>, std::uint32_t> made;
  for (Automaton::State& s : a.states) {
    if (s.edges_end - s.edges <= 4) continue;
    std::array<std::uint32_t, 256> row;
    row.fill(Automaton::kNone);
    for (std::uint32_t e = s.edges; e < s.edges_end; ++e) {
      for (std::uint32_t b = a.edges[e].lo; b <= a.edges[e].hi; ++b) row[b] = a.edges[e].to;
    }
    if (made.size() >= kRowsMax && !made.contains(row)) continue;
    const auto [it, fresh] = made.try_emplace(row, static_cast<std::uint32_t>(a.rows.size()));
    if (fresh) a.rows.push_back(row);
    s.row = it->second;
  }
}

// How many rules lie open at once on the shortest way out of any state: closing a document must fit the stack.
Status check_height(const Automaton& a) {
  std::vector<std::uint32_t> height(a.states.size(), 0);
  for (const std::uint32_t s : a.order) {
    const Automaton::State& state = a.states[s];
    const auto of = [&](std::uint32_t to) { return to & Automaton::kCounts ? 0 : height[to]; };
    if (state.shortest == Automaton::Step::edge) height[s] = of(a.edges[state.shortest_index].to);
    if (state.shortest != Automaton::Step::call) continue;
    const Automaton::Call& call = a.calls[state.shortest_index];
    height[s] = std::max(height[a.rules[call.rule].start] + 1, of(call.to));
    if (height[s] > kShortestDepthMax) {
      return Status::exhausted(
          fmt::format("the shortest document nests deeper than {} levels; flatten the grammar", kShortestDepthMax));
    }
  }
  return Status::success();
}

// What bytes may come behind each rule: at its calls' targets, and behind the callers that end there.
Status find_follow(Automaton& a, Work& work) {
  std::vector<std::bitset<256>> first(a.rules.size());
  const auto first_of = [&](const Automaton::State& s) {
    std::bitset<256> out;
    for (std::uint32_t e = s.edges; e != s.edges_end; ++e) {
      for (int b = a.edges[e].lo; b <= a.edges[e].hi; ++b) out.set(static_cast<std::size_t>(b));
    }
    for (std::uint32_t c = s.calls; c != s.calls_end; ++c) out |= first[a.calls[c].rule];
    return out;
  };
  for (bool changed = true; changed;) {
    changed = false;
    LODE_RETURN_IF_ERROR(work.spend(static_cast<std::int64_t>(a.rules.size()) * 8));
    for (std::size_t r = 0; r < a.rules.size(); ++r) {
      const auto now = first_of(a.states[a.rules[r].start]);
      changed = changed || now != first[r];
      first[r] = now;
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    LODE_RETURN_IF_ERROR(work.spend(static_cast<std::int64_t>(a.calls.size() + a.states.size())));
    for (const Automaton::State& s : a.states) {
      for (std::uint32_t c = s.calls; c != s.calls_end; ++c) {
        const Automaton::State& back = a.states[a.calls[c].to & Automaton::kTarget];
        auto now = first_of(back);
        if (back.accepts) now |= a.rules[back.rule].follow;
        Automaton::Rule& callee = a.rules[a.calls[c].rule];
        Automaton::Rule& twin = a.rules[a.states[callee.twin].rule];
        changed = changed || (now & ~callee.follow).any() || (callee.follow & ~twin.follow).any();
        callee.follow |= now;
        twin.follow |= callee.follow;
      }
    }
  }
  return Status::success();
}

constexpr std::uint32_t kShortestBytesMax = 1u << 20;

}  // namespace

Result<std::shared_ptr<const Automaton>> build_automaton(const Ir& ir, RuleId root, Work& work) {
  if (ir.overflowed()) {
    return Status::exhausted(fmt::format("the grammar has more than {} parts; make it smaller", ir.limits().nodes_max));
  }
  auto facts = find_facts(ir, work);
  if (!facts.ok()) return facts.status();
  LODE_RETURN_IF_ERROR(find_copied(ir, *facts, work));
  Builder builder(ir, *facts, work);
  LODE_RETURN_IF_ERROR(builder.run(root));
  auto out = std::make_shared<Automaton>();
  flatten(builder.made(), *out);
  Shortest(*out).run();
  out->empty_word = facts->rule_nullable[root.v] != 0;
  if (out->rules[out->root].close_bytes == Automaton::kFar && !out->empty_word) {
    return Status::invalid("no finite document satisfies it: its parts contradict each other or never end");
  }
  if (out->rules[out->root].close_bytes > kShortestBytesMax && !out->empty_word) {
    return Status::exhausted(fmt::format("its shortest document has more than {} bytes", kShortestBytesMax));
  }
  LODE_RETURN_IF_ERROR(check_height(*out));
  prune(*out);
  add_rows(*out);
  LODE_RETURN_IF_ERROR(find_follow(*out, work));
  return std::shared_ptr<const Automaton>(std::move(out));
}

Result<Fsa> build_fsa(const Ir& ir, NodeId node, Work& work) {
  if (ir.overflowed()) {
    return Status::exhausted(fmt::format("the grammar has more than {} parts; make it smaller", ir.limits().nodes_max));
  }
  const Facts none;
  return Writer(ir, none, work, nullptr).automaton(node);
}

}  // namespace lode::text::grammar
