// Filters that make numbers.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "text/template/filters.h"
#include "text/template/unicode.h"

namespace lode::text::jinja::filters {
namespace {

// What int(text, base) accepts: white space around, a sign, underscores between digits, a prefix of the base.
std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base) {
  text = strip_space(text, Side::both);
  std::string digits;
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const auto prefixed = [&](char letter) { return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == letter; };
  for (const auto& [letter, of] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if ((base == of || base == 0) && prefixed(letter)) {
      base = of;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
      break;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] != '_';
    if (text[i] == '_' && between) continue;
    digits += text[i];
  }
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, static_cast<int>(base));
  if (digits.empty() || parsed.ptr != digits.data() + digits.size()) return std::nullopt;
  const std::uint64_t most = negative ? std::uint64_t{1} << 63 : (std::uint64_t{1} << 63) - 1;
  if (parsed.ec != std::errc() || value > most) fail(fmt::format("integer {} does not fit 64 bits", text));
  return static_cast<std::int64_t>(negative ? 0 - value : value);
}

// What float(text) accepts.
std::optional<double> parse_real(std::string_view text) {
  std::string plain;
  text = strip_space(text, Side::both);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[i - 1])) &&
                         std::isdigit(static_cast<unsigned char>(text[i + 1]));
    if (text[i] == '_' && between) continue;
    plain += text[i];
  }
  std::string_view body = plain;
  if (!body.empty() && (body[0] == '+' || body[0] == '-')) body.remove_prefix(1);
  const std::string name = to_lower(body);
  const bool negative = plain.starts_with('-');
  if (name == "inf" || name == "infinity") return negative ? -INFINITY : INFINITY;
  if (name == "nan") return NAN;
  if (body.empty() || (!std::isdigit(static_cast<unsigned char>(body[0])) && body[0] != '.')) return std::nullopt;
  double value = 0;
  const auto parsed = std::from_chars(body.data(), body.data() + body.size(), value);
  if (parsed.ptr != body.data() + body.size()) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) value = std::strtod(std::string(body).c_str(), nullptr);
  else if (parsed.ec != std::errc()) return std::nullopt;
  return negative ? -value : value;
}

std::optional<std::int64_t> whole(double d) {
  if (!std::isfinite(d)) return std::nullopt;
  if (std::fabs(d) >= 9.2e18) fail("the integer does not fit 64 bits");
  return static_cast<std::int64_t>(d);
}

double rounded(double x, std::int64_t digits) {
  if (!std::isfinite(x) || digits > 323) return x;
  if (digits < -308) return 0.0 * x;
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(x / scale) * scale;
  }
  // printf rounds the exact binary value, as Python's round does.
  return std::strtod(fmt::format("{:.{}f}", x, digits).c_str(), nullptr);
}

std::int64_t rounded_integer(std::int64_t x, std::int64_t digits) {
  if (digits >= 0) return x;
  if (digits < -18) return 0;
  std::int64_t scale = 1;
  for (std::int64_t i = 0; i < -digits; ++i) scale *= 10;
  const std::int64_t rest = ((x % scale) + scale) % scale;
  std::int64_t low = 0;
  if (__builtin_sub_overflow(x, rest, &low)) fail("the result of round() does not fit 64 bits");
  const bool up = rest * 2 > scale || (rest * 2 == scale && (low / scale) % 2 != 0);
  if (up && __builtin_add_overflow(low, scale, &low)) fail("the result of round() does not fit 64 bits");
  return low;
}

}  // namespace

Value absolute(Runtime& rt, const Args& args) {
  const Params p("abs", args, {"x"}, 1);
  const Value& v = p.at(0);
  if (v.is(Kind::real)) return Value::real(std::fabs(v.as_real()));
  if (v.is_integral()) return v.as_integer() < 0 ? unary(rt, Op::neg, v) : Value::integer(v.as_integer());
  if (v.is(Kind::undefined)) fail(v.as<UndefinedObject>().message);
  fail(fmt::format("bad operand type for abs(): '{}'", type_name(v)));
}

Value floating(Runtime& rt, const Args& args) {
  const Params p("float", args, {"value", "default"}, 1);
  const Value& v = p.at(0);
  if (v.is_number()) return Value::real(v.as_real());
  if (v.is(Kind::undefined)) fail(v.as<UndefinedObject>().message);
  if (v.is_str()) {
    rt.budget.work(v.text().size());
    if (const auto d = parse_real(v.text())) return Value::real(*d);
  }
  return p[1] ? *p[1] : Value::real(0);
}

Value integer(Runtime& rt, const Args& args) {
  const Params p("int", args, {"value", "default", "base"}, 1);
  const Value& v = p.at(0);
  const Value otherwise = p[1] ? *p[1] : Value::integer(0);
  if (v.is_integral()) return Value::integer(v.as_integer());
  if (v.is(Kind::undefined)) fail(v.as<UndefinedObject>().message);
  if (v.is(Kind::real)) {
    const auto i = whole(v.as_real());
    if (!i && std::isinf(v.as_real())) fail("cannot convert float infinity to integer");
    return i ? Value::integer(*i) : otherwise;
  }
  if (!v.is_str()) return otherwise;
  rt.budget.work(v.text().size());
  if (const auto i = parse_integer(v.text(), p.integer_or(2, 10))) return Value::integer(*i);
  if (const auto d = parse_real(v.text())) {
    if (const auto i = whole(*d)) return Value::integer(*i);
  }
  return otherwise;
}

Value round(Runtime& rt, const Args& args) {
  const Params p("round", args, {"value", "precision", "method"}, 1);
  const Value& v = p.at(0);
  const std::int64_t digits = p.integer_or(1, 0);
  const std::string_view method = p[2] ? p.text(2) : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail("round(): method must be common, ceil or floor");
  if (v.is(Kind::undefined)) fail(v.as<UndefinedObject>().message);
  if (!v.is_number()) fail(fmt::format("type {} doesn't define __round__ method", type_name(v)));
  if (method == "common") {
    if (v.is_integral()) return Value::integer(rounded_integer(v.as_integer(), digits));
    return Value::real(rounded(v.as_real(), digits));
  }
  if (v.is_integral() && digits >= 0 && digits <= 18) return Value::real(v.as_real());
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = v.as_real() * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value sum(Runtime& rt, const Args& args) {
  const Params p("sum", args, {"iterable", "attribute", "start"}, 1);
  const Path path(rt, p[1]);
  Value total = p[2] ? *p[2] : Value::integer(0);
  if (total.is_str()) fail("sum() can't sum strings; expected join");
  for (const Value& v : iterate(rt, p.at(0))) total = binary(rt, Op::add, total, path.of(rt, v));
  return total;
}

}  // namespace lode::text::jinja::filters
