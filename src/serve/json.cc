#include "serve/json.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

namespace lode::serve {
namespace {

// Counts nesting, members and values without building anything. Only text outside strings counts.
Status check_limits(std::string_view text, const JsonLimits& limits) {
  std::vector<int> members;  // One entry an open bracket: its ':' count.
  std::int64_t values = 1;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
      continue;
    }
    switch (c) {
      case '"': in_string = true; break;
      case '{':
      case '[':
        if (static_cast<int>(members.size()) >= limits.depth_max) {
          return Status::invalid(fmt::format("byte {}: nested deeper than {} levels", i, limits.depth_max));
        }
        members.push_back(0);
        ++values;
        break;
      case '}':
      case ']':
        if (!members.empty()) members.pop_back();
        break;
      case ':':
        if (!members.empty() && ++members.back() > limits.members_max) {
          return Status::invalid(fmt::format("byte {}: an object with more than {} members", i, limits.members_max));
        }
        break;
      case ',': ++values; break;
      default: break;
    }
    if (values > limits.values_max) {
      return Status::invalid(fmt::format("byte {}: more than {} values", i, limits.values_max));
    }
  }
  return Status::success();
}

// The parser's own words without its "[json.exception.parse_error.101] " tag.
std::string plain_words(std::string_view what) {
  if (const auto end = what.find("] "); what.starts_with('[') && end != std::string_view::npos)
    what.remove_prefix(end + 2);
  return valid_utf8(what);
}

// Length of the well-formed character at the front of s (not empty), or 0 where there is none.
std::size_t character_length(std::string_view s) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = at(0);
  if (c < 0x80) return 1;
  std::size_t n;
  unsigned char low = 0x80, high = 0xBF;  // Bounds of the second byte: no overlong forms, surrogates or > U+10FFFF.
  if (c >= 0xC2 && c <= 0xDF) n = 2;
  else if (c >= 0xE0 && c <= 0xEF) n = 3, low = c == 0xE0 ? 0xA0 : 0x80, high = c == 0xED ? 0x9F : 0xBF;
  else if (c >= 0xF0 && c <= 0xF4) n = 4, low = c == 0xF0 ? 0x90 : 0x80, high = c == 0xF4 ? 0x8F : 0xBF;
  else return 0;
  if (s.size() < n || at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < n; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  return n;
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return Status::invalid("it is empty");
  LODE_RETURN_IF_ERROR(check_limits(text, limits));
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const std::exception& e) {  // The library's only way to say where a text is wrong.
    return Status::invalid(plain_words(e.what()));
  }
}

std::optional<std::string> top_level_string(std::string_view text, std::string_view name) {
  int depth = 0;
  bool is_key = false;    // The next string at depth 1 is a key.
  bool is_value = false;  // It is the value of `name`.
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const std::size_t begin = i++;
      while (i < text.size() && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
      if (i >= text.size()) return std::nullopt;
      const std::string_view quoted = text.substr(begin, i + 1 - begin);
      if (is_value) {
        const Json value = Json::parse(quoted, nullptr, false);
        return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
      }
      const std::string_view inner = quoted.substr(1, quoted.size() - 2);
      if (depth == 1 && is_key && inner == name) is_value = true;  // What comes next, after the colon.
      is_key = false;
      continue;
    }
    if (c == '{' || c == '[') {
      if (depth == 0 && c == '[') return std::nullopt;
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
    const bool blank = c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ':';
    if (is_value && !blank) is_value = false;  // No string.
    if (depth == 1 && (c == '{' || c == ',')) is_key = true;
  }
  return std::nullopt;
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t n = character_length(bytes);
    if (n == 0) out += "\xEF\xBF\xBD";
    else out += bytes.substr(0, n);
    bytes.remove_prefix(n == 0 ? 1 : n);
  }
  return out;
}

bool is_valid_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t n = character_length(bytes);
    if (n == 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

double finite(double x) {
  return std::isfinite(x) ? x : 0.0;
}

}  // namespace lode::serve
