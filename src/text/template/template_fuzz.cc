// Fuzz target: any bytes as a template over a conversation give a prompt or one line of error, within the bounds, and
// the same both times. A last line that is a JSON object holds the variables.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/template.h"

namespace {

using namespace lode;
using namespace lode::text;
using Json = nlohmann::ordered_json;

// Small enough that a hostile input takes milliseconds; depth as in production.
constexpr RenderLimits kLimits{.steps_max = 200'000, .output_bytes_max = 1 << 20, .memory_bytes_max = 8 << 20};

const Json& conversation() {
  static const Json json = Json::parse(R"({
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": [{"type": "text", "text": "Grüße 天"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": {"a": 1.5}}}]},
      {"role": "tool", "content": "{}", "tool_call_id": "c1"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "bos_token": "<s>", "add_generation_prompt": true, "n": 7, "f": -2.5, "l": [3, 1, 2], "s": "a,b c"})");
  return json;
}

bool one_line(const Status& status) {
  return status.message().starts_with("line ") && status.code() != Code::internal;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view source(reinterpret_cast<const char*>(data), size);
  Json own;
  const Json* input = &conversation();
  if (const std::size_t at = source.rfind("\n{\""); at != std::string_view::npos) {
    own = Json::parse(source.substr(at + 1), nullptr, false);
    if (own.is_object()) {
      input = &own;
      source = source.substr(0, at);
    }
  }
  const auto parsed = Template::parse(source);
  if (!parsed.ok()) {
    LODE_CHECK(one_line(parsed.status()));
    return 0;
  }
  const RenderOptions options{.now = DateTime{2026, 1, 2, 3, 4, 5}, .limits = kLimits};
  const auto first = (*parsed)->render(*input, options);
  const auto second = (*parsed)->render(*input, options);
  LODE_CHECK(first.ok() == second.ok());
  if (first.ok()) {
    LODE_CHECK(first->size() <= kLimits.output_bytes_max && *first == *second);
    // Somebody else's variables make the same prompt, unless keeping their bytes apart takes more memory than there is.
    const auto marked = (*parsed)->render_marked(*input, Json::object(), options);
    LODE_CHECK(marked.ok() || marked.status().code() == Code::resource_exhausted);
    if (marked.ok()) {
      LODE_CHECK(marked->text == *first);
      std::size_t end = 0;
      for (const ByteRange& r : marked->given) {
        LODE_CHECK(r.begin < r.end && (end == 0 || r.begin > end));
        end = r.end;
      }
      LODE_CHECK(end <= marked->text.size());
    }
  } else {
    LODE_CHECK(one_line(first.status()) && first.status().message() == second.status().message());
  }
  return 0;
}
