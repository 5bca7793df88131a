// 'text %s' % values and 'text {}'.format(values), as Python has them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace lode::text::jinja {
namespace {

// How one value is laid out; both languages share it.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '\0';   // + or space
  bool alternate = false, zero = false;
  char grouping = '\0';  // , or _
  std::int64_t width = 0, precision = -1;
  char type = '\0';
};

// Floats of more digits than these are refused: no text needs them, and they cost memory.
constexpr std::int64_t kPrecisionMax = 1000;

std::string grouped(std::string digits, char separator, std::size_t every) {
  for (std::size_t i = digits.size(); i > every; i -= every) digits.insert(i - every, 1, separator);
  return digits;
}

std::string aligned(Runtime& rt, const Spec& spec, std::string_view sign, std::string_view body, char align) {
  const auto size = static_cast<std::int64_t>(count_chars(sign) + count_chars(body));
  const std::int64_t missing = std::max<std::int64_t>(spec.width - size, 0);
  const std::int64_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  Sink out(rt.budget);
  out.fill(static_cast<std::size_t>(left), spec.fill);
  out.put(sign);
  if (align == '=') out.fill(static_cast<std::size_t>(missing), spec.fill);
  out.put(body);
  if (align != '=') out.fill(static_cast<std::size_t>(missing - left), spec.fill);
  return out.take();
}

std::string laid_out_number(Runtime& rt, Spec spec, bool negative, std::string body) {
  const std::string sign = negative ? "-" : spec.sign != '\0' ? std::string(1, spec.sign) : "";
  if (spec.zero && spec.align == '\0') {
    spec.align = '=';
    spec.fill = "0";
  }
  return aligned(rt, spec, sign, body, spec.align == '\0' ? '>' : spec.align);
}

std::string integer_digits(const Spec& spec, std::uint64_t magnitude) {
  std::string digits, prefix;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", magnitude);
      prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", magnitude);
      prefix = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", magnitude);
      prefix = "0o";
      break;
    case 'b':
      digits = fmt::format("{:b}", magnitude);
      prefix = "0b";
      break;
    default: digits = fmt::format("{}", magnitude);
  }
  if (spec.grouping != '\0') digits = grouped(std::move(digits), spec.grouping, prefix.empty() ? 3 : 4);
  return spec.alternate ? prefix + digits : digits;
}

std::string real_digits(const Spec& spec, double magnitude) {
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    const bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
    const std::string_view name = std::isnan(magnitude) ? "nan" : "inf";
    return upper ? to_upper(name) : std::string(name);
  }
  if (spec.type == '\0' && spec.precision < 0) return real_repr(magnitude);
  const bool percent = spec.type == '%';
  const char type = percent ? 'f' : spec.type == '\0' || spec.type == 'n' ? 'g' : spec.type;
  const auto precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  const char format[] = {'%',
                         spec.alternate ? '#' : '.',
                         spec.alternate ? '.' : '*',
                         spec.alternate ? '*' : type,
                         spec.alternate ? type : '\0',
                         '\0'};
  const double value = percent ? magnitude * 100 : magnitude;
  const int size = std::snprintf(nullptr, 0, format, precision, value);
  std::string out(static_cast<std::size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format, precision, value);
  out.pop_back();
  if (spec.type == '\0' && out.find_first_of(".e") == std::string::npos) out += ".0";
  if (spec.grouping != '\0') {
    const std::size_t end = std::min(out.find_first_of(".e"), out.size());
    out = grouped(out.substr(0, end), spec.grouping, 3) + out.substr(end);
  }
  return percent ? out + '%' : out;
}

std::string number_as(Runtime& rt, const Spec& spec, const Value& v) {
  if (spec.precision > kPrecisionMax) fail(fmt::format("a precision over {} is not supported", kPrecisionMax));
  const bool real_type = spec.type != '\0' && std::string_view("eEfFgGn%").find(spec.type) != std::string_view::npos;
  if (v.is(Kind::real) || (real_type && !(spec.type == 'n' && v.is_integral()))) {
    const double d = v.as_real();
    return laid_out_number(rt, spec, std::signbit(d) && !std::isnan(d), real_digits(spec, std::fabs(d)));
  }
  const std::int64_t i = v.as_integer();
  const std::uint64_t magnitude = i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
  return laid_out_number(rt, spec, i < 0, integer_digits(spec, magnitude));
}

std::string text_as(Runtime& rt, Spec spec, std::string_view text) {
  if (spec.precision >= 0) text = text.substr(0, byte_of_char(text, static_cast<std::size_t>(spec.precision)));
  if (spec.zero && spec.align == '\0') spec.fill = "0";
  return aligned(rt, spec, "", text, spec.align == '\0' || spec.align == '=' ? '<' : spec.align);
}

// ---- %

bool is_list_or_range(const Value& v) {
  if (!v.is(Kind::sequence)) return false;
  const Flavor f = v.as<SequenceObject>().flavor;
  return f == Flavor::list || f == Flavor::range;
}

class PercentFormat {
 public:
  PercentFormat(Runtime& rt, std::string_view format, const Value& args, const Value& like)
      : rt_(rt), format_(format), args_(args), like_(like), out_(rt.budget) {
    tuple_ = args.is(Kind::sequence) &&
             (args.as<SequenceObject>().flavor == Flavor::tuple || args.as<SequenceObject>().flavor == Flavor::group);
  }

  std::string run() {
    while (pos_ < format_.size()) {
      const std::size_t percent = std::min(format_.find('%', pos_), format_.size());
      out_.put(format_.substr(pos_, percent - pos_));
      pos_ = percent + 1;
      if (percent < format_.size()) conversion();
    }
    const std::size_t given = tuple_ ? args_.as<SequenceObject>().items.size() : 1;
    // Python takes what can be subscripted for a mapping, of which not all need be used.
    const bool lenient = args_.is(Kind::dict) || args_.is(Kind::undefined) || is_list_or_range(args_);
    if (!lenient && !by_name_ && used_ < given) fail("not all arguments converted during string formatting");
    return out_.take();
  }

 private:
  char next() {
    if (pos_ >= format_.size()) fail("incomplete format");
    return format_[pos_++];
  }

  Value argument() {
    if (!tuple_) {
      if (used_++ > 0) fail("not enough arguments for format string");
      return args_;
    }
    const Values& items = args_.as<SequenceObject>().items;
    if (used_ >= items.size()) fail("not enough arguments for format string");
    return items[used_++];
  }

  std::int64_t star_or_number(char& c) {
    if (c == '*') {
      const Value v = argument();
      if (!v.is_integral()) fail("* wants int");
      c = next();
      return v.as_integer();
    }
    std::int64_t n = 0;
    for (; c >= '0' && c <= '9'; c = next()) n = std::min<std::int64_t>(n * 10 + (c - '0'), INT32_MAX);
    return n;
  }

  void conversion() {
    std::optional<Value> named;
    char c = next();
    if (c == '(') {
      const std::size_t close = format_.find(')', pos_);
      if (close == std::string_view::npos) fail("incomplete format key");
      if (!args_.is(Kind::dict)) fail("format requires a mapping");
      const std::string_view key = format_.substr(pos_, close - pos_);
      const Value* v = find(rt_, args_.as<DictObject>(), key);
      if (!v) fail(fmt::format("there is no key '{}'", key));
      named = *v;
      by_name_ = true;
      pos_ = close + 1;
      c = next();
    }
    Spec spec;
    for (; std::string_view("#0- +").find(c) != std::string_view::npos; c = next()) {
      if (c == '#') spec.alternate = true;
      else if (c == '0') spec.zero = true;
      else if (c == '-') spec.align = '<';
      else if (c == '+' || spec.sign == '\0') spec.sign = c;
    }
    spec.width = star_or_number(c);
    if (spec.width < 0) spec.align = '<';
    spec.width = std::abs(spec.width);
    if (c == '.') {
      c = next();
      spec.precision = std::max<std::int64_t>(star_or_number(c), 0);
    }
    while (c == 'l' || c == 'h' || c == 'L') c = next();
    if (c == '%') return out_.put('%');
    convert(c, spec, named ? *named : argument());
  }

  void convert(char c, Spec spec, const Value& v) {
    if (spec.align == '\0') spec.align = spec.zero && c != 's' && c != 'r' && c != 'a' && c != 'c' ? '=' : '>';
    if (spec.align == '=') spec.fill = "0";
    switch (c) {
      case 's': return out_.put(text_as(rt_, spec, like_.is_markup() ? escaped(rt_, v) : str_of(rt_, v)));
      case 'r':
      case 'a': return out_.put(text_as(rt_, spec, repr_of(rt_, v)));
      case 'c': {
        if (v.is_str() && length(v) == 1) return out_.put(text_as(rt_, spec, v.text()));
        if (!v.is_integral() || v.as_integer() < 0 || v.as_integer() > 0x10FFFF) fail("%c requires int or char");
        std::string text;
        append_utf8(text, static_cast<char32_t>(v.as_integer()));
        return out_.put(text_as(rt_, spec, text));
      }
      default: break;
    }
    if (std::string_view("diuxXoeEfFgG").find(c) == std::string_view::npos) {
      fail(fmt::format("unsupported format character '{}'", c));
    }
    if (!v.is_number()) fail(fmt::format("%{} format: a number is required, not {}", c, type_name(v)));
    const bool integer = std::string_view("diuxXo").find(c) != std::string_view::npos;
    if (!integer) {
      spec.type = c;
      return out_.put(number_as(rt_, spec, Value::real(v.as_real())));
    }
    if (v.is(Kind::real) && (c == 'x' || c == 'X' || c == 'o')) {
      fail(fmt::format("%{} format: an integer is required, not float", c));
    }
    if (v.is(Kind::real) && !(std::fabs(v.as_real()) < 9.2e18)) fail("the integer does not fit 64 bits");
    spec.type = c == 'i' || c == 'u' ? 'd' : c;
    const std::int64_t i = v.is(Kind::real) ? static_cast<std::int64_t>(v.as_real()) : v.as_integer();
    put_integer(spec, i);
  }

  // A precision is the least number of digits here.
  void put_integer(Spec spec, std::int64_t i) {
    const std::uint64_t magnitude = i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
    if (spec.precision > kPrecisionMax) fail(fmt::format("a precision over {} is not supported", kPrecisionMax));
    Spec bare = spec;
    bare.alternate = false;
    std::string digits = integer_digits(bare, magnitude);
    if (static_cast<std::int64_t>(digits.size()) < spec.precision) {
      digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
    }
    const std::string sign = i < 0 ? "-" : spec.sign != '\0' ? std::string(1, spec.sign) : "";
    const std::string prefix = !spec.alternate || spec.type == 'd' ? "" : std::string("0") + spec.type;
    out_.put(aligned(rt_, spec, sign + prefix, digits, spec.align));
  }

  Runtime& rt_;
  std::string_view format_;
  const Value& args_;
  const Value& like_;
  Sink out_;
  bool tuple_ = false, by_name_ = false;
  std::size_t pos_ = 0, used_ = 0;
};

// ---- {}

class BraceFormat {
 public:
  // `like`: the whole format; where it is Markup, what goes into it is escaped.
  BraceFormat(Runtime& rt, const Args& args, const Value& like) : rt_(rt), args_(args), like_(like) {}

  std::string run(std::string_view format, int nested) {
    if (nested > 2) fail("Max string recursion exceeded");
    Sink out(rt_.budget);
    for (std::size_t pos = 0; pos < format.size();) {
      const char c = format[pos++];
      const bool doubled = pos < format.size() && format[pos] == c;
      if (c != '{' && c != '}') {
        out.put(c);
      } else if (doubled) {
        out.put(c);
        ++pos;
      } else if (c == '}') {
        fail("Single '}' encountered in format string");
      } else {
        const std::size_t end = field_end(format, pos);
        out.put(field(format.substr(pos, end - pos), nested));
        pos = end + 1;
      }
    }
    return out.take();
  }

 private:
  static std::size_t field_end(std::string_view format, std::size_t pos) {
    int open = 1;
    for (; pos < format.size(); ++pos) {
      if (format[pos] == '{') ++open;
      if (format[pos] == '}' && --open == 0) return pos;
    }
    fail("expected '}' before end of string");
  }

  std::string field(std::string_view text, int nested) {
    rt_.budget.step();
    const std::size_t mark = std::min(text.find_first_of("!:"), text.size());
    Value v = value_of(text.substr(0, mark));
    std::string_view rest = text.substr(mark);
    if (rest.starts_with('!')) {
      if (rest.size() < 2 || (rest.size() > 2 && rest[2] != ':')) fail("expected ':' after conversion specifier");
      if (rest[1] == 's') v = rt_.str(str_of(rt_, v));
      else if (rest[1] == 'r' || rest[1] == 'a') v = rt_.str(repr_of(rt_, v));
      else fail(fmt::format("unknown conversion specifier {}", rest[1]));
      rest.remove_prefix(2);
    }
    if (rest.starts_with(':')) rest.remove_prefix(1);
    const std::string out = laid_out(v, run(rest, nested + 1));
    return like_.is_markup() && !v.is_markup() ? escape_html(rt_, out) : out;
  }

  Value value_of(std::string_view path) {
    const std::size_t end = std::min(path.find_first_of(".["), path.size());
    Value v = root(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      rt_.budget.step();
      if (path[0] == '.') {
        const std::size_t stop = std::min(path.find_first_of(".[", 1), path.size());
        v = attribute(rt_, v, path.substr(1, stop - 1));
        path.remove_prefix(stop);
      } else {
        const std::size_t close = path[0] == '[' ? path.find(']') : std::string_view::npos;
        if (close == std::string_view::npos) fail("Missing ']' in format string");
        const std::string_view key = path.substr(1, close - 1);
        const bool number = !key.empty() && key.size() < 18 && key.find_first_not_of("0123456789") == key.npos;
        v = item(rt_, v, number ? Value::integer(std::stoll(std::string(key))) : rt_.str(key));
        path.remove_prefix(close + 1);
      }
    }
    return v;
  }

  Value root(std::string_view name) {
    const bool number = name.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) {
      const std::size_t index = name.empty()      ? automatic_++
                                : name.size() > 9 ? SIZE_MAX
                                                  : std::stoull(std::string(name));
      if (index >= args_.positional.size()) fail(fmt::format("format() has no argument {}", index));
      return args_.positional[index];
    }
    for (const auto& [key, value] : args_.named) {
      if (key == name) return value;
    }
    fail(fmt::format("format() has no argument '{}'", name));
  }

  static std::int64_t digits(std::string_view& text) {
    std::int64_t n = 0;
    for (; !text.empty() && text[0] >= '0' && text[0] <= '9'; text.remove_prefix(1)) {
      n = std::min<std::int64_t>(n * 10 + (text[0] - '0'), INT32_MAX);
    }
    return n;
  }

  static Spec parse_spec(std::string_view text) {
    static constexpr std::string_view kAligns = "<>^=";
    Spec spec;
    const std::size_t first = text.empty() ? 0 : utf8_at(text, 0).bytes;
    if (text.size() > first && kAligns.find(text[first]) != std::string_view::npos) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      text.remove_prefix(first + 1);
    } else if (!text.empty() && kAligns.find(text[0]) != std::string_view::npos) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
    const auto take = [&text](std::string_view any) {
      if (text.empty() || any.find(text[0]) == std::string_view::npos) return '\0';
      const char c = text[0];
      text.remove_prefix(1);
      return c;
    };
    const char sign = take("+- ");
    spec.sign = sign == '-' ? '\0' : sign;
    spec.alternate = take("#") != '\0';
    spec.zero = take("0") != '\0';
    spec.width = digits(text);
    spec.grouping = take(",_");
    if (take(".") != '\0') spec.precision = digits(text);
    spec.type = take("bcdeEfFgGnosxX%");
    if (!text.empty()) fail("Invalid format specifier");
    return spec;
  }

  std::string laid_out(const Value& v, std::string_view spec_text) {
    if (spec_text.empty()) return str_of(rt_, v);
    Spec spec = parse_spec(spec_text);
    if (v.is_str()) {
      if (spec.type != '\0' && spec.type != 's')
        fail(fmt::format("Unknown format code '{}' for object of type 'str'", spec.type));
      return text_as(rt_, spec, v.text());
    }
    if (!v.is_number()) fail(fmt::format("unsupported format string passed to {}.__format__", type_name(v)));
    if (spec.type == 's') fail("Unknown format code 's' for object of type 'int'");
    if (v.is(Kind::boolean) && spec.type == '\0') return text_as(rt_, spec, str_of(rt_, v));
    if (v.is(Kind::real) && std::string_view("bcdoxX").find(spec.type) != std::string_view::npos && spec.type != '\0') {
      fail(fmt::format("Unknown format code '{}' for object of type 'float'", spec.type));
    }
    return number_as(rt_, spec, v);
  }

  Runtime& rt_;
  const Args& args_;
  const Value& like_;
  std::size_t automatic_ = 0;
};

}  // namespace

std::string percent_format(Runtime& rt, std::string_view format, const Value& args, const Value& like) {
  return PercentFormat(rt, format, args, like).run();
}

std::string brace_format(Runtime& rt, const Value& format, const Args& args) {
  rt.budget.work(format.text().size());
  return BraceFormat(rt, args, format).run(format.text(), 0);
}

}  // namespace lode::text::jinja
