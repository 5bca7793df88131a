// What a JSON Schema asserts at one place, gathered from the schema itself, its $refs and its allOf. Points into the
// schema's JSON, which must outlive it. One thread; src/text/grammar only.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/grammar/limits.h"
#include "text/grammar/number_range.h"

namespace lode::text::grammar {

using Json = nlohmann::ordered_json;

// A schema and the JSON pointer it stands at, "#/properties/a".
struct SchemaSource {
  const Json* json = nullptr;
  std::string pointer;
};
// A value must satisfy each: an empty list accepts everything.
using Conjunction = std::vector<SchemaSource>;

enum TypeBit : std::uint8_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kFractionType = 8,  // Numbers that are no integers: "number" is both.
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAllTypes = 127,
};

struct ObjectPart {  // One schema's own object keywords: additionalProperties looks at its own siblings alone.
  std::vector<std::pair<std::string, SchemaSource>> properties;
  std::vector<std::pair<std::string, SchemaSource>> patterns;
  std::optional<SchemaSource> additional;
  bool names_properties = false;
  const SchemaSource* property(std::string_view name) const;
  bool closed() const { return additional && additional->json->is_boolean() && !additional->json->get<bool>(); }
};
struct ArrayPart {
  std::vector<SchemaSource> prefix;
  std::optional<SchemaSource> items;
};
struct SchemaGroup {  // anyOf or oneOf.
  std::string pointer;
  std::vector<SchemaSource> ways;
  bool exclusive = false;
};

struct SchemaModel {
  std::string pointer;                             // Of the first source.
  bool never = false;                              // `false`, or parts that contradict each other.
  std::string why;                                 // What contradicts.
  int sources = 0;                                 // Schemas with assertions that were gathered.
  std::optional<std::uint8_t> types;               // As `type` says; nullopt: it says nothing.
  std::uint8_t implied = 0;                        // The types that other keywords speak of.
  std::optional<std::vector<const Json*>> values;  // enum and const.
  std::string values_pointer;
  NumberRange range;
  std::uint32_t min_length = 0, max_length = kNoBound;
  std::vector<SchemaSource> patterns;  // Strings.
  std::vector<std::string> formats;    // Enforced ones.
  std::uint32_t min_items = 0, max_items = kNoBound;
  std::vector<ArrayPart> arrays;
  bool unique_items = false;
  std::string unique_pointer;
  std::uint32_t min_properties = 0, max_properties = kNoBound;
  std::vector<ObjectPart> objects;
  std::vector<std::string> required;
  std::vector<SchemaSource> property_names;
  std::vector<SchemaGroup> groups;

  // What a value may be by the keyword alone, and what is written: without `type`, the types that the other keywords
  // speak of.
  std::uint8_t valid_types() const { return types.value_or(kAllTypes); }
  std::uint8_t written_types() const { return types ? *types : implied != 0 ? implied : std::uint8_t{kAllTypes}; }
  bool requires_property(std::string_view name) const;
};

// Reads schemas of one document. Errors are lines that name pointer and keyword.
class SchemaReader {
 public:
  SchemaReader(const Json& root, const CompileLimits& limits) : root_(root), limits_(limits) {}

  Result<SchemaModel> load(const Conjunction& sources);
  // Adds one more schema's assertions.
  Status add(SchemaModel& model, const SchemaSource& source);
  // Follows schemas that are a $ref and nothing else. `followed`: whether there was one.
  Result<SchemaSource> resolve(SchemaSource source, bool* followed = nullptr);

 private:
  Status add_keywords(SchemaModel& model, const SchemaSource& source);
  Status add_reference(SchemaModel& model, const SchemaSource& at);
  Status check_known(const SchemaSource& at);
  Status read_types(SchemaModel& model, const SchemaSource& at);
  Status read_values(SchemaModel& model, const SchemaSource& at);
  Status read_numbers(SchemaModel& model, const SchemaSource& at);
  Status read_strings(SchemaModel& model, const SchemaSource& at);
  Status read_arrays(SchemaModel& model, const SchemaSource& at);
  Status read_objects(SchemaModel& model, const SchemaSource& at);
  Status read_groups(SchemaModel& model, const SchemaSource& at);
  Status read_count(const SchemaSource& at, const char* keyword, std::uint32_t& value, bool& found);
  Result<SchemaSource> target(const SchemaSource& at);

  const Json& root_;
  const CompileLimits& limits_;
  // $ref, allOf and oneOf can ask for the same schemas exponentially often.
  static constexpr std::int64_t kLoadsMax = 200'000;
  std::int64_t loads_left_ = kLoadsMax;
  std::vector<const Json*> open_;  // Schemas being added: one that comes back is a cycle.
};

// Whether two schemas surely share no value that is written for either: what oneOf needs.
Result<bool> surely_disjoint(SchemaReader& reader, const SchemaModel& a, const SchemaModel& b, int depth = 0);

// Whether a value satisfies the model's scalar keywords; nullopt where that takes more than them.
std::optional<bool> holds(const SchemaModel& model, const Json& value);
std::uint8_t type_of(const Json& value);

std::string child_pointer(const std::string& pointer, std::string_view key);
std::size_t code_points(std::string_view utf8);

}  // namespace lode::text::grammar
