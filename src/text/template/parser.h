// Tokens -> Program. One use each; parser_expressions.cc has the expressions.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace lode::text::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const ParseLimits& limits) : tokens_(std::move(tokens)), limits_(limits) {}

  // Throws Fault with the line.
  std::unique_ptr<Program> parse();

 private:
  // ---- tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_op(std::string_view op) const { return now().type == TokenType::op && now().text == op; }
  bool is_name(std::string_view name) const { return now().type == TokenType::name && now().text == name; }
  bool take_op(std::string_view op);
  bool take_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenType type, std::string_view what);
  std::string identifier(std::string_view what);
  int symbol(const std::string& name);

  class Nested {
   public:
    explicit Nested(Parser& parser);
    ~Nested() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  // ---- statements
  struct Ends {
    std::string_view opened;  // The statement that is open.
    int line;
    std::initializer_list<std::string_view> names;
  };
  Block block_until(const Ends& ends);
  Block body_until(const Ends& ends);
  Stmt statement();
  Stmt output();
  Stmt condition();
  Stmt loop();
  Stmt set();
  Stmt macro();
  Stmt call_block();
  Stmt filter_block();
  Stmt with();
  Stmt print();
  Stmt generation();
  Stmt loop_control(StmtKind kind);
  [[noreturn]] void unknown_tag();
  void signature(MacroNode& macro);
  // Parses a macro's body, in which enclosing loops cannot be left, and notes which special names it uses.
  void macro_body(MacroNode& macro, const Ends& ends);

  // ---- expressions
  enum class Condition { allowed, none };
  ExprPtr node(ExprKind kind, int line);
  ExprPtr finish(ExprPtr e);  // Sets the depth; fails where it is too large.
  ExprPtr text_constant(std::string text, int line);
  ExprPtr expression(Condition condition = Condition::allowed);
  // One expression, or a tuple of several. `end` is a name that ends it.
  ExprPtr tuple(Condition condition = Condition::allowed, std::string_view end = {});
  ExprPtr parenthesized();
  bool at_tuple_end(std::string_view end) const;
  ExprPtr conditional();
  ExprPtr either();
  ExprPtr both();
  ExprPtr negation();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  enum class Filters { allowed, none };
  ExprPtr unary(Filters filters = Filters::allowed);
  ExprPtr primary();
  ExprPtr literal_list();
  ExprPtr literal_dict();
  ExprPtr postfix(ExprPtr base);
  ExprPtr filters_and_tests(ExprPtr base);
  ExprPtr attribute_or_item(ExprPtr base);
  ExprPtr subscript(ExprPtr base, int line);
  ExprPtr call(ExprPtr base);
  ExprPtr filter(ExprPtr base);
  ExprPtr filter_chain(ExprPtr base);
  ExprPtr test(ExprPtr base);
  std::unique_ptr<CallArgs> arguments();
  // A name, a tuple of targets or, in a set, an attribute of a namespace.
  enum class Spaces { allowed, none };
  ExprPtr target(Spaces spaces, std::string_view end = {});
  ExprPtr one_target(Spaces spaces);
  void check_filter(Expr& e);
  void check_test(Expr& e);

  std::vector<Token> tokens_;
  ParseLimits limits_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // Open around this point, within the macro.
  // Inside an `if`, a filter that does not exist is an error when it is reached; elsewhere at once. So has jinja2 it.
  int soft_ = 0;
  std::vector<Fault> missing_;      // What is an error at once, unless an `if` comes to follow it.
  std::vector<MacroNode*> macros_;  // Open around this point.
  std::unique_ptr<Program> program_;
  std::unordered_map<std::string, int> symbols_;
};

}  // namespace lode::text::jinja
