// The intermediate form of every grammar: rules whose bodies are expressions over bytes. JSON Schema, regular
// expressions and GBNF are lowered to it; automaton_builder.h makes the automaton of it. docs/grammar.md describes it.
// Owns its nodes. Built by one thread, then constant.
//
// Building never fails in the middle: past nodes_max the form stops growing and `overflowed()` says so once, at the
// end.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "text/grammar/code_points.h"
#include "text/grammar/fsa.h"
#include "text/grammar/limits.h"

namespace lode::text::grammar {

using NodeId = Id<struct NodeTag>;
using RuleId = Id<struct RuleTag>;

// How a character of a text stands in the bytes that are matched.
enum class Encoding : std::uint8_t {
  utf8,
  // As the one spelling that a compact JSON writer gives it inside a string: \" \\ \b \f \n \r \t, \u00xx for other
  // control characters, everything else as it is.
  json_string,
};

class Ir {
 public:
  enum class Op : std::uint8_t {
    empty,    // The empty word.
    nothing,  // No word at all.
    bytes,    // A literal.
    range,    // One byte lo..hi.
    concat,
    alt,
    repeat,  // Its child min to max times; max kNoBound: any number.
    rule,    // What the rule is.
    fsa,     // A ready automaton without calls.
    list,    // Members with separators; see ListItem.
  };
  // Members with one separator between any two that are there: an object's properties, each of which may be skipped, or
  // an array's first items, before each of which it may stop. Written as concatenations the n-th member would stand in
  // n alternatives; as a list it stands in the automaton once.
  struct ListItem {
    NodeId node;
    enum class Kind : std::uint8_t {
      required,
      skippable,
      last_stop
    } kind = Kind::required;  // last_stop: or stop here.
  };
  struct List {
    NodeId separator;
    std::vector<ListItem> items;
    NodeId more;  // Follows the items any number of times; may be none().
    bool may_be_empty = true;
    NodeId
        tail;  // Follows the last item directly, separators included; may be none(). For lists without skippable ones.
  };
  struct Node {
    Op op = Op::empty;
    std::uint8_t lo = 0, hi = 0;
    std::uint32_t a = 0, b = 0;      // concat, alt: children [a, a + b); bytes: text [a, a + b); rule, fsa, list: a.
    std::uint32_t min = 0, max = 0;  // repeat; its child is a.
    std::uint16_t depth = 1;         // Of the tree below: what a recursive visit needs.
    std::uint64_t size = 1;          // States that an automaton of it takes, about; repeats multiplied out.
  };

  explicit Ir(const CompileLimits& limits) : limits_(limits) {}

  NodeId empty() { return add({.op = Op::empty}); }
  NodeId nothing() { return add({.op = Op::nothing}); }
  NodeId literal(std::string_view bytes);
  NodeId range(std::uint8_t lo, std::uint8_t hi) { return add({.op = Op::range, .lo = lo, .hi = hi}); }
  NodeId concat(std::span<const NodeId> parts) { return many(Op::concat, parts); }
  NodeId concat(std::initializer_list<NodeId> parts) { return many(Op::concat, {parts.begin(), parts.size()}); }
  NodeId alt(std::span<const NodeId> parts) { return many(Op::alt, parts); }
  NodeId alt(std::initializer_list<NodeId> parts) { return many(Op::alt, {parts.begin(), parts.size()}); }
  NodeId repeat(NodeId child, std::uint32_t min, std::uint32_t max);
  NodeId optional(NodeId child) { return repeat(child, 0, 1); }
  NodeId reference(RuleId rule) { return add({.op = Op::rule, .a = rule.v}); }
  NodeId automaton(Fsa fsa);
  NodeId list(List list);
  // Any one character of the set.
  NodeId characters(const CodePointSet& set, Encoding encoding);
  // A literal text, each character in the encoding.
  NodeId text(std::string_view utf8, Encoding encoding);

  struct Rule {
    std::string name;
    NodeId body;  // none(): not set.
    // One automaton however often it is called, so that its masks are found once: strings, numbers.
    enum class Sharing : std::uint8_t { copied, shared } sharing = Sharing::copied;
  };

  RuleId add_rule(std::string name, Rule::Sharing sharing = Rule::Sharing::copied);
  void set_body(RuleId rule, NodeId body) { rules_[rule.v].body = body; }

  const Node& node(NodeId id) const { return nodes_[id.v]; }
  std::span<const NodeId> children(const Node& n) const { return std::span(children_).subspan(n.a, n.b); }
  std::string_view bytes(const Node& n) const { return std::string_view(bytes_).substr(n.a, n.b); }
  const Fsa& fsa(const Node& n) const { return fsas_[n.a]; }
  const List& list(const Node& n) const { return lists_[n.a]; }
  std::span<const Rule> rules() const { return rules_; }
  std::size_t node_count() const { return nodes_.size(); }
  bool overflowed() const { return overflowed_; }
  const CompileLimits& limits() const { return limits_; }

 private:
  NodeId add(Node node);
  NodeId many(Op op, std::span<const NodeId> parts);
  bool grow(std::size_t units);

  CompileLimits limits_;
  std::vector<Node> nodes_;
  std::vector<NodeId> children_;
  std::string bytes_;
  std::vector<Fsa> fsas_;
  std::vector<List> lists_;
  std::vector<Rule> rules_;
  std::map<std::pair<std::string, Encoding>, NodeId> sets_;  // characters() made before, by their ranges.
  std::size_t units_ = 0;
  bool overflowed_ = false;
};

// The spelling of one character, and of a text, in an encoding. A text that is not UTF-8 has none.
std::string spell(std::uint32_t code_point, Encoding encoding);
std::optional<std::string> spell(std::string_view utf8, Encoding encoding);

}  // namespace lode::text::grammar
