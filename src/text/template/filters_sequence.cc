// Filters over sequences and mappings. Those that are generators in jinja2 are so here: their items can be had once,
// they print and serialize as no list does, and an error in the middle comes after the items before it.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/filters.h"

namespace lode::text::jinja::filters {

Path::Path(Runtime& rt, const Value* attribute) {
  if (!attribute || attribute->is(Kind::none)) return;
  if (!attribute->is_str()) {
    parts_.push_back(*attribute);
    return;
  }
  const std::string_view text = attribute->text();
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const bool number = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    parts_.push_back(number ? Value::integer(std::stoll(std::string(part))) : rt.str(part));
    begin = end + 1;
  }
}

Value Path::of(Runtime& rt, const Value& v, const Value* otherwise) const {
  Value at = v;
  for (const Value& part : parts_) {
    rt.budget.step();
    at = item(rt, at, part);
    if (at.is(Kind::undefined) && otherwise) at = *otherwise;
  }
  return at;
}

Value without_case(Runtime& rt, const Value& v) {
  if (!v.is_str()) return v;
  rt.budget.read(v.text().size());
  return rt.str(to_lower(v.text()));
}

namespace {

// Runs `each` over the items, which adds to the generator's; its error becomes the generator's end.
template <typename Each>
Value generated(Runtime& rt, const Value& source, const Each& each) {
  Values out;
  std::optional<Fault> error;
  try {
    for (const Value& v : iterate(rt, source)) {
      rt.budget.step();
      each(out, v);
    }
  } catch (Fault& fault) {
    if (fault.code == Code::resource_exhausted) throw;
    error = std::move(fault);
  }
  return rt.generator(std::move(out), std::move(error));
}

Filter filter_named(const Value& name) {
  const Filter filter = name.is_str() ? find_filter(name.text()) : nullptr;
  if (!filter) fail(fmt::format("there is no filter '{}'", name.is_str() ? name.text() : type_name(name)));
  return filter;
}

enum class Keep { passing, failing };
enum class By { item, attribute };

// select, reject, selectattr, rejectattr: an optional attribute, an optional test, the test's arguments.
Value chosen(Runtime& rt, const Args& args, std::string_view name, Keep keep, By by) {
  if (args.positional.empty()) fail(fmt::format("{}() missing required argument 'value'", name));
  const std::size_t offset = by == By::attribute ? 2 : 1;
  const Value& source = args.positional[0];
  if (!truthy(source)) return rt.generator({});
  std::optional<Path> path;
  Test test = nullptr;
  Args test_args;
  return generated(rt, source, [&](Values& out, const Value& v) {
    if (!path) {  // Here, so that a wrong argument is an error when the items are asked for.
      if (args.positional.size() < offset) fail(fmt::format("{}() is missing the attribute's name", name));
      path.emplace(rt, by == By::attribute ? &args.positional[1] : nullptr);
      if (args.positional.size() > offset) {
        const Value& test_name = args.positional[offset];
        test = test_name.is_str() ? find_test(test_name.text()) : nullptr;
        if (!test)
          fail(fmt::format("there is no test '{}'", test_name.is_str() ? test_name.text() : type_name(test_name)));
        test_args.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(offset),
                                    args.positional.end());
        test_args.named = args.named;
      }
    }
    const Value subject = path->of(rt, v);
    bool passes = false;
    if (test) {
      test_args.positional[0] = subject;
      passes = test(rt, test_args);
    } else {
      passes = truthy(subject);
    }
    if (passes == (keep == Keep::passing)) out.push_back(v);
  });
}

// The items in the order of their keys.
Value sorted(Runtime& rt, std::vector<std::pair<Value, Value>> keyed, Order order) {
  sort_by(rt, keyed, order);
  Values out;
  for (auto& [key, v] : keyed) out.push_back(std::move(v));
  return rt.list(std::move(out));
}

// (key, item) pairs, keys without case unless asked.
std::vector<std::pair<Value, Value>> with_keys(Runtime& rt, const Value& source, const Path& path,
                                               const Value* otherwise, bool case_sensitive) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& v : iterate(rt, source)) {
    const Value key = path.of(rt, v, otherwise);
    keyed.emplace_back(case_sensitive ? key : without_case(rt, key), v);
  }
  return keyed;
}

}  // namespace

Value select(Runtime& rt, const Args& args) {
  return chosen(rt, args, "select", Keep::passing, By::item);
}
Value reject(Runtime& rt, const Args& args) {
  return chosen(rt, args, "reject", Keep::failing, By::item);
}
Value selectattr(Runtime& rt, const Args& args) {
  return chosen(rt, args, "selectattr", Keep::passing, By::attribute);
}
Value rejectattr(Runtime& rt, const Args& args) {
  return chosen(rt, args, "rejectattr", Keep::failing, By::attribute);
}

Value map(Runtime& rt, const Args& args) {
  if (args.positional.empty()) fail("map() missing required argument 'value'");
  const Value& source = args.positional[0];
  if (!truthy(source)) return rt.generator({});
  if (args.positional.size() == 1) {
    const Value *attribute = nullptr, *otherwise = nullptr;
    for (const auto& [name, value] : args.named) {
      if (name == "attribute") attribute = &value;
      else if (name == "default") otherwise = value.is(Kind::none) ? nullptr : &value;
      else fail(fmt::format("map() got an unexpected keyword argument '{}'", name));
    }
    if (!attribute) fail("map() needs a filter's name or attribute='...'");
    const Path path(rt, attribute);
    return generated(rt, source, [&](Values& out, const Value& v) { out.push_back(path.of(rt, v, otherwise)); });
  }
  Filter filter = nullptr;
  Args filter_args;
  filter_args.positional.assign(args.positional.begin() + 1, args.positional.end());
  filter_args.named = args.named;
  return generated(rt, source, [&](Values& out, const Value& v) {
    if (!filter) filter = filter_named(args.positional[1]);
    const DepthGuard guard(rt.budget);  // map may be the filter.
    filter_args.positional[0] = v;
    out.push_back(filter(rt, filter_args));
  });
}

Value attr(Runtime& rt, const Args& args) {
  const Params p("attr", args, {"obj", "name"}, 2);
  // An attribute only, never an item.
  if (p.at(0).is(Kind::dict) && !container_method(p.at(0), p.text(1))) return rt.missing_attribute(p.at(0), p.text(1));
  return attribute(rt, p.at(0), p.text(1));
}

Value default_value(Runtime& rt, const Args& args) {
  const Params p("default", args, {"value", "default_value", "boolean"}, 1);
  const bool missing = p.at(0).is(Kind::undefined) || (p.flag(2) && !truthy(p.at(0)));
  if (!missing) return p.at(0);
  return p[1] ? *p[1] : rt.str("");
}

Value list(Runtime& rt, const Args& args) {
  const Params p("list", args, {"value"}, 1);
  return rt.list(iterate(rt, p.at(0)));
}

Value items(Runtime& rt, const Args& args) {
  const Params p("items", args, {"value"}, 1);
  if (p.at(0).is(Kind::undefined)) return rt.generator({});
  if (!p.at(0).is(Kind::dict)) {
    return rt.generator({}, Fault{Code::invalid_argument, "Can only get item pairs from a mapping.", rt.line});
  }
  Values out;
  for (const auto& [key, value] : p.at(0).as<DictObject>().items) out.push_back(rt.tuple({key, value}));
  return rt.generator(std::move(out));
}

Value length(Runtime& rt, const Args& args) {
  const Params p("length", args, {"obj"}, 1);
  rt.budget.read(p.at(0).is_str() ? p.at(0).text().size() : 0);
  const auto n = jinja::length(p.at(0));
  if (!n) fail(fmt::format("object of type '{}' has no len()", type_name(p.at(0))));
  return Value::integer(*n);
}

Value first(Runtime& rt, const Args& args) {
  const Params p("first", args, {"seq"}, 1);
  if (p.at(0).is(Kind::generator)) {
    auto& g = p.at(0).as<GeneratorObject>();
    if (g.next < g.items.size()) return g.items[g.next++];
  }
  if (p.at(0).is_str() && !p.at(0).text().empty()) return item(rt, p.at(0), Value::integer(0));
  const Values all = iterate(rt, p.at(0));
  return all.empty() ? rt.undefined("No first item, sequence was empty.") : all.front();
}

Value last(Runtime& rt, const Args& args) {
  const Params p("last", args, {"seq"}, 1);
  if (p.at(0).is(Kind::generator)) fail("'generator' object is not reversible; expected |list before |last");
  if (p.at(0).is_str() && !p.at(0).text().empty()) return item(rt, p.at(0), Value::integer(-1));
  const Values all = iterate(rt, p.at(0));
  return all.empty() ? rt.undefined("No last item, sequence was empty.") : all.back();
}

Value reverse(Runtime& rt, const Args& args) {
  const Params p("reverse", args, {"value"}, 1);
  const Value& v = p.at(0);
  if (v.is_str()) return jinja::slice(rt, v, Value::none(), Value::none(), Value::integer(-1));
  Values all = iterate(rt, v);
  std::reverse(all.begin(), all.end());
  // Python reverses what it can without a copy, which gives an iterator; the rest becomes a list.
  return v.is(Kind::generator) || v.is(Kind::undefined) ? rt.list(std::move(all)) : rt.generator(std::move(all));
}

namespace {

// What `make` returns as a generator; its error comes when the items are asked for.
template <typename Make>
Value late(Runtime& rt, const Make& make) {
  try {
    return rt.generator(make());
  } catch (Fault& fault) {
    if (fault.code == Code::resource_exhausted) throw;
    return rt.generator({}, std::move(fault));
  }
}

Values batches(Runtime& rt, const Params& p) {
  const std::int64_t size = p.integer(1);
  Values out, row;
  for (const Value& v : iterate(rt, p.at(0))) {
    if (static_cast<std::int64_t>(row.size()) == size) out.push_back(rt.list(std::exchange(row, {})));
    row.push_back(v);
  }
  if (!row.empty()) {
    const bool fill = p[2] && !p[2]->is(Kind::none) && static_cast<std::int64_t>(row.size()) < size;
    if (fill) {
      const std::size_t limit = rt.budget.limits().memory_bytes_max;
      rt.budget.require(std::min(static_cast<std::size_t>(size), limit) * sizeof(Value));
      row.resize(static_cast<std::size_t>(size), *p[2]);
    }
    out.push_back(rt.list(std::move(row)));
  }
  return out;
}

Values slices_of(Runtime& rt, const Params& p) {
  const Values all = iterate(rt, p.at(0));
  const std::int64_t slices = p.integer(1), count = static_cast<std::int64_t>(all.size());
  if (slices == 0) fail("integer division or modulo by zero");
  Values out;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < slices; ++i) {
    rt.budget.step();
    const std::int64_t end = begin + count / slices + (i < count % slices);
    Values part(all.begin() + begin, all.begin() + end);
    if (p[2] && !p[2]->is(Kind::none) && i >= count % slices) part.push_back(*p[2]);
    out.push_back(rt.list(std::move(part)));
    begin = end;
  }
  return out;
}

}  // namespace

Value batch(Runtime& rt, const Args& args) {
  const Params p("batch", args, {"value", "linecount", "fill_with"}, 2);
  return late(rt, [&] { return batches(rt, p); });
}

Value slice(Runtime& rt, const Args& args) {
  const Params p("slice", args, {"value", "slices", "fill_with"}, 2);
  return late(rt, [&] { return slices_of(rt, p); });
}

Value sort(Runtime& rt, const Args& args) {
  const Params p("sort", args, {"value", "reverse", "case_sensitive", "attribute"}, 1);
  std::vector<Path> paths;  // Of "a,b": one each.
  if (p[3] && p[3]->is_str()) {
    const std::string_view text = p[3]->text();
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      const Value part = rt.str(text.substr(begin, end - begin));
      paths.emplace_back(rt, &part);
      begin = end + 1;
    }
  } else {
    paths.emplace_back(rt, p[3]);
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& v : iterate(rt, p.at(0))) {
    Values keys;  // A list even of one: equal keys that have no order are no error so.
    for (const Path& path : paths) {
      const Value key = path.of(rt, v);
      keys.push_back(p.flag(2) ? key : without_case(rt, key));
    }
    keyed.emplace_back(rt.list(std::move(keys)), v);
  }
  return sorted(rt, std::move(keyed), p.flag(1) ? Order::descending : Order::ascending);
}

Value dictsort(Runtime& rt, const Args& args) {
  const Params p("dictsort", args, {"value", "case_sensitive", "by", "reverse"}, 1);
  const std::string_view by = p[2] ? p.text(2) : "key";
  if (by != "key" && by != "value") fail("dictsort(): expected by='key' or by='value'");
  if (p.at(0).is(Kind::undefined)) fail(p.at(0).as<UndefinedObject>().message);
  if (!p.at(0).is(Kind::dict)) fail(fmt::format("'{}' object has no attribute 'items'", type_name(p.at(0))));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : p.at(0).as<DictObject>().items) {
    const Value& ordered = by == "key" ? key : value;
    keyed.emplace_back(p.flag(1) ? ordered : without_case(rt, ordered), rt.tuple({key, value}));
  }
  return sorted(rt, std::move(keyed), p.flag(3) ? Order::descending : Order::ascending);
}

Value groupby(Runtime& rt, const Args& args) {
  const Params p("groupby", args, {"value", "attribute", "default", "case_sensitive"}, 2);
  const Path path(rt, p[1]);
  const Value* otherwise = p[2] && !p[2]->is(Kind::none) ? p[2] : nullptr;
  auto keyed = with_keys(rt, p.at(0), path, otherwise, p.flag(3));
  sort_by(rt, keyed, Order::ascending);
  Values out;
  for (std::size_t begin = 0; begin < keyed.size();) {
    std::size_t end = begin;
    Values group;
    while (end < keyed.size() && equal(rt, keyed[end].first, keyed[begin].first)) group.push_back(keyed[end++].second);
    const Value name = path.of(rt, group.front(), otherwise);  // As the first of them writes it.
    out.push_back(rt.sequence(Flavor::group, {name, rt.list(std::move(group))}));
    begin = end;
  }
  return rt.list(std::move(out));
}

Value unique(Runtime& rt, const Args& args) {
  const Params p("unique", args, {"value", "case_sensitive", "attribute"}, 1);
  const Path path(rt, p[2]);
  DictBuilder seen(rt);
  return generated(rt, p.at(0), [&](Values& out, const Value& v) {
    const Value key = path.of(rt, v);
    if (seen.add(p.flag(1) ? key : without_case(rt, key))) out.push_back(v);
  });
}

namespace {

Value extreme(Runtime& rt, const Args& args, std::string_view name, Order order) {
  const Params p(name, args, {"value", "case_sensitive", "attribute"}, 1);
  const auto keyed = with_keys(rt, p.at(0), Path(rt, p[2]), nullptr, p.flag(1));
  if (keyed.empty()) return rt.undefined("No aggregated item, sequence was empty.");
  std::size_t best = 0;
  for (std::size_t i = 1; i < keyed.size(); ++i) {
    const bool better = order == Order::ascending ? less(rt, keyed[i].first, keyed[best].first)
                                                  : less(rt, keyed[best].first, keyed[i].first, ">");
    if (better) best = i;
  }
  return keyed[best].second;
}

}  // namespace

Value min(Runtime& rt, const Args& args) {
  return extreme(rt, args, "min", Order::ascending);
}
Value max(Runtime& rt, const Args& args) {
  return extreme(rt, args, "max", Order::descending);
}

}  // namespace lode::text::jinja::filters
