// jinja2's tests: what follows `is`.
#include <fmt/format.h>

#include "text/template/runtime.h"

namespace lode::text::jinja {
namespace {

const Value& one(const Args& args, std::string_view name) {
  const Params p(name, args, {"value"}, 1);
  return args.positional[0];
}

template <Kind kKind>
bool is_kind(Runtime&, const Args& args) {
  return one(args, "test").is(kKind);
}

bool defined(Runtime&, const Args& args) {
  return !one(args, "defined").is(Kind::undefined);
}
bool number(Runtime&, const Args& args) {
  return one(args, "number").is_number();
}
bool is_true(Runtime&, const Args& args) {
  return one(args, "true").is(Kind::boolean) && args.positional[0].as_bool();
}
bool is_false(Runtime&, const Args& args) {
  return one(args, "false").is(Kind::boolean) && !args.positional[0].as_bool();
}
bool iterable(Runtime&, const Args& args) {
  return is_iterable(one(args, "iterable"));
}
bool escaped_test(Runtime&, const Args& args) {
  return one(args, "escaped").is_markup();
}

bool sequence(Runtime&, const Args& args) {
  const Value& v = one(args, "sequence");
  if (v.is(Kind::sequence)) {
    const Flavor f = v.as<SequenceObject>().flavor;
    return f != Flavor::keys && f != Flavor::values && f != Flavor::items;
  }
  return v.is_str() || v.is(Kind::dict) || v.is(Kind::undefined);
}

bool callable(Runtime&, const Args& args) {
  switch (one(args, "callable").kind()) {
    case Kind::function:
    case Kind::macro:
    case Kind::loop:
    case Kind::joiner:
    case Kind::undefined: return true;
    default: return false;
  }
}

bool lower(Runtime& rt, const Args& args) {
  return all_cased(str_of(rt, one(args, "lower")), Case::lower);
}
bool upper(Runtime& rt, const Args& args) {
  return all_cased(str_of(rt, one(args, "upper")), Case::upper);
}

bool remainder_is(Runtime& rt, const Value& v, const Value& divisor, std::int64_t wanted) {
  return equal(rt, binary(rt, Op::mod, v, divisor), Value::integer(wanted));
}
bool odd(Runtime& rt, const Args& args) {
  return remainder_is(rt, one(args, "odd"), Value::integer(2), 1);
}
bool even(Runtime& rt, const Args& args) {
  return remainder_is(rt, one(args, "even"), Value::integer(2), 0);
}
bool divisibleby(Runtime& rt, const Args& args) {
  const Params p("divisibleby", args, {"value", "num"}, 2);
  return remainder_is(rt, p.at(0), p.at(1), 0);
}

bool sameas(Runtime& rt, const Args& args) {
  const Params p("sameas", args, {"value", "other"}, 2);
  const Value &a = p.at(0), &b = p.at(1);
  if (a.kind() != b.kind()) return false;
  // Small numbers and literals are one object in Python; containers are what they are.
  if (a.is_number() || a.is_str() || a.is(Kind::none)) return equal(rt, a, b);
  return a.identity() == b.identity();
}

bool in_test(Runtime& rt, const Args& args) {
  const Params p("in", args, {"value", "seq"}, 2);
  return contains(rt, p.at(1), p.at(0));
}

template <Op kOp>
bool compared(Runtime& rt, const Args& args) {
  const Params p("test", args, {"a", "b"}, 2);
  return compare(rt, kOp, p.at(0), p.at(1));
}

bool filter_exists(Runtime&, const Args& args) {
  return one(args, "filter").is_str() && find_filter(args.positional[0].text()) != nullptr;
}
bool test_exists(Runtime&, const Args& args) {
  return one(args, "test").is_str() && find_test(args.positional[0].text()) != nullptr;
}

struct Entry {
  std::string_view name;
  Test test;
};
constexpr Entry kTests[] = {
    {"!=", compared<Op::ne>},
    {"<", compared<Op::lt>},
    {"<=", compared<Op::le>},
    {"==", compared<Op::eq>},
    {">", compared<Op::gt>},
    {">=", compared<Op::ge>},
    {"boolean", is_kind<Kind::boolean>},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisibleby},
    {"eq", compared<Op::eq>},
    {"equalto", compared<Op::eq>},
    {"escaped", escaped_test},
    {"even", even},
    {"false", is_false},
    {"filter", filter_exists},
    {"float", is_kind<Kind::real>},
    {"ge", compared<Op::ge>},
    {"greaterthan", compared<Op::gt>},
    {"gt", compared<Op::gt>},
    {"in", in_test},
    {"integer", is_kind<Kind::integer>},
    {"iterable", iterable},
    {"le", compared<Op::le>},
    {"lessthan", compared<Op::lt>},
    {"lower", lower},
    {"lt", compared<Op::lt>},
    {"mapping", is_kind<Kind::dict>},
    {"ne", compared<Op::ne>},
    {"none", is_kind<Kind::none>},
    {"number", number},
    {"odd", odd},
    {"sameas", sameas},
    {"sequence", sequence},
    {"string", is_kind<Kind::string>},
    {"test", test_exists},
    {"true", is_true},
    {"undefined", is_kind<Kind::undefined>},
    {"upper", upper},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const Entry& entry : kTests) {
    if (entry.name == name) return entry.test;
  }
  return nullptr;
}

}  // namespace lode::text::jinja
