// Writes the models of schemas into the intermediate form. src/text/grammar/schema*.cc only.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "text/grammar/fsa.h"
#include "text/grammar/ir.h"
#include "text/grammar/json_rules.h"
#include "text/grammar/schema_model.h"

namespace lode::text::grammar {

class SchemaWriter {
 public:
  SchemaWriter(Ir& ir, const Json& root, Work& work)
      : ir_(ir), work_(work), root_(root), reader_(root, ir.limits()), json_(ir) {}
  Result<RuleId> run();

 private:
  using Made = Result<NodeId>;
  // Alternatives beside other keywords are written out together with them; groups multiply.
  static constexpr int kCombinationsMax = 1000;

  Made write(const Conjunction& schemas);
  Made write_body(const Conjunction& schemas);
  Made write_model(const SchemaModel& model);
  Made write_types(const SchemaModel& model);
  Made write_values(const SchemaModel& model);
  Made write_number(const SchemaModel& model, bool integer);
  Made write_string(const SchemaModel& model);
  Made write_array(const SchemaModel& model);
  Made write_object(const SchemaModel& model);
  Status check_exclusive(const SchemaModel& model, const SchemaGroup& group);
  Status check_size(const std::string& pointer) const;
  // No value at all, and why; an error only if that leaves no document.
  Made impossible(const std::string& why);

  // Strings (schema_strings.cc): one expression for a pattern or format, in the canonical spelling, without quotes.
  Made string_part(const SchemaSource* pattern, const std::string* format);
  // All that the model says of a string, as an automaton.
  Result<Fsa> string_automaton(const SchemaModel& model);

  // Objects (schema_objects.cc).
  struct Member;
  struct KeyClass;
  Status find_members(const SchemaModel& model, std::vector<Member>& out);
  Status find_key_classes(const SchemaModel& model, const std::vector<Member>& members, std::vector<KeyClass>& out);
  Result<std::optional<Fsa>> free_keys(const SchemaModel& model, const std::vector<Member>& members, bool patterns);
  Result<Fsa> names_automaton(const std::vector<Member>& members);
  Result<bool> key_matches(const std::string& name, const SchemaSource& pattern);
  Result<Fsa> key_pattern(const SchemaSource& pattern, const std::string& key);

  Ir& ir_;
  Work& work_;
  const Json& root_;
  SchemaReader reader_;
  JsonRules json_;
  std::map<std::vector<const Json*>, RuleId> rules_;
  std::vector<std::pair<RuleId, Conjunction>> waiting_;
  std::map<std::string, Fsa> key_patterns_;
  std::string why_;  // The first thing that was impossible.
  int depth_ = 0, combinations_ = 0;
};

}  // namespace lode::text::grammar
