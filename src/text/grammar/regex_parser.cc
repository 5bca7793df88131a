#include "text/grammar/regex_parser.h"

#include <algorithm>

namespace lode::text::grammar {

// Engines differ in what they count among digits, letters and spaces beyond ASCII (ECMA-262, Python, PCRE). A set that
// every one of them accepts keeps the text valid for all: small for the classes, small for their opposites.
CodePointSet regex_class(char letter) {
  static const CodePointSet digits = CodePointSet::of({{'0', '9'}});
  static const CodePointSet words = CodePointSet::of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  static const CodePointSet spaces = CodePointSet::of({{9, 13},
                                                       {32, 32},
                                                       {0xA0, 0xA0},
                                                       {0x1680, 0x1680},
                                                       {0x2000, 0x200A},
                                                       {0x2028, 0x2029},
                                                       {0x202F, 0x202F},
                                                       {0x205F, 0x205F},
                                                       {0x3000, 0x3000}});
  static const CodePointSet any_digit = category_set("Nd");
  static const CodePointSet any_word = [] {
    CodePointSet set = words;
    for (const char* category : {"L", "N", "M", "Pc"}) set.add(category_set(category));
    set.normalize();
    return set;
  }();
  static const CodePointSet any_space = [] {
    CodePointSet set = spaces;
    set.add(CodePointSet::of({{0x1C, 0x1F}, {0x85, 0x85}, {0x180E, 0x180E}, {0xFEFF, 0xFEFF}}));
    set.normalize();
    return set;
  }();
  switch (letter) {
    case 'd': return digits;
    case 'w': return words;
    case 's': return spaces;
    case 'D': return any_digit.complement();
    case 'W': return any_word.complement();
    default: return any_space.complement();
  }
}

namespace {

class Parser {
 public:
  Parser(Source& source, const CompileLimits& limits) : source_(source), limits_(limits) {}

  Result<RegexTree> run() {
    LODE_RETURN_IF_ERROR(source_.check_utf8());
    auto root = alternatives(0);
    if (!root.ok()) return root.status();
    if (!source_.at_end()) return source_.error(source_.at(), "this ) closes no group");
    tree_.root = *root;
    return std::move(tree_);
  }

 private:
  using Made = Result<std::uint32_t>;

  std::uint32_t add(RegexNode node) {
    tree_.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(tree_.nodes.size() - 1);
  }
  std::uint32_t add_set(std::size_t at, CodePointSet set) {
    return add({.kind = RegexNode::Kind::set, .at = at, .set = std::move(set)});
  }

  Made alternatives(int nesting) {
    if (nesting > limits_.nesting_max) {
      return source_.error(source_.at(), fmt::format("groups are nested deeper than {}", limits_.nesting_max));
    }
    RegexNode alt{.kind = RegexNode::Kind::alt, .at = source_.at()};
    do {
      RegexNode concat{.kind = RegexNode::Kind::concat, .at = source_.at()};
      while (!source_.at_end() && source_.peek() != '|' && source_.peek() != ')') {
        auto part = term(nesting);
        if (!part.ok()) return part;
        concat.children.push_back(*part);
        if (tree_.nodes.size() > limits_.nodes_max)
          return source_.error(source_.at(), "the expression has too many parts");
      }
      alt.children.push_back(concat.children.size() == 1 ? concat.children[0] : add(std::move(concat)));
    } while (source_.take_if('|'));
    return alt.children.size() == 1 ? alt.children[0] : add(std::move(alt));
  }

  Made term(int nesting) {
    const std::size_t at = source_.at();
    auto out = atom(nesting);
    for (int quantifiers = 0; out.ok(); ++quantifiers) {
      std::uint32_t min = 0, max = 0;
      const std::size_t sign = source_.at();
      auto found = quantifier(min, max);
      if (!found.ok()) return found.status();
      if (!*found) return out;
      if (quantifiers > 0) return source_.error(sign, "nothing stands here that could be repeated");
      const RegexNode::Kind kind = tree_.nodes[*out].kind;
      if (kind == RegexNode::Kind::begin || kind == RegexNode::Kind::end) {
        return source_.error(sign, "an anchor cannot be repeated");
      }
      if (source_.take_if('?')) {
        // A lazy repetition: which of several matches is taken does not matter, only that there is one.
      } else if (!source_.at_end() && source_.peek() == '+') {
        return source_.unsupported(source_.at(), "possessive repetitions are not supported");
      }
      out = add({.kind = RegexNode::Kind::repeat, .at = at, .children = {*out}, .min = min, .max = max});
    }
    return out;
  }

  Result<bool> quantifier(std::uint32_t& min, std::uint32_t& max) {
    const std::size_t at = source_.at();
    if (source_.take_if('*')) return min = 0, max = kNoBound, true;
    if (source_.take_if('+')) return min = 1, max = kNoBound, true;
    if (source_.take_if('?')) return min = 0, max = 1, true;
    if (!source_.take_if('{')) return false;
    min = source_.take_number(kCountMax);
    const bool comma = source_.take_if(',');
    max = comma ? source_.take_number(kCountMax) : min;
    if (comma && max == Source::kEnd) max = kNoBound;
    if (min == Source::kEnd || !source_.take_if('}')) {
      source_.go(at);  // A brace like any other character.
      return false;
    }
    if (min > kLeastMax)
      return source_.error(at, fmt::format("at least {} repetitions: {} is the most", min, kLeastMax));
    if (max < min) return source_.error(at, "the upper bound is below the lower one");
    return true;
  }

  Made atom(int nesting) {
    const std::size_t at = source_.at();
    switch (source_.peek()) {
      case '(': return group(nesting);
      case '[': return klass();
      case '\\': return escape();
      case '^': source_.take(); return add({.kind = RegexNode::Kind::begin, .at = at});
      case '$': source_.take(); return add({.kind = RegexNode::Kind::end, .at = at});
      case '.':
        source_.take();
        return add_set(at, CodePointSet::of({{'\n', '\n'}, {'\r', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}).complement());
      case '*':
      case '+':
      case '?': return source_.error(at, "nothing stands here that could be repeated");
      default: return add_set(at, CodePointSet::single(source_.take()));
    }
  }

  Made group(int nesting) {
    const std::size_t at = source_.at();
    source_.take();
    if (source_.take_if("?")) {
      if (source_.take_if("=") || source_.take_if("!") || source_.take_if("<=") || source_.take_if("<!")) {
        return source_.unsupported(at, "look-ahead and look-behind are not supported");
      }
      const bool named = source_.take_if("<") || source_.take_if("P<");
      if (named) {
        while (!source_.at_end() && source_.peek() != '>') source_.take();
        source_.take_if('>');
      } else if (!source_.take_if(":")) {
        return source_.unsupported(at, "this kind of group is not supported; (...), (?:...) and (?<name>...) are");
      }
    }
    auto out = alternatives(nesting + 1);
    if (out.ok() && !source_.take_if(')')) return source_.error(at, "this ( is not closed");
    return out;
  }

  Made escape() {
    const std::size_t at = source_.at();
    source_.take();
    if (source_.at_end()) return source_.error(at, "a backslash ends the expression");
    const std::uint32_t c = source_.peek();
    if (c == 'b' || c == 'B') return source_.unsupported(at, "word boundaries are not supported");
    if ((c >= '1' && c <= '9') || c == 'k') return source_.unsupported(at, "back-references are not supported");
    CodePointSet set;
    LODE_RETURN_IF_ERROR(escaped(at, set));
    return add_set(at, std::move(set));
  }

  // What follows a backslash, in a class or outside.
  Status escaped(std::size_t at, CodePointSet& set) {
    const std::uint32_t c = source_.take();
    const auto one = [&set](std::uint32_t code) {
      set = CodePointSet::single(code);
      return Status::success();
    };
    switch (c) {
      case 'd':
      case 'w':
      case 's':
      case 'D':
      case 'W':
      case 'S': set = regex_class(static_cast<char>(c)); return Status::success();
      case 't': return one('\t');
      case 'n': return one('\n');
      case 'r': return one('\r');
      case 'f': return one('\f');
      case 'v': return one('\v');
      case '0': return one(0);
      case 'a': return source_.unsupported(at, "\\a is not supported; write \\x07");
      case 'x': return coded(at, source_.take_hex(2), set);
      case 'u': return unicode(at, set);
      case 'c': {
        const std::uint32_t letter = source_.at_end() ? 0 : source_.take();
        if ((letter | 32) < 'a' || (letter | 32) > 'z') return source_.error(at, "\\c wants a letter");
        return one(letter & 31);
      }
      case 'p':
      case 'P': return category(at, c == 'P', set);
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
          return source_.unsupported(at, fmt::format("the escape \\{} is not supported", static_cast<char>(c)));
        }
        return one(c);
    }
  }

  Status coded(std::size_t at, std::uint32_t code, CodePointSet& set) {
    if (code == Source::kEnd || code > kCodePointMax) return source_.error(at, "this escape wants hexadecimal digits");
    set = CodePointSet::single(code);
    return set.empty() ? source_.error(at, "half of a surrogate pair is no character") : Status::success();
  }

  Status unicode(std::size_t at, CodePointSet& set) {
    if (source_.take_if('{')) {
      std::uint32_t code = 0;
      for (int i = 0; i < 8 && !source_.at_end() && source_.peek() != '}'; ++i) {
        const std::uint32_t digit = source_.take_hex(1);
        if (digit == Source::kEnd) return coded(at, digit, set);
        code = std::min(code * 16 + digit, kCodePointMax + 1);
      }
      if (!source_.take_if('}')) return source_.error(at, "this { is not closed");
      return coded(at, code, set);
    }
    const std::uint32_t high = source_.take_hex(4);
    const std::size_t after = source_.at();
    if (high >= 0xD800 && high <= 0xDBFF && source_.take_if("\\u")) {
      const std::uint32_t low = source_.take_hex(4);
      if (low >= 0xDC00 && low <= 0xDFFF) return coded(at, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), set);
      source_.go(after);
    }
    return coded(at, high, set);
  }

  Status category(std::size_t at, bool negated, CodePointSet& set) {
    std::size_t from = source_.at();
    std::string_view name;
    if (source_.take_if('{')) {
      from = source_.at();
      while (!source_.at_end() && source_.peek() != '}') source_.take();
      name = source_.text(from);
      if (!source_.take_if('}')) return source_.error(at, "this { is not closed");
    } else if (!source_.at_end()) {
      source_.take();
      name = source_.text(from);
    }
    if (name.starts_with("gc=")) name.remove_prefix(3);
    if (name.starts_with("General_Category=")) name.remove_prefix(17);
    set = category_set(name);
    if (set.empty()) {
      return source_.unsupported(
          at, fmt::format("the property \"{}\" is not supported; general categories such as L, Lu, Nd are",
                          name.substr(0, 40)));
    }
    if (negated) set = set.complement();
    return Status::success();
  }

  // One member of a class: a set, and whether it is a single character that may begin or end a range.
  Status member(CodePointSet& set, bool& single) {
    const std::size_t at = source_.at();
    if (!source_.take_if('\\')) {
      set = CodePointSet::single(source_.take());
      single = true;
      return Status::success();
    }
    if (source_.at_end()) return source_.error(at, "a backslash ends the expression");
    if (source_.take_if('b')) {
      set = CodePointSet::single('\b');
      single = true;
      return Status::success();
    }
    LODE_RETURN_IF_ERROR(escaped(at, set));
    single = set.ranges().size() == 1 && set.ranges()[0].first == set.ranges()[0].last;
    return Status::success();
  }

  Made klass() {
    const std::size_t at = source_.at();
    source_.take();
    const bool negated = source_.take_if('^');
    CodePointSet set;
    while (!source_.take_if(']')) {
      if (source_.at_end()) return source_.error(at, "this [ is not closed");
      CodePointSet low, high;
      bool low_single = false, high_single = false;
      const std::size_t from = source_.at();
      LODE_RETURN_IF_ERROR(member(low, low_single));
      const bool dash = source_.rest().starts_with("-") && !source_.rest().starts_with("-]");
      if (!dash || !low_single) {
        set.add(low);
        continue;
      }
      source_.take();
      if (source_.at_end()) return source_.error(at, "this [ is not closed");
      LODE_RETURN_IF_ERROR(member(high, high_single));
      if (!high_single) return source_.error(from, "a range wants a character at each end");
      if (low.ranges()[0].first > high.ranges()[0].first) return source_.error(from, "this range runs backwards");
      set.add(low.ranges()[0].first, high.ranges()[0].first);
    }
    set.normalize();
    return add_set(at, negated ? set.complement() : std::move(set));
  }

  Source& source_;
  const CompileLimits& limits_;
  RegexTree tree_;
};

}  // namespace

Result<RegexTree> parse_regex(Source& source, const CompileLimits& limits) {
  return Parser(source, limits).run();
}

}  // namespace lode::text::grammar
