// A place deep in a client's body, for errors that name it: messages[2].content[0].type. Owns nothing; one request.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "serve/fields.h"
#include "serve/json.h"

namespace lode::serve {

struct Place {
  Fields& fields;
  std::string path;

  void fail(std::string_view expected, std::string_view found) const { fields.fail(path, expected, found); }
  void say(std::string message) const { fields.fail(path, std::move(message)); }  // The whole sentence.
  Place at(std::string_view name) const {
    return {fields, path.empty() ? std::string(name) : path + "." + std::string(name)};
  }
  Place at(std::size_t index) const { return {fields, fmt::format("{}[{}]", path, index)}; }
  bool good() const { return !fields.error(); }
};

// A member that is there and not null.
inline const Json* member(const Json& object, std::string_view name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}
// A member that is a string; nullptr, and an error where it is there and something else.
inline const std::string* text_member(const Json& object, std::string_view name, const Place& place) {
  const Json* value = member(object, name);
  if (value == nullptr) return nullptr;
  if (value->is_string()) return &value->get_ref<const std::string&>();
  place.at(name).fail("a string", describe(*value));
  return nullptr;
}
// One that must be there.
inline const std::string* needed_text(const Json& object, std::string_view name, const Place& place) {
  const std::string* value = text_member(object, name, place);
  if (value == nullptr) place.at(name).fail("a string", "missing");
  return value;
}

}  // namespace lode::serve
