#include "text/grammar/ir.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/utf8.h"

namespace lode::text::grammar {

std::string spell(std::uint32_t c, Encoding encoding) {
  if (encoding == Encoding::json_string) {
    switch (c) {
      case '"': return "\\\"";
      case '\\': return "\\\\";
      case '\b': return "\\b";
      case '\f': return "\\f";
      case '\n': return "\\n";
      case '\r': return "\\r";
      case '\t': return "\\t";
      default:
        if (c < 0x20) return fmt::format("\\u{:04x}", c);
    }
  }
  std::string out;
  append_utf8(out, c);
  return out;
}

std::optional<std::string> spell(std::string_view utf8, Encoding encoding) {
  std::string out;
  for (std::size_t pos = 0; pos < utf8.size();) {
    const Utf8Char c = utf8_at(utf8, pos);
    if (!c.valid()) return std::nullopt;
    out += spell(c.code, encoding);
    pos += c.bytes;
  }
  return out;
}

bool Ir::grow(std::size_t units) {
  units_ += units;
  if (units_ > limits_.nodes_max) overflowed_ = true;
  return !overflowed_;
}

NodeId Ir::add(Node node) {
  if (!grow(1) && !nodes_.empty()) return NodeId{0};
  nodes_.push_back(node);
  return NodeId{static_cast<std::uint32_t>(nodes_.size() - 1)};
}

NodeId Ir::literal(std::string_view bytes) {
  if (bytes.empty()) return empty();
  if (!grow(bytes.size() / 8)) return empty();
  const auto at = static_cast<std::uint32_t>(bytes_.size());
  bytes_ += bytes;
  return add({.op = Op::bytes, .a = at, .b = static_cast<std::uint32_t>(bytes.size()), .size = bytes.size()});
}

NodeId Ir::many(Op op, std::span<const NodeId> parts) {
  if (parts.empty()) return op == Op::concat ? empty() : nothing();
  if (parts.size() == 1) return parts[0];
  if (!grow(parts.size())) return empty();
  const auto at = static_cast<std::uint32_t>(children_.size());
  Node n{.op = op, .a = at, .b = static_cast<std::uint32_t>(parts.size())};
  for (const NodeId part : parts) {
    n.depth = std::max<std::uint16_t>(n.depth, node(part).depth + 1);
    n.size += node(part).size;
  }
  children_.insert(children_.end(), parts.begin(), parts.end());
  return add(n);
}

NodeId Ir::repeat(NodeId child, std::uint32_t min, std::uint32_t max) {
  if (min == 1 && max == 1) return child;
  if (max == 0) return empty();
  if (max > kCountMax) max = kNoBound;
  const std::uint64_t copies = max == kNoBound ? std::uint64_t{min} + 1 : max;
  const Node& c = node(child);
  // Saturates: sizes only choose between writing a repetition out and counting it.
  const std::uint64_t size = std::min<std::uint64_t>(c.size, std::uint64_t{1} << 31) * copies + 1;
  return add({.op = Op::repeat,
              .a = child.v,
              .min = min,
              .max = max,
              .depth = static_cast<std::uint16_t>(c.depth + 1),
              .size = size});
}

NodeId Ir::automaton(Fsa fsa) {
  if (!grow(fsa.states.size())) return empty();
  fsas_.push_back(std::move(fsa));
  return add({.op = Op::fsa, .a = static_cast<std::uint32_t>(fsas_.size() - 1), .size = fsas_.back().states.size()});
}

NodeId Ir::list(List list) {
  if (!grow(list.items.size())) return empty();
  Node n{.op = Op::list, .a = static_cast<std::uint32_t>(lists_.size())};
  const auto visit = [&](NodeId id) {
    n.depth = std::max<std::uint16_t>(n.depth, node(id).depth + 1);
    n.size += node(id).size + 2;
  };
  for (const ListItem& item : list.items) visit(item.node);
  if (list.more.valid()) visit(list.more);
  if (list.tail.valid()) visit(list.tail);
  lists_.push_back(std::move(list));
  return add(n);
}

NodeId Ir::characters(const CodePointSet& set, Encoding encoding) {
  std::string key;
  for (const CodePointRange& r : set.ranges()) {
    append_utf8(key, r.first);
    append_utf8(key, r.last);
  }
  if (const auto made = sets_.find({key, encoding}); made != sets_.end()) return made->second;
  std::vector<NodeId> ways;
  CodePointSet plain = set;
  if (encoding == Encoding::json_string) {
    for (const std::uint32_t c : {34u, 92u}) {
      if (set.contains(c)) ways.push_back(literal(spell(c, encoding)));
    }
    for (std::uint32_t c = 0; c < 0x20; ++c) {
      if (set.contains(c)) ways.push_back(literal(spell(c, encoding)));
    }
    plain = set.intersect(CodePointSet::of({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kCodePointMax}}));
  }
  for (const ByteRun& run : utf8_runs(plain)) {
    std::vector<NodeId> bytes;
    for (int i = 0; i < run.size; ++i) bytes.push_back(range(run.bytes[i].lo, run.bytes[i].hi));
    ways.push_back(concat(bytes));
  }
  const NodeId out = alt(ways);
  if (!overflowed_) sets_.emplace(std::pair(std::move(key), encoding), out);
  return out;
}

NodeId Ir::text(std::string_view utf8, Encoding encoding) {
  const auto bytes = spell(utf8, encoding);
  return bytes ? literal(*bytes) : nothing();
}

RuleId Ir::add_rule(std::string name, Rule::Sharing sharing) {
  if (!grow(1) && !rules_.empty()) return RuleId{0};
  rules_.push_back({std::move(name), NodeId::none(), sharing});
  return RuleId{static_cast<std::uint32_t>(rules_.size() - 1)};
}

}  // namespace lode::text::grammar
