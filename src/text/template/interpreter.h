// Runs a Program once. One thread; owned by Template::render.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/ast.h"
#include "text/template/runtime.h"

namespace lode::text::jinja {

// The variables of one block. What is not here is looked for in the scope around it.
struct Scope {
  explicit Scope(Scope* parent) : parent(parent) {}
  Scope* parent;
  std::vector<std::pair<int, Value>> values;  // By index into Program::names.
  bool captured = false;                      // A macro was defined here and may be called later.
};

class Interpreter : public Runtime {
 public:
  Interpreter(const Program& program, const RenderOptions& options)
      : Runtime(options.limits, options.now), program_(program), globals_(program.names.size()), out_(nullptr) {}
  ~Interpreter() override;

  // A template variable. Names that the template does not use are ignored.
  void set_global(int name, Value value) { globals_[static_cast<std::size_t>(name)] = std::move(value); }

  Rendered run();
  Value call(const Value& callee, const Args& args) override;

 private:
  enum class Flow { next, broke, continued };

  // A scope for a block; kept to the render's end if a macro was defined in it.
  class Frame {
   public:
    Frame(Interpreter& in, Scope* parent);
    ~Frame();
    Scope* scope() { return scope_.get(); }
    void renew();  // Empties it for the next round of a loop.

   private:
    Interpreter& in_;
    Scope* before_;
    std::unique_ptr<Scope> scope_;
  };

  // ---- statements
  Flow run_block(const Block& block);
  Flow run_statement(const Stmt& s);
  void run_output(const Stmt& s);
  Flow run_condition(const Stmt& s);
  Flow run_loop(const Stmt& s, const Value& iterable, std::int64_t depth0);
  bool run_rounds(const Stmt& s, std::shared_ptr<const Values> items, std::int64_t depth0);
  Values filtered(const Stmt& s, Values items);
  void run_set(const Stmt& s);
  Flow run_captured(const Stmt& s);  // set_block, filter_block
  void run_call_block(const Stmt& s);
  Flow run_with(const Stmt& s);
  void define_macro(const Stmt& s);
  void keep_scopes();
  Value make_macro(const MacroNode& node);
  void assign(const Expr& target, const Value& value);
  void assign_name(int name, Value value);

  // ---- calls
  Value call_macro(const MacroObject& macro, const Args& args);
  void bind(const MacroNode& node, const Args& args);
  Value recurse(const LoopObject& loop, const Args& args);
  Args arguments(const CallArgs& args);

  // ---- expressions
  Value eval(const Expr& e);
  Value eval_name(const Expr& e);
  Value eval_container(const Expr& e);
  Value eval_dict(const Expr& e);
  Value eval_slice(const Expr& e);
  Value eval_compare(const Expr& e);
  Value eval_concat(const Expr& e);
  Value eval_call(const Expr& e);
  Args piped(const Expr& e, Value base);
  Value eval_filter(const Expr& e);
  Value eval_test(const Expr& e);
  Value eval_conditional(const Expr& e);

  const Program& program_;
  std::vector<std::optional<Value>> globals_;  // [Program::names]
  std::vector<std::unique_ptr<Scope>> kept_scopes_;
  std::vector<Value> captured_;  // What filters of blocks read, innermost last.
  Scope* scope_ = nullptr;
  Sink* out_;
};

}  // namespace lode::text::jinja
