// Attributes, items and slices. owner.name looks for Python's attribute first and the item second, owner['name'] the
// other way round; what is in neither is undefined. Methods that would change a list or dict are refused where they are
// used, as jinja2's ImmutableSandboxedEnvironment does.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/ast.h"
#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace lode::text::jinja {
namespace {

bool changes_its_owner(const Value& owner, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  static constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                               "insert", "sort",  "extend", "remove"};
  if (owner.is(Kind::dict)) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  const bool list = owner.is(Kind::sequence) && owner.as<SequenceObject>().flavor == Flavor::list;
  return list && std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
}

Value loop_attribute(Runtime& rt, const Value& owner, std::string_view name);

Value loop_cycle(Runtime&, const Value& self, const Args& args) {
  if (args.positional.empty()) fail("loop.cycle() needs at least one item");
  const auto index = static_cast<std::size_t>(std::max<std::int64_t>(self.as<LoopObject>().index0, 0));
  return args.positional[index % args.positional.size()];
}

Value loop_changed(Runtime& rt, const Value& self, const Args& args) {
  auto& loop = self.as<LoopObject>();
  bool same = loop.changed && loop.changed->size() == args.positional.size();
  for (std::size_t i = 0; same && i < args.positional.size(); ++i)
    same = equal(rt, (*loop.changed)[i], args.positional[i]);
  // After the loop nothing is remembered: a loop that held itself would never be freed.
  if (!same && loop.open) loop.changed = args.positional;
  return Value::boolean(!same);
}

std::optional<Value> loop_number(const LoopObject& loop, std::string_view name) {
  const auto count = static_cast<std::int64_t>(loop.items->size());
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "revindex") return Value::integer(count - loop.index0);
  if (name == "revindex0") return Value::integer(count - loop.index0 - 1);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.index0 + 1 >= count);
  if (name == "length") return Value::integer(count);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  return std::nullopt;
}

Value loop_attribute(Runtime& rt, const Value& owner, std::string_view name) {
  const auto& loop = owner.as<LoopObject>();
  if (auto number = loop_number(loop, name)) return *number;
  const auto neighbour = [&](std::int64_t at, const char* which) {
    const bool there = at >= 0 && at < static_cast<std::int64_t>(loop.items->size());
    return there ? (*loop.items)[static_cast<std::size_t>(at)]
                 : rt.undefined(fmt::format("there is no {} item", which));
  };
  if (name == "previtem") return neighbour(loop.index0 - 1, "previous");
  if (name == "nextitem") return neighbour(loop.index0 + 1, "next");
  if (name == "cycle") return rt.function("cycle", loop_cycle, owner);
  if (name == "changed") return rt.function("changed", loop_changed, owner);
  return rt.missing_attribute(owner, name);
}

Value cycler_next(Runtime&, const Value& self, const Args&) {
  auto& cycler = self.as<CyclerObject>();
  const Value v = cycler.items[cycler.next];
  cycler.next = (cycler.next + 1) % cycler.items.size();
  return v;
}

Value cycler_reset(Runtime&, const Value& self, const Args&) {
  self.as<CyclerObject>().next = 0;
  return Value::none();
}

Value macro_attribute(Runtime& rt, const Value& owner, std::string_view name) {
  const MacroNode& node = *owner.as<MacroObject>().node;
  if (name == "name") return rt.str(node.name);
  if (name == "catch_kwargs") return Value::boolean(node.uses_kwargs);
  if (name == "catch_varargs") return Value::boolean(node.uses_varargs);
  if (name == "caller") return Value::boolean(node.uses_caller);
  return rt.missing_attribute(owner, name);
}

// What Python's getattr finds, or nullopt.
std::optional<Value> python_attribute(Runtime& rt, const Value& owner, std::string_view name) {
  if (owner.is(Kind::undefined)) fail(owner.as<UndefinedObject>().message);
  if (name.starts_with("__") || changes_its_owner(owner, name)) {
    return rt.undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(owner)));
  }
  switch (owner.kind()) {
    case Kind::string:
      if (const Native method = string_method(name)) return rt.function(name, method, owner);
      return std::nullopt;
    case Kind::sequence:
      if (owner.as<SequenceObject>().flavor == Flavor::group) {
        if (name == "grouper") return owner.as<SequenceObject>().items[0];
        if (name == "list") return owner.as<SequenceObject>().items[1];
      }
      [[fallthrough]];
    case Kind::dict:
    case Kind::integer:
    case Kind::boolean:
    case Kind::real:
      if (owner.is_number() && name == "real") return owner;
      if (const Native method = container_method(owner, name)) return rt.function(name, method, owner);
      return std::nullopt;
    case Kind::space:
      for (const auto& [key, value] : owner.as<SpaceObject>().items) {
        rt.budget.step();
        if (key == name) return value;
      }
      return std::nullopt;
    case Kind::loop: return loop_attribute(rt, owner, name);
    case Kind::macro: return macro_attribute(rt, owner, name);
    case Kind::cycler:
      if (name == "next") return rt.function("next", cycler_next, owner);
      if (name == "reset") return rt.function("reset", cycler_reset, owner);
      if (name == "current") return owner.as<CyclerObject>().items[owner.as<CyclerObject>().next];
      return std::nullopt;
    default: return std::nullopt;
  }
}

Value character(Runtime& rt, const Value& owner, std::int64_t index) {
  const auto& s = owner.as<StringObject>();
  rt.budget.read(s.ascii ? 0 : s.text.size());
  const std::size_t begin =
      s.ascii ? static_cast<std::size_t>(index) : byte_of_char(s.text, static_cast<std::size_t>(index));
  return rt.part(owner, std::string_view(s.text).substr(begin, utf8_at(s.text, begin).bytes));
}

std::optional<Value> indexed(Runtime& rt, const Value& owner, std::int64_t index) {
  const std::int64_t count = *length(owner);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  if (owner.is_str()) return character(rt, owner, index);
  return owner.as<SequenceObject>().items[static_cast<std::size_t>(index)];
}

bool can_be_indexed(const Value& v) {
  if (v.is_str()) return true;
  if (!v.is(Kind::sequence)) return false;
  const Flavor f = v.as<SequenceObject>().flavor;
  return f != Flavor::keys && f != Flavor::values && f != Flavor::items;
}

struct Steps {
  std::int64_t start, step;
  std::size_t count;
};

std::optional<std::int64_t> bound(const Value& v) {
  if (v.is(Kind::none)) return std::nullopt;
  if (v.is(Kind::undefined) || !v.is_integral()) {
    fail(fmt::format("slice indices must be integers or None, not {}", type_name(v)));
  }
  return v.as_integer();
}

Steps steps_of(std::int64_t count, const Value& start, const Value& stop, const Value& step) {
  // Steps longer than any text do what a step of its length does.
  constexpr std::int64_t kFar = std::int64_t{1} << 40;
  const std::int64_t by = std::clamp(bound(step).value_or(1), -kFar, kFar);
  if (by == 0) fail("slice step cannot be zero");
  const std::int64_t low = by > 0 ? 0 : -1, high = by > 0 ? count : count - 1;
  const auto place = [&](const Value& v, std::int64_t otherwise) {
    const auto given = bound(v);
    if (!given) return otherwise;
    const std::int64_t at = *given < 0 ? std::max(*given, -kFar) + count : *given;
    return std::clamp(at, low, high);
  };
  const std::int64_t first = place(start, by > 0 ? 0 : count - 1), last = place(stop, by > 0 ? count : -1);
  const std::int64_t gap = by > 0 ? last - first : first - last;
  return {first, by, gap > 0 ? static_cast<std::size_t>((gap - 1) / std::abs(by) + 1) : 0};
}

Value sliced_text(Runtime& rt, const Value& owner, const Steps& steps) {
  const auto& s = owner.as<StringObject>();
  const auto first = static_cast<std::size_t>(steps.start);
  if (steps.count == 0) return rt.part(owner, std::string_view(s.text).substr(0, 0));
  if (steps.step == 1) {
    rt.budget.read(s.ascii ? 0 : s.text.size());
    const std::size_t begin = s.ascii ? first : byte_of_char(s.text, first);
    const std::string_view rest = std::string_view(s.text).substr(begin);
    const std::size_t bytes = s.ascii ? steps.count : byte_of_char(rest, steps.count);
    rt.budget.require(bytes);
    return rt.part(owner, rest.substr(0, bytes));
  }
  rt.budget.step(static_cast<std::int64_t>(s.text.size() / 8));
  rt.budget.require(s.text.size() * sizeof(std::uint32_t));
  std::vector<std::uint32_t> starts;  // Of each character, in bytes.
  for (std::size_t pos = 0; pos < s.text.size(); pos += utf8_at(s.text, pos).bytes) {
    starts.push_back(static_cast<std::uint32_t>(pos));
  }
  std::string out;
  for (std::size_t i = 0; i < steps.count; ++i) {
    const std::size_t pos = starts[static_cast<std::size_t>(steps.start + static_cast<std::int64_t>(i) * steps.step)];
    out.append(s.text, pos, utf8_at(s.text, pos).bytes);
  }
  const Runtime::Giving giving(rt, owner.given());
  return rt.like(owner, std::move(out));
}

}  // namespace

Value attribute(Runtime& rt, const Value& owner, std::string_view name) {
  if (auto found = python_attribute(rt, owner, name)) return *found;
  if (owner.is(Kind::dict)) {
    if (const Value* v = find(rt, owner.as<DictObject>(), name)) return *v;
  }
  return rt.missing_attribute(owner, name);
}

Value item(Runtime& rt, const Value& owner, const Value& key) {
  if (owner.is(Kind::undefined)) fail(owner.as<UndefinedObject>().message);
  if (owner.is(Kind::dict)) {
    const bool hashable =
        !key.is(Kind::dict) && !(key.is(Kind::sequence) && key.as<SequenceObject>().flavor == Flavor::list);
    if (const Value* v = hashable ? find(rt, owner.as<DictObject>(), key) : nullptr) return *v;
  } else if (can_be_indexed(owner) && key.is_integral()) {
    if (auto v = indexed(rt, owner, key.as_integer())) return *v;
  }
  if (key.is_str()) {
    if (auto found = python_attribute(rt, owner, key.text())) return *found;
    return rt.missing_attribute(owner, key.text());
  }
  return rt.undefined(fmt::format("{} has no element {}", owner_name(owner), repr_of(rt, key)));
}

Value slice(Runtime& rt, const Value& owner, const Value& start, const Value& stop, const Value& step) {
  if (owner.is(Kind::undefined)) fail(owner.as<UndefinedObject>().message);
  if (!can_be_indexed(owner)) fail(fmt::format("'{}' object cannot be sliced", type_name(owner)));
  rt.budget.read(owner.is_str() && !owner.as<StringObject>().ascii ? owner.text().size() : 0);
  const Steps steps = steps_of(*length(owner), start, stop, step);
  if (owner.is_str()) return sliced_text(rt, owner, steps);
  const auto& s = owner.as<SequenceObject>();
  if (s.flavor == Flavor::range) {
    const std::int64_t first = s.start + steps.start * s.step, by = steps.step * s.step;
    return rt.range(first, first + static_cast<std::int64_t>(steps.count) * by, by);
  }
  rt.budget.require(steps.count * sizeof(Value));
  rt.budget.step(static_cast<std::int64_t>(steps.count / 8));
  Values items;
  items.reserve(steps.count);
  for (std::size_t i = 0; i < steps.count; ++i) {
    items.push_back(s.items[static_cast<std::size_t>(steps.start + static_cast<std::int64_t>(i) * steps.step)]);
  }
  return rt.sequence(s.flavor == Flavor::group ? Flavor::tuple : s.flavor, std::move(items));
}

}  // namespace lode::text::jinja
