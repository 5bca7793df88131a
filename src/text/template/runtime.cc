#include "text/template/runtime.h"

#include <fmt/format.h>

#include <algorithm>

namespace lode::text::jinja {

void Budget::out_of_steps() const {
  exhausted(
      fmt::format("the template needs more than {} steps; expected a template that ends sooner", limits_.steps_max));
}

void Budget::out_of_memory() const {
  exhausted(fmt::format("the template's values need more than {} MiB; expected smaller ones",
                        limits_.memory_bytes_max >> 20));
}

void Budget::too_deep() const {
  exhausted(fmt::format("calls and blocks are nested more than {} deep; expected fewer", limits_.depth_max));
}

void Sink::grow(std::size_t bytes) {
  if (bytes > budget_.limits().output_bytes_max - text_.size()) {
    exhausted(fmt::format("the text grows over {} bytes; expected less", budget_.limits().output_bytes_max));
  }
  budget_.work(bytes);
  budget_.take(bytes);
  charged_ += bytes;
}

void Sink::fill(std::size_t count, std::string_view text) {
  if (text.empty() || count == 0) return;
  if (count > budget_.limits().output_bytes_max / text.size()) grow(budget_.limits().output_bytes_max);
  grow(count * text.size());
  for (std::size_t i = 0; i < count; ++i) text_ += text;
}

Runtime::~Runtime() {
  // Namespaces may name each other: what they hold goes first, while all of them are there.
  for (auto& object : kept_) {
    if (auto* space = dynamic_cast<SpaceObject*>(object.get())) space->items.clear();
  }
}

void Sink::put_part(const Value& v, std::string_view part) {
  const std::size_t begin = text_.size();
  put(part);
  if (!v.given()) return;
  const std::string& mask = v.as<StringObject>().given_bytes;
  if (mask.empty()) return mark_given(begin);
  budget_.take(text_.size() - given_.size());
  charged_ += text_.size() - given_.size();
  given_.resize(begin, 0);
  given_.append(mask, static_cast<std::size_t>(part.data() - v.text().data()), part.size());
}

void Sink::mark_given(std::size_t begin) {
  if (begin == text_.size()) return;
  budget_.take(text_.size() - given_.size());
  charged_ += text_.size() - given_.size();
  given_.resize(std::max(begin, given_.size()), 0);
  given_.resize(text_.size(), 1);
  std::fill(given_.begin() + static_cast<std::ptrdiff_t>(begin), given_.end(), 1);
}

std::shared_ptr<StringObject> Runtime::make_string(std::string text) {
  auto object = std::make_shared<StringObject>();
  charge(*object, sizeof(StringObject) + 16 + text.size());
  budget.work(text.size());
  object->ascii = true;
  for (const char c : text) object->ascii &= static_cast<unsigned char>(c) < 0x80;
  object->text = std::move(text);
  object->given = giving_;
  return object;
}

namespace {

// `mask` has a byte each of the object's text, or is shorter where the rest is the template's.
void set_origin(Runtime& rt, StringObject& object, std::string mask) {
  const std::size_t ones = static_cast<std::size_t>(std::count(mask.begin(), mask.end(), 1));
  object.given = ones > 0;
  object.given_bytes.clear();
  if (ones == 0 || ones == object.text.size()) return;
  rt.charge(object, object.text.size());
  mask.resize(object.text.size(), 0);
  object.given_bytes = std::move(mask);
}

}  // namespace

Value Runtime::str(std::string text) {
  return Value(Kind::string, make_string(std::move(text)));
}

Value Runtime::str(Sink& text) {
  std::string mask = text.given_bytes();
  auto object = make_string(text.take());
  set_origin(*this, *object, std::move(mask));
  return Value(Kind::string, std::move(object));
}

Value Runtime::part(const Value& v, std::string_view text) {
  auto object = make_string(std::string(text));
  const auto& whole = v.as<StringObject>();
  object->markup = whole.markup;
  object->given = whole.given;
  if (!whole.given_bytes.empty()) {
    set_origin(*this, *object,
               whole.given_bytes.substr(static_cast<std::size_t>(text.data() - whole.text.data()), text.size()));
  }
  return Value(Kind::string, std::move(object));
}

Runtime::Giving::Giving(Runtime& rt, const Args& args, const Value& self) : rt_(rt), before_(rt.giving_) {
  bool given = self.given();
  for (const Value& v : args.positional) given |= v.given();
  for (const auto& [name, v] : args.named) given |= v.given();
  rt.giving_ |= given;
}

Value Runtime::markup(std::string text) {
  auto object = make_string(std::move(text));
  object->markup = true;
  return Value(Kind::string, std::move(object));
}

Value Runtime::undefined(std::string message) {
  auto object = std::make_shared<UndefinedObject>();
  charge(*object, sizeof(UndefinedObject) + message.size());
  object->message = std::move(message);
  return Value(Kind::undefined, std::move(object));
}

Value Runtime::missing_attribute(const Value& owner, std::string_view name) {
  return undefined(fmt::format("{} has no attribute '{}'", owner_name(owner), name));
}

void set_depth(Object& container, std::uint32_t part) {
  if (part + 1 > kValueDepthMax) exhausted(fmt::format("a value is nested more than {} deep", kValueDepthMax));
  if (part + 1 > container.depth) container.depth = part + 1;
}

Value Runtime::sequence(Flavor flavor, Values items) {
  auto object = std::make_shared<SequenceObject>();
  charge(*object, sizeof(SequenceObject) + items.size() * sizeof(Value));
  budget.step(static_cast<std::int64_t>(items.size() / 8));
  object->flavor = flavor;
  set_depth(*object, 0);
  for (const Value& v : items) hold(*object, v);
  object->items = std::move(items);
  return Value(Kind::sequence, std::move(object));
}

Value Runtime::range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  constexpr std::uint64_t kRangeMax = 100'000;  // As jinja2's sandbox has it.
  if (step == 0) fail("range() arg 3 must not be zero");
  std::uint64_t count = 0;
  const auto gap = [](std::int64_t low, std::int64_t high) {
    return static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  };
  if (step > 0 && start < stop) count = (gap(start, stop) - 1) / static_cast<std::uint64_t>(step) + 1;
  if (step < 0 && start > stop) count = (gap(stop, start) - 1) / gap(step, 0) + 1;
  if (count > kRangeMax) fail(fmt::format("range() of {} items; expected at most {}", count, kRangeMax));
  budget.require(count * sizeof(Value));
  Values items;
  items.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    items.push_back(Value::integer(
        static_cast<std::int64_t>(static_cast<std::uint64_t>(start) + i * static_cast<std::uint64_t>(step))));
  }
  Value v = sequence(Flavor::range, std::move(items));
  auto& object = v.as<SequenceObject>();
  object.start = start;
  object.stop = stop;
  object.step = step;
  return v;
}

Value Runtime::generator(Values items, std::optional<Fault> error) {
  auto object = std::make_shared<GeneratorObject>();
  charge(*object, sizeof(GeneratorObject) + items.size() * sizeof(Value));
  set_depth(*object, 0);
  for (const Value& v : items) hold(*object, v);
  object->items = std::move(items);
  object->error = std::move(error);
  return Value(Kind::generator, std::move(object));
}

Value Runtime::function(std::string_view name, Native native, Value self) {
  auto object = std::make_shared<FunctionObject>();
  charge(*object, sizeof(FunctionObject));
  hold(*object, self);
  object->name = name;
  object->native = native;
  object->self = std::move(self);
  return Value(Kind::function, std::move(object));
}

Value Runtime::space() {
  return keep(Kind::space, std::make_unique<SpaceObject>());
}

Params::Params(std::string_view function, const Args& args, std::initializer_list<std::string_view> names,
               std::size_t required)
    : function_(function), names_(names), slots_(names.size(), nullptr) {
  if (args.positional.size() > names_.size()) {
    fail(fmt::format("{}() takes at most {} arguments ({} given)", function, names_.size(), args.positional.size()));
  }
  for (std::size_t i = 0; i < args.positional.size(); ++i) slots_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    std::size_t i = 0;
    while (i < names_.size() && names_[i] != name) ++i;
    if (i == names_.size()) fail(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    if (slots_[i]) fail(fmt::format("{}() got multiple values for argument '{}'", function, name));
    slots_[i] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!slots_[i]) fail(fmt::format("{}() missing required argument '{}'", function, names_[i]));
  }
}

std::string_view Params::text(std::size_t i) const {
  const Value& v = *slots_[i];
  if (v.is(Kind::undefined)) fail(v.as<UndefinedObject>().message);
  if (!v.is_str()) fail(fmt::format("{}(): '{}' must be str, not {}", function_, names_[i], type_name(v)));
  return v.text();
}

std::int64_t Params::integer(std::size_t i) const {
  const Value& v = *slots_[i];
  if (v.is(Kind::undefined)) fail(v.as<UndefinedObject>().message);
  if (!v.is_integral()) fail(fmt::format("{}(): '{}' must be int, not {}", function_, names_[i], type_name(v)));
  return v.as_integer();
}

}  // namespace lode::text::jinja
