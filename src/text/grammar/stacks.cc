#include "text/grammar/stacks.h"

#include <algorithm>

namespace lode::text::grammar {
namespace {

std::uint32_t add(std::uint32_t a, std::uint32_t b) {
  return std::min(a + b, Automaton::kFar);  // Both are at most kFar: no overflow.
}

}  // namespace

Stacks::Stacks(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const CloseCosts> costs)
    : automaton_(std::move(automaton)),
      costs_(std::move(costs)),
      threads_(new Thread[kThreadsPool]),
      nodes_(new Node[kNodesPool]),
      edges_(new Edge[kEdgesPool]),
      new_id_(new std::uint32_t[2 * kNodesPool + kEdgesPool]) {
  nodes_[kDocument] = nodes_[kUnknown] = {Automaton::kNone, Automaton::kNone, 0, 0, 0};
  nodes_size_ = 2;
}

Stacks::Stacks(const Stacks& other) : Stacks(other.automaton_, other.costs_) {
  std::copy_n(other.threads_.get(), other.threads_size_, threads_.get());
  std::copy_n(other.nodes_.get(), other.nodes_size_, nodes_.get());
  std::copy_n(other.edges_.get(), other.edges_size_, edges_.get());
  cut(other.mark());
  kept_nodes_ = other.kept_nodes_;
  dropped_ = other.dropped_;
}

Stacks::Step Stacks::start() {
  cut({0, 2, 0});
  dropped_ = false;
  begin_step();
  threads_[threads_size_++] = {automaton_->rules[automaton_->root].start, 0, kDocument, false};
  Step out = finish_step();
  out.ended = automaton_->empty_word;
  return out;
}

Stacks::Step Stacks::start_at(std::uint32_t state, std::uint32_t count) {
  cut({0, 2, 0});
  room_ = kNoBound;
  begin_step();
  threads_[threads_size_++] = {state, count, kUnknown, false};
  // Only what it enters: where its rule may end here, the caller's own thread stands beside it.
  const Thread from = threads_[list_begin_];
  const Automaton::State& s = automaton_->states[state];
  if (may_enter(from, s)) {
    for (std::uint32_t c = s.calls; c != s.calls_end; ++c) enter(from, automaton_->calls[c]);
  }
  for (std::uint32_t t = list_begin_ + 1; t < threads_size_; ++t) expand(t);
  return {{list_begin_, threads_size_}, false, false};
}

Stacks::Step Stacks::start_counting(std::uint32_t state, std::uint32_t room) {
  const Step out = start_at(state, 0);
  room_ = room;
  return out;
}

Stacks::Step Stacks::after(std::uint32_t node) {
  begin_step();
  leave(node);
  return finish_step();
}

Stacks::Step Stacks::step_all(List from, std::uint8_t byte) {
  begin_step();
  work_ -= from.end - from.begin;
  const Automaton& a = *automaton_;
  for (std::uint32_t i = from.begin; i != from.end; ++i) {
    const Thread& t = threads_[i];
    const Automaton::State& s = a.states[t.state];
    const std::uint32_t to = a.next(s, byte);
    if (to == Automaton::kNone || !may_enter(t, s)) continue;
    // One reading that goes around its loop, without looking for a twin.
    if (to >= Automaton::kCounts && t.node == kUnknown && from.end - from.begin == 1 && a.rules[s.rule].pure &&
        threads_size_ < kThreadsPool) {
      const Thread next{to & Automaton::kTarget, t.count + 1, t.node, false};
      threads_[threads_size_++] = next;
      return {{list_begin_, threads_size_}, false, may_leave(next, a.states[next.state])};
    }
    reach(to, t.count, t.node, false);
  }
  return finish_step();
}

// Follows everything that needs no byte: the list grows while it is read.
Stacks::Step Stacks::finish_step() {
  for (std::uint32_t t = list_begin_; t < threads_size_; ++t) expand(t);
  return {{list_begin_, threads_size_}, ended_, left_};
}

void Stacks::reach(std::uint32_t to, std::uint32_t count, std::uint32_t node, bool entered) {
  if (to & Automaton::kCounts) ++count;
  to &= Automaton::kTarget;
  work_ -= (threads_size_ - list_begin_) / 8;
  for (std::uint32_t i = list_begin_; i < threads_size_; ++i) {
    Thread& t = threads_[i];
    if (t.state == to && t.count == count && t.node == node) {
      t.entered = t.entered && entered;
      return;
    }
  }
  if (threads_size_ - list_begin_ >= kReadingsMax || threads_size_ >= kThreadsPool) {
    dropped_ = true;
    return;
  }
  threads_[threads_size_++] = {to, count, node, entered};
}

void Stacks::expand(std::uint32_t thread) {
  const Thread t = threads_[thread];
  const Automaton::State& s = automaton_->states[t.state];
  if (s.plain) return;
  // A thread that entered its rule here has read nothing yet: no rule ends before a byte.
  if (!t.entered && may_leave(t, s)) leave(t.node);
  if (!may_enter(t, s)) return;
  for (std::uint32_t c = s.calls; c != s.calls_end; ++c) enter(t, automaton_->calls[c]);
}

void Stacks::leave(std::uint32_t node) {
  if (node == kUnknown) left_ = true;
  if (node == kDocument) ended_ = true;
  for (std::uint32_t e = nodes_[node].first_edge; e != Automaton::kNone; e = edges_[e].next) {
    reach(edges_[e].state, edges_[e].count, edges_[e].caller, false);
  }
}

std::uint32_t Stacks::activation(std::uint32_t rule) {
  for (std::uint32_t n = fresh_; n < nodes_size_; ++n) {
    if (nodes_[n].rule == rule) return n;
  }
  if (nodes_size_ >= kNodesPool) return Automaton::kNone;
  nodes_[nodes_size_] = {rule, Automaton::kNone, Automaton::kFar, Automaton::kFar, Automaton::kFar};
  return nodes_size_++;
}

void Stacks::enter(const Thread& from, const Automaton::Call& call) {
  if (nodes_[from.node].open >= kOpenMax || edges_size_ >= kEdgesPool) {
    dropped_ = true;
    return;
  }
  const std::uint32_t node = activation(call.rule);
  if (node == Automaton::kNone) {
    dropped_ = true;
    return;
  }
  const Automaton::State& back = automaton_->states[call.to & Automaton::kTarget];
  // Whoever entered that node at this very place may not all be known yet.
  const bool last = !(call.to & Automaton::kCounts) && back.last && from.node > kUnknown && from.node < fresh_;
  if (last) {
    // A call at its rule's very end: go on where the rule's callers do. Right recursion needs no stack.
    for (std::uint32_t e = nodes_[from.node].first_edge; e != Automaton::kNone; e = edges_[e].next) {
      add_edge(node, edges_[e].state, edges_[e].count, edges_[e].caller);
    }
  } else {
    add_edge(node, call.to & Automaton::kTarget, from.count + (call.to & Automaton::kCounts ? 1 : 0), from.node);
  }
  reach(automaton_->rules[call.rule].start, 0, node, true);
}

void Stacks::add_edge(std::uint32_t node, std::uint32_t state, std::uint32_t count, std::uint32_t caller) {
  Node& n = nodes_[node];
  for (std::uint32_t e = n.first_edge; e != Automaton::kNone; e = edges_[e].next) {
    if (edges_[e].state == state && edges_[e].count == count && edges_[e].caller == caller) return;
  }
  if (edges_size_ >= kEdgesPool) {
    dropped_ = true;
    return;
  }
  edges_[edges_size_] = {state, count, caller, n.first_edge};
  n.first_edge = edges_size_++;
  n.open = std::min(n.open, nodes_[caller].open + 1);
  n.close_tokens = std::min(n.close_tokens, add(costs_->tokens(state, count), nodes_[caller].close_tokens));
  n.close_bytes = std::min(n.close_bytes, add(costs_->bytes(state, count), nodes_[caller].close_bytes));
}

Stacks::List Stacks::keep(List list) {
  std::copy(threads_.get() + list.begin, threads_.get() + list.end, threads_.get());
  const List out{0, list.end - list.begin};
  threads_size_ = out.end;
  // Looking costs as much as there are nodes: once they have doubled.
  if (nodes_size_ < 2 * kept_nodes_ + 64) return out;
  std::uint32_t* const id = new_id_.get();  // [nodes] kNone: dead.
  std::uint32_t* const edge_id = id + kNodesPool;
  std::uint32_t* const work = edge_id + kEdgesPool;
  std::uint32_t work_size = 0;
  std::fill_n(id, nodes_size_, Automaton::kNone);
  std::fill_n(edge_id, edges_size_, Automaton::kNone);
  const auto visit = [&](std::uint32_t n) {
    if (id[n] != Automaton::kNone) return;
    id[n] = 0;
    work[work_size++] = n;
  };
  visit(kDocument);
  visit(kUnknown);
  for (std::uint32_t t = 0; t < out.end; ++t) visit(threads_[t].node);
  while (work_size > 0) {
    for (std::uint32_t e = nodes_[work[--work_size]].first_edge; e != Automaton::kNone; e = edges_[e].next) {
      edge_id[e] = 0;
      visit(edges_[e].caller);
    }
  }
  // Both move down in ascending order; an edge's `next` is always an older edge, so its new place is known.
  std::uint32_t nodes = 0, edges = 0;
  for (std::uint32_t n = 0; n < nodes_size_; ++n) {
    if (id[n] != Automaton::kNone) id[n] = nodes++;
  }
  for (std::uint32_t e = 0; e < edges_size_; ++e) {
    if (edge_id[e] == Automaton::kNone) continue;
    Edge edge = edges_[e];
    edge.caller = id[edge.caller];
    if (edge.next != Automaton::kNone) edge.next = edge_id[edge.next];
    edge_id[e] = edges;
    edges_[edges++] = edge;
  }
  for (std::uint32_t n = 0; n < nodes_size_; ++n) {
    if (id[n] == Automaton::kNone) continue;
    Node node = nodes_[n];
    if (node.first_edge != Automaton::kNone) node.first_edge = edge_id[node.first_edge];
    nodes_[id[n]] = node;
  }
  for (std::uint32_t t = 0; t < out.end; ++t) threads_[t].node = id[threads_[t].node];
  nodes_size_ = kept_nodes_ = nodes;
  edges_size_ = edges;
  return out;
}

Stacks::Close Stacks::close(List list) const {
  Close out;
  for (const Thread& t : threads(list)) {
    if (t.entered) continue;
    const std::uint32_t tokens = add(costs_->tokens(t.state, t.count), nodes_[t.node].close_tokens);
    out.bytes = std::min(out.bytes, add(costs_->bytes(t.state, t.count), nodes_[t.node].close_bytes));
    if (tokens >= out.tokens) continue;
    out.tokens = tokens;
    out.open = nodes_[t.node].open;
  }
  return out;
}

int Stacks::only_byte(List list) const {
  int out = -1;
  for (const Thread& t : threads(list)) {
    const Automaton::State& s = automaton_->states[t.state];
    if (s.edges == s.edges_end || !may_enter(t, s)) continue;
    const Automaton::Edge& e = automaton_->edges[s.edges];
    if (s.edges_end - s.edges > 1 || e.lo != e.hi || (out >= 0 && out != e.lo)) return -1;
    out = e.lo;
  }
  return out;
}

}  // namespace lode::text::grammar
