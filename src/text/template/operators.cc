// Python's operators. Integers have 64 bits here: a result beyond them is an error, where Python goes on.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template/runtime.h"

namespace lode::text::jinja {
namespace {

std::string_view symbol(Op op) {
  switch (op) {
    case Op::add: return "+";
    case Op::sub: return "-";
    case Op::mul: return "*";
    case Op::div: return "/";
    case Op::floordiv: return "//";
    case Op::mod: return "%";
    case Op::pow: return "**";
    case Op::eq: return "==";
    case Op::ne: return "!=";
    case Op::lt: return "<";
    case Op::le: return "<=";
    case Op::gt: return ">";
    case Op::ge: return ">=";
    case Op::in: return "in";
    case Op::not_in: return "not in";
    case Op::neg: return "-";
    case Op::pos: return "+";
  }
  return "?";
}

[[noreturn]] void refuse(Op op, const Value& a, const Value& b) {
  for (const Value* v : {&a, &b}) {
    if (v->is(Kind::undefined)) fail(v->as<UndefinedObject>().message);
  }
  if (op == Op::add && a.is_str()) fail(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), type_name(a), type_name(b)));
}

[[noreturn]] void overflow(Op op) {
  fail(fmt::format("the result of '{}' does not fit 64 bits", symbol(op)));
}

double floor_mod(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r == 0 ? std::copysign(0.0, b) : r;
}

double floor_div(double a, double b) {
  const double r = floor_mod(a, b);
  const double q = (a - r) / b;
  if (q == 0) return std::copysign(0.0, a / b);
  const double f = std::floor(q);
  return q - f > 0.5 ? f + 1 : f;
}

Value integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  for (std::int64_t left = exponent; left > 0; left >>= 1) {
    if ((left & 1) && __builtin_mul_overflow(result, base, &result)) overflow(Op::pow);
    if (left > 1 && __builtin_mul_overflow(base, base, &base)) overflow(Op::pow);
  }
  return Value::integer(result);
}

Value power(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral() && b.as_integer() >= 0) return integer_power(a.as_integer(), b.as_integer());
  if (a.as_real() == 0 && b.as_real() < 0) fail("0.0 cannot be raised to a negative power");
  const double r = std::pow(a.as_real(), b.as_real());
  if (std::isnan(r) && !std::isnan(a.as_real()) && !std::isnan(b.as_real())) fail("complex numbers are not supported");
  if (std::isinf(r) && !std::isinf(a.as_real()) && !std::isinf(b.as_real())) fail("Numerical result out of range");
  return Value::real(r);
}

Value integers(Op op, std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  switch (op) {
    case Op::add:
      if (__builtin_add_overflow(a, b, &r)) overflow(op);
      return Value::integer(r);
    case Op::sub:
      if (__builtin_sub_overflow(a, b, &r)) overflow(op);
      return Value::integer(r);
    case Op::mul:
      if (__builtin_mul_overflow(a, b, &r)) overflow(op);
      return Value::integer(r);
    default: break;
  }
  if (b == 0) fail(op == Op::mod ? "integer modulo by zero" : "integer division or modulo by zero");
  if (b == -1) {  // The least integer divided by -1 does not fit, and traps in hardware.
    if (op == Op::mod) return Value::integer(0);
    if (__builtin_sub_overflow(std::int64_t{0}, a, &r)) overflow(op);
    return Value::integer(r);
  }
  const std::int64_t q = a / b, rest = a % b;
  const bool below = rest != 0 && (rest < 0) != (b < 0);
  return Value::integer(op == Op::mod ? (below ? rest + b : rest) : (below ? q - 1 : q));
}

Value numbers(Op op, const Value& a, const Value& b) {
  if (op == Op::pow) return power(a, b);
  if (op == Op::div) {
    if (b.as_real() == 0) fail("division by zero");
    return Value::real(a.as_real() / b.as_real());
  }
  if (a.is_integral() && b.is_integral()) return integers(op, a.as_integer(), b.as_integer());
  const double x = a.as_real(), y = b.as_real();
  if (y == 0 && (op == Op::mod || op == Op::floordiv))
    fail(op == Op::mod ? "float modulo" : "float floor division by zero");
  switch (op) {
    case Op::add: return Value::real(x + y);
    case Op::sub: return Value::real(x - y);
    case Op::mul: return Value::real(x * y);
    case Op::mod: return Value::real(floor_mod(x, y));
    default: return Value::real(floor_div(x, y));
  }
}

Value repeat(Runtime& rt, const Value& what, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (what.is_str()) {
    Sink out(rt.budget);
    const Runtime::Giving giving(rt, what.given());
    out.fill(count, what.text());
    return rt.like(what, out.take());
  }
  const auto& s = what.as<SequenceObject>();
  if (!s.items.empty() && count > rt.budget.limits().memory_bytes_max / sizeof(Value) / s.items.size()) {
    rt.budget.require(rt.budget.limits().memory_bytes_max + 1);
  }
  rt.budget.require(count * s.items.size() * sizeof(Value));
  Values items;
  items.reserve(count * s.items.size());
  if (!s.items.empty()) {
    for (std::size_t i = 0; i < count; ++i) items.insert(items.end(), s.items.begin(), s.items.end());
  }
  return rt.sequence(s.flavor == Flavor::group ? Flavor::tuple : s.flavor, std::move(items));
}

bool is_list_or_tuple(const Value& v) {
  if (!v.is(Kind::sequence)) return false;
  const Flavor f = v.as<SequenceObject>().flavor;
  return f == Flavor::list || f == Flavor::tuple || f == Flavor::group;
}

Value add_others(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_str() && b.is_str()) {
    Sink out(rt.budget);
    if (!a.is_markup() && !b.is_markup()) {
      out.put_part(a, a.text());
      out.put_part(b, b.text());
      return rt.str(out);
    }
    const Runtime::Giving giving(rt, a.given() || b.given());
    out.put(escaped(rt, a));
    out.put(escaped(rt, b));
    return rt.markup(out.take());
  }
  if (is_list_or_tuple(a) && is_list_or_tuple(b)) {
    const auto &x = a.as<SequenceObject>(), &y = b.as<SequenceObject>();
    if ((x.flavor == Flavor::list) == (y.flavor == Flavor::list)) {
      rt.budget.require((x.items.size() + y.items.size()) * sizeof(Value));
      Values items = x.items;
      items.insert(items.end(), y.items.begin(), y.items.end());
      return rt.sequence(x.flavor == Flavor::list ? Flavor::list : Flavor::tuple, std::move(items));
    }
  }
  refuse(Op::add, a, b);
}

}  // namespace

Value binary(Runtime& rt, Op op, const Value& a, const Value& b) {
  rt.budget.step();
  if (a.is_number() && b.is_number()) return numbers(op, a, b);
  if (op == Op::add) return add_others(rt, a, b);
  if (op == Op::mul) {
    if ((a.is_str() || is_list_or_tuple(a)) && b.is_integral()) return repeat(rt, a, b.as_integer());
    if ((b.is_str() || is_list_or_tuple(b)) && a.is_integral()) return repeat(rt, b, a.as_integer());
  }
  if (op == Op::mod && a.is_str()) {
    const Runtime::Giving giving(rt, a.given() || b.given());
    return rt.like(a, percent_format(rt, a.text(), b, a));
  }
  refuse(op, a, b);
}

Value unary(Runtime& rt, Op op, const Value& a) {
  rt.budget.step();
  if (a.is(Kind::undefined)) fail(a.as<UndefinedObject>().message);
  if (!a.is_number()) fail(fmt::format("bad operand type for unary {}: '{}'", symbol(op), type_name(a)));
  if (a.is(Kind::real)) return Value::real(op == Op::neg ? -a.as_real() : a.as_real());
  if (op == Op::pos) return Value::integer(a.as_integer());
  std::int64_t r = 0;
  if (__builtin_sub_overflow(std::int64_t{0}, a.as_integer(), &r)) overflow(op);
  return Value::integer(r);
}

bool compare(Runtime& rt, Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::eq: return equal(rt, a, b);
    case Op::ne: return !equal(rt, a, b);
    case Op::lt: return less(rt, a, b, "<");
    case Op::gt: return less(rt, b, a, ">");
    case Op::le: return less(rt, a, b, "<=") || equal(rt, a, b);
    case Op::ge: return less(rt, b, a, ">=") || equal(rt, a, b);
    case Op::in: return contains(rt, b, a);
    default: return !contains(rt, b, a);
  }
}

std::string escape_html(Runtime& rt, std::string_view text) {
  Sink out(rt.budget);
  for (const char& c : text) {
    switch (c) {
      case '&': out.put("&amp;"); break;
      case '<': out.put("&lt;"); break;
      case '>': out.put("&gt;"); break;
      case '\'': out.put("&#39;"); break;
      case '"': out.put("&#34;"); break;
      default: out.put(c);
    }
  }
  return out.take();
}

std::string escaped(Runtime& rt, const Value& v) {
  return v.is_markup() ? std::string(v.text()) : escape_html(rt, str_of(rt, v));
}

}  // namespace lode::text::jinja
