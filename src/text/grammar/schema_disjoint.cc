// Whether two schemas surely share no value: what makes a oneOf an anyOf.
#include <algorithm>

#include "text/grammar/schema_model.h"

namespace lode::text::grammar {
namespace {

constexpr int kDepthMax = 6;

Result<bool> conjunctions_disjoint(SchemaReader& reader, const Conjunction& a, const Conjunction& b, int depth) {
  const auto x = reader.load(a), y = reader.load(b);
  if (!x.ok()) return x.status();
  if (!y.ok()) return y.status();
  return surely_disjoint(reader, *x, *y, depth);
}

bool strings_disjoint(const SchemaModel& a, const SchemaModel& b) {
  return a.min_length > b.max_length || b.min_length > a.max_length;
}

bool numbers_disjoint(const NumberRange& a, const NumberRange& b) {
  const auto below = [](const NumberRange& x, const NumberRange& y) {
    if (!x.high || !y.low) return false;
    const int order = compare(x.high->value, y.low->value);
    return order < 0 || (order == 0 && (x.high->open || y.low->open));
  };
  return below(a, b) || below(b, a);
}

// What a schema asks of one property; nullopt where it does not name it.
std::optional<Conjunction> property_of(const SchemaModel& model, const std::string& name) {
  Conjunction out;
  for (const ObjectPart& part : model.objects) {
    if (const SchemaSource* source = part.property(name)) out.push_back(*source);
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

bool forbids(const SchemaModel& model, const std::string& name) {
  return std::any_of(model.objects.begin(), model.objects.end(), [&](const ObjectPart& part) {
    return part.closed() && part.patterns.empty() && part.property(name) == nullptr;
  });
}

// A property that every value of `a` has and no value of `b` may have so.
Result<bool> told_by_property(SchemaReader& reader, const SchemaModel& a, const SchemaModel& b, int depth) {
  for (const std::string& name : a.required) {
    if (forbids(b, name)) return true;
    const auto mine = property_of(a, name), other = property_of(b, name);
    if (!mine || !other) continue;
    const auto apart = conjunctions_disjoint(reader, *mine, *other, depth + 1);
    if (!apart.ok() || *apart) return apart;
  }
  return false;
}

bool values_apart(const SchemaModel& a, const SchemaModel& b) {
  return std::all_of(a.values->begin(), a.values->end(), [&](const Json* v) {
    return holds(a, *v) == std::optional(false) || holds(b, *v) == std::optional(false);
  });
}

Result<bool> arrays_disjoint(SchemaReader& reader, const SchemaModel& a, const SchemaModel& b, int depth) {
  if (a.min_items > b.max_items || b.min_items > a.max_items) return true;
  if (a.min_items == 0 || b.min_items == 0) return false;
  const auto first = [](const SchemaModel& m) {
    Conjunction out;
    for (const ArrayPart& part : m.arrays) {
      if (!part.prefix.empty()) out.push_back(part.prefix[0]);
      else if (part.items) out.push_back(*part.items);
    }
    return out;
  };
  return conjunctions_disjoint(reader, first(a), first(b), depth + 1);
}

Result<bool> models_disjoint(SchemaReader& reader, const SchemaModel& a, const SchemaModel& b, int depth) {
  if (a.never || b.never) return true;
  if (a.values && values_apart(a, b)) return true;
  if (b.values && values_apart(b, a)) return true;
  const int shared = (a.written_types() & b.valid_types()) | (b.written_types() & a.valid_types());
  if (shared & (kNullType | kBooleanType)) return false;
  if ((shared & kStringType) && !strings_disjoint(a, b)) return false;
  if ((shared & (kIntegerType | kFractionType)) && !numbers_disjoint(a.range, b.range)) return false;
  if (shared & kArrayType) {
    const auto apart = arrays_disjoint(reader, a, b, depth);
    if (!apart.ok() || !*apart) return apart;
  }
  if (shared & kObjectType) {
    auto apart = told_by_property(reader, a, b, depth);
    if (apart.ok() && !*apart) apart = told_by_property(reader, b, a, depth);
    if (!apart.ok() || !*apart) return apart;
  }
  return true;
}

// Each alternative of one of a's groups, together with a, against b.
Result<bool> by_alternatives(SchemaReader& reader, const SchemaModel& a, const SchemaModel& b, int depth) {
  for (std::size_t g = 0; g < a.groups.size(); ++g) {
    bool all = true;
    for (std::size_t w = 0; w < a.groups[g].ways.size() && all; ++w) {
      SchemaModel with = a;
      with.groups.erase(with.groups.begin() + static_cast<std::ptrdiff_t>(g));
      if (const Status added = reader.add(with, a.groups[g].ways[w]); !added.ok()) return added;
      const auto apart = surely_disjoint(reader, with, b, depth + 1);
      if (!apart.ok()) return apart;
      all = *apart;
    }
    if (all) return true;
  }
  return false;
}

}  // namespace

Result<bool> surely_disjoint(SchemaReader& reader, const SchemaModel& a, const SchemaModel& b, int depth) {
  if (depth > kDepthMax) return false;
  auto apart = models_disjoint(reader, a, b, depth);
  if (apart.ok() && !*apart && !a.groups.empty()) apart = by_alternatives(reader, a, b, depth);
  if (apart.ok() && !*apart && !b.groups.empty()) apart = by_alternatives(reader, b, a, depth);
  return apart;
}

}  // namespace lode::text::grammar
