#include "text/grammar/regex.h"

#include "text/grammar/regex_parser.h"

namespace lode::text::grammar {
namespace {

// Writes a tree into the form. An anchor asserts a place, which an automaton cannot: it is accepted where it can only
// stand at the text's edge, and takes away the "anything" that a search puts there.
class Lowering {
 public:
  Lowering(Ir& ir, const RegexTree& tree, const Source& source, const RegexOptions& options)
      : ir_(ir), tree_(tree), source_(source), encoding_(options.encoding) {
    edge_ = ir.empty();
    if (options.match == RegexOptions::Match::search) {
      edge_ = ir.repeat(ir.characters(CodePointSet::all(), encoding_), 0, kNoBound);
    }
  }

  // `left`, `right`: the node begins, or ends, the whole expression.
  Result<NodeId> lower(std::uint32_t id, bool left, bool right) {
    const RegexNode& n = tree_.nodes[id];
    switch (n.kind) {
      case RegexNode::Kind::begin:
        if (!left) return source_.unsupported(n.at, "^ is only supported at the beginning of the expression");
        return right ? edge_ : ir_.empty();
      case RegexNode::Kind::end:
        if (!right) return source_.unsupported(n.at, "$ is only supported at the end of the expression");
        return left ? edge_ : ir_.empty();
      case RegexNode::Kind::set: return padded(ir_.characters(n.set, encoding_), left, right);
      case RegexNode::Kind::repeat: {
        auto child = lower(n.children[0], false, false);
        if (!child.ok()) return child;
        return padded(ir_.repeat(*child, n.min, n.max), left, right);
      }
      case RegexNode::Kind::alt: {
        std::vector<NodeId> ways;
        for (const std::uint32_t c : n.children) {
          auto way = lower(c, left, right);
          if (!way.ok()) return way;
          ways.push_back(*way);
        }
        return ir_.alt(ways);
      }
      case RegexNode::Kind::concat: return concat(n, left, right);
    }
    return ir_.nothing();
  }

 private:
  Result<NodeId> concat(const RegexNode& n, bool left, bool right) {
    if (n.children.empty()) return padded(ir_.empty(), left, right);
    std::vector<NodeId> parts;
    for (std::size_t i = 0; i < n.children.size(); ++i) {
      // A lone ^ before a $ leaves the end to the $.
      auto part = lower(n.children[i], left && i == 0, right && i + 1 == n.children.size());
      if (!part.ok()) return part;
      parts.push_back(*part);
    }
    return ir_.concat(parts);
  }

  NodeId padded(NodeId node, bool left, bool right) {
    if (left && right) return ir_.concat({edge_, node, edge_});
    if (left) return ir_.concat({edge_, node});
    return right ? ir_.concat({node, edge_}) : node;
  }

  Ir& ir_;
  const RegexTree& tree_;
  const Source& source_;
  Encoding encoding_;
  NodeId edge_;
};

}  // namespace

Result<NodeId> add_regex(Ir& ir, std::string_view regex, const RegexOptions& options) {
  Source source(regex, "regular expression");
  if (regex.size() > ir.limits().source_bytes_max) {
    return source.error(0, fmt::format("it has more than {} bytes", ir.limits().source_bytes_max));
  }
  const auto tree = parse_regex(source, ir.limits());
  if (!tree.ok()) return tree.status();
  return Lowering(ir, *tree, source, options).lower(tree->root, true, true);
}

}  // namespace lode::text::grammar
