#include "text/grammar/gbnf.h"

#include <map>

#include "text/grammar/source.h"

namespace lode::text::grammar {
namespace {

class Parser {
 public:
  Parser(Ir& ir, std::string_view text) : ir_(ir), source_(text, "GBNF grammar") {}

  Result<RuleId> run() {
    LODE_RETURN_IF_ERROR(source_.check_utf8());
    for (skip(Lines::cross); !source_.at_end(); skip(Lines::cross)) LODE_RETURN_IF_ERROR(rule());
    for (const auto& [name, known] : rules_) {
      if (!known.defined) return source_.error(known.at, fmt::format("the rule \"{}\" is not defined", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) return source_.error(source_.at(), "there is no rule named \"root\"");
    return root->second.id;
  }

 private:
  using Made = Result<NodeId>;
  enum class Lines { stay, cross };
  struct Known {
    RuleId id;
    std::size_t at = 0;  // Where it is first named.
    bool defined = false;
  };

  void skip(Lines lines) {
    while (!source_.at_end()) {
      const std::uint32_t c = source_.peek();
      if (c == '#') {
        while (!source_.at_end() && source_.peek() != '\n') source_.take();
      } else if (c == ' ' || c == '\t' || (lines == Lines::cross && (c == '\n' || c == '\r'))) {
        source_.take();
      } else {
        return;
      }
    }
  }

  static bool in_name(std::uint32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  }
  std::string_view name() {
    const std::size_t from = source_.at();
    while (!source_.at_end() && in_name(source_.peek())) source_.take();
    return source_.text(from);
  }
  Known& known(std::string_view name, std::size_t at) {
    const auto [it, fresh] = rules_.try_emplace(std::string(name));
    if (fresh) it->second = {ir_.add_rule(std::string(name)), at};
    return it->second;
  }

  Status rule() {
    const std::size_t at = source_.at();
    const std::string_view title = name();
    if (title.empty()) return source_.error(at, "expected a rule's name");
    skip(Lines::stay);
    if (!source_.take_if("::=")) return source_.error(source_.at(), fmt::format("expected ::= after \"{}\"", title));
    skip(Lines::cross);
    Known& rule = known(title, at);
    if (rule.defined) return source_.error(at, fmt::format("the rule \"{}\" is defined twice", title));
    rule.defined = true;
    const RuleId id = rule.id;
    auto body = alternatives(0);
    if (!body.ok()) return body.status();
    ir_.set_body(id, *body);
    if (!source_.at_end() && source_.peek() != '\n' && source_.peek() != '\r')
      return source_.error(source_.at(), "expected the rule's end");
    return Status::success();
  }

  // Inside a group lines may break anywhere; outside, before and after a |.
  Made alternatives(int nesting) {
    if (nesting > ir_.limits().nesting_max) {
      return source_.error(source_.at(), fmt::format("groups are nested deeper than {}", ir_.limits().nesting_max));
    }
    std::vector<NodeId> ways;
    while (true) {
      auto way = sequence(nesting);
      if (!way.ok()) return way;
      ways.push_back(*way);
      if (ir_.overflowed())
        return source_.error(source_.at(), fmt::format("it has more than {} parts", ir_.limits().nodes_max));
      const std::size_t after = source_.at();
      skip(Lines::cross);
      if (!source_.take_if('|')) {
        if (nesting == 0) source_.go(after);
        return ir_.alt(ways);
      }
      skip(Lines::cross);
    }
  }

  Made sequence(int nesting) {
    std::vector<NodeId> parts;
    while (true) {
      skip(nesting > 0 ? Lines::cross : Lines::stay);
      const std::size_t at = source_.at();
      const std::uint32_t c = source_.peek();
      Made part = ir_.empty();
      if (c == '"') part = literal();
      else if (c == '[') part = klass();
      else if (c == '.') source_.take(), part = ir_.characters(CodePointSet::all(), Encoding::utf8);
      else if (c == '(') part = group(nesting);
      else if (c != Source::kEnd && in_name(c)) part = ir_.reference(known(name(), at).id);
      else if (c == '<' || c == '!') return source_.unsupported(at, "rules over token ids are not supported");
      else return ir_.concat(parts);
      if (!part.ok()) return part;
      part = repeated(*part, nesting);
      if (!part.ok()) return part;
      parts.push_back(*part);
      if (ir_.overflowed()) return ir_.empty();
    }
  }

  Made group(int nesting) {
    const std::size_t at = source_.at();
    source_.take();
    skip(Lines::cross);
    auto out = alternatives(nesting + 1);
    if (out.ok() && !source_.take_if(')')) return source_.error(at, "this ( is not closed");
    return out;
  }

  Made repeated(NodeId part, int nesting) {
    for (int times = 0; times < 8; ++times) {
      const std::size_t before = source_.at();
      skip(nesting > 0 ? Lines::cross : Lines::stay);
      const std::size_t at = source_.at();
      if (source_.take_if('*')) {
        part = ir_.repeat(part, 0, kNoBound);
      } else if (source_.take_if('+')) {
        part = ir_.repeat(part, 1, kNoBound);
      } else if (source_.take_if('?')) {
        part = ir_.optional(part);
      } else if (source_.take_if('{')) {
        skip(Lines::stay);
        std::uint32_t min = source_.take_number(kCountMax), max = min;
        skip(Lines::stay);
        if (source_.take_if(',')) {
          skip(Lines::stay);
          max = source_.take_number(kCountMax);
          if (max == Source::kEnd) max = kNoBound;
          if (min == Source::kEnd) min = 0;
          skip(Lines::stay);
        }
        if (min == Source::kEnd || !source_.take_if('}')) return source_.error(at, "expected {m}, {m,} or {m,n}");
        if (min > kLeastMax)
          return source_.error(at, fmt::format("at least {} repetitions: {} is the most", min, kLeastMax));
        if (max < min) return source_.error(at, "the upper bound is below the lower one");
        part = ir_.repeat(part, min, max);
      } else {
        source_.go(before);
        return part;
      }
    }
    return source_.error(source_.at(), "more than 8 repetitions of repetitions");
  }

  Result<std::uint32_t> character() {
    const std::size_t at = source_.at();
    if (!source_.take_if('\\')) return source_.take();
    if (source_.at_end()) return source_.error(at, "a backslash ends the grammar");
    const std::uint32_t c = source_.take();
    std::uint32_t code = c;
    switch (c) {
      case 'n': return std::uint32_t{'\n'};
      case 'r': return std::uint32_t{'\r'};
      case 't': return std::uint32_t{'\t'};
      case '\\':
      case '"':
      case '[':
      case ']': return c;
      case 'x': code = source_.take_hex(2); break;
      case 'u': code = source_.take_hex(4); break;
      case 'U': code = source_.take_hex(8); break;
      default:
        return source_.error(at, "unknown escape; \\n \\r \\t \\\\ \\\" \\[ \\] \\xHH \\uHHHH \\UHHHHHHHH are known");
    }
    if (code > kCodePointMax || (code >= 0xD800 && code <= 0xDFFF)) {
      return source_.error(at, "this escape wants the hexadecimal digits of a character");
    }
    return code;
  }

  Made literal() {
    const std::size_t at = source_.at();
    source_.take();
    std::string bytes;
    while (!source_.take_if('"')) {
      if (source_.at_end() || source_.peek() == '\n') return source_.error(at, "this literal is not closed");
      auto c = character();
      if (!c.ok()) return c.status();
      append_utf8(bytes, *c);
    }
    return ir_.literal(bytes);
  }

  Made klass() {
    const std::size_t at = source_.at();
    source_.take();
    const bool negated = source_.take_if('^');
    CodePointSet set;
    while (!source_.take_if(']')) {
      if (source_.at_end() || source_.peek() == '\n') return source_.error(at, "this [ is not closed");
      const std::size_t from = source_.at();
      auto low = character();
      if (!low.ok()) return low.status();
      std::uint32_t last = *low;
      if (source_.rest().starts_with("-") && !source_.rest().starts_with("-]")) {
        source_.take();
        if (source_.at_end()) return source_.error(at, "this [ is not closed");
        auto high = character();
        if (!high.ok()) return high.status();
        last = *high;
      }
      if (last < *low) return source_.error(from, "this range runs backwards");
      set.add(*low, last);
    }
    set.normalize();
    return ir_.characters(negated ? set.complement() : set, Encoding::utf8);
  }

  Ir& ir_;
  Source source_;
  std::map<std::string, Known, std::less<>> rules_;
};

}  // namespace

Result<RuleId> add_gbnf(Ir& ir, std::string_view text) {
  if (text.size() > ir.limits().source_bytes_max) {
    return Source(text, "GBNF grammar")
        .error(0, fmt::format("it has more than {} bytes", ir.limits().source_bytes_max));
  }
  return Parser(ir, text).run();
}

}  // namespace lode::text::grammar
