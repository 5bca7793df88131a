// Typed access to the fields of a client's JSON object. Keeps the first error, which names the field, what was expected
// and what was found. An absent field and null leave the value as it is. Owns nothing; one request, one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "serve/api_error.h"
#include "serve/json.h"

namespace lode::serve {

class Fields {
 public:
  // `object` is an object and outlives this. `prefix` goes before names in messages ("stream_options.").
  explicit Fields(const Json& object, std::string prefix = {}) : object_(object), prefix_(std::move(prefix)) {}

  // The field's value; nullptr where it is absent or null.
  const Json* find(std::string_view name) const;

  // A number that stays finite as float, inside [low, high].
  void number(std::string_view name, float& value, double low = -std::numeric_limits<float>::max(),
              double high = std::numeric_limits<float>::max());
  // An integer (16.0 counts, 1.5 does not) inside [low, high].
  void integer(std::string_view name, std::int64_t& value, std::int64_t low, std::int64_t high);
  void boolean(std::string_view name, bool& value);
  void string(std::string_view name, std::string& value, std::size_t bytes_max);

  void fail(std::string_view name, std::string_view expected, std::string_view found);
  void fail(std::string_view name, std::string message);  // The whole sentence.
  void fail(ApiError error);
  // Whether the array `list` of this name holds something, and at most `most` `things` ("messages"); otherwise fails.
  bool filled(std::string_view name, const Json& list, std::size_t most, std::string_view things);
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const Json& object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

// "a string", "the number 1.5", "an array", for messages; a long value is cut.
std::string describe(const Json& value);
// The integer in `value` (also when written as 16.0), if it is one that 64 bits hold.
std::optional<std::int64_t> as_integer(const Json& value);

}  // namespace lode::serve
