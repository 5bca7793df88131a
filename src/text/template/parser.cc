// Statements; see parser_expressions.cc for what stands in them.
#include "text/template/parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace lode::text::jinja {

bool Parser::take_op(std::string_view op) {
  if (!is_op(op)) return false;
  take();
  return true;
}

bool Parser::take_name(std::string_view name) {
  if (!is_name(name)) return false;
  take();
  return true;
}

void Parser::expect_op(std::string_view op) {
  if (!take_op(op)) fail_at(now().line, fmt::format("expected '{}', found {}", op, describe(now())));
}

void Parser::expect_name(std::string_view name) {
  if (!take_name(name)) fail_at(now().line, fmt::format("expected '{}', found {}", name, describe(now())));
}

void Parser::expect(TokenType type, std::string_view what) {
  if (now().type != type) fail_at(now().line, fmt::format("expected '{}', found {}", what, describe(now())));
  take();
}

std::string Parser::identifier(std::string_view what) {
  if (now().type != TokenType::name) fail_at(now().line, fmt::format("expected {}, found {}", what, describe(now())));
  return std::move(take().text);
}

int Parser::symbol(const std::string& name) {
  const auto [it, added] = symbols_.try_emplace(name, static_cast<int>(program_->names.size()));
  if (added) program_->names.push_back(name);
  return it->second;
}

Parser::Nested::Nested(Parser& parser) : parser_(parser) {
  if (parser.nesting_ >= parser.limits_.nesting_max) {
    throw Fault{Code::resource_exhausted, fmt::format("nested more than {} deep", parser.limits_.nesting_max),
                parser.now().line};
  }
  ++parser.nesting_;
}

std::unique_ptr<Program> Parser::parse() {
  program_ = std::make_unique<Program>();
  program_->body = block_until({"", 1, {}});
  if (!missing_.empty()) throw missing_.front();
  const auto known = [this](const char* name) {
    const auto it = symbols_.find(name);
    return it == symbols_.end() ? -1 : it->second;
  };
  program_->loop = known("loop");
  program_->caller = known("caller");
  program_->varargs = known("varargs");
  program_->kwargs = known("kwargs");
  return std::move(program_);
}

// Stops at a tag that `ends` names, after its "{%"; with no names, at the template's end.
Block Parser::block_until(const Ends& ends) {
  Block block;
  for (;;) {
    switch (now().type) {
      case TokenType::data: {
        Stmt s{StmtKind::text, now().line};
        s.text = std::move(take().text);
        block.push_back(std::move(s));
        break;
      }
      case TokenType::output_begin: block.push_back(output()); break;
      case TokenType::block_begin: {
        take();
        const auto ends_here = [this](std::string_view name) { return is_name(name); };
        if (std::any_of(ends.names.begin(), ends.names.end(), ends_here)) return block;
        if (now().type == TokenType::name && now().text.starts_with("end") && ends.names.size() > 0) {
          fail_at(now().line, fmt::format("expected '{}' for the '{}' of line {}, found {}", *(ends.names.end() - 1),
                                          ends.opened, ends.line, describe(now())));
        }
        block.push_back(statement());
        expect(TokenType::block_end, "%}");
        break;
      }
      default:
        if (ends.names.size() == 0) return block;
        fail_at(now().line, fmt::format("expected '{}' for the '{}' of line {}, found the template's end",
                                        *(ends.names.end() - 1), ends.opened, ends.line));
    }
  }
}

// From a tag's own "%}" (or the colon that Python people write) to its end's name.
Block Parser::body_until(const Ends& ends) {
  take_op(":");
  expect(TokenType::block_end, "%}");
  const Nested guard(*this);
  return block_until(ends);
}

Stmt Parser::output() {
  Stmt s{StmtKind::output, take().line};
  s.values.push_back(tuple());
  expect(TokenType::output_end, "}}");
  return s;
}

Stmt Parser::statement() {
  if (now().type != TokenType::name)
    fail_at(now().line, fmt::format("expected a tag's name, found {}", describe(now())));
  const std::string& name = now().text;
  if (name == "if") return condition();
  if (name == "for") return loop();
  if (name == "set") return set();
  if (name == "macro") return macro();
  if (name == "call") return call_block();
  if (name == "filter") return filter_block();
  if (name == "with") return with();
  if (name == "print") return print();
  if (name == "generation") return generation();
  if (name == "break") return loop_control(StmtKind::break_loop);
  if (name == "continue") return loop_control(StmtKind::continue_loop);
  unknown_tag();
}

void Parser::unknown_tag() {
  const Token& tag = now();
  for (const char* refused : {"include", "import", "from", "extends", "block", "autoescape"}) {
    if (tag.text == refused) {
      throw Fault{Code::unsupported,
                  fmt::format("the tag '{}' is not supported: a chat template stands alone in one file", tag.text),
                  tag.line};
    }
  }
  fail_at(tag.line,
          fmt::format("unknown tag '{}'; expected if, for, set, macro, call, filter, with, print, generation, "
                      "break, continue or raw",
                      tag.text));
}

Stmt Parser::condition() {
  Stmt s{StmtKind::condition, now().line};
  ++soft_;
  bool more = true;
  while (more) {
    take();  // if, elif
    s.values.push_back(tuple(Condition::none));
    s.blocks.push_back(body_until({"if", s.line, {"elif", "else", "endif"}}));
    more = is_name("elif");
  }
  if (take_name("else")) s.blocks.push_back(body_until({"if", s.line, {"endif"}}));
  take();
  --soft_;
  return s;
}

Stmt Parser::loop() {
  Stmt s{StmtKind::loop, take().line};
  ++loops_;
  s.targets.push_back(target(Spaces::none, "in"));
  --loops_;
  expect_name("in");
  s.values.push_back(tuple(Condition::none, "recursive"));
  const int soft = std::exchange(soft_, 0);
  if (take_name("if")) s.test = expression();
  s.recursive = take_name("recursive");
  ++loops_;
  s.blocks.push_back(body_until({"for", s.line, {"else", "endfor"}}));
  --loops_;
  if (take_name("else")) s.blocks.push_back(body_until({"for", s.line, {"endfor"}}));
  take();
  soft_ = soft;
  return s;
}

Stmt Parser::set() {
  Stmt s{StmtKind::set, take().line};
  s.targets.push_back(target(Spaces::allowed));
  if (take_op("=")) {
    s.values.push_back(tuple());
    return s;
  }
  s.kind = StmtKind::set_block;
  s.values.push_back(filter_chain(node(ExprKind::captured, s.line)));
  s.blocks.push_back(body_until({"set", s.line, {"endset"}}));
  take();
  return s;
}

void Parser::signature(MacroNode& macro) {
  expect_op("(");
  while (!is_op(")")) {
    if (!macro.params.empty()) expect_op(",");
    const int line = now().line;
    const std::string name = identifier("a parameter's name");
    macro.params.push_back(symbol(name));
    if (name == "caller" && !is_op("=")) fail_at(line, "the parameter 'caller' needs a default");
    if (take_op("=")) macro.defaults.push_back(expression());
    else if (!macro.defaults.empty()) fail_at(line, "a parameter without a default follows one with a default");
  }
  take();
}

void Parser::macro_body(MacroNode& macro, const Ends& ends) {
  const int loops = std::exchange(loops_, 0), soft = std::exchange(soft_, 0);
  macros_.push_back(&macro);
  macro.body = body_until(ends);
  macros_.pop_back();
  loops_ = loops;
  soft_ = soft;
  take();
}

Stmt Parser::macro() {
  Stmt s{StmtKind::macro, take().line};
  s.macro = std::make_unique<MacroNode>();
  s.macro->name = identifier("a macro's name");
  s.targets.push_back(node(ExprKind::name, s.line));
  s.targets[0]->name = symbol(s.macro->name);
  signature(*s.macro);
  macro_body(*s.macro, {"macro", s.line, {"endmacro"}});
  return s;
}

Stmt Parser::call_block() {
  Stmt s{StmtKind::call_block, take().line};
  s.macro = std::make_unique<MacroNode>();
  s.macro->name = "caller";
  if (is_op("(")) signature(*s.macro);
  s.values.push_back(expression());
  if (s.values[0]->kind != ExprKind::call) fail_at(s.line, "expected a call of a macro after 'call'");
  macro_body(*s.macro, {"call", s.line, {"endcall"}});
  return s;
}

Stmt Parser::filter_block() {
  Stmt s{StmtKind::filter_block, take().line};
  s.values.push_back(filter_chain(filter(node(ExprKind::captured, s.line))));
  const int soft = std::exchange(soft_, 0);
  s.blocks.push_back(body_until({"filter", s.line, {"endfilter"}}));
  soft_ = soft;
  take();
  return s;
}

Stmt Parser::with() {
  Stmt s{StmtKind::with, take().line};
  while (now().type != TokenType::block_end) {
    if (!s.targets.empty()) expect_op(",");
    s.targets.push_back(target(Spaces::none));
    expect_op("=");
    s.values.push_back(expression());
  }
  s.blocks.push_back(body_until({"with", s.line, {"endwith"}}));
  take();
  return s;
}

Stmt Parser::print() {
  Stmt s{StmtKind::output, take().line};
  while (now().type != TokenType::block_end) {
    if (!s.values.empty()) expect_op(",");
    s.values.push_back(expression());
  }
  return s;
}

// Marks the assistant's part for training; for a prompt it passes its body through.
Stmt Parser::generation() {
  Stmt s{StmtKind::scope, take().line};
  const int loops = std::exchange(loops_, 0);
  s.blocks.push_back(body_until({"generation", s.line, {"endgeneration"}}));
  loops_ = loops;
  take();
  return s;
}

Stmt Parser::loop_control(StmtKind kind) {
  Stmt s{kind, now().line};
  if (loops_ == 0) fail_at(s.line, fmt::format("'{}' outside of a loop", now().text));
  take();
  return s;
}

}  // namespace lode::text::jinja
