// A parsed template. Built by the parser, constant afterwards: any thread may run it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/runtime.h"

namespace lode::text::jinja {

enum class ExprKind : std::uint8_t {
  constant,
  name,
  list,
  tuple,
  dict,
  attribute,
  item,
  slice,
  call,
  filter,
  test,
  unary,
  binary,
  compare,
  concat,
  both,
  either,
  negation,
  conditional,
  space_ref,  // ns.name as a target
  captured,   // The text that a filter or set block has gathered.
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star, double_star;
};

struct Expr {
  ExprKind kind = ExprKind::constant;
  Op op = Op::add;
  int line = 0;
  int depth = 1;               // Of the tree below and with this one.
  int name = -1;               // Index into Program::names.
  Value constant;              // Has no budget.
  std::string text;            // Of an attribute, filter or test: its name.
  std::vector<ExprPtr> items;  // Operands in order; null: a part of a slice or an `else` that is not there.
  std::vector<Op> ops;         // Of a comparison: items.size() - 1.
  std::unique_ptr<CallArgs> args;
  Filter filter = nullptr;
  Test test = nullptr;
};

struct Stmt;
using Block = std::vector<Stmt>;

struct MacroNode {
  std::string name;
  std::vector<int> params;        // Indices into Program::names.
  std::vector<ExprPtr> defaults;  // Of the last params.
  Block body;
  // Whether the body names them, which is what makes a macro accept them.
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
};

enum class StmtKind : std::uint8_t {
  text,
  output,
  condition,
  loop,
  set,
  set_block,
  macro,
  call_block,
  filter_block,
  with,
  scope,
  break_loop,
  continue_loop,
};

struct Stmt {
  StmtKind kind = StmtKind::text;
  int line = 0;
  std::string text;
  std::vector<ExprPtr> values;   // output: what is printed; condition: tests; with: values; others: one.
  std::vector<ExprPtr> targets;  // loop, set, set_block: one; with: one each value.
  std::vector<Block> blocks;     // condition: one each test, then `else`; loop: body, `else`; others: body.
  ExprPtr test;                  // A loop's `if`.
  bool recursive = false;
  std::unique_ptr<MacroNode> macro;  // macro, call_block
};

struct Program {
  std::vector<std::string> names;
  Block body;
  // Names that the interpreter itself sets; -1: the template has no such name.
  int loop = -1, caller = -1, varargs = -1, kwargs = -1;
};

}  // namespace lode::text::jinja
