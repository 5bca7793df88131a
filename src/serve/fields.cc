#include "serve/fields.h"

#include <fmt/format.h>

#include <cmath>

namespace lode::serve {

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "an array";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    default: return "the number " + dump_json(value);
  }
}

std::optional<std::int64_t> as_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto u = value.get<std::uint64_t>();
    if (u > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(u);
  }
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number_float()) {
    const double d = value.get<double>();
    if (std::isfinite(d) && d == std::trunc(d) && std::abs(d) < 9e15) return static_cast<std::int64_t>(d);
  }
  return std::nullopt;
}

const Json* Fields::find(std::string_view name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::fail(std::string_view name, std::string message) {
  fail(invalid_field(prefix_ + std::string(name), std::move(message)));
}

void Fields::fail(std::string_view name, std::string_view expected, std::string_view found) {
  fail(name, fmt::format("'{}{}' must be {}, not {}", prefix_, name, expected, found));
}

bool Fields::filled(std::string_view name, const Json& list, std::size_t most, std::string_view things) {
  if (list.empty()) fail(name, fmt::format("'{}{}' is an empty array", prefix_, name));
  else if (list.size() > most) fail(name, fmt::format("at most {} {}", most, things), std::to_string(list.size()));
  else return true;
  return false;
}

void Fields::number(std::string_view name, float& value, double low, double high) {
  const Json* json = find(name);
  if (json == nullptr) return;
  const bool unbounded = high == std::numeric_limits<float>::max();
  const std::string expected = unbounded && low < -1e30 ? "a finite number"
                               : unbounded              ? fmt::format("a finite number of at least {}", low)
                                                        : fmt::format("a number from {} to {}", low, high);
  if (!json->is_number()) return fail(name, expected, describe(*json));
  const double d = json->get<double>();
  if (!std::isfinite(d) || d < low || d > high) return fail(name, expected, describe(*json));
  value = static_cast<float>(d);
}

void Fields::integer(std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high) {
  const Json* json = find(name);
  if (json == nullptr) return;
  const auto i = as_integer(*json);
  if (!i || *i < low || *i > high) {
    const bool unbounded = high == std::numeric_limits<std::int64_t>::max();
    return fail(
        name,
        unbounded ? fmt::format("an integer of at least {}", low) : fmt::format("an integer from {} to {}", low, high),
        describe(*json));
  }
  value = *i;
}

void Fields::boolean(std::string_view name, bool& value) {
  const Json* json = find(name);
  if (json == nullptr) return;
  if (!json->is_boolean()) return fail(name, "true or false", describe(*json));
  value = json->get<bool>();
}

void Fields::string(std::string_view name, std::string& value, std::size_t bytes_max) {
  const Json* json = find(name);
  if (json == nullptr) return;
  if (!json->is_string()) return fail(name, "a string", describe(*json));
  const auto& s = json->get_ref<const std::string&>();
  if (s.size() > bytes_max)
    return fail(name, fmt::format("a string of at most {} bytes", bytes_max), fmt::format("one of {}", s.size()));
  value = s;
}

}  // namespace lode::serve
