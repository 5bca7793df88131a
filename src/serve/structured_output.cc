#include "serve/structured_output.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "engine/grammar_constraint.h"

namespace lode::serve {
namespace {

using text::grammar::GrammarStore;

enum class Kind { schema, object, regex, gbnf, choice };

// What a field asks for, and the field's place for errors.
struct Asked {
  Kind kind;
  std::string place;
  const Json* value = nullptr;  // Of no meaning for Kind::object.
};

// An empty string, array or object and `false` ask for nothing, as clients send them for every field that they know.
bool asks(const Json* value) {
  if (value == nullptr || (value->is_boolean() && !value->get<bool>())) return false;
  if (value->is_string()) return !value->get_ref<const std::string&>().empty();
  return !value->is_array() || !value->empty();
}

// OpenAI's: {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": {...}}}; llama-server's
// json_object may carry a "schema", and its json_schema as well.
void read_response_format(Fields& fields, std::vector<Asked>& asked) {
  const Json* format = fields.find("response_format");
  if (format == nullptr || (format->is_object() && format->empty())) return;
  if (!format->is_object()) return fields.fail("response_format", "an object", describe(*format));
  const auto in = [](const Json& object, const char* name) -> const Json* {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  };
  const Json* type = in(*format, "type");
  const std::string name = type != nullptr && type->is_string() ? type->get<std::string>() : "";
  const Json* schema = in(*format, "schema");
  if (name == "text") return;
  if (name == "json_object") {
    asked.push_back({schema != nullptr ? Kind::schema : Kind::object,
                     schema != nullptr ? "response_format.schema" : "response_format", schema});
    return;
  }
  if (name != "json_schema")
    return fields.fail("response_format.type", "\"text\", \"json_object\" or \"json_schema\"",
                       type == nullptr ? "nothing" : describe(*type));
  std::string place = "response_format.schema";
  if (const Json* outer = in(*format, "json_schema"); outer != nullptr && outer->is_object()) {
    schema = in(*outer, "schema");
    place = "response_format.json_schema.schema";
  }
  if (schema == nullptr) return fields.fail(place, fmt::format("'{}' is missing", place));
  asked.push_back({Kind::schema, place, schema});
}

constexpr struct {
  const char* name;
  Kind kind;
} kFields[] = {{"json_schema", Kind::schema}, {"grammar", Kind::gbnf},        {"guided_json", Kind::schema},
               {"guided_regex", Kind::regex}, {"guided_grammar", Kind::gbnf}, {"guided_choice", Kind::choice}},
  kStructured[] = {{"json", Kind::schema},
                   {"json_object", Kind::object},
                   {"regex", Kind::regex},
                   {"grammar", Kind::gbnf},
                   {"choice", Kind::choice}};

// vLLM's: {"json": ...} or one of the others.
void read_structured_outputs(Fields& fields, std::vector<Asked>& asked) {
  const Json* outer = fields.find("structured_outputs");
  if (outer == nullptr) return;
  if (!outer->is_object()) return fields.fail("structured_outputs", "an object", describe(*outer));
  for (const auto& [name, value] : outer->items()) {
    if (value.is_null()) continue;
    bool known = false;
    for (const auto& field : kStructured) {
      if (name != field.name) continue;
      known = true;
      if (asks(&value)) asked.push_back({field.kind, "structured_outputs." + name, &value});
    }
    if (!known && asks(&value))
      return fields.fail("structured_outputs." + name,
                         fmt::format("'structured_outputs.{}' is not supported by this server", name));
  }
}

// A schema may come as text (guided_json).
GrammarStore::Made compile_schema(GrammarStore& grammars, const Json& value) {
  if (!value.is_string()) return grammars.json_schema(value);
  auto parsed = parse_json(value.get_ref<const std::string&>());
  if (!parsed.ok()) return parsed.status();
  return grammars.json_schema(*parsed);
}

GrammarStore::Made compile(GrammarStore& grammars, const Asked& asked) {
  if (asked.kind == Kind::object) return grammars.json_object();
  const Json& value = *asked.value;
  if (asked.kind == Kind::schema) return compile_schema(grammars, value);
  if (asked.kind == Kind::choice) {
    std::vector<std::string> choices;
    if (!value.is_array()) return Status::invalid("expected an array of strings, found " + describe(value));
    for (const Json& one : value) {
      if (!one.is_string())
        return Status::invalid("expected an array of strings, found one that holds " + describe(one));
      choices.push_back(one.get<std::string>());
    }
    return grammars.choice(choices);
  }
  if (!value.is_string()) return Status::invalid("expected a string, found " + describe(value));
  const auto& text = value.get_ref<const std::string&>();
  return asked.kind == Kind::regex ? grammars.regex(text) : grammars.gbnf(text);
}

}  // namespace

bool names_structured_output(const Json& body) {
  if (!body.is_object()) return false;
  for (const auto& field : kFields)
    if (body.contains(field.name)) return true;
  for (const char* name :
       {"response_format", "structured_outputs", "output_config", "output_format", "text", "tool_choice"})
    if (body.contains(name)) return true;
  return false;
}

void read_structured_output(Fields& fields, GrammarStore& grammars, engine::Request& out) {
  std::vector<Asked> asked;
  read_response_format(fields, asked);
  for (const auto& field : kFields) {
    const Json* value = fields.find(field.name);
    if (asks(value)) asked.push_back({field.kind, field.name, value});
  }
  read_structured_outputs(fields, asked);
  if (fields.error() || asked.empty()) return;
  if (asked.size() > 1)
    return fields.fail(asked[1].place, fmt::format("'{}' and '{}' both say what the answer may be: give one of them",
                                                   asked[0].place, asked[1].place));
  auto masks = compile(grammars, asked[0]);
  if (!masks.ok())
    return fields.fail(asked[0].place, fmt::format("'{}': {}", asked[0].place, valid_utf8(masks.status().message())));
  out.constraint = std::make_shared<engine::GrammarConstraint>(std::move(masks).value(), grammars.tokenizer());
}

}  // namespace lode::serve
