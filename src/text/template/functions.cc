// What a template may call by name alone.
#include <fmt/format.h>

#include "text/template/runtime.h"
#include "text/template/strftime.h"

namespace lode::text::jinja {
namespace {

Value range(Runtime& rt, const Value&, const Args& args) {
  if (!args.named.empty()) fail("range() takes no keyword arguments");
  const Params p("range", args, {"start", "stop", "step"}, 1);
  if (!p[1]) return rt.range(0, p.integer(0), 1);
  return rt.range(p.integer(0), p.integer(1), p.integer_or(2, 1));
}

// What dict() and namespace() are made from: a mapping or pairs, then named values.
template <typename Each>
void each_entry(Runtime& rt, const Args& args, std::string_view name, const Each& each) {
  if (args.positional.size() > 1) fail(fmt::format("{}() takes at most 1 positional argument", name));
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::dict)) {
      for (const auto& [key, value] : from.as<DictObject>().items) each(key, value);
    } else {
      for (const Value& pair : iterate(rt, from)) {
        const Values both = iterate(rt, pair);
        if (both.size() != 2) fail(fmt::format("{}(): expected pairs of key and value", name));
        each(both[0], both[1]);
      }
    }
  }
  for (const auto& [key, value] : args.named) each(rt.str(key), value);
}

Value dict(Runtime& rt, const Value&, const Args& args) {
  DictBuilder builder(rt);
  each_entry(rt, args, "dict", [&](const Value& key, const Value& value) { builder.set(key, value); });
  return builder.done();
}

Value space(Runtime& rt, const Value&, const Args& args) {
  const Value v = rt.space();
  auto& object = v.as<SpaceObject>();
  const Value entries = dict(rt, {}, args);
  for (const auto& [key, value] : entries.as<DictObject>().items) {
    const std::string name = str_of(rt, key);
    rt.charge(object, sizeof(object.items[0]) + name.size());
    object.items.emplace_back(name, value);
  }
  return v;
}

Value cycler(Runtime& rt, const Value&, const Args& args) {
  if (args.positional.empty() || !args.named.empty()) fail("cycler() needs at least one item");
  auto object = std::make_shared<CyclerObject>();
  rt.charge(*object, sizeof(CyclerObject) + args.positional.size() * sizeof(Value));
  set_depth(*object, 0);
  for (const Value& v : args.positional) hold(*object, v);
  object->items = args.positional;
  return Value(Kind::cycler, std::move(object));
}

Value joiner(Runtime& rt, const Value&, const Args& args) {
  const Params p("joiner", args, {"sep"}, 0);
  auto object = std::make_shared<JoinerObject>();
  rt.charge(*object, sizeof(JoinerObject));
  object->separator = p[0] ? *p[0] : rt.str(", ");
  hold(*object, object->separator);
  return Value(Kind::joiner, std::move(object));
}

Value raise_exception(Runtime& rt, const Value&, const Args& args) {
  const Params p("raise_exception", args, {"message"}, 1);
  fail(str_of(rt, p.at(0)));
}

Value strftime_now(Runtime& rt, const Value&, const Args& args) {
  const Params p("strftime_now", args, {"format"}, 1);
  if (!rt.now) fail("strftime_now: this render was given no clock");
  const std::string_view format = p.text(0);
  rt.budget.require(format.size() * 16);  // The longest directive prints 24 bytes for 2.
  rt.budget.work(format.size() * 64);
  return rt.str(format_time(format, *rt.now));
}

struct Entry {
  std::string_view name;
  Native native;
};
constexpr Entry kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", space},
    {"cycler", cycler},
    {"joiner", joiner},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace

Native find_global(std::string_view name) {
  for (const Entry& entry : kGlobals) {
    if (entry.name == name) return entry.native;
  }
  return nullptr;
}

}  // namespace lode::text::jinja
