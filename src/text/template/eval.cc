// Expressions.
#include <fmt/format.h>

#include "text/template/interpreter.h"

namespace lode::text::jinja {

Value Interpreter::eval(const Expr& e) {
  budget.step();
  const DepthGuard guard(budget);
  line = e.line;
  switch (e.kind) {
    case ExprKind::constant: return e.constant;
    case ExprKind::captured: return captured_.back();
    case ExprKind::name:
    case ExprKind::space_ref: return eval_name(e);
    case ExprKind::list:
    case ExprKind::tuple: return eval_container(e);
    case ExprKind::dict: return eval_dict(e);
    case ExprKind::attribute: return attribute(*this, eval(*e.items[0]), e.text);
    case ExprKind::item: {
      const Value owner = eval(*e.items[0]);
      const Value key = eval(*e.items[1]);
      line = e.line;
      return item(*this, owner, key);
    }
    case ExprKind::slice: return eval_slice(e);
    case ExprKind::call: return eval_call(e);
    case ExprKind::filter: return eval_filter(e);
    case ExprKind::test: return eval_test(e);
    case ExprKind::unary: return unary(*this, e.op, eval(*e.items[0]));
    case ExprKind::binary: {
      const Value a = eval(*e.items[0]);
      const Value b = eval(*e.items[1]);
      line = e.line;
      return binary(*this, e.op, a, b);
    }
    case ExprKind::compare: return eval_compare(e);
    case ExprKind::concat: return eval_concat(e);
    case ExprKind::both: {
      Value a = eval(*e.items[0]);
      return truthy(a) ? eval(*e.items[1]) : a;
    }
    case ExprKind::either: {
      Value a = eval(*e.items[0]);
      return truthy(a) ? a : eval(*e.items[1]);
    }
    case ExprKind::negation: return Value::boolean(!truthy(eval(*e.items[0])));
    case ExprKind::conditional: return eval_conditional(e);
  }
  return {};
}

Value Interpreter::eval_name(const Expr& e) {
  for (const Scope* s = scope_; s; s = s->parent) {
    budget.step(static_cast<std::int64_t>(s->values.size() / 32));
    for (const auto& [name, value] : s->values) {
      if (name == e.name) return value;
    }
  }
  const auto index = static_cast<std::size_t>(e.name);
  if (globals_[index]) return *globals_[index];
  const std::string& name = program_.names[index];
  if (const Native native = find_global(name)) return function(name, native);
  return undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::eval_container(const Expr& e) {
  budget.require(e.items.size() * sizeof(Value));
  Values items;
  items.reserve(e.items.size());
  for (const auto& part : e.items) items.push_back(eval(*part));
  return e.kind == ExprKind::list ? list(std::move(items)) : tuple(std::move(items));
}

Value Interpreter::eval_dict(const Expr& e) {
  DictBuilder dict(*this);
  for (std::size_t i = 0; i < e.items.size(); i += 2) {
    Value key = eval(*e.items[i]);
    dict.set(std::move(key), eval(*e.items[i + 1]));
  }
  return dict.done();
}

Value Interpreter::eval_slice(const Expr& e) {
  const auto part = [&](std::size_t i) { return e.items[i] ? eval(*e.items[i]) : Value::none(); };
  const Value owner = eval(*e.items[0]);
  const Value start = part(1), stop = part(2), step = part(3);
  line = e.line;
  return slice(*this, owner, start, stop, step);
}

Value Interpreter::eval_compare(const Expr& e) {
  Value left = eval(*e.items[0]);
  for (std::size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.items[i + 1]);
    line = e.line;
    if (!compare(*this, e.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_concat(const Expr& e) {
  Sink out(budget);
  for (const auto& part : e.items) put_str(*this, out, eval(*part));
  return str(out);
}

Args Interpreter::arguments(const CallArgs& args) {
  Args out;
  out.positional.reserve(args.positional.size());
  for (const auto& part : args.positional) out.positional.push_back(eval(*part));
  for (const auto& [name, part] : args.named) out.named.emplace_back(name, eval(*part));
  if (args.star) {
    for (Value& v : iterate(*this, eval(*args.star))) out.positional.push_back(std::move(v));
  }
  if (args.double_star) {
    const Value more = eval(*args.double_star);
    if (!more.is(Kind::dict)) fail("the argument after ** must be a mapping");
    for (const auto& [key, value] : more.as<DictObject>().items) {
      budget.step();
      if (!key.is_str()) fail("keywords must be strings");
      for (const auto& other : args.named) {
        if (other.first == key.text()) fail(fmt::format("got multiple values for keyword argument '{}'", key.text()));
      }
      out.named.emplace_back(key.text(), value);
    }
  }
  return out;
}

Value Interpreter::eval_call(const Expr& e) {
  const Value callee = eval(*e.items[0]);
  const Args args = arguments(*e.args);
  line = e.line;
  return call(callee, args);
}

// What a filter or a test is given: what stands before it comes first.
Args Interpreter::piped(const Expr& e, Value base) {
  Args args = arguments(*e.args);
  args.positional.insert(args.positional.begin(), std::move(base));
  line = e.line;
  return args;
}

Value Interpreter::eval_filter(const Expr& e) {
  Value base = eval(*e.items[0]);
  if (!e.filter) fail_at(e.line, fmt::format("there is no filter '{}'", e.text));
  const Args args = piped(e, std::move(base));
  const Giving giving(*this, args);
  return e.filter(*this, args);
}

Value Interpreter::eval_test(const Expr& e) {
  Value base = eval(*e.items[0]);
  if (!e.test) fail_at(e.line, fmt::format("there is no test '{}'", e.text));
  return Value::boolean(e.test(*this, piped(e, std::move(base))));
}

Value Interpreter::eval_conditional(const Expr& e) {
  if (truthy(eval(*e.items[0]))) return eval(*e.items[1]);
  if (e.items[2]) return eval(*e.items[2]);
  return undefined(fmt::format("the inline if-expression on line {} is false and has no else", e.line));
}

}  // namespace lode::text::jinja
