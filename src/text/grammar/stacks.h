// Where a grammar stands in a text: every reading of it at once, as a graph of stacks. Owns its nodes, in pools of a
// fixed size: nothing here allocates after construction. One thread at a time; src/text/grammar only.
//
// A reading is a Thread: a state, the count of its rule if that is counted, and the node of the rule's activation. A
// node stands for one rule entered at one place of the text, however many readings entered it there; its edges say
// where each of them goes on when the rule ends. So ambiguity and left recursion cost nodes, not copies of stacks.
//
// Lists of threads lie on one stack; a step appends the list behind a byte. Nodes and edges are appended too, and edges
// only to nodes of the same step: cutting the pools back to a Mark undoes everything after it. That is how a walk over
// the vocabulary's tree backtracks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "text/grammar/automaton.h"
#include "text/grammar/close_costs.h"

namespace lode::text::grammar {

class Stacks {
 public:
  static constexpr std::uint32_t kDocument = 0;  // The node of the document's rule.
  static constexpr std::uint32_t kUnknown = 1;  // Stands for any caller, in walks for a mask that must fit all of them.
  static constexpr std::uint32_t kOpenMax = kOpenSoft + 2 * kShortestDepthMax;
  // Readings of one place: enough for every open rule to end here at once. More are dropped: what is left are still
  // readings of the grammar.
  static constexpr std::uint32_t kReadingsMax = 512;
  static_assert(kReadingsMax > kOpenMax);

  struct Thread {
    std::uint32_t state, count, node;
    bool entered;  // Reached only by entering a rule at this place: another thread's mask covers it.
  };
  struct Node {
    std::uint32_t rule, first_edge;
    std::uint32_t open;                       // Rules below it, itself included.
    std::uint32_t close_tokens, close_bytes;  // From its end to the document's.
  };
  struct List {
    std::uint32_t begin, end;
    bool empty() const { return begin == end; }
  };
  struct Step {
    List list;   // Empty: the byte cannot come.
    bool ended;  // The document may end here.
    bool left;   // A rule ended whose caller is kUnknown.
  };
  struct Mark {
    std::uint32_t threads, nodes, edges;
  };

  Stacks(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const CloseCosts> costs);
  Stacks(const Stacks& other);  // The live part of its pools.
  Stacks& operator=(const Stacks&) = delete;

  // At the document's start, before its first byte: the first list.
  Step start();
  // One reading at `state` of a rule whose caller is kUnknown.
  Step start_at(std::uint32_t state, std::uint32_t count);
  // The same in a pure counted rule, counting from 0: at most `room` more repetitions are entered, and the rule may end
  // behind each.
  Step start_counting(std::uint32_t state, std::uint32_t room);
  // The readings that go on after the rule of `node` ends.
  Step after(std::uint32_t node);
  // Behind one more byte. `from` stays as it is.
  Step step(List from, std::uint8_t byte) {
    --work_;
    // The common case: one reading that goes on inside its rule. In line, for walks over a vocabulary spend their time
    // here.
    if (from.end - from.begin == 1 && threads_size_ < kThreadsPool) {
      const Thread& t = threads_[from.begin];
      const Automaton::State& s = automaton_->states[t.state];
      if (!s.loop_head) {
        const std::uint32_t to = automaton_->next(s, byte);
        if (to == Automaton::kNone) return {{threads_size_, threads_size_}, false, false};
        if (to < Automaton::kCounts && automaton_->states[to].plain) {
          threads_[threads_size_++] = {to, t.count, t.node, false};
          return {{threads_size_ - 1, threads_size_}, false, false};
        }
      }
    }
    return step_all(from, byte);
  }

  Mark mark() const { return {threads_size_, nodes_size_, edges_size_}; }
  void cut(const Mark& mark) {
    threads_size_ = mark.threads;
    nodes_size_ = mark.nodes;
    edges_size_ = mark.edges;
  }
  // Steps of readings that walks may still take: an ambiguous grammar's masks are cut short rather than late.
  void set_work(std::int64_t steps) { work_ = steps; }
  std::int64_t work() const { return work_; }
  bool has_work() const { return work_ > 0; }
  // Makes `list` the only one, at the pool's front, and drops the nodes that nothing in it leads to.
  List keep(List list);

  std::span<const Thread> threads(List list) const { return {threads_.get() + list.begin, list.end - list.begin}; }
  const Node& node(std::uint32_t n) const { return nodes_[n]; }

  // Of the cheapest reading. `open`: the rules open in it.
  struct Close {
    std::uint32_t tokens = Automaton::kFar, bytes = Automaton::kFar, open = 0;
  };
  Close close(List list) const;
  // The one byte that every reading goes on with, or -1.
  int only_byte(List list) const;
  // A bound was met and readings were dropped, since the start.
  bool dropped() const { return dropped_; }

 private:
  struct Edge {
    std::uint32_t state, count;  // Where the caller goes on.
    std::uint32_t caller, next;
  };
  static constexpr std::uint32_t kThreadsPool = 32768, kNodesPool = 16384, kEdgesPool = 32768;

  void begin_step() {
    list_begin_ = threads_size_;
    fresh_ = nodes_size_;
    ended_ = left_ = false;
  }
  Step step_all(List from, std::uint8_t byte);
  Step finish_step();
  bool may_enter(const Thread& t, const Automaton::State& s) const {
    return !s.loop_head || t.count < (t.node == kUnknown && room_ != kNoBound ? room_ : automaton_->rules[s.rule].most);
  }
  bool may_leave(const Thread& t, const Automaton::State& s) const {
    return s.accepts &&
           (!s.loop_head || (t.node == kUnknown && room_ != kNoBound) || t.count >= automaton_->rules[s.rule].least);
  }
  void reach(std::uint32_t to, std::uint32_t count, std::uint32_t node, bool entered);
  void expand(std::uint32_t thread);
  void leave(std::uint32_t node);
  void enter(const Thread& from, const Automaton::Call& call);
  std::uint32_t activation(std::uint32_t rule);
  void add_edge(std::uint32_t node, std::uint32_t state, std::uint32_t count, std::uint32_t caller);

  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const CloseCosts> costs_;
  std::unique_ptr<Thread[]> threads_;
  std::unique_ptr<Node[]> nodes_;
  std::unique_ptr<Edge[]> edges_;
  std::uint32_t threads_size_ = 0, nodes_size_ = 0, edges_size_ = 0;
  std::unique_ptr<std::uint32_t[]> new_id_;  // For keep(): of each node, of each edge, and a work list.
  std::uint32_t kept_nodes_ = 2;             // Nodes alive after the last keep() that looked.
  std::int64_t work_ = 0;
  std::uint32_t room_ = kNoBound;  // Of the rule that kUnknown called, where it counts from 0.
  std::uint32_t list_begin_ = 0, fresh_ = 0;
  bool ended_ = false, left_ = false, dropped_ = false;
};

}  // namespace lode::text::grammar
