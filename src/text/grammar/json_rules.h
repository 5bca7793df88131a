// The parts of compact JSON as expressions of the intermediate form, each made once: strings, numbers, any value.
// src/text/grammar only.
//
// Compact: no whitespace but one optional blank after each ':' and ','. So a model may write as it likes to, and no run
// of blanks can go on.
#pragma once

#include <nlohmann/json.hpp>

#include "text/grammar/ir.h"

namespace lode::text::grammar {

class JsonRules {
 public:
  using Json = nlohmann::ordered_json;
  explicit JsonRules(Ir& ir) : ir_(&ir) {}

  NodeId comma();  // "," and an optional blank.
  NodeId colon();
  // One character of a string in any spelling that JSON allows: raw UTF-8 or an escape, never half a surrogate pair.
  NodeId any_character();
  // One character in its one canonical spelling.
  NodeId canonical_character();
  NodeId quoted(NodeId body) { return ir_->concat({ir_->literal("\""), body, ir_->literal("\"")}); }
  NodeId any_string();
  NodeId string(std::uint32_t min, std::uint32_t max);  // Lengths in code points.
  // A string's text, quoted, in its canonical spelling.
  NodeId string_of(std::string_view utf8) { return quoted(ir_->text(utf8, Encoding::json_string)); }
  NodeId any_integer();
  NodeId any_number();
  NodeId any_value();
  NodeId any_object();
  NodeId any_array();
  // One value as it stands, in compact form; strings in their canonical spelling. `depth` guards the recursion.
  NodeId value_of(const Json& value, int depth = 0);

  // A rule of its own whose automaton is shared.
  NodeId shared(const char* name, NodeId body);

 private:
  Ir* ir_;
  NodeId comma_, colon_, any_character_, canonical_character_, any_string_, any_integer_, any_number_;
  RuleId value_;
};

}  // namespace lode::text::grammar
