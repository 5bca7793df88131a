// Expressions, by jinja2's precedence: "x if c else y", or, and, not, comparisons, + -, ~, * / // %, **, unary,
// postfix, filters and tests. A filter binds to what is left of it more tightly than any binary operator.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/template/parser.h"

namespace lode::text::jinja {
namespace {

// Chains such as a + b + c are deep to the left: running them recurses, so they have a bound of their own.
constexpr int kTreeDepthMax = 500;
constexpr std::size_t kNamedMax = 1000;  // Arguments of one call: each is compared with those before it.

struct OpName {
  std::string_view text;
  Op op;
};
constexpr OpName kComparisons[] = {{"==", Op::eq}, {"!=", Op::ne}, {"<", Op::lt},
                                   {"<=", Op::le}, {">", Op::gt},  {">=", Op::ge}};
constexpr OpName kProducts[] = {{"*", Op::mul}, {"/", Op::div}, {"//", Op::floordiv}, {"%", Op::mod}};

}  // namespace

ExprPtr Parser::node(ExprKind kind, int line) {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->line = line;
  return e;
}

ExprPtr Parser::finish(ExprPtr e) {
  const auto deepen = [&e](const ExprPtr& part) {
    if (part) e->depth = std::max(e->depth, part->depth + 1);
  };
  for (const auto& part : e->items) deepen(part);
  if (e->args) {
    for (const auto& part : e->args->positional) deepen(part);
    for (const auto& part : e->args->named) deepen(part.second);
    deepen(e->args->star);
    deepen(e->args->double_star);
  }
  if (e->depth > kTreeDepthMax) {
    throw Fault{Code::resource_exhausted, fmt::format("an expression of more than {} steps in a row", kTreeDepthMax),
                e->line};
  }
  return e;
}

ExprPtr Parser::text_constant(std::string text, int line) {
  auto object = std::make_shared<StringObject>();
  object->ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  object->text = std::move(text);
  auto e = node(ExprKind::constant, line);
  e->constant = Value(Kind::string, std::move(object));
  return e;
}

ExprPtr Parser::expression(Condition condition) {
  const Nested guard(*this);
  return condition == Condition::allowed ? conditional() : either();
}

bool Parser::at_tuple_end(std::string_view end) const {
  return now().type == TokenType::output_end || now().type == TokenType::block_end || is_op(")") ||
         (!end.empty() && is_name(end));
}

ExprPtr Parser::tuple(Condition condition, std::string_view end) {
  const int line = now().line;
  if (at_tuple_end(end)) fail_at(line, fmt::format("expected an expression, found {}", describe(now())));
  ExprPtr first = expression(condition);
  if (!is_op(",")) return first;
  auto e = node(ExprKind::tuple, line);
  e->items.push_back(std::move(first));
  while (take_op(",") && !at_tuple_end(end)) e->items.push_back(expression(condition));
  return finish(std::move(e));
}

ExprPtr Parser::parenthesized() {
  const int line = take().line;
  if (take_op(")")) return node(ExprKind::tuple, line);
  ExprPtr e = tuple();
  expect_op(")");
  return e;
}

ExprPtr Parser::conditional() {
  const int line = now().line;
  const std::size_t missing_before = missing_.size();
  ExprPtr value = either();
  while (take_name("if")) {
    missing_.resize(missing_before);
    auto e = node(ExprKind::conditional, line);
    ++soft_;
    e->items.push_back(either());
    e->items.push_back(std::move(value));
    ExprPtr otherwise;
    if (take_name("else")) {
      const Nested guard(*this);
      otherwise = conditional();
    }
    e->items.push_back(std::move(otherwise));
    --soft_;
    value = finish(std::move(e));
  }
  return value;
}

ExprPtr Parser::either() {
  ExprPtr left = both();
  while (is_name("or")) {
    auto e = node(ExprKind::either, take().line);
    e->items.push_back(std::move(left));
    e->items.push_back(both());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::both() {
  ExprPtr left = negation();
  while (is_name("and")) {
    auto e = node(ExprKind::both, take().line);
    e->items.push_back(std::move(left));
    e->items.push_back(negation());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::negation() {
  if (!is_name("not")) return comparison();
  const Nested guard(*this);
  auto e = node(ExprKind::negation, take().line);
  e->items.push_back(negation());
  return finish(std::move(e));
}

ExprPtr Parser::comparison() {
  auto e = node(ExprKind::compare, now().line);
  e->items.push_back(sum());
  for (;;) {
    const auto* known = std::find_if(std::begin(kComparisons), std::end(kComparisons),
                                     [this](const OpName& o) { return is_op(o.text); });
    if (known != std::end(kComparisons)) {
      take();
      e->ops.push_back(known->op);
    } else if (take_name("in")) {
      e->ops.push_back(Op::in);
    } else if (is_name("not") && peek().type == TokenType::name && peek().text == "in") {
      take();
      take();
      e->ops.push_back(Op::not_in);
    } else {
      break;
    }
    e->items.push_back(sum());
  }
  if (e->ops.empty()) return std::move(e->items[0]);
  return finish(std::move(e));
}

ExprPtr Parser::sum() {
  ExprPtr left = concat();
  while (is_op("+") || is_op("-")) {
    const Op op = is_op("+") ? Op::add : Op::sub;
    auto e = node(ExprKind::binary, take().line);
    e->op = op;
    e->items.push_back(std::move(left));
    e->items.push_back(concat());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::concat() {
  ExprPtr first = product();
  if (!is_op("~")) return first;
  auto e = node(ExprKind::concat, now().line);
  e->items.push_back(std::move(first));
  while (take_op("~")) e->items.push_back(product());
  return finish(std::move(e));
}

ExprPtr Parser::product() {
  ExprPtr left = power();
  for (;;) {
    const auto* known =
        std::find_if(std::begin(kProducts), std::end(kProducts), [this](const OpName& o) { return is_op(o.text); });
    if (known == std::end(kProducts)) return left;
    auto e = node(ExprKind::binary, take().line);
    e->op = known->op;
    e->items.push_back(std::move(left));
    e->items.push_back(power());
    left = finish(std::move(e));
  }
}

ExprPtr Parser::power() {
  ExprPtr left = unary();
  while (is_op("**")) {
    auto e = node(ExprKind::binary, take().line);
    e->op = Op::pow;
    e->items.push_back(std::move(left));
    e->items.push_back(unary());
    left = finish(std::move(e));
  }
  return left;
}

ExprPtr Parser::unary(Filters filters) {
  ExprPtr e;
  if (is_op("-") || is_op("+")) {
    const Nested guard(*this);
    const Op op = is_op("-") ? Op::neg : Op::pos;
    e = node(ExprKind::unary, take().line);
    e->op = op;
    e->items.push_back(unary(Filters::none));
    e = finish(std::move(e));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return filters == Filters::allowed ? filters_and_tests(std::move(e)) : std::move(e);
}

ExprPtr Parser::primary() {
  const int line = now().line;
  switch (now().type) {
    case TokenType::name: {
      const std::string name = std::move(take().text);
      auto e = node(ExprKind::constant, line);
      if (name == "true" || name == "True") e->constant = Value::boolean(true);
      else if (name == "false" || name == "False") e->constant = Value::boolean(false);
      else if (name != "none" && name != "None") {
        e->kind = ExprKind::name;
        e->name = symbol(name);
        for (MacroNode* macro : macros_) {
          macro->uses_caller |= name == "caller";
          macro->uses_kwargs |= name == "kwargs";
          macro->uses_varargs |= name == "varargs";
        }
      }
      return e;
    }
    case TokenType::string: {
      std::string text;
      while (now().type == TokenType::string) text += take().text;
      return text_constant(std::move(text), line);
    }
    case TokenType::integer: {
      auto e = node(ExprKind::constant, line);
      e->constant = Value::integer(take().integer);
      return e;
    }
    case TokenType::real: {
      auto e = node(ExprKind::constant, line);
      e->constant = Value::real(take().real);
      return e;
    }
    default: break;
  }
  if (is_op("(")) return parenthesized();
  if (is_op("[")) return literal_list();
  if (is_op("{")) return literal_dict();
  fail_at(line, fmt::format("expected an expression, found {}", describe(now())));
}

ExprPtr Parser::literal_list() {
  auto e = node(ExprKind::list, take().line);
  while (!is_op("]")) {
    if (!e->items.empty()) expect_op(",");
    if (is_op("]")) break;
    e->items.push_back(expression());
  }
  take();
  return finish(std::move(e));
}

ExprPtr Parser::literal_dict() {
  auto e = node(ExprKind::dict, take().line);
  while (!is_op("}")) {
    if (!e->items.empty()) expect_op(",");
    if (is_op("}")) break;
    e->items.push_back(expression());
    expect_op(":");
    e->items.push_back(expression());
  }
  take();
  return finish(std::move(e));
}

ExprPtr Parser::postfix(ExprPtr base) {
  for (;;) {
    if (is_op(".") || is_op("[")) base = attribute_or_item(std::move(base));
    else if (is_op("(")) base = call(std::move(base));
    else return base;
  }
}

ExprPtr Parser::filters_and_tests(ExprPtr base) {
  for (;;) {
    if (is_op("|")) base = filter_chain(std::move(base));
    else if (is_name("is")) base = test(std::move(base));
    else if (is_op("(")) base = call(std::move(base));
    else return base;
  }
}

ExprPtr Parser::attribute_or_item(ExprPtr base) {
  const int line = now().line;
  if (take_op("[")) return subscript(std::move(base), line);
  take();
  if (now().type == TokenType::integer) {
    auto e = node(ExprKind::item, line);
    auto key = node(ExprKind::constant, line);
    key->constant = Value::integer(take().integer);
    e->items.push_back(std::move(base));
    e->items.push_back(std::move(key));
    return finish(std::move(e));
  }
  auto e = node(ExprKind::attribute, line);
  e->text = identifier("a name or a number after '.'");
  e->items.push_back(std::move(base));
  return finish(std::move(e));
}

ExprPtr Parser::subscript(ExprPtr base, int line) {
  auto e = node(ExprKind::item, line);
  e->items.push_back(std::move(base));
  if (is_op("]")) fail_at(line, "expected an index, found ']'");
  ExprPtr first;
  if (!is_op(":")) first = expression();
  if (take_op(":")) {
    e->kind = ExprKind::slice;
    e->items.push_back(std::move(first));
    e->items.push_back(is_op(":") || is_op("]") ? nullptr : expression());
    const bool has_step = take_op(":") && !is_op("]");
    e->items.push_back(has_step ? expression() : nullptr);
  } else if (is_op(",")) {
    auto key = node(ExprKind::tuple, line);
    key->items.push_back(std::move(first));
    while (take_op(",") && !is_op("]")) key->items.push_back(expression());
    e->items.push_back(finish(std::move(key)));
  } else {
    e->items.push_back(std::move(first));
  }
  expect_op("]");
  return finish(std::move(e));
}

ExprPtr Parser::call(ExprPtr base) {
  auto e = node(ExprKind::call, now().line);
  e->args = arguments();
  e->items.push_back(std::move(base));
  return finish(std::move(e));
}

std::unique_ptr<CallArgs> Parser::arguments() {
  auto args = std::make_unique<CallArgs>();
  const int line = now().line;
  const auto require = [line](bool ok) {
    if (!ok) fail_at(line, "arguments out of order: expected positional ones, then named ones, then * and **");
  };
  expect_op("(");
  for (bool first = true; !is_op(")"); first = false) {
    if (!first) expect_op(",");
    if (is_op(")")) break;
    if (take_op("*")) {
      require(!args->star && !args->double_star);
      args->star = expression();
    } else if (take_op("**")) {
      require(!args->double_star);
      args->double_star = expression();
    } else if (now().type == TokenType::name && peek().type == TokenType::op && peek().text == "=") {
      require(!args->double_star);
      std::string name = std::move(take().text);
      take();
      if (args->named.size() >= kNamedMax) fail_at(line, fmt::format("more than {} named arguments", kNamedMax));
      for (const auto& other : args->named) {
        if (other.first == name) fail_at(line, fmt::format("the argument '{}' is given twice", name));
      }
      args->named.emplace_back(std::move(name), expression());
    } else {
      require(!args->star && !args->double_star && args->named.empty());
      args->positional.push_back(expression());
    }
  }
  take();
  return args;
}

void Parser::check_filter(Expr& e) {
  e.filter = find_filter(e.text);
  if (e.filter || soft_ > 0) return;
  missing_.push_back({Code::invalid_argument, fmt::format("there is no filter '{}'", e.text), e.line});
}

void Parser::check_test(Expr& e) {
  e.test = find_test(e.text);
  if (e.test || soft_ > 0) return;
  missing_.push_back({Code::invalid_argument, fmt::format("there is no test '{}'", e.text), e.line});
}

ExprPtr Parser::filter(ExprPtr base) {
  auto e = node(ExprKind::filter, now().line);
  e->text = identifier("a filter's name");
  while (take_op(".")) e->text += '.' + identifier("a filter's name");
  e->args = is_op("(") ? arguments() : std::make_unique<CallArgs>();
  e->items.push_back(std::move(base));
  check_filter(*e);
  return finish(std::move(e));
}

ExprPtr Parser::filter_chain(ExprPtr base) {
  while (take_op("|")) base = filter(std::move(base));
  return base;
}

ExprPtr Parser::test(ExprPtr base) {
  const int line = take().line;
  const bool negated = take_name("not");
  auto e = node(ExprKind::test, line);
  e->text = identifier("a test's name");
  while (take_op(".")) e->text += '.' + identifier("a test's name");
  const TokenType type = now().type;
  const bool operand = type == TokenType::name || type == TokenType::string || type == TokenType::integer ||
                       type == TokenType::real || is_op("[") || is_op("{");
  if (is_op("(")) {
    e->args = arguments();
  } else if (operand && !is_name("else") && !is_name("or") && !is_name("and")) {
    if (is_name("is")) fail_at(line, "tests cannot follow each other: expected 'and' between them");
    e->args = std::make_unique<CallArgs>();
    e->args->positional.push_back(postfix(primary()));
  } else {
    e->args = std::make_unique<CallArgs>();
  }
  e->items.push_back(std::move(base));
  check_test(*e);
  e = finish(std::move(e));
  if (!negated) return e;
  auto n = node(ExprKind::negation, line);
  n->items.push_back(std::move(e));
  return finish(std::move(n));
}

ExprPtr Parser::one_target(Spaces spaces) {
  const int line = now().line;
  if (take_op("(")) {
    const Nested guard(*this);
    auto e = target(spaces);
    expect_op(")");
    return e;
  }
  const std::string name = identifier("a name to assign to");
  static constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), name) != kConstants.end()) {
    fail_at(line, fmt::format("expected a name to assign to, found '{}'", name));
  }
  if (name == "loop" && loops_ > 0) fail_at(line, "'loop' cannot be assigned to inside a loop");
  auto e = node(ExprKind::name, line);
  e->name = symbol(name);
  if (spaces == Spaces::allowed && take_op(".")) {
    e->kind = ExprKind::space_ref;
    e->text = identifier("an attribute's name");
  }
  return e;
}

ExprPtr Parser::target(Spaces spaces, std::string_view end) {
  const int line = now().line;
  ExprPtr first = one_target(spaces);
  if (!is_op(",")) return first;
  auto e = node(ExprKind::tuple, line);
  e->items.push_back(std::move(first));
  while (is_op(",")) {
    take();
    if (at_tuple_end(end) || is_op("=")) break;
    e->items.push_back(one_target(spaces));
  }
  return finish(std::move(e));
}

}  // namespace lode::text::jinja
