// One render's heap and clock, and the operations on values that need them. Owned by a render; one thread.
#pragma once

#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/unicode.h"
#include "text/template/value.h"

namespace lode::text::jinja {

// Text that is being built; every byte is charged.
class Sink {
 public:
  explicit Sink(Budget& budget) : budget_(budget) {}
  ~Sink() { budget_.give(charged_); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  void put(std::string_view text) {
    grow(text.size());
    text_ += text;
  }
  void put(char c) { put(std::string_view(&c, 1)); }
  void fill(std::size_t count, std::string_view text);
  // A part of v's text, each byte with its origin. `part` lies inside v.text().
  void put_part(const Value& v, std::string_view part);
  // What was put since the text had `begin` bytes came from the variables.
  void mark_given(std::size_t begin);
  const std::string& text() const { return text_; }
  const std::string& given_bytes() const { return given_; }
  std::string take() { return std::move(text_); }

 private:
  void grow(std::size_t bytes);
  Budget& budget_;
  std::string text_;
  std::string given_;        // A byte each of text_, 1: given. Shorter: the rest is not.
  std::size_t charged_ = 0;  // bytes
};

class Runtime {
 public:
  Runtime(const RenderLimits& limits, const std::optional<DateTime>& now) : budget(limits), now(now) {}
  virtual ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // A text that is given where a Giving scope says so, and else the template's own.
  Value str(std::string text);
  // What was gathered, each byte with its origin.
  Value str(Sink& text);
  // A part of v's text, which `text` lies in; marked, and each byte of the origin, as in v.
  Value part(const Value& v, std::string_view text);
  Value str(std::string_view text) { return str(std::string(text)); }
  Value str(const char* text) { return str(std::string(text)); }
  Value markup(std::string text);
  // `text`, marked as `like` is.
  Value like(const Value& like, std::string text) {
    return like.is_markup() ? markup(std::move(text)) : str(std::move(text));
  }
  Value undefined(std::string message);
  Value missing_attribute(const Value& owner, std::string_view name);
  Value sequence(Flavor flavor, Values items);
  Value list(Values items) { return sequence(Flavor::list, std::move(items)); }
  Value tuple(Values items) { return sequence(Flavor::tuple, std::move(items)); }
  Value range(std::int64_t start, std::int64_t stop, std::int64_t step);
  Value generator(Values items, std::optional<Fault> error = std::nullopt);
  Value function(std::string_view name, Native native, Value self = {});
  Value space();

  // Calls a function, macro, loop, ...; undefined and what cannot be called are errors.
  virtual Value call(const Value& callee, const Args& args) = 0;

  // Takes over an object that lives to the end of the render; the value does not own it.
  template <typename T>
  Value keep(Kind kind, std::unique_ptr<T> object) {
    charge(*object, sizeof(T) + 64);
    T* raw = object.get();
    kept_.push_back(std::move(object));
    return Value(kind, std::shared_ptr<Object>(std::shared_ptr<Object>(), raw));
  }
  // Charges an object with its bytes; the budget gets them back with its end.
  void charge(Object& object, std::size_t bytes) {
    budget.take(bytes);
    object.budget = &budget;
    object.charge += bytes;
  }

  // While one lives, every text that is made counts as given: a function that was handed given text and does not say
  // where each byte of its result comes from. What knows better uses part() and str(Sink&).
  class Giving {
   public:
    Giving(Runtime& rt, const Args& args, const Value& self = {});
    Giving(Runtime& rt, bool given) : rt_(rt), before_(rt.giving_) { rt.giving_ = given; }
    ~Giving() { rt_.giving_ = before_; }
    Giving(const Giving&) = delete;
    Giving& operator=(const Giving&) = delete;

   private:
    Runtime& rt_;
    const bool before_;
  };

  Budget budget;
  const std::optional<DateTime> now;
  int line = 0;  // That is being run, for messages.

 private:
  std::shared_ptr<StringObject> make_string(std::string text);
  bool giving_ = false;
  std::deque<std::unique_ptr<Object>> kept_;
};

// Sets a container's depth over its parts', or fails where it would be too deep.
void set_depth(Object& container, std::uint32_t part);
// What a container holds: its depth and its origin show in the container's.
inline void hold(Object& container, const Value& part) {
  set_depth(container, part.depth());
  container.given |= part.given();
}

// A dict under construction: a repeated key keeps its place and takes the new value.
class DictBuilder {
 public:
  explicit DictBuilder(Runtime& rt);
  void set(Value key, Value value);
  bool add(Value key);  // Whether it is new.
  Value done();

 private:
  Runtime& rt_;
  std::shared_ptr<DictObject> dict_;
};
// The value at a key, or nullptr. A key that cannot be hashed fails.
const Value* find(Runtime& rt, const DictObject& dict, const Value& key);
const Value* find(Runtime& rt, const DictObject& dict, std::string_view key);

// ---- values.cc: comparison and iteration
bool equal(Runtime& rt, const Value& a, const Value& b);
// a < b as Python orders; "'<' not supported between ..." otherwise. `op` is for the message.
bool less(Runtime& rt, const Value& a, const Value& b, std::string_view op = "<");
bool contains(Runtime& rt, const Value& container, const Value& item);
bool is_iterable(const Value& v);
// The items that a for loop would see; a generator is used up.
Values iterate(Runtime& rt, const Value& v);
std::optional<std::int64_t> length(const Value& v);  // What len() says, or nullopt where it has none.
// Stable; fails where items cannot be compared.
enum class Order { ascending, descending };
void sort_by(Runtime& rt, std::vector<std::pair<Value, Value>>& keyed, Order order);

// ---- print.cc
void put_str(Runtime& rt, Sink& out, const Value& v);   // str(v)
void put_repr(Runtime& rt, Sink& out, const Value& v);  // repr(v)
std::string str_of(Runtime& rt, const Value& v);
std::string repr_of(Runtime& rt, const Value& v);
std::string real_repr(double d);
void put_quoted(Sink& out, std::string_view text);  // repr of a string

// ---- json.cc
struct JsonStyle {
  bool ascii = false, sort_keys = false;
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
};
std::string to_json(Runtime& rt, const Value& v, const JsonStyle& style);

// ---- operators.cc
enum class Op : std::uint8_t { add, sub, mul, div, floordiv, mod, pow, eq, ne, lt, le, gt, ge, in, not_in, neg, pos };
Value binary(Runtime& rt, Op op, const Value& a, const Value& b);
Value unary(Runtime& rt, Op op, const Value& a);
bool compare(Runtime& rt, Op op, const Value& a, const Value& b);
std::string escape_html(Runtime& rt, std::string_view text);
// What Markup does with another operand: its text, escaped unless it is Markup itself.
std::string escaped(Runtime& rt, const Value& v);

// ---- access.cc
Value attribute(Runtime& rt, const Value& owner, std::string_view name);  // owner.name
Value item(Runtime& rt, const Value& owner, const Value& key);            // owner[key]
Value slice(Runtime& rt, const Value& owner, const Value& start, const Value& stop, const Value& step);

// ---- format.cc
std::string percent_format(Runtime& rt, std::string_view format, const Value& args, const Value& like);
std::string brace_format(Runtime& rt, const Value& format, const Args& args);

// ---- strings.cc
Value replaced(Runtime& rt, const Value& text, std::string_view old, const Value& with,
               std::int64_t count);  // count < 0: all
enum class LineEnds { keep, drop };
std::vector<std::string_view> lines_of(Runtime& rt, std::string_view text, LineEnds ends);  // str.splitlines
enum class Pad { left, right, center };                                                     // Where the fill goes.
std::string padded_text(Runtime& rt, std::string_view text, std::int64_t width, std::string_view fill, Pad pad);
bool all_cased(std::string_view text, Case wanted);  // Some characters have a case, and all those this one.

// ---- methods_*.cc, filters_*.cc, tests.cc, functions.cc: tables by name
Native string_method(std::string_view name);
Native container_method(const Value& owner, std::string_view name);
using Filter = Value (*)(Runtime&, const Args&);  // The filtered value is the first positional argument.
Filter find_filter(std::string_view name);
using Test = bool (*)(Runtime&, const Args&);
Test find_test(std::string_view name);
Native find_global(std::string_view name);

// ---- A call's arguments by Python's rules.
class Params {
 public:
  // `names` in order, the first `required` of them without a default. Fails as Python would, naming `function`.
  Params(std::string_view function, const Args& args, std::initializer_list<std::string_view> names,
         std::size_t required);
  const Value* operator[](std::size_t i) const { return slots_[i]; }
  const Value& at(std::size_t i) const { return *slots_[i]; }

  std::string_view text(std::size_t i) const;  // Must be a str.
  std::int64_t integer(std::size_t i) const;   // Must be an int.
  std::int64_t integer_or(std::size_t i, std::int64_t otherwise) const { return slots_[i] ? integer(i) : otherwise; }
  bool flag(std::size_t i) const { return slots_[i] && truthy(*slots_[i]); }

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> slots_;
};

}  // namespace lode::text::jinja
