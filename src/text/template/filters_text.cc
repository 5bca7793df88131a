// Filters that make text.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/filters.h"
#include "text/template/unicode.h"

namespace lode::text::jinja::filters {
namespace {

// The value as text, keeping the mark of |safe.
Value soft(Runtime& rt, const Value& v) {
  if (v.is_str()) return v;
  Sink out(rt.budget);
  put_str(rt, out, v);
  return rt.str(out);
}

Value mapped(Runtime& rt, const Args& args, std::string_view name, std::string (*map)(std::string_view)) {
  const Params p(name, args, {"s"}, 1);
  const Value v = soft(rt, p.at(0));
  rt.budget.read(v.text().size());
  rt.budget.require(v.text().size());
  return rt.like(v, map(v.text()));
}

}  // namespace

Value upper(Runtime& rt, const Args& args) {
  return mapped(rt, args, "upper", to_upper);
}
Value lower(Runtime& rt, const Args& args) {
  return mapped(rt, args, "lower", to_lower);
}
Value capitalize(Runtime& rt, const Args& args) {
  return mapped(rt, args, "capitalize", to_capital);
}

// Words begin after white space, hyphens and opening brackets; not after an apostrophe, unlike str.title.
Value title(Runtime& rt, const Args& args) {
  const Params p("title", args, {"s"}, 1);
  const Value v = soft(rt, p.at(0));
  const std::string_view text = v.text();
  rt.budget.read(text.size());
  rt.budget.require(text.size());
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const auto separates = [&](std::size_t at) {
      const char32_t c = utf8_at(text, at).code;
      return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    };
    std::size_t end = pos;
    const bool separator = separates(pos);
    while (end < text.size() && separates(end) == separator) end += utf8_at(text, end).bytes;
    const std::size_t head = utf8_at(text, pos).bytes;
    out += to_upper(text.substr(pos, head));
    out += to_lower(text.substr(pos + head, end - pos - head));
    pos = end;
  }
  return rt.like(v, std::move(out));
}

Value trim(Runtime& rt, const Args& args) {
  const Params p("trim", args, {"value", "chars"}, 1);
  const Value v = soft(rt, p.at(0));
  rt.budget.read(v.text().size());
  const bool space = !p[1] || p[1]->is(Kind::none);
  return rt.part(v, space ? strip_space(v.text(), Side::both) : strip_chars(v.text(), p.text(1), Side::both));
}

Value string(Runtime& rt, const Args& args) {
  const Params p("string", args, {"object"}, 1);
  return soft(rt, p.at(0));
}

Value safe(Runtime& rt, const Args& args) {
  const Params p("safe", args, {"value"}, 1);
  return rt.markup(str_of(rt, p.at(0)));
}

Value escape(Runtime& rt, const Args& args) {
  const Params p("escape", args, {"s"}, 1);
  return rt.markup(escaped(rt, p.at(0)));
}

Value forceescape(Runtime& rt, const Args& args) {
  const Params p("forceescape", args, {"value"}, 1);
  return rt.markup(escape_html(rt, str_of(rt, p.at(0))));
}

Value replace(Runtime& rt, const Args& args) {
  const Params p("replace", args, {"s", "old", "new", "count"}, 3);
  const bool all = !p[3] || p[3]->is(Kind::none);
  return replaced(rt, soft(rt, p.at(0)), str_of(rt, p.at(1)), soft(rt, p.at(2)), all ? -1 : p.integer(3));
}

Value join(Runtime& rt, const Args& args) {
  const Params p("join", args, {"value", "d", "attribute"}, 1);
  const Value between = p[1] ? soft(rt, *p[1]) : rt.str("");
  const Path path(rt, p[2]);
  Sink out(rt.budget);
  bool more = false;
  for (const Value& v : iterate(rt, p.at(0))) {
    if (more) out.put_part(between, between.text());
    more = true;
    put_str(rt, out, path.of(rt, v));
  }
  return rt.str(out);
}

Value center(Runtime& rt, const Args& args) {
  const Params p("center", args, {"value", "width"}, 1);
  const Value v = soft(rt, p.at(0));
  return rt.like(v, padded_text(rt, v.text(), p.integer_or(1, 80), " ", Pad::center));
}

Value indent(Runtime& rt, const Args& args) {
  const Params p("indent", args, {"s", "width", "first", "blank"}, 1);
  if (!p.at(0).is_str()) p.text(0);
  Sink by(rt.budget);
  if (p[1] && p[1]->is_str()) by.put(p[1]->text());
  else by.fill(static_cast<std::size_t>(std::max<std::int64_t>(p.integer_or(1, 4), 0)), " ");
  const std::string text = std::string(p.text(0)) + '\n';
  Sink out(rt.budget);
  std::size_t i = 0;
  for (const std::string_view line : lines_of(rt, text, LineEnds::drop)) {
    if (i > 0) out.put('\n');
    const bool indented = i == 0 ? p.flag(2) : (p.flag(3) || !line.empty());
    if (indented) out.put(by.text());
    out.put(line);
    ++i;
  }
  return rt.like(p.at(0), out.take());
}

Value truncate(Runtime& rt, const Args& args) {
  const Params p("truncate", args, {"s", "length", "killwords", "end", "leeway"}, 1);
  const std::string end = p[3] ? std::string(p.text(3)) : "...";
  const auto end_chars = static_cast<std::int64_t>(count_chars(end));
  const std::int64_t length = p.integer_or(1, 255);
  const std::int64_t leeway = p[4] && !p[4]->is(Kind::none) ? p.integer(4) : 5;
  if (length < end_chars) fail(fmt::format("truncate(): expected a length of at least {}, got {}", end_chars, length));
  if (leeway < 0) fail("truncate(): expected a leeway of at least 0");
  rt.budget.read(p.at(0).is_str() ? p.at(0).text().size() : 0);
  if (const auto size = jinja::length(p.at(0)); size && *size - leeway <= length) return p.at(0);  // A short list, too.
  const std::string_view text = p.text(0);
  std::string_view kept = text.substr(0, byte_of_char(text, static_cast<std::size_t>(length - end_chars)));
  if (!p.flag(2)) kept = kept.substr(0, kept.rfind(' '));
  return rt.like(p.at(0), std::string(kept) + end);
}

Value wordcount(Runtime& rt, const Args& args) {
  const Params p("wordcount", args, {"s"}, 1);
  const Value v = soft(rt, p.at(0));
  rt.budget.read(v.text().size());
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t pos = 0; pos < v.text().size();) {
    const Utf8Char c = utf8_at(v.text(), pos);
    if (is_word(c.code) && !inside) ++words;
    inside = is_word(c.code);
    pos += c.bytes;
  }
  return Value::integer(words);
}

Value format(Runtime& rt, const Args& args) {
  if (args.positional.empty()) fail("format() missing required argument 'value'");
  const Value v = soft(rt, args.positional[0]);
  if (args.positional.size() > 1 && !args.named.empty()) {
    fail("format() takes positional or keyword arguments, not both");
  }
  Value values;
  if (!args.named.empty()) {
    DictBuilder dict(rt);
    for (const auto& [name, value] : args.named) dict.set(rt.str(name), value);
    values = dict.done();
  } else {
    values = rt.tuple(Values(args.positional.begin() + 1, args.positional.end()));
  }
  return rt.like(v, percent_format(rt, v.text(), values, v));
}

namespace {

// ensure_ascii, indent, separators, sort_keys: transformers' order.
JsonStyle json_style(Runtime& rt, const Params& p) {
  JsonStyle style;
  style.ascii = p.flag(1);
  style.sort_keys = p.flag(4);
  if (p[2] && !p[2]->is(Kind::none)) {
    if (p[2]->is_str()) {
      style.indent = std::string(p[2]->text());
    } else {
      Sink by(rt.budget);
      by.fill(static_cast<std::size_t>(std::max<std::int64_t>(p.integer(2), 0)), " ");
      style.indent = by.take();
    }
    style.item_separator = ",";
  }
  if (p[3] && !p[3]->is(Kind::none)) {
    const Values both = iterate(rt, *p[3]);
    if (both.size() != 2 || !both[0].is_str() || !both[1].is_str()) {
      fail("tojson(): separators must be two strings, as (', ', ': ')");
    }
    style.item_separator = both[0].text();
    style.key_separator = both[1].text();
  }
  return style;
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '~';
}

enum class Quote { path, query };

void put_url(Sink& out, std::string_view text, Quote quote) {
  for (const char c : text) {
    if (is_unreserved(c) || (c == '/' && quote == Quote::path)) out.put(c);
    else if (c == ' ' && quote == Quote::query) out.put('+');
    else out.put(fmt::format("%{:02X}", static_cast<unsigned char>(c)));
  }
}

}  // namespace

Value tojson(Runtime& rt, const Args& args) {
  const Params p("tojson", args, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  return rt.str(to_json(rt, p.at(0), json_style(rt, p)));
}

Value urlencode(Runtime& rt, const Args& args) {
  const Params p("urlencode", args, {"value"}, 1);
  const Value& v = p.at(0);
  Sink out(rt.budget);
  if (v.is_str() || !is_iterable(v)) {
    put_url(out, str_of(rt, v), Quote::path);
    return rt.str(out.take());
  }
  Values pairs;
  if (v.is(Kind::dict)) {
    for (const auto& [key, value] : v.as<DictObject>().items) pairs.push_back(rt.tuple({key, value}));
  } else {
    pairs = iterate(rt, v);
  }
  bool more = false;
  for (const Value& pair : pairs) {
    const Values both = iterate(rt, pair);
    if (both.size() != 2) fail("urlencode(): expected pairs of key and value");
    if (more) out.put('&');
    more = true;
    put_url(out, str_of(rt, both[0]), Quote::query);
    out.put('=');
    put_url(out, str_of(rt, both[1]), Quote::query);
  }
  return rt.str(out.take());
}

Value xmlattr(Runtime& rt, const Args& args) {
  const Params p("xmlattr", args, {"d", "autospace"}, 1);
  if (!p.at(0).is(Kind::dict)) fail("xmlattr() needs a mapping");
  Sink out(rt.budget);
  bool more = false;
  for (const auto& [key, value] : p.at(0).as<DictObject>().items) {
    if (value.is(Kind::none) || value.is(Kind::undefined)) continue;
    const std::string name = str_of(rt, key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      fail(fmt::format("xmlattr(): invalid character in attribute name {}", repr_of(rt, key)));
    }
    if (more || !p[1] || p.flag(1)) out.put(' ');
    more = true;
    out.put(escaped(rt, key) + "=\"" + escaped(rt, value) + '"');
  }
  return rt.str(out.take());
}

Value filesizeformat(Runtime& rt, const Args& args) {
  const Params p("filesizeformat", args, {"value", "binary"}, 1);
  const double bytes = p.at(0).is_number() ? p.at(0).as_real() : floating(rt, {{p.at(0)}, {}}).as_real();
  const double base = p.flag(1) ? 1024 : 1000;
  if (bytes == 1) return rt.str("1 Byte");
  if (bytes < base) return rt.str(fmt::format("{} Bytes", static_cast<std::int64_t>(bytes)));
  static constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  std::size_t i = 0;
  for (; i < kPrefixes.size(); ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == kPrefixes.size()) break;
  }
  const char prefix = p.flag(1) && i == 0 ? 'K' : kPrefixes[i];
  return rt.str(fmt::format("{:.1f} {}{}B", base * bytes / unit, prefix, p.flag(1) ? "i" : ""));
}

}  // namespace lode::text::jinja::filters
