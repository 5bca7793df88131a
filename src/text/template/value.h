// The values a template computes with, as Python has them. Immutable but for namespaces, generators, loops, cyclers and
// joiners, which belong to one render. src/text/template only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/fault.h"

namespace lode::text::jinja {

class Runtime;
class Value;
struct Args;
struct Scope;
struct MacroNode;

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  sequence,
  dict,
  generator,
  space,
  macro,
  function,
  loop,
  cycler,
  joiner,
};

// Containers may be nested this deep: printing, comparing and destroying them recurses. Requests stay under 64.
inline constexpr std::uint32_t kValueDepthMax = 200;

// What all values on the heap share. `charge` bytes are given back to the budget at the end; a template's own constants
// have no budget.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() {
    if (budget) budget->give(charge);
  }
  Budget* budget = nullptr;
  std::size_t charge = 0;   // bytes
  std::uint32_t depth = 0;  // Of containers in this one.
  bool given = false;       // Some text in here came from the variables (RenderOptions), not from the template.
};

class Value {
 public:
  Value() = default;  // none
  static Value none() { return {}; }
  static Value boolean(bool b) {
    Value v(Kind::boolean);
    v.scalar_.integer = b;
    return v;
  }
  static Value integer(std::int64_t i) {
    Value v(Kind::integer);
    v.scalar_.integer = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::real);
    v.scalar_.real = d;
    return v;
  }
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }
  bool as_bool() const { return scalar_.integer != 0; }        // boolean
  std::int64_t as_integer() const { return scalar_.integer; }  // integer, boolean
  double as_real() const { return kind_ == Kind::real ? scalar_.real : static_cast<double>(scalar_.integer); }
  template <typename T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  std::string_view text() const;  // string
  bool is_markup() const;         // A string that |safe or |escape made.
  bool is_str() const { return kind_ == Kind::string; }
  const Object* identity() const { return object_.get(); }
  std::uint32_t depth() const { return object_ ? object_->depth : 0; }
  bool given() const { return object_ && object_->given; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Kind kind_ = Kind::none;
  union {
    std::int64_t integer;
    double real;
  } scalar_ = {0};
  std::shared_ptr<Object> object_;
};

using Values = std::vector<Value>;
using Pairs = std::vector<std::pair<Value, Value>>;

struct StringObject : Object {
  std::string text;  // UTF-8; bytes that are none count as characters of their own.
  bool markup = false;
  bool ascii = false;  // Then characters and bytes are the same.
  // Of a text that is given in part: a byte each, 1 where it is. Empty: `given` says it of all bytes.
  std::string given_bytes;
};

struct UndefinedObject : Object {
  std::string message;  // What using it says.
};

struct SequenceObject : Object {
  enum class Flavor : std::uint8_t { list, tuple, range, keys, values, items, group };
  Flavor flavor = Flavor::list;
  Values items;
  std::int64_t start = 0, stop = 0, step = 1;  // Of a range, for printing.
};
using Flavor = SequenceObject::Flavor;

struct DictObject : Object {
  Pairs items;  // In insertion order.
  // Hash -> index into items; empty while 8 items or fewer are searched in line.
  std::unordered_multimap<std::size_t, std::uint32_t> index;
};

// An iterator: its items can be had once. `error` is what comes after the last of them.
struct GeneratorObject : Object {
  Values items;
  std::size_t next = 0;
  std::optional<Fault> error;
};

// Owned by the render, not by the values that name it: a namespace may hold itself.
struct SpaceObject : Object {
  std::vector<std::pair<std::string, Value>> items;
};

struct MacroObject : Object {
  const MacroNode* node = nullptr;
  Scope* scope = nullptr;  // Where it was defined; kept by the render.
};

using Native = Value (*)(Runtime&, const Value& self, const Args&);

struct FunctionObject : Object {
  std::string_view name;
  Native native = nullptr;
  Value self;  // The object of a bound method.
};

struct LoopObject : Object {
  std::shared_ptr<const Values> items;
  std::int64_t index0 = 0, depth0 = 0;
  const void* recurse = nullptr;  // The statement, where it says `recursive`.
  Scope* scope = nullptr;         // Where that statement runs.
  std::optional<Values> changed;  // What loop.changed saw last; dropped when the loop ends.
  bool open = true;
};

struct CyclerObject : Object {
  Values items;
  std::size_t next = 0;
};

struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

// A call's arguments.
struct Args {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

inline std::string_view Value::text() const {
  return as<StringObject>().text;
}
inline bool Value::is_markup() const {
  return is_str() && as<StringObject>().markup;
}

bool truthy(const Value& v);
// Python's name of a value's type: "str", "NoneType", "builtin_function_or_method", ...
std::string_view type_name(const Value& v);
// "'dict object'", "None": how messages call the owner of an attribute.
std::string owner_name(const Value& v);

}  // namespace lode::text::jinja
