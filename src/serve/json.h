// JSON at the door: bounded parsing of what a client sent, and writing that cannot fail. Owns nothing. Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lode::serve {

// Keys keep the order in which they were sent: a chat template may print them.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  int depth_max = 64;
  // Ordered objects are searched linearly, so a member costs time in proportion to those before it: 1024 keep a
  // hostile 32 MiB body to about two seconds of parsing.
  int members_max = 1024;
  // A value takes up to 50 bytes parsed: 4 million keep a body under 200 MB.
  std::int64_t values_max = 4'000'000;
};

// The value in `text`, or a line saying where and why it is not one. Never throws, never recurses.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// One line of JSON. Bytes that are not UTF-8 become U+FFFD; numbers that are not finite become null.
std::string dump_json(const Json& value);

// Bytes that are not part of a well-formed UTF-8 character as U+FFFD.
std::string valid_utf8(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);

// x, or 0 where x is not finite: for figures whose division had nothing to divide.
double finite(double x);

// The string that the object in `text` has under `name`, found without reading the rest: linear, no allocation but the
// result. nullopt where there is none, or `text` is no object as far as that is seen.
std::optional<std::string> top_level_string(std::string_view text, std::string_view name);

}  // namespace lode::serve
