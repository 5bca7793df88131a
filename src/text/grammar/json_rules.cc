#include "text/grammar/json_rules.h"

#include <fmt/format.h>

namespace lode::text::grammar {
namespace {

// Python refuses integers of more than 4,300 digits and reads numbers beyond 1e308 as infinite; a model that found no
// end would write digits for ever. 20 digits hold every 64-bit integer.
constexpr std::uint32_t kIntegerDigits = 20, kFractionDigits = 20;

}  // namespace

NodeId JsonRules::shared(const char* name, NodeId body) {
  const RuleId rule = ir_->add_rule(name, Ir::Rule::Sharing::shared);
  ir_->set_body(rule, body);
  return ir_->reference(rule);
}

NodeId JsonRules::comma() {
  if (!comma_.valid()) comma_ = ir_->concat({ir_->literal(","), ir_->optional(ir_->literal(" "))});
  return comma_;
}

NodeId JsonRules::colon() {
  if (!colon_.valid()) colon_ = ir_->concat({ir_->literal(":"), ir_->optional(ir_->literal(" "))});
  return colon_;
}

NodeId JsonRules::any_character() {
  if (any_character_.valid()) return any_character_;
  Ir& ir = *ir_;
  const auto set = [&ir](std::initializer_list<CodePointRange> r) {
    return ir.characters(CodePointSet::of(r), Encoding::utf8);
  };
  const NodeId hex = set({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  const NodeId d = set({{'D', 'D'}, {'d', 'd'}});
  const NodeId plain = set({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kCodePointMax}});
  const NodeId brief = ir.concat(
      {ir.literal("\\"),
       set({{'"', '"'}, {'\\', '\\'}, {'/', '/'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}})});
  // Four digits that are no surrogate, or the two halves of a pair, which are one character.
  const NodeId not_d = set({{'0', '9'}, {'A', 'C'}, {'E', 'F'}, {'a', 'c'}, {'e', 'f'}});
  const NodeId single = ir.concat(
      {ir.literal("\\u"), ir.alt({ir.concat({not_d, hex, hex, hex}), ir.concat({d, set({{'0', '7'}}), hex, hex})})});
  const NodeId pair = ir.concat({ir.literal("\\u"), d, set({{'8', '9'}, {'A', 'B'}, {'a', 'b'}}), hex, hex,
                                 ir.literal("\\u"), d, set({{'C', 'F'}, {'c', 'f'}}), hex, hex});
  return any_character_ = ir.alt({plain, brief, single, pair});
}

NodeId JsonRules::canonical_character() {
  if (!canonical_character_.valid()) {
    canonical_character_ = ir_->characters(CodePointSet::all(), Encoding::json_string);
  }
  return canonical_character_;
}

NodeId JsonRules::any_string() {
  if (!any_string_.valid()) any_string_ = shared("string", quoted(ir_->repeat(any_character(), 0, kNoBound)));
  return any_string_;
}

NodeId JsonRules::string(std::uint32_t min, std::uint32_t max) {
  if (min == 0 && max == kNoBound) return any_string();
  return quoted(ir_->repeat(any_character(), min, max));
}

NodeId JsonRules::any_integer() {
  if (any_integer_.valid()) return any_integer_;
  Ir& ir = *ir_;
  const NodeId positive = ir.concat({ir.range('1', '9'), ir.repeat(ir.range('0', '9'), 0, kIntegerDigits - 1)});
  return any_integer_ =
             shared("integer", ir.alt({ir.literal("0"), ir.concat({ir.optional(ir.literal("-")), positive})}));
}

NodeId JsonRules::any_number() {
  if (any_number_.valid()) return any_number_;
  Ir& ir = *ir_;
  const NodeId digit = ir.range('0', '9');
  const NodeId whole =
      ir.alt({ir.literal("0"), ir.concat({ir.range('1', '9'), ir.repeat(digit, 0, kIntegerDigits - 1)})});
  const NodeId fraction = ir.optional(ir.concat({ir.literal("."), ir.repeat(digit, 1, kFractionDigits)}));
  const NodeId exponent =
      ir.optional(ir.concat({ir.alt({ir.literal("e"), ir.literal("E")}),
                             ir.optional(ir.alt({ir.literal("+"), ir.literal("-")})), ir.repeat(digit, 1, 2)}));
  return any_number_ = shared("number", ir.concat({ir.optional(ir.literal("-")), whole, fraction, exponent}));
}

NodeId JsonRules::any_array() {
  const NodeId more = ir_->repeat(ir_->concat({comma(), any_value()}), 0, kNoBound);
  return ir_->concat({ir_->literal("["), ir_->optional(ir_->concat({any_value(), more})), ir_->literal("]")});
}

NodeId JsonRules::any_object() {
  const NodeId member = ir_->concat({any_string(), colon(), any_value()});
  const NodeId more = ir_->repeat(ir_->concat({comma(), member}), 0, kNoBound);
  return ir_->concat({ir_->literal("{"), ir_->optional(ir_->concat({member, more})), ir_->literal("}")});
}

NodeId JsonRules::any_value() {
  if (value_.valid()) return ir_->reference(value_);
  value_ = ir_->add_rule("value", Ir::Rule::Sharing::shared);
  const NodeId words = ir_->alt({ir_->literal("true"), ir_->literal("false"), ir_->literal("null")});
  ir_->set_body(value_, ir_->alt({any_object(), any_array(), any_string(), any_number(), words}));
  return ir_->reference(value_);
}

NodeId JsonRules::value_of(const Json& value, int depth) {
  if (depth > ir_->limits().nesting_max) return ir_->nothing();
  std::vector<NodeId> parts;
  switch (value.type()) {
    case Json::value_t::string: return string_of(value.get_ref<const std::string&>());
    case Json::value_t::array:
      parts.push_back(ir_->literal("["));
      for (const Json& item : value) {
        if (parts.size() > 1) parts.push_back(comma());
        parts.push_back(value_of(item, depth + 1));
      }
      parts.push_back(ir_->literal("]"));
      return ir_->concat(parts);
    case Json::value_t::object:
      parts.push_back(ir_->literal("{"));
      for (const auto& [key, member] : value.items()) {
        if (parts.size() > 1) parts.push_back(comma());
        parts.push_back(ir_->concat({string_of(key), colon(), value_of(member, depth + 1)}));
      }
      parts.push_back(ir_->literal("}"));
      return ir_->concat(parts);
    default: return ir_->literal(value.dump());
  }
}

}  // namespace lode::text::grammar
