// What values are to each other: truth, equality, order, membership, length, iteration, hashing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/template/runtime.h"
#include "text/template/unicode.h"

namespace lode::text::jinja {

bool truthy(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean:
    case Kind::integer: return v.as_integer() != 0;
    case Kind::real: return v.as_real() != 0;
    case Kind::string: return !v.text().empty();
    case Kind::sequence: return !v.as<SequenceObject>().items.empty();
    case Kind::dict: return !v.as<DictObject>().items.empty();
    case Kind::loop: return !v.as<LoopObject>().items->empty();
    default: return true;
  }
}

std::string_view type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return v.is_markup() ? "Markup" : "str";
    case Kind::dict: return "dict";
    case Kind::generator: return "generator";
    case Kind::space: return "Namespace";
    case Kind::macro: return "Macro";
    case Kind::function: return "builtin_function_or_method";
    case Kind::loop: return "LoopContext";
    case Kind::cycler: return "Cycler";
    case Kind::joiner: return "Joiner";
    case Kind::sequence: break;
  }
  switch (v.as<SequenceObject>().flavor) {
    case Flavor::list: return "list";
    case Flavor::tuple: return "tuple";
    case Flavor::range: return "range";
    case Flavor::keys: return "dict_keys";
    case Flavor::values: return "dict_values";
    case Flavor::items: return "dict_items";
    case Flavor::group: return "_GroupTuple";
  }
  return "?";
}

std::string owner_name(const Value& v) {
  if (v.is(Kind::none)) return "'None'";
  return fmt::format("'{} object'", type_name(v));
}

namespace {

bool is_tuple(const SequenceObject& s) {
  return s.flavor == Flavor::tuple || s.flavor == Flavor::group;
}

bool same_class(const SequenceObject& a, const SequenceObject& b) {
  return a.flavor == b.flavor || (is_tuple(a) && is_tuple(b));
}

// Integers compare exactly with each other; with a float as Python does, except beyond 2^53.
int order_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_integer() < b.as_integer() ? -1 : a.as_integer() > b.as_integer();
  }
  const double x = a.as_real(), y = b.as_real();
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;  // 2: one of them is not a number.
}

bool equal_dicts(Runtime& rt, const DictObject& a, const DictObject& b) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find(rt, b, key);
    if (!other || !equal(rt, value, *other)) return false;
  }
  return true;
}

std::size_t hash_of(Runtime& rt, const Value& v) {
  switch (v.kind()) {
    case Kind::none: return 1;
    case Kind::boolean:
    case Kind::integer:
    case Kind::real: return std::hash<double>()(v.as_real() + 0.0);  // 1, 1.0 and True are one key.
    case Kind::string: rt.budget.work(v.text().size()); return std::hash<std::string_view>()(v.text());
    case Kind::sequence: {
      const auto& s = v.as<SequenceObject>();
      if (s.flavor == Flavor::list) break;
      std::size_t h = 7;
      for (const Value& item : s.items) {
        rt.budget.step();
        h = h * 1'000'003 + hash_of(rt, item);
      }
      return h;
    }
    case Kind::dict: break;
    default: return std::hash<const void*>()(v.identity());
  }
  fail(fmt::format("unhashable type: '{}'", type_name(v)));
}

constexpr std::size_t kSearchInLineMax = 8;  // A hash table of fewer costs more than it saves.

template <typename Same>
const std::pair<Value, Value>* search(Runtime& rt, const DictObject& dict, std::size_t hash, const Same& same) {
  if (dict.index.empty()) {
    for (const auto& entry : dict.items) {
      if (same(entry.first)) return &entry;
    }
    return nullptr;
  }
  const auto [begin, end] = dict.index.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    rt.budget.step();
    if (same(dict.items[it->second].first)) return &dict.items[it->second];
  }
  return nullptr;
}

const std::pair<Value, Value>* find_entry(Runtime& rt, const DictObject& dict, const Value& key) {
  const std::size_t hash = hash_of(rt, key);
  return search(rt, dict, hash, [&](const Value& k) { return equal(rt, k, key); });
}

}  // namespace

bool equal(Runtime& rt, const Value& a, const Value& b) {
  rt.budget.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none: return true;
    case Kind::string: rt.budget.work(std::min(a.text().size(), b.text().size())); return a.text() == b.text();
    case Kind::sequence: {
      const auto &x = a.as<SequenceObject>(), &y = b.as<SequenceObject>();
      if (&x == &y) return true;
      if (!same_class(x, y) || x.items.size() != y.items.size() || x.flavor == Flavor::values) return false;
      for (std::size_t i = 0; i < x.items.size(); ++i) {
        if (!equal(rt, x.items[i], y.items[i])) return false;
      }
      return true;
    }
    case Kind::dict: return a.identity() == b.identity() || equal_dicts(rt, a.as<DictObject>(), b.as<DictObject>());
    default: return a.identity() == b.identity();
  }
}

bool less(Runtime& rt, const Value& a, const Value& b, std::string_view op) {
  rt.budget.step();
  if (a.is_number() && b.is_number()) return order_numbers(a, b) == -1;
  if (a.is_str() && b.is_str()) {
    rt.budget.work(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // Bytes of UTF-8 order as code points do.
  }
  if (a.is(Kind::sequence) && b.is(Kind::sequence)) {
    const auto &x = a.as<SequenceObject>(), &y = b.as<SequenceObject>();
    const bool ordered = x.flavor == Flavor::list || is_tuple(x);
    if (ordered && same_class(x, y)) {
      for (std::size_t i = 0; i < std::min(x.items.size(), y.items.size()); ++i) {
        if (!equal(rt, x.items[i], y.items[i])) return less(rt, x.items[i], y.items[i], op);
      }
      return x.items.size() < y.items.size();
    }
  }
  for (const Value* v : {&a, &b}) {
    if (v->is(Kind::undefined)) fail(v->as<UndefinedObject>().message);
  }
  fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b)));
}

const Value* find(Runtime& rt, const DictObject& dict, const Value& key) {
  const auto* entry = find_entry(rt, dict, key);
  return entry ? &entry->second : nullptr;
}

const Value* find(Runtime& rt, const DictObject& dict, std::string_view key) {
  rt.budget.work(key.size());
  const std::size_t hash = dict.index.empty() ? 0 : std::hash<std::string_view>()(key);
  const auto* entry = search(rt, dict, hash, [&](const Value& k) { return k.is_str() && k.text() == key; });
  return entry ? &entry->second : nullptr;
}

DictBuilder::DictBuilder(Runtime& rt) : rt_(rt), dict_(std::make_shared<DictObject>()) {
  rt_.charge(*dict_, sizeof(DictObject));
  set_depth(*dict_, 0);
}

void DictBuilder::set(Value key, Value value) {
  rt_.budget.step();
  hold(*dict_, key);
  hold(*dict_, value);
  if (const auto* entry = find_entry(rt_, *dict_, key)) {
    dict_->items[static_cast<std::size_t>(entry - dict_->items.data())].second = std::move(value);
    return;
  }
  rt_.charge(*dict_, sizeof(std::pair<Value, Value>) + 48);
  const std::size_t hash = hash_of(rt_, key);
  dict_->items.emplace_back(std::move(key), std::move(value));
  const std::size_t count = dict_->items.size();
  if (count == kSearchInLineMax + 1) {
    for (std::uint32_t i = 0; i + 1 < count; ++i) dict_->index.emplace(hash_of(rt_, dict_->items[i].first), i);
  }
  if (count > kSearchInLineMax) dict_->index.emplace(hash, static_cast<std::uint32_t>(count - 1));
}

bool DictBuilder::add(Value key) {
  const std::size_t before = dict_->items.size();
  set(std::move(key), Value::none());
  return dict_->items.size() > before;
}

Value DictBuilder::done() {
  return Value(Kind::dict, std::move(dict_));
}

bool contains(Runtime& rt, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (!item.is_str()) {
        fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      rt.budget.work(container.text().size());
      return find_bytes(container.text(), item.text()) != std::string_view::npos;
    case Kind::dict: return find(rt, container.as<DictObject>(), item) != nullptr;
    case Kind::sequence:
      for (const Value& v : container.as<SequenceObject>().items) {
        if (equal(rt, v, item)) return true;
      }
      return false;
    default: break;
  }
  if (!is_iterable(container)) fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  for (const Value& v : iterate(rt, container)) {
    if (equal(rt, v, item)) return true;
  }
  return false;
}

bool is_iterable(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::sequence:
    case Kind::dict:
    case Kind::generator:
    case Kind::loop: return true;
    default: return false;
  }
}

namespace {

Values characters(Runtime& rt, const Value& v) {
  Values out;
  const std::string_view text = v.text();
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t bytes = utf8_at(text, pos).bytes;
    out.push_back(rt.part(v, text.substr(pos, bytes)));
    pos += bytes;
  }
  return out;
}

}  // namespace

Values iterate(Runtime& rt, const Value& v) {
  Values out;
  switch (v.kind()) {
    case Kind::undefined: return out;
    case Kind::string: return characters(rt, v);
    case Kind::sequence:
      rt.budget.require(v.as<SequenceObject>().items.size() * sizeof(Value));
      rt.budget.step(static_cast<std::int64_t>(v.as<SequenceObject>().items.size() / 8));
      return v.as<SequenceObject>().items;
    case Kind::dict:
      rt.budget.require(v.as<DictObject>().items.size() * sizeof(Value));
      rt.budget.step(static_cast<std::int64_t>(v.as<DictObject>().items.size() / 8));
      for (const auto& entry : v.as<DictObject>().items) out.push_back(entry.first);
      return out;
    case Kind::generator: {
      auto& g = v.as<GeneratorObject>();
      out.assign(g.items.begin() + static_cast<std::ptrdiff_t>(g.next), g.items.end());
      g.next = g.items.size();
      if (g.error) {
        const Fault error = *std::exchange(g.error, std::nullopt);
        throw error;
      }
      return out;
    }
    case Kind::loop: {
      auto& loop = v.as<LoopObject>();
      for (auto i = static_cast<std::size_t>(loop.index0 + 1); i < loop.items->size(); ++i) {
        out.push_back(rt.tuple({(*loop.items)[i], v}));
      }
      return out;
    }
    default: fail(fmt::format("'{}' object is not iterable", type_name(v)));
  }
}

std::optional<std::int64_t> length(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined: return 0;
    case Kind::string: {
      const auto& s = v.as<StringObject>();
      return static_cast<std::int64_t>(s.ascii ? s.text.size() : count_chars(s.text));
    }
    case Kind::sequence: return static_cast<std::int64_t>(v.as<SequenceObject>().items.size());
    case Kind::dict: return static_cast<std::int64_t>(v.as<DictObject>().items.size());
    case Kind::loop: return static_cast<std::int64_t>(v.as<LoopObject>().items->size());
    default: return std::nullopt;
  }
}

void sort_by(Runtime& rt, std::vector<std::pair<Value, Value>>& keyed, Order order) {
  // Python sorts in reverse by reversing, sorting and reversing again, which keeps equal items in their order; so does
  // asking for b < a.
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return order == Order::ascending ? less(rt, a.first, b.first) : less(rt, b.first, a.first);
  });
}

}  // namespace lode::text::jinja
