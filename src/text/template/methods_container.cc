// Python's methods of dict, list, tuple and numbers, those that change nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/template/runtime.h"

namespace lode::text::jinja {
namespace {

Value view(Runtime& rt, const Value& self, Flavor flavor) {
  const auto& dict = self.as<DictObject>();
  rt.budget.require(dict.items.size() * sizeof(Value));
  rt.budget.step(static_cast<std::int64_t>(dict.items.size() / 8));
  Values items;
  items.reserve(dict.items.size());
  for (const auto& [key, value] : dict.items) {
    items.push_back(flavor == Flavor::keys ? key : flavor == Flavor::values ? value : rt.tuple({key, value}));
  }
  return rt.sequence(flavor, std::move(items));
}

Value dict_items(Runtime& rt, const Value& self, const Args& args) {
  const Params p("items", args, {}, 0);
  return view(rt, self, Flavor::items);
}
Value dict_keys(Runtime& rt, const Value& self, const Args& args) {
  const Params p("keys", args, {}, 0);
  return view(rt, self, Flavor::keys);
}
Value dict_values(Runtime& rt, const Value& self, const Args& args) {
  const Params p("values", args, {}, 0);
  return view(rt, self, Flavor::values);
}
Value dict_get(Runtime& rt, const Value& self, const Args& args) {
  if (!args.named.empty()) fail("dict.get() takes no keyword arguments");
  const Params p("get", args, {"key", "default"}, 1);
  if (const Value* v = find(rt, self.as<DictObject>(), p.at(0))) return *v;
  return p[1] ? *p[1] : Value::none();
}

Value copy(Runtime&, const Value& self, const Args& args) {
  const Params p("copy", args, {}, 0);
  return self;  // Nothing can tell a copy of what cannot change, but `is sameas`.
}

Value list_index(Runtime& rt, const Value& self, const Args& args) {
  const Params p("index", args, {"value", "start", "stop"}, 1);
  const auto& items = self.as<SequenceObject>().items;
  const auto count = static_cast<std::int64_t>(items.size());
  const auto place = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t at = p.integer_or(i, otherwise);
    return std::clamp<std::int64_t>(at < 0 ? at + count : at, 0, count);
  };
  for (std::int64_t i = place(1, 0); i < place(2, count); ++i) {
    if (equal(rt, items[static_cast<std::size_t>(i)], p.at(0))) return Value::integer(i);
  }
  fail(fmt::format("{} is not in list", repr_of(rt, p.at(0))));
}

Value list_count(Runtime& rt, const Value& self, const Args& args) {
  const Params p("count", args, {"value"}, 1);
  std::int64_t n = 0;
  for (const Value& v : self.as<SequenceObject>().items) n += equal(rt, v, p.at(0));
  return Value::integer(n);
}

Value is_integer(Runtime&, const Value& self, const Args&) {
  return Value::boolean(std::isfinite(self.as_real()) && std::floor(self.as_real()) == self.as_real());
}

Value bit_length(Runtime&, const Value& self, const Args&) {
  const std::int64_t i = self.as_integer();
  const std::uint64_t magnitude = i < 0 ? 0 - static_cast<std::uint64_t>(i) : static_cast<std::uint64_t>(i);
  return Value::integer(magnitude == 0 ? 0 : 64 - __builtin_clzll(magnitude));
}

}  // namespace

Native container_method(const Value& owner, std::string_view name) {
  if (owner.is(Kind::dict)) {
    return name == "items"    ? dict_items
           : name == "keys"   ? dict_keys
           : name == "values" ? dict_values
           : name == "get"    ? dict_get
           : name == "copy"   ? copy
                              : static_cast<Native>(nullptr);
  }
  if (owner.is(Kind::real)) return name == "is_integer" ? is_integer : nullptr;
  if (owner.is_integral()) return name == "bit_length" ? bit_length : nullptr;
  if (!owner.is(Kind::sequence)) return nullptr;
  const Flavor f = owner.as<SequenceObject>().flavor;
  if (f == Flavor::keys || f == Flavor::values || f == Flavor::items) return nullptr;
  if (name == "index") return list_index;
  if (name == "count") return list_count;
  return name == "copy" && f == Flavor::list ? copy : nullptr;
}

}  // namespace lode::text::jinja
