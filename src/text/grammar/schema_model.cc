#include "text/grammar/schema_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/grammar/formats.h"
#include "text/utf8.h"

namespace lode::text::grammar {
namespace {

// Keywords of JSON Schema (and of OpenAPI, where they assert something) that are not done here.
constexpr std::string_view kRefused[] = {
    "not",          "if",           "then",        "else",        "dependentRequired",     "dependentSchemas",
    "dependencies", "contains",     "minContains", "maxContains", "unevaluatedProperties", "unevaluatedItems",
    "$dynamicRef",  "$recursiveRef"};

Status wrong(const SchemaSource& at, std::string_view keyword, std::string_view why) {
  return Status::invalid(fmt::format("{}: {}", child_pointer(at.pointer, keyword), why));
}
Status refused(const SchemaSource& at, std::string_view keyword, std::string_view why) {
  return Status::unsupported(fmt::format("{}: {}", child_pointer(at.pointer, keyword), why));
}

// Keywords that no value satisfies together: an error where one schema says them, a schema without values where several
// do that were put together (another alternative may remain).
Status contradiction(SchemaModel& model, const SchemaSource& at, std::string_view keyword, std::string_view why) {
  const Status out = wrong(at, keyword, why);
  if (model.sources <= 1) return out;
  model.never = true;
  model.why = out.message();
  return Status::success();
}

const Json* find(const SchemaSource& at, const char* keyword) {
  const auto it = at.json->find(keyword);
  return it == at.json->end() ? nullptr : &*it;
}

bool is_schema(const Json& j) {
  return j.is_object() || j.is_boolean();
}

SchemaSource child(const SchemaSource& at, std::string_view keyword, const Json& json) {
  return {&json, child_pointer(at.pointer, keyword)};
}

std::optional<std::uint8_t> type_bits(const Json& name) {
  static constexpr std::pair<std::string_view, std::uint8_t> kNames[] = {
      {"null", kNullType},       {"boolean", kBooleanType},
      {"integer", kIntegerType}, {"number", kIntegerType | kFractionType},
      {"string", kStringType},   {"array", kArrayType},
      {"object", kObjectType}};
  if (!name.is_string()) return std::nullopt;
  for (const auto& [known, bits] : kNames) {
    if (name.get_ref<const std::string&>() == known) return bits;
  }
  return std::nullopt;
}

}  // namespace

std::string child_pointer(const std::string& pointer, std::string_view key) {
  std::string out = pointer + "/";
  for (const char c : key.substr(0, 100)) {
    if (c == '~') out += "~0";
    else if (c == '/') out += "~1";
    else out += c;
  }
  return out;
}

std::size_t code_points(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

const SchemaSource* ObjectPart::property(std::string_view name) const {
  for (const auto& [known, source] : properties) {
    if (known == name) return &source;
  }
  return nullptr;
}

bool SchemaModel::requires_property(std::string_view name) const {
  return std::find(required.begin(), required.end(), name) != required.end();
}

Result<SchemaModel> SchemaReader::load(const Conjunction& sources) {
  SchemaModel model;
  if (!sources.empty()) model.pointer = sources[0].pointer;
  for (const SchemaSource& source : sources) LODE_RETURN_IF_ERROR(add(model, source));
  return model;
}

Status SchemaReader::add(SchemaModel& model, const SchemaSource& source) {
  const Json& json = *source.json;
  if (json.is_boolean()) {
    if (!json.get<bool>()) model.never = true, model.why = source.pointer + ": nothing satisfies false";
    return Status::success();
  }
  if (!json.is_object()) return Status::invalid(source.pointer + ": a schema is an object, true or false");
  if (--loads_left_ < 0) {
    return Status::exhausted(fmt::format("{}: more than {} schemas to put together; use fewer $ref, allOf and oneOf",
                                         source.pointer, kLoadsMax));
  }
  if (std::find(open_.begin(), open_.end(), &json) != open_.end()) {
    return Status::invalid(source.pointer +
                           ": this schema leads back to itself without describing anything (cyclic $ref)");
  }
  if (open_.size() > static_cast<std::size_t>(limits_.nesting_max)) {
    return Status::exhausted(
        fmt::format("{}: $ref and allOf are nested deeper than {}", source.pointer, limits_.nesting_max));
  }
  open_.push_back(&json);
  const Status out = add_keywords(model, source);
  open_.pop_back();
  return out;
}

Status SchemaReader::add_keywords(SchemaModel& model, const SchemaSource& source) {
  LODE_RETURN_IF_ERROR(check_known(source));
  if (find(source, "$ref") != nullptr) LODE_RETURN_IF_ERROR(add_reference(model, source));
  if (const Json* all = find(source, "allOf")) {
    if (!all->is_array() || all->empty()) return wrong(source, "allOf", "expected an array of schemas");
    for (std::size_t i = 0; i < all->size(); ++i) {
      LODE_RETURN_IF_ERROR(add(model, {&(*all)[i], fmt::format("{}/allOf/{}", source.pointer, i)}));
    }
  }
  ++model.sources;
  LODE_RETURN_IF_ERROR(read_types(model, source));
  LODE_RETURN_IF_ERROR(read_values(model, source));
  LODE_RETURN_IF_ERROR(read_numbers(model, source));
  LODE_RETURN_IF_ERROR(read_strings(model, source));
  LODE_RETURN_IF_ERROR(read_arrays(model, source));
  LODE_RETURN_IF_ERROR(read_objects(model, source));
  return read_groups(model, source);
}

Status SchemaReader::check_known(const SchemaSource& at) {
  for (const std::string_view keyword : kRefused) {
    if (at.json->contains(std::string(keyword))) return refused(at, keyword, "this keyword is not supported");
  }
  return Status::success();
}

// The schema that a $ref names: "#", or "#/" and a JSON pointer, percent-encoded.
Result<SchemaSource> SchemaReader::target(const SchemaSource& at) {
  const Json& ref = (*at.json)["$ref"];
  if (!ref.is_string()) return wrong(at, "$ref", "expected a string");
  const std::string& text = ref.get_ref<const std::string&>();
  if (!text.starts_with("#")) return refused(at, "$ref", "only references into this schema (\"#/...\") are supported");
  std::string path;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const auto hex = [&](std::size_t k) {
      const char c = k < text.size() ? text[k] : 'x';
      return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    };
    if (text[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0) {
      path += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
      i += 2;
    } else {
      path += text[i];
    }
  }
  if (!path.empty() && path[0] != '/')
    return refused(at, "$ref", "anchors are not supported; write a pointer (\"#/...\")");
  SchemaSource out{&root_, "#"};
  for (std::size_t pos = 0; pos < path.size();) {
    const std::size_t end = std::min(path.find('/', pos + 1), path.size());
    std::string key;
    for (std::size_t i = pos + 1; i < end; ++i) {
      if (path[i] == '~' && i + 1 < end && (path[i + 1] == '0' || path[i + 1] == '1'))
        key += path[++i] == '0' ? '~' : '/';
      else key += path[i];
    }
    pos = end;
    const Json* next = nullptr;
    if (out.json->is_object()) {
      if (const auto it = out.json->find(key); it != out.json->end()) next = &*it;
    } else if (out.json->is_array() && !key.empty() && key.size() < 10 &&
               key.find_first_not_of("0123456789") == std::string::npos) {
      const auto index = static_cast<std::size_t>(std::stoul(key));
      if (index < out.json->size()) next = &(*out.json)[index];
    }
    if (next == nullptr) return wrong(at, "$ref", fmt::format("{} leads nowhere", text.substr(0, 200)));
    out = {next, child_pointer(out.pointer, key)};
  }
  if (!is_schema(*out.json)) return wrong(at, "$ref", fmt::format("{} is no schema", text.substr(0, 200)));
  return out;
}

Status SchemaReader::add_reference(SchemaModel& model, const SchemaSource& at) {
  const auto to = target(at);
  return to.ok() ? add(model, *to) : to.status();
}

Result<SchemaSource> SchemaReader::resolve(SchemaSource source, bool* followed) {
  static constexpr std::string_view kSilent[] = {"$ref",     "title",     "description", "default", "examples",
                                                 "$comment", "$defs",     "definitions", "$schema", "$id",
                                                 "readOnly", "writeOnly", "deprecated"};
  for (int steps = 0;; ++steps) {
    if (!source.json->is_object() || find(source, "$ref") == nullptr) return source;
    for (const auto& [key, value] : source.json->items()) {
      if (std::find(std::begin(kSilent), std::end(kSilent), key) == std::end(kSilent)) return source;
    }
    if (steps > limits_.nesting_max) return wrong(source, "$ref", "it leads back to itself (cyclic $ref)");
    auto next = target(source);
    if (!next.ok()) return next;
    source = std::move(*next);
    if (followed != nullptr) *followed = true;
  }
}

Status SchemaReader::read_types(SchemaModel& model, const SchemaSource& at) {
  const Json* type = find(at, "type");
  if (type == nullptr) return Status::success();
  std::uint8_t bits = 0;
  const auto add_type = [&bits](const Json& name) {
    const auto known = type_bits(name);
    if (known) bits |= *known;
    return known.has_value();
  };
  bool fine = true;
  if (type->is_array()) {
    for (const Json& name : *type) fine = fine && add_type(name);
    fine = fine && !type->empty();
  } else {
    fine = add_type(*type);
  }
  if (!fine) {
    return wrong(at, "type", "expected null, boolean, integer, number, string, array, object, or a list of them");
  }
  const Json* nullable = find(at, "nullable");
  if (nullable != nullptr && nullable->is_boolean() && nullable->get<bool>()) bits |= kNullType;
  model.types = model.valid_types() & bits;
  return Status::success();
}

Status SchemaReader::read_values(SchemaModel& model, const SchemaSource& at) {
  static const Json null_value;
  for (const char* keyword : {"enum", "const"}) {
    const Json* given = find(at, keyword);
    if (given == nullptr) continue;
    std::vector<const Json*> values;
    if (std::string_view(keyword) == "const") {
      values.push_back(given);
    } else {
      if (!given->is_array() || given->empty()) return wrong(at, keyword, "expected an array with at least one value");
      for (const Json& v : *given) values.push_back(&v);
      const Json* nullable = find(at, "nullable");
      if (nullable != nullptr && nullable->is_boolean() && nullable->get<bool>()) values.push_back(&null_value);
    }
    if (model.values) {
      std::erase_if(*model.values, [&](const Json* v) {
        return std::none_of(values.begin(), values.end(), [&](const Json* w) { return *v == *w; });
      });
    } else {
      model.values = std::move(values);
    }
    model.values_pointer = child_pointer(at.pointer, keyword);
  }
  return Status::success();
}

Status SchemaReader::read_numbers(SchemaModel& model, const SchemaSource& at) {
  for (const char* keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) {
    const Json* given = find(at, keyword);
    if (given == nullptr) continue;
    const std::string_view name = keyword;
    if (given->is_boolean() && name.starts_with("exclusive")) continue;  // Draft 4: it belongs to minimum or maximum.
    const auto value = Decimal::of(*given);
    if (!value) return wrong(at, keyword, "expected a number");
    model.implied |= kIntegerType | kFractionType;
    if (name == "multipleOf") {
      if (value->negative || value->zero()) return wrong(at, keyword, "expected a number above 0");
      model.range.multiples.push_back(*value);
      continue;
    }
    const bool low = name == "minimum" || name == "exclusiveMinimum";
    const Json* draft4 = find(at, low ? "exclusiveMinimum" : "exclusiveMaximum");
    const bool open = name.starts_with("exclusive") || (draft4 != nullptr && *draft4 == true);
    if (low) model.range.at_least(*value, open);
    else model.range.at_most(*value, open);
  }
  const NumberRange& range = model.range;
  if (range.low && range.high && !range.holds(range.low->value) && !range.holds(range.high->value) &&
      compare(range.low->value, range.high->value) >= 0) {
    const char* keyword = find(at, "minimum") != nullptr            ? "minimum"
                          : find(at, "exclusiveMinimum") != nullptr ? "exclusiveMinimum"
                                                                    : "maximum";
    return contradiction(
        model, at, keyword,
        fmt::format("no number lies between {} and {}", range.low->value.text(), range.high->value.text()));
  }
  return Status::success();
}

Status SchemaReader::read_count(const SchemaSource& at, const char* keyword, std::uint32_t& value, bool& found) {
  const Json* given = find(at, keyword);
  found = given != nullptr;
  if (!found) return Status::success();
  const auto number = Decimal::of(*given);
  if (!number || number->negative || !number->integer()) return wrong(at, keyword, "expected an integer, 0 or more");
  value = number->whole.size() > 9 ? kNoBound
          : number->whole.empty()  ? 0
                                   : static_cast<std::uint32_t>(std::stoul(number->whole));
  if (std::string_view(keyword).starts_with("min") && value > kLeastMax) {
    return Status::exhausted(fmt::format("{}: more than {}", child_pointer(at.pointer, keyword), kLeastMax));
  }
  if (value > kCountMax) value = kNoBound;
  return Status::success();
}

Status SchemaReader::read_strings(SchemaModel& model, const SchemaSource& at) {
  std::uint32_t count = 0;
  bool found = false;
  LODE_RETURN_IF_ERROR(read_count(at, "minLength", count, found));
  if (found) model.min_length = std::max(model.min_length, count), model.implied |= kStringType;
  LODE_RETURN_IF_ERROR(read_count(at, "maxLength", count, found));
  if (found) model.max_length = std::min(model.max_length, count), model.implied |= kStringType;
  if (model.min_length > model.max_length)
    LODE_RETURN_IF_ERROR(contradiction(model, at, "minLength", "it is above maxLength"));
  if (const Json* pattern = find(at, "pattern")) {
    if (!pattern->is_string()) return wrong(at, "pattern", "expected a string");
    model.patterns.push_back(child(at, "pattern", *pattern));
    model.implied |= kStringType;
  }
  if (const Json* format = find(at, "format")) {
    if (!format->is_string()) return wrong(at, "format", "expected a string");
    const std::string& name = format->get_ref<const std::string&>();
    switch (format_kind(name)) {
      case FormatKind::enforced:
        model.formats.push_back(name);
        model.implied |= kStringType;
        break;
      case FormatKind::refused: return refused(at, "format", fmt::format("the format \"{}\" is not supported", name));
      case FormatKind::unknown: break;
    }
  }
  return Status::success();
}

Status SchemaReader::read_arrays(SchemaModel& model, const SchemaSource& at) {
  std::uint32_t count = 0;
  bool found = false;
  LODE_RETURN_IF_ERROR(read_count(at, "minItems", count, found));
  if (found) model.min_items = std::max(model.min_items, count), model.implied |= kArrayType;
  LODE_RETURN_IF_ERROR(read_count(at, "maxItems", count, found));
  if (found) model.max_items = std::min(model.max_items, count), model.implied |= kArrayType;
  if (model.min_items > model.max_items)
    LODE_RETURN_IF_ERROR(contradiction(model, at, "minItems", "it is above maxItems"));
  if (const Json* unique = find(at, "uniqueItems"); unique != nullptr && *unique == true) {
    model.unique_items = true;
    model.unique_pointer = child_pointer(at.pointer, "uniqueItems");
    model.implied |= kArrayType;
  }
  ArrayPart part;
  const Json* items = find(at, "items");
  const Json* prefix = find(at, "prefixItems");
  const bool old_tuple = prefix == nullptr && items != nullptr && items->is_array();  // Before draft 2020-12.
  if (old_tuple) {
    prefix = items;
    items = find(at, "additionalItems");
  }
  if (prefix != nullptr) {
    const char* keyword = old_tuple ? "items" : "prefixItems";
    if (!prefix->is_array() || prefix->empty()) return wrong(at, keyword, "expected an array of schemas");
    for (std::size_t i = 0; i < prefix->size(); ++i) {
      if (!is_schema((*prefix)[i])) return wrong(at, keyword, "expected an array of schemas");
      part.prefix.push_back({&(*prefix)[i], fmt::format("{}/{}/{}", at.pointer, keyword, i)});
    }
  }
  if (items != nullptr) {
    const char* keyword = old_tuple ? "additionalItems" : "items";
    if (!is_schema(*items)) return wrong(at, keyword, "expected a schema");
    part.items = child(at, keyword, *items);
  }
  if (prefix == nullptr && items == nullptr) return Status::success();
  model.implied |= kArrayType;
  model.arrays.push_back(std::move(part));
  return Status::success();
}

Status SchemaReader::read_objects(SchemaModel& model, const SchemaSource& at) {
  std::uint32_t count = 0;
  bool found = false;
  LODE_RETURN_IF_ERROR(read_count(at, "minProperties", count, found));
  if (found) model.min_properties = std::max(model.min_properties, count), model.implied |= kObjectType;
  LODE_RETURN_IF_ERROR(read_count(at, "maxProperties", count, found));
  if (found) model.max_properties = std::min(model.max_properties, count), model.implied |= kObjectType;
  if (model.min_properties > model.max_properties)
    LODE_RETURN_IF_ERROR(contradiction(model, at, "minProperties", "it is above maxProperties"));
  if (const Json* required = find(at, "required"); required != nullptr && !required->is_boolean()) {
    if (!required->is_array()) return wrong(at, "required", "expected an array of names");
    for (const Json& name : *required) {
      if (!name.is_string()) return wrong(at, "required", "expected an array of names");
      if (!model.requires_property(name.get_ref<const std::string&>())) model.required.push_back(name);
    }
    if (!required->empty()) model.implied |= kObjectType;
  }
  if (const Json* names = find(at, "propertyNames")) {
    if (!is_schema(*names)) return wrong(at, "propertyNames", "expected a schema");
    model.property_names.push_back(child(at, "propertyNames", *names));
    model.implied |= kObjectType;
  }
  ObjectPart part;
  const Json* additional = find(at, "additionalProperties");
  for (const char* keyword : {"properties", "patternProperties"}) {
    const Json* given = find(at, keyword);
    if (given == nullptr) continue;
    if (!given->is_object()) return wrong(at, keyword, "expected an object of schemas");
    const bool named = std::string_view(keyword) == "properties";
    const std::string here = child_pointer(at.pointer, keyword);
    for (const auto& [key, value] : given->items()) {
      if (!is_schema(value)) return wrong(at, keyword, "expected an object of schemas");
      (named ? part.properties : part.patterns).push_back({key, {&value, child_pointer(here, key)}});
    }
    part.names_properties = true;
  }
  if (additional != nullptr) {
    if (!is_schema(*additional)) return wrong(at, "additionalProperties", "expected a schema");
    part.additional = child(at, "additionalProperties", *additional);
  }
  if (!part.names_properties && additional == nullptr) return Status::success();
  model.implied |= kObjectType;
  model.objects.push_back(std::move(part));
  return Status::success();
}

Status SchemaReader::read_groups(SchemaModel& model, const SchemaSource& at) {
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const Json* given = find(at, keyword);
    if (given == nullptr) continue;
    if (!given->is_array() || given->empty()) return wrong(at, keyword, "expected an array of schemas");
    SchemaGroup group{.pointer = child_pointer(at.pointer, keyword), .exclusive = std::string_view(keyword) == "oneOf"};
    for (std::size_t i = 0; i < given->size(); ++i) {
      if (!is_schema((*given)[i])) return wrong(at, keyword, "expected an array of schemas");
      group.ways.push_back({&(*given)[i], fmt::format("{}/{}", group.pointer, i)});
    }
    model.groups.push_back(std::move(group));
  }
  return Status::success();
}

std::uint8_t type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return kNullType;
    case Json::value_t::boolean: return kBooleanType;
    case Json::value_t::string: return kStringType;
    case Json::value_t::array: return kArrayType;
    case Json::value_t::object: return kObjectType;
    default: {
      const auto number = Decimal::of(value);
      return number && number->integer() ? kIntegerType : kFractionType;
    }
  }
}

std::optional<bool> holds(const SchemaModel& model, const Json& value) {
  const std::uint8_t type = type_of(value);
  if (model.never || (model.valid_types() & type) == 0) return false;
  if (model.values &&
      std::none_of(model.values->begin(), model.values->end(), [&](const Json* v) { return *v == value; })) {
    return false;
  }
  std::optional<bool> out = model.groups.empty() ? std::optional(true) : std::nullopt;
  if (type == kStringType) {
    const std::size_t length = code_points(value.get_ref<const std::string&>());
    if (length < model.min_length || length > model.max_length) return false;
    if (!model.patterns.empty() || !model.formats.empty()) return std::nullopt;
  } else if (type == kIntegerType || type == kFractionType) {
    if (const auto number = Decimal::of(value); number && !model.range.holds(*number)) return false;
    if (!model.range.multiples.empty()) return std::nullopt;
  } else if (type == kArrayType) {
    if (value.size() < model.min_items || value.size() > model.max_items) return false;
    if (!model.arrays.empty() || model.unique_items) return std::nullopt;
  } else if (type == kObjectType) {
    for (const std::string& name : model.required) {
      if (!value.contains(name)) return false;
    }
    if (!model.objects.empty() || !model.property_names.empty()) return std::nullopt;
    if (value.size() < model.min_properties || value.size() > model.max_properties) return false;
  }
  return out;
}

}  // namespace lode::text::grammar
