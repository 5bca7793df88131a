// Objects of a schema: properties in their order, then keys that patterns or additionalProperties allow.
#include <fmt/format.h>

#include <algorithm>

#include "text/grammar/automaton_builder.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema_writer.h"

namespace lode::text::grammar {

struct SchemaWriter::Member {  // A property with a name.
  std::string name;
  Conjunction schemas;
  bool required = false;
  bool forbidden = false;
};
struct SchemaWriter::KeyClass {  // Keys without a name of their own, and what their values are.
  std::optional<Fsa> keys;       // Without quotes; nullopt: any string.
  Conjunction schemas;
};

// Whether keys match a patternProperties regex, which is searched for in them.
Result<Fsa> SchemaWriter::key_pattern(const SchemaSource& pattern, const std::string& key) {
  if (const auto made = key_patterns_.find(key); made != key_patterns_.end()) return made->second;
  auto node = add_regex(ir_, key, {.encoding = Encoding::json_string, .match = RegexOptions::Match::search});
  Result<Fsa> fsa = node.ok() ? build_fsa(ir_, *node, work_) : Result<Fsa>(node.status());
  if (fsa.ok()) fsa = minimize(*fsa, work_);
  if (!fsa.ok()) return Status(fsa.status().code(), pattern.pointer + ": " + fsa.status().message());
  key_patterns_.emplace(key, *fsa);
  return fsa;
}

Status SchemaWriter::find_members(const SchemaModel& model, std::vector<Member>& out) {
  std::map<std::string, bool> seen;
  std::vector<std::string> names;
  for (const ObjectPart& part : model.objects) {
    for (const auto& [name, source] : part.properties) {
      if (seen.emplace(name, true).second) names.push_back(name);
    }
  }
  for (const std::string& name : model.required) {
    if (seen.emplace(name, true).second) names.push_back(name);
  }
  for (const std::string& name : names) {
    LODE_RETURN_IF_ERROR(work_.spend(20));
    Member member{.name = name, .required = model.requires_property(name)};
    for (const ObjectPart& part : model.objects) {
      bool described = false;
      if (const SchemaSource* source = part.property(name)) member.schemas.push_back(*source), described = true;
      for (const auto& [regex, source] : part.patterns) {
        const auto fsa = key_pattern(source, regex);
        if (!fsa.ok()) return fsa.status();
        if (accepts(*fsa, spell(name, Encoding::json_string).value_or("")))
          member.schemas.push_back(source), described = true;
      }
      if (described) continue;
      if (part.closed()) member.forbidden = true;
      else if (part.additional) member.schemas.push_back(*part.additional);
    }
    for (const SchemaSource& names_schema : model.property_names) {
      const auto rule = reader_.load({names_schema});
      if (!rule.ok()) return rule.status();
      const auto fits = holds(*rule, Json(name));
      if (!fits) {
        const auto fsa = string_automaton(*rule);
        if (!fsa.ok()) return fsa.status();
        if (!accepts(*fsa, spell(name, Encoding::json_string).value_or(""))) member.forbidden = true;
      } else if (!*fits) {
        member.forbidden = true;
      }
    }
    for (const SchemaSource& s : member.schemas) {
      if (s.json->is_boolean() && !s.json->get<bool>()) member.forbidden = true;
    }
    out.push_back(std::move(member));
  }
  return Status::success();
}

Result<Fsa> SchemaWriter::names_automaton(const std::vector<Member>& members) {
  std::vector<NodeId> names;
  for (const Member& m : members) names.push_back(ir_.text(m.name, Encoding::json_string));
  return build_fsa(ir_, ir_.alt(names), work_);
}

// Any key that no member has and propertyNames allows; nullopt: every string.
Result<std::optional<Fsa>> SchemaWriter::free_keys(const SchemaModel& model, const std::vector<Member>& members,
                                                   bool patterns) {
  using Out = std::optional<Fsa>;
  Result<Fsa> free = Fsa();
  if (!model.property_names.empty()) {
    const auto rule = reader_.load(model.property_names);
    if (!rule.ok()) return rule.status();
    if (rule->values || !rule->groups.empty() || rule->never || !(rule->valid_types() & kStringType)) {
      return Status::unsupported(model.property_names[0].pointer +
                                 ": only pattern, format, minLength and maxLength are supported beside further keys");
    }
    free = string_automaton(*rule);
  } else if (!patterns && members.empty()) {
    return Out();
  } else {
    free = build_fsa(ir_, ir_.repeat(json_.canonical_character(), 0, kNoBound), work_);
  }
  if (free.ok() && !members.empty()) {
    const auto names = names_automaton(members);
    free = names.ok() ? combine(*free, *names, Combine::only_first, work_) : Result<Fsa>(names.status());
  }
  if (!free.ok()) return free.status();
  return Out(std::move(*free));
}

// Keys that further members may have. None twice with another meaning: a class leaves out the named properties and the
// keys of every other pattern.
Status SchemaWriter::find_key_classes(const SchemaModel& model, const std::vector<Member>& members,
                                      std::vector<KeyClass>& out) {
  const auto any = [&model](auto test) { return std::any_of(model.objects.begin(), model.objects.end(), test); };
  const bool closed = any([](const ObjectPart& p) { return p.closed(); });
  const bool named = any([](const ObjectPart& p) { return p.names_properties; });
  const bool asked = any([](const ObjectPart& p) { return p.additional.has_value(); });
  struct Pattern {
    const ObjectPart* part;
    Fsa keys;
    SchemaSource schema;
  };
  std::vector<Pattern> patterns;
  for (const ObjectPart& part : model.objects) {
    for (const auto& [regex, source] : part.patterns) {
      auto fsa = key_pattern(source, regex);
      if (!fsa.ok()) return fsa.status();
      patterns.push_back({&part, std::move(*fsa), source});
    }
  }
  // Without a word on further keys an object with `properties` has none: what most authors mean, and a subset of what
  // the schema accepts.
  const bool others = !closed && (asked || !named);
  if (!others && patterns.empty()) return Status::success();
  const auto free = free_keys(model, members, !patterns.empty());
  if (!free.ok()) return free.status();
  for (std::size_t i = 0; i < patterns.size() + (others ? 1 : 0); ++i) {
    const ObjectPart* own = i < patterns.size() ? patterns[i].part : nullptr;
    KeyClass made;
    if (own != nullptr) made.schemas.push_back(patterns[i].schema);
    bool shut = false;
    for (const ObjectPart& part : model.objects) {
      if (&part == own) continue;
      if (part.closed()) shut = true;
      else if (part.additional) made.schemas.push_back(*part.additional);
    }
    if (shut) continue;
    if (*free) {
      Result<Fsa> keys = **free;
      for (std::size_t j = 0; j < patterns.size() && keys.ok(); ++j) {
        keys = combine(*keys, patterns[j].keys, j == i ? Combine::both : Combine::only_first, work_);
      }
      if (keys.ok()) keys = minimize(*keys, work_);
      if (!keys.ok()) return keys.status();
      if (accepts_nothing(*keys)) continue;
      made.keys = std::move(*keys);
    }
    out.push_back(std::move(made));
  }
  return Status::success();
}

SchemaWriter::Made SchemaWriter::write_object(const SchemaModel& model) {
  std::vector<Member> members;
  std::vector<KeyClass> classes;
  LODE_RETURN_IF_ERROR(find_members(model, members));
  LODE_RETURN_IF_ERROR(find_key_classes(model, members, classes));
  Ir::List list{.separator = json_.comma(), .more = NodeId::none(), .tail = NodeId::none()};
  std::uint32_t required = 0;
  for (const Member& m : members) {
    if (m.forbidden && m.required)
      return impossible(fmt::format("{}: the property \"{}\" is required and forbidden", model.pointer, m.name));
    if (m.forbidden) continue;
    auto value = m.schemas.empty() ? Made(json_.any_value()) : write(m.schemas);
    if (!value.ok()) return value;
    list.items.push_back({ir_.concat({json_.string_of(m.name), json_.colon(), *value}),
                          m.required ? Ir::ListItem::Kind::required : Ir::ListItem::Kind::skippable});
    required += m.required;
  }
  std::vector<NodeId> more;
  for (KeyClass& c : classes) {
    auto value = c.schemas.empty() ? Made(json_.any_value()) : write(c.schemas);
    if (!value.ok()) return value;
    NodeId key = json_.any_string();
    if (c.keys) key = json_.shared("key", json_.quoted(ir_.automaton(std::move(*c.keys))));
    more.push_back(ir_.concat({key, json_.colon(), *value}));
  }
  const auto begin = ir_.literal("{"), end = ir_.literal("}");
  const auto named = static_cast<std::uint32_t>(list.items.size());
  if (model.max_properties == 0 && required == 0 && model.min_properties == 0) return ir_.concat({begin, end});
  if (model.max_properties < named || (model.max_properties != kNoBound && !more.empty() &&
                                       (required != named || model.min_properties > required + 1))) {
    return Status::unsupported(child_pointer(model.pointer, "maxProperties") +
                               ": it is only supported where every property is required");
  }
  if (model.min_properties > required) {
    // One more than what is required anyway: with none required, one of any. More could be met by the same key twice.
    if (required != 0 || model.min_properties != 1) {
      if (more.empty() && model.min_properties > named)
        return impossible(child_pointer(model.pointer, "minProperties") + ": there are fewer properties");
      return Status::unsupported(child_pointer(model.pointer, "minProperties") +
                                 ": it is only supported as 1, or up to the number of required properties");
    }
    list.may_be_empty = false;
  }
  if (!more.empty() && model.max_properties == kNoBound) list.more = ir_.alt(more);
  if (!more.empty() && model.max_properties != kNoBound) {
    const NodeId member = ir_.alt(more), next = ir_.concat({json_.comma(), member});
    if (named == 0) {
      const NodeId all = ir_.concat({member, ir_.repeat(next, 0, model.max_properties - 1)});
      return ir_.concat({begin, list.may_be_empty ? ir_.optional(all) : all, end});
    }
    list.tail = ir_.repeat(next, 0, model.max_properties - named);
  }
  if (list.items.empty() && !list.more.valid()) {
    return list.may_be_empty ? Made(ir_.concat({begin, end}))
                             : impossible(model.pointer + ": there is no property it could have");
  }
  return ir_.concat({begin, ir_.list(std::move(list)), end});
}

}  // namespace lode::text::grammar
