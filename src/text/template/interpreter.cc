// Statements, calls and scopes; eval.cc has the expressions.
#include "text/template/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

namespace lode::text::jinja {

Interpreter::~Interpreter() {
  for (auto& scope : kept_scopes_) scope->values.clear();
}

Interpreter::Frame::Frame(Interpreter& in, Scope* parent)
    : in_(in), before_(in.scope_), scope_(std::make_unique<Scope>(parent)) {
  in.scope_ = scope_.get();
}

Interpreter::Frame::~Frame() {
  if (scope_->captured) in_.kept_scopes_.push_back(std::move(scope_));
  in_.scope_ = before_;
}

void Interpreter::Frame::renew() {
  if (scope_->captured) {
    Scope* parent = scope_->parent;
    in_.kept_scopes_.push_back(std::move(scope_));
    scope_ = std::make_unique<Scope>(parent);
    in_.scope_ = scope_.get();
  }
  scope_->values.clear();
}

Rendered Interpreter::run() {
  Sink out(budget);
  out_ = &out;
  Frame frame(*this, nullptr);
  run_block(program_.body);
  Rendered rendered;
  const std::string& mask = out.given_bytes();
  for (std::size_t begin = mask.find('\1'); begin != std::string::npos;) {
    const std::size_t end = std::min(mask.find('\0', begin), mask.size());
    rendered.given.push_back({begin, end});
    begin = mask.find('\1', end);
  }
  rendered.text = out.take();
  return rendered;
}

Interpreter::Flow Interpreter::run_block(const Block& block) {
  const DepthGuard guard(budget);
  for (const Stmt& s : block) {
    const Flow flow = run_statement(s);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& s) {
  budget.step();
  line = s.line;
  switch (s.kind) {
    case StmtKind::text: out_->put(s.text); return Flow::next;
    case StmtKind::output: run_output(s); return Flow::next;
    case StmtKind::condition: return run_condition(s);
    case StmtKind::loop: return run_loop(s, eval(*s.values[0]), 0);
    case StmtKind::set: run_set(s); return Flow::next;
    case StmtKind::set_block:
    case StmtKind::filter_block: return run_captured(s);
    case StmtKind::macro: define_macro(s); return Flow::next;
    case StmtKind::call_block: run_call_block(s); return Flow::next;
    case StmtKind::with: return run_with(s);
    case StmtKind::scope: {
      Frame frame(*this, scope_);
      return run_block(s.blocks[0]);
    }
    case StmtKind::break_loop: return Flow::broke;
    case StmtKind::continue_loop: return Flow::continued;
  }
  return Flow::next;
}

void Interpreter::run_output(const Stmt& s) {
  for (const auto& value : s.values) put_str(*this, *out_, eval(*value));
}

Interpreter::Flow Interpreter::run_condition(const Stmt& s) {
  for (std::size_t i = 0; i < s.values.size(); ++i) {
    if (truthy(eval(*s.values[i]))) return run_block(s.blocks[i]);
  }
  return s.blocks.size() > s.values.size() ? run_block(s.blocks.back()) : Flow::next;
}

// The items that a loop's `if` lets through.
Values Interpreter::filtered(const Stmt& s, Values items) {
  if (!s.test) return items;
  Values out;
  Frame frame(*this, scope_);
  for (Value& v : items) {
    assign(*s.targets[0], v);
    if (truthy(eval(*s.test))) out.push_back(std::move(v));
    frame.renew();
  }
  return out;
}

namespace {

struct LoopCloser {
  LoopObject& loop;
  ~LoopCloser() {
    loop.open = false;
    loop.changed.reset();
  }
};

}  // namespace

Interpreter::Flow Interpreter::run_loop(const Stmt& s, const Value& iterable, std::int64_t depth0) {
  auto items = std::make_shared<const Values>(filtered(s, iterate(*this, iterable)));
  const bool finished = !items->empty() && run_rounds(s, std::move(items), depth0);
  if (finished || s.blocks.size() < 2) return Flow::next;
  Frame frame(*this, scope_);
  return run_block(s.blocks[1]);
}

// Whether a round came to the body's end: jinja2 runs `else` where none did, also after a break or continue.
bool Interpreter::run_rounds(const Stmt& s, std::shared_ptr<const Values> items, std::int64_t depth0) {
  auto loop = std::make_shared<LoopObject>();
  charge(*loop, sizeof(LoopObject) + items->size() * sizeof(Value));
  set_depth(*loop, 0);
  for (const Value& v : *items) hold(*loop, v);
  loop->items = items;
  loop->depth0 = depth0;
  if (s.recursive) {
    loop->recurse = &s;
    loop->scope = scope_;
    keep_scopes();
  }
  const LoopCloser closer{*loop};
  Frame frame(*this, scope_);
  bool finished = false;
  for (std::size_t i = 0; i < items->size(); ++i) {
    budget.step();
    if (i > 0) frame.renew();
    loop->index0 = static_cast<std::int64_t>(i);
    if (program_.loop >= 0) assign_name(program_.loop, Value(Kind::loop, loop));
    assign(*s.targets[0], (*items)[i]);
    const Flow flow = run_block(s.blocks[0]);
    if (flow == Flow::broke) break;
    finished |= flow == Flow::next;
  }
  return finished;
}

void Interpreter::run_set(const Stmt& s) {
  assign(*s.targets[0], eval(*s.values[0]));
}

Interpreter::Flow Interpreter::run_captured(const Stmt& s) {
  Sink text(budget);
  Sink* const before = std::exchange(out_, &text);
  Flow flow = Flow::next;
  {
    Frame frame(*this, scope_);
    flow = run_block(s.blocks[0]);
  }
  out_ = before;
  if (flow != Flow::next) return flow;
  captured_.push_back(str(text));
  const Value value = eval(*s.values[0]);
  captured_.pop_back();
  if (s.kind == StmtKind::set_block) assign(*s.targets[0], value);
  else put_str(*this, *out_, value);
  return Flow::next;
}

// What runs later in this scope finds it and those around it.
void Interpreter::keep_scopes() {
  for (Scope* s = scope_; s && !s->captured; s = s->parent) {
    s->captured = true;
    budget.take(sizeof(Scope) + 64);  // Given back with the render.
  }
}

Value Interpreter::make_macro(const MacroNode& node) {
  auto macro = std::make_unique<MacroObject>();
  macro->node = &node;
  macro->scope = scope_;
  keep_scopes();
  return keep(Kind::macro, std::move(macro));
}

void Interpreter::define_macro(const Stmt& s) {
  assign(*s.targets[0], make_macro(*s.macro));
}

void Interpreter::run_call_block(const Stmt& s) {
  const Expr& call_expr = *s.values[0];
  const Value callee = eval(*call_expr.items[0]);
  Args args = arguments(*call_expr.args);
  args.named.emplace_back("caller", make_macro(*s.macro));
  line = s.line;
  put_str(*this, *out_, call(callee, args));
}

Interpreter::Flow Interpreter::run_with(const Stmt& s) {
  Values values;
  for (const auto& value : s.values) values.push_back(eval(*value));
  Frame frame(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*s.targets[i], values[i]);
  return run_block(s.blocks[0]);
}

void Interpreter::assign_name(int name, Value value) {
  budget.step(static_cast<std::int64_t>(scope_->values.size() / 32));
  for (auto& [key, old] : scope_->values) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->values.emplace_back(name, std::move(value));
}

void Interpreter::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::name) return assign_name(target.name, value);
  line = target.line;
  if (target.kind == ExprKind::space_ref) {
    const Value space = eval_name(target);
    if (!space.is(Kind::space)) fail("cannot assign attribute on non-namespace object");
    auto& object = space.as<SpaceObject>();
    object.given |= value.given();
    for (auto& [key, old] : object.items) {
      budget.step();
      if (key != target.text) continue;
      old = value;
      return;
    }
    charge(object, sizeof(object.items[0]) + target.text.size());
    object.items.emplace_back(target.text, value);
    return;
  }
  const Values parts = iterate(*this, value);
  if (parts.size() != target.items.size()) {
    fail(fmt::format("expected {} values to unpack, found {}", target.items.size(), parts.size()));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) assign(*target.items[i], parts[i]);
}

Value Interpreter::call(const Value& callee, const Args& args) {
  budget.step();
  switch (callee.kind()) {
    case Kind::function: {
      const auto& function = callee.as<FunctionObject>();
      const Giving giving(*this, args, function.self);
      return function.native(*this, function.self, args);
    }
    case Kind::macro: return call_macro(callee.as<MacroObject>(), args);
    case Kind::loop: return recurse(callee.as<LoopObject>(), args);
    case Kind::joiner: {
      auto& joiner = callee.as<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : str("");
    }
    case Kind::undefined: fail(callee.as<UndefinedObject>().message);
    default: fail(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

Value Interpreter::recurse(const LoopObject& loop, const Args& args) {
  if (!loop.recurse) fail("the loop must be marked 'recursive' to be called");
  const Params p("loop", args, {"iterable"}, 1);
  const DepthGuard guard(budget);
  Sink text(budget);
  Sink* const before = std::exchange(out_, &text);
  Scope* const here = std::exchange(scope_, loop.scope);
  struct Restore {
    Interpreter& in;
    Sink* out;
    Scope* scope;
    ~Restore() {
      in.out_ = out;
      in.scope_ = scope;
    }
  } const restore{*this, before, here};
  run_loop(*static_cast<const Stmt*>(loop.recurse), p.at(0), loop.depth0 + 1);
  return str(text);
}

// Sets a macro's parameters in the current scope; defaults see the parameters before them.
void Interpreter::bind(const MacroNode& node, const Args& args) {
  std::vector<bool> used(args.named.size(), false);
  const auto named = [&](std::string_view name) -> const Value* {
    budget.step(static_cast<std::int64_t>(args.named.size() / 8));
    for (std::size_t i = 0; i < args.named.size(); ++i) {
      if (args.named[i].first != name) continue;
      used[i] = true;
      return &args.named[i].second;
    }
    return nullptr;
  };
  const std::size_t count = node.params.size(), first_default = count - node.defaults.size();
  bool caller_is_parameter = false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = program_.names[static_cast<std::size_t>(node.params[i])];
    caller_is_parameter |= name == "caller";
    const Value* given = i < args.positional.size() ? &args.positional[i] : named(name);
    if (given) assign_name(node.params[i], *given);
    else if (i >= first_default) assign_name(node.params[i], eval(*node.defaults[i - first_default]));
    else assign_name(node.params[i], undefined(fmt::format("parameter '{}' was not provided", name)));
  }
  if (node.uses_caller && !caller_is_parameter) {
    const Value* caller = named("caller");
    assign_name(program_.caller, caller ? *caller : undefined("No caller defined"));
  }
  if (node.uses_kwargs) {
    DictBuilder rest(*this);
    for (std::size_t i = 0; i < args.named.size(); ++i) {
      if (!used[i]) rest.set(str(args.named[i].first), args.named[i].second);
    }
    assign_name(program_.kwargs, rest.done());
  } else {
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) fail(fmt::format("macro '{}' takes no keyword argument '{}'", node.name, args.named[i].first));
    }
  }
  if (node.uses_varargs) {
    Values rest;
    if (args.positional.size() > count) {
      rest.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(count), args.positional.end());
    }
    assign_name(program_.varargs, tuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", node.name, count));
  }
}

Value Interpreter::call_macro(const MacroObject& macro, const Args& args) {
  const DepthGuard guard(budget);
  Sink text(budget);
  Sink* const out_before = std::exchange(out_, &text);
  struct Restore {
    Interpreter& in;
    Sink* out;
    ~Restore() { in.out_ = out; }
  } const restore{*this, out_before};
  Frame frame(*this, macro.scope);
  const Giving giving(*this, false);  // Its own constants are the template's, whoever called it.
  bind(*macro.node, args);
  run_block(macro.node->body);
  return str(text);
}

}  // namespace lode::text::jinja
