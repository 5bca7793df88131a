// str() and repr() of values, as Python prints them.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace lode::text::jinja {

std::string real_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), d, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  std::string out;
  if (text.front() == '-') {
    out = '-';
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent = 0;
  const std::size_t sign = text[e + 1] == '+' ? 2 : 1;
  std::from_chars(text.data() + e + sign, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) {  // Where Python turns to the exponent.
    out += digits[0];
    if (digits.size() > 1) out += '.' + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + '.' + digits.substr(whole);
}

void put_quoted(Sink& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out.put(quote);
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text, pos);
    const std::string_view as_is = text.substr(pos, c.bytes);
    pos += c.bytes;
    if (c.code == static_cast<unsigned char>(quote) || c.code == '\\') {
      out.put('\\');
      out.put(as_is);
    } else if (c.code == '\n') {
      out.put("\\n");
    } else if (c.code == '\r') {
      out.put("\\r");
    } else if (c.code == '\t') {
      out.put("\\t");
    } else if (is_printable(c.code)) {
      out.put(as_is);
    } else if (!c.valid()) {
      out.put(fmt::format("\\x{:02x}", static_cast<unsigned char>(as_is[0])));
    } else if (c.code < 0x100) {
      out.put(fmt::format("\\x{:02x}", static_cast<std::uint32_t>(c.code)));
    } else if (c.code < 0x10000) {
      out.put(fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c.code)));
    } else {
      out.put(fmt::format("\\U{:08x}", static_cast<std::uint32_t>(c.code)));
    }
  }
  out.put(quote);
}

namespace {

void put_list(Runtime& rt, Sink& out, const Values& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.put(", ");
    put_repr(rt, out, items[i]);
  }
}

void put_sequence(Runtime& rt, Sink& out, const SequenceObject& s) {
  switch (s.flavor) {
    case Flavor::range:
      out.put(fmt::format("range({}, {}", s.start, s.stop));
      out.put(s.step == 1 ? std::string(")") : fmt::format(", {})", s.step));
      return;
    case Flavor::tuple:
    case Flavor::group:
      out.put('(');
      put_list(rt, out, s.items);
      out.put(s.items.size() == 1 ? ",)" : ")");
      return;
    default: break;
  }
  out.put(s.flavor == Flavor::keys     ? "dict_keys("
          : s.flavor == Flavor::values ? "dict_values("
          : s.flavor == Flavor::items  ? "dict_items("
                                       : "");
  out.put('[');
  put_list(rt, out, s.items);
  out.put(s.flavor == Flavor::list ? "]" : "])");
}

void put_space(Runtime& rt, Sink& out, const SpaceObject& space) {
  out.put("<Namespace {");
  for (std::size_t i = 0; i < space.items.size(); ++i) {
    if (i > 0) out.put(", ");
    put_quoted(out, space.items[i].first);
    out.put(": ");
    put_repr(rt, out, space.items[i].second);
  }
  out.put("}>");
}

void put_dict(Runtime& rt, Sink& out, const DictObject& dict) {
  out.put('{');
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (!first) out.put(", ");
    first = false;
    put_repr(rt, out, key);
    out.put(": ");
    put_repr(rt, out, value);
  }
  out.put('}');
}

}  // namespace

void put_repr(Runtime& rt, Sink& out, const Value& v) {
  rt.budget.step();
  const DepthGuard guard(rt.budget);  // A namespace may hold itself.
  switch (v.kind()) {
    case Kind::undefined: out.put("Undefined"); return;
    case Kind::none: out.put("None"); return;
    case Kind::boolean: out.put(v.as_bool() ? "True" : "False"); return;
    case Kind::integer: out.put(fmt::format("{}", v.as_integer())); return;
    case Kind::real: out.put(real_repr(v.as_real())); return;
    case Kind::string:
      if (v.is_markup()) out.put("Markup(");
      put_quoted(out, v.text());
      if (v.is_markup()) out.put(")");
      return;
    case Kind::sequence: put_sequence(rt, out, v.as<SequenceObject>()); return;
    case Kind::dict: put_dict(rt, out, v.as<DictObject>()); return;
    case Kind::space: put_space(rt, out, v.as<SpaceObject>()); return;
    case Kind::loop: {
      const auto& loop = v.as<LoopObject>();
      out.put(fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.items->size()));
      return;
    }
    default: break;
  }
  // Python prints an address here; no prompt can depend on it.
  out.put(fmt::format("<{} object>", type_name(v)));
}

void put_str(Runtime& rt, Sink& out, const Value& v) {
  if (v.is(Kind::undefined)) return;
  if (v.is_str()) return out.put_part(v, v.text());
  const std::size_t begin = out.text().size();
  put_repr(rt, out, v);
  if (v.given()) out.mark_given(begin);
}

std::string str_of(Runtime& rt, const Value& v) {
  Sink out(rt.budget);
  put_str(rt, out, v);
  return out.take();
}

std::string repr_of(Runtime& rt, const Value& v) {
  Sink out(rt.budget);
  put_repr(rt, out, v);
  return out.take();
}

}  // namespace lode::text::jinja
