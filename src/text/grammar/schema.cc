#include "text/grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "text/grammar/automaton_builder.h"
#include "text/grammar/schema_writer.h"

namespace lode::text::grammar {
namespace {

// Whether a model says nothing but its one group.
bool only_a_group(const SchemaModel& m) {
  return m.groups.size() == 1 && !m.types && m.implied == 0 && !m.values && !m.never;
}

}  // namespace

Result<RuleId> add_schema(Ir& ir, const nlohmann::ordered_json& schema, Work& work) {
  return SchemaWriter(ir, schema, work).run();
}

Result<RuleId> SchemaWriter::run() {
  const RuleId root = ir_.add_rule("root");
  auto body = write({{&root_, "#"}});
  if (!body.ok()) return body.status();
  ir_.set_body(root, *body);
  // A schema that a $ref names is a rule, so that recursion ends; its body waits here, so that chains of them do not
  // nest on the stack.
  while (!waiting_.empty()) {
    const auto [rule, schemas] = std::move(waiting_.back());
    waiting_.pop_back();
    auto made = write_body(schemas);
    if (!made.ok()) return made.status();
    ir_.set_body(rule, *made);
    LODE_RETURN_IF_ERROR(check_size(schemas[0].pointer));
  }
  if (why_.empty()) return root;
  // What contradicts itself matters if nothing else is left; the builder finds that out, this says why.
  const auto facts = build_automaton(ir_, root, work_);
  if (!facts.ok() && facts.status().code() == Code::invalid_argument) return Status::invalid(why_);
  return root;
}

Status SchemaWriter::check_size(const std::string& pointer) const {
  if (!ir_.overflowed()) return Status::success();
  return Status::exhausted(fmt::format("{}: the schema has more than {} parts", pointer, ir_.limits().nodes_max));
}

SchemaWriter::Made SchemaWriter::write(const Conjunction& given) {
  Conjunction schemas;
  bool referenced = false;
  for (const SchemaSource& source : given) {
    auto to = reader_.resolve(source, &referenced);
    if (!to.ok()) return to.status();
    const bool twice = std::any_of(schemas.begin(), schemas.end(), [&](const auto& s) { return s.json == to->json; });
    if (!twice) schemas.push_back(std::move(*to));
  }
  // The root, and what several schemas say together, can come back too.
  if (!referenced && schemas.size() <= 1) return write_body(schemas);
  std::vector<const Json*> key;
  for (const SchemaSource& s : schemas) key.push_back(s.json);
  const auto [it, fresh] = rules_.try_emplace(std::move(key));
  if (fresh) {
    it->second = ir_.add_rule(schemas[0].pointer);
    waiting_.emplace_back(it->second, schemas);
  }
  return ir_.reference(it->second);
}

SchemaWriter::Made SchemaWriter::write_body(const Conjunction& schemas) {
  const std::string where = schemas.empty() ? "#" : schemas[0].pointer;
  if (depth_ >= ir_.limits().nesting_max) {
    return Status::exhausted(fmt::format("{}: schemas are nested deeper than {}", where, ir_.limits().nesting_max));
  }
  LODE_RETURN_IF_ERROR(work_.spend(20));
  LODE_RETURN_IF_ERROR(check_size(where));
  auto model = reader_.load(schemas);
  if (!model.ok()) return model.status();
  ++depth_;
  auto out = write_model(*model);
  --depth_;
  return out;
}

SchemaWriter::Made SchemaWriter::write_model(const SchemaModel& model) {
  if (model.never) return impossible(model.why);
  if (model.groups.empty()) return write_types(model);
  const SchemaGroup& group = model.groups.front();
  LODE_RETURN_IF_ERROR(check_exclusive(model, group));
  std::vector<NodeId> ways;
  for (const SchemaSource& way : group.ways) {
    Made made = ir_.nothing();
    if (only_a_group(model)) {
      made = write({way});
    } else {
      // The alternative and everything else that stands beside it, together.
      if (++combinations_ > kCombinationsMax) {
        return Status::exhausted(
            fmt::format("{}: alternatives multiply to more than {}", group.pointer, kCombinationsMax));
      }
      SchemaModel together = model;
      together.groups.erase(together.groups.begin());
      LODE_RETURN_IF_ERROR(reader_.add(together, way));
      if (depth_ >= ir_.limits().nesting_max) {
        return Status::exhausted(
            fmt::format("{}: schemas are nested deeper than {}", way.pointer, ir_.limits().nesting_max));
      }
      ++depth_;
      made = write_model(together);
      --depth_;
    }
    if (!made.ok()) return made;
    ways.push_back(*made);
  }
  return ir_.alt(ways);
}

// A value may match one way of a oneOf only. That is sure where no two ways share a value; where it is not, no
// automaton over single ways keeps the promise, and the schema is refused.
Status SchemaWriter::check_exclusive(const SchemaModel& model, const SchemaGroup& group) {
  if (!group.exclusive) return Status::success();
  std::vector<SchemaModel> ways;
  for (const SchemaSource& way : group.ways) {
    ways.push_back(model);
    ways.back().groups.clear();
    LODE_RETURN_IF_ERROR(reader_.add(ways.back(), way));
  }
  for (std::size_t i = 0; i < ways.size(); ++i) {
    for (std::size_t j = i + 1; j < ways.size(); ++j) {
      LODE_RETURN_IF_ERROR(work_.spend(50));
      const auto apart = surely_disjoint(reader_, ways[i], ways[j]);
      if (!apart.ok()) return apart.status();
      if (*apart) continue;
      return Status::unsupported(fmt::format(
          "{}: alternatives {} and {} may both match one value; tell them apart by a required property with different "
          "constants or by type, or write anyOf",
          group.pointer, i, j));
    }
  }
  return Status::success();
}

SchemaWriter::Made SchemaWriter::impossible(const std::string& why) {
  if (why_.empty()) why_ = why;
  return ir_.nothing();
}

SchemaWriter::Made SchemaWriter::write_types(const SchemaModel& model) {
  if (model.values) return write_values(model);
  const std::uint8_t types = model.written_types();
  if (types == kAllTypes && model.implied == 0) return json_.any_value();
  std::vector<NodeId> ways;
  const auto add = [&ways](Made made) {
    if (!made.ok()) return made.status();
    ways.push_back(*made);
    return Status::success();
  };
  if (types & kObjectType) LODE_RETURN_IF_ERROR(add(write_object(model)));
  if (types & kArrayType) LODE_RETURN_IF_ERROR(add(write_array(model)));
  if (types & kStringType) LODE_RETURN_IF_ERROR(add(write_string(model)));
  if (types & (kIntegerType | kFractionType))
    LODE_RETURN_IF_ERROR(add(write_number(model, (types & kFractionType) == 0)));
  if (types & kBooleanType) ways.push_back(ir_.alt({ir_.literal("true"), ir_.literal("false")}));
  if (types & kNullType) ways.push_back(ir_.literal("null"));
  if (ways.empty()) return impossible(model.pointer + ": no type is left");
  return ir_.alt(ways);
}

SchemaWriter::Made SchemaWriter::write_values(const SchemaModel& model) {
  SchemaModel rest = model;
  rest.values.reset();
  std::vector<NodeId> ways;
  for (const Json* value : *model.values) {
    LODE_RETURN_IF_ERROR(work_.spend(10));
    const auto fits = holds(rest, *value);
    if (!fits) {
      return Status::unsupported(model.values_pointer +
                                 ": beside it stand keywords that cannot be checked against a value; leave them out");
    }
    if (*fits) ways.push_back(json_.value_of(*value));
  }
  if (ways.empty()) return impossible(model.values_pointer + ": no value is left that the rest of the schema accepts");
  return ir_.alt(ways);
}

SchemaWriter::Made SchemaWriter::write_number(const SchemaModel& model, bool integer) {
  if (!model.range.bounded()) return integer ? json_.any_integer() : json_.any_number();
  NumberRange range = model.range;
  range.integer = integer;
  auto fsa = number_automaton(range, work_);
  if (!fsa.ok()) return Status(fsa.status().code(), model.pointer + ": " + fsa.status().message());
  if (accepts_nothing(*fsa)) return impossible(model.pointer + ": no number satisfies the bounds");
  return json_.shared("bounded number", ir_.automaton(std::move(*fsa)));
}

SchemaWriter::Made SchemaWriter::write_array(const SchemaModel& model) {
  if (model.unique_items && model.max_items > 1) {
    return Status::unsupported(model.unique_pointer + ": this keyword is not supported");
  }
  std::size_t prefix = 0;
  bool open = model.arrays.empty();  // Items are allowed after the first ones.
  Conjunction rest;
  for (const ArrayPart& part : model.arrays) {
    prefix = std::max(prefix, part.prefix.size());
    if (part.items) rest.push_back(*part.items), open = true;
  }
  // Like an object with `properties` alone, a tuple ends with its last item unless more are asked for.
  if (model.min_items > prefix) open = true;
  std::uint32_t most = model.max_items;
  for (const ArrayPart& part : model.arrays) {
    const bool shut = part.items && part.items->json->is_boolean() && !part.items->json->get<bool>();
    if (shut) most = std::min(most, static_cast<std::uint32_t>(part.prefix.size()));
  }
  if (!open) most = std::min(most, static_cast<std::uint32_t>(prefix));
  if (most < model.min_items) return impossible(model.pointer + ": the array has fewer items than minItems");
  const auto begin = ir_.literal("["), end = ir_.literal("]");
  if (most == 0) return ir_.concat({begin, end});
  if (prefix > ir_.limits().nodes_max / 100) return Status::exhausted(model.pointer + ": too many prefixItems");
  NodeId item = NodeId::none();
  if (most > prefix) {
    auto made = rest.empty() ? Made(json_.any_value()) : write(rest);
    if (!made.ok()) return made;
    item = *made;
  }
  const auto from = [](std::uint32_t n, std::size_t less) {
    return n > less ? n - static_cast<std::uint32_t>(less) : 0;
  };
  const std::uint32_t more_max = most == kNoBound ? kNoBound : from(most, std::max<std::size_t>(prefix, 1));
  if (prefix == 0) {
    const NodeId more = ir_.repeat(ir_.concat({json_.comma(), item}), from(model.min_items, 1), more_max);
    const NodeId items = ir_.concat({item, more});
    return ir_.concat({begin, model.min_items == 0 ? ir_.optional(items) : items, end});
  }
  Ir::List list{.separator = json_.comma(), .more = NodeId::none(), .tail = NodeId::none()};
  for (std::size_t i = 0; i < prefix && i < most; ++i) {
    Conjunction at;
    for (const ArrayPart& part : model.arrays) {
      if (i < part.prefix.size()) at.push_back(part.prefix[i]);
      else if (part.items) at.push_back(*part.items);
    }
    auto made = write(at);
    if (!made.ok()) return made;
    list.items.push_back({*made, i < model.min_items ? Ir::ListItem::Kind::required : Ir::ListItem::Kind::last_stop});
  }
  if (most > prefix) {
    list.tail = ir_.repeat(ir_.concat({json_.comma(), item}), from(model.min_items, prefix), more_max);
  }
  return ir_.concat({begin, ir_.list(std::move(list)), end});
}

}  // namespace lode::text::grammar
