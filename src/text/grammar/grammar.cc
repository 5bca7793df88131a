#include "text/grammar/grammar.h"

#include "text/grammar/automaton_builder.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_rules.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema.h"

namespace lode::text::grammar {

Result<Compiled> compile_regex(std::string_view regex, const CompileLimits& limits) {
  Ir ir(limits);
  Work work{limits};
  const auto body = add_regex(ir, regex, {});
  if (!body.ok()) return body.status();
  const RuleId root = ir.add_rule("root");
  ir.set_body(root, *body);
  return build_automaton(ir, root, work);
}

Result<Compiled> compile_gbnf(std::string_view text, const CompileLimits& limits) {
  Ir ir(limits);
  Work work{limits};
  const auto root = add_gbnf(ir, text);
  if (!root.ok()) return root.status();
  return build_automaton(ir, *root, work);
}

Result<Compiled> compile_choice(std::span<const std::string> choices, const CompileLimits& limits) {
  if (choices.empty()) return Status::invalid("there is no choice: name at least one text");
  Ir ir(limits);
  Work work{limits};
  std::vector<NodeId> ways;
  for (const std::string& choice : choices) {
    if (choice.empty()) return Status::invalid("an empty text cannot be a choice");
    ways.push_back(ir.literal(choice));
  }
  const RuleId root = ir.add_rule("root");
  ir.set_body(root, ir.alt(ways));
  return build_automaton(ir, root, work);
}

Result<Compiled> compile_json_schema(const nlohmann::ordered_json& schema, const CompileLimits& limits) {
  Ir ir(limits);
  Work work{limits};
  const auto root = add_schema(ir, schema, work);
  if (!root.ok()) return root.status();
  return build_automaton(ir, *root, work);
}

Result<Compiled> compile_json_object(const CompileLimits& limits) {
  Ir ir(limits);
  Work work{limits};
  JsonRules json(ir);
  const RuleId root = ir.add_rule("root");
  ir.set_body(root, json.any_object());
  return build_automaton(ir, root, work);
}

}  // namespace lode::text::grammar
