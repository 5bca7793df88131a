// Chat templates: a Jinja text and the variables of one conversation -> the prompt. Pure: reads no file, no clock, no
// environment. The language and its bounds are in docs/templates.md. A parsed Template is immutable: any thread may
// render it, many at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/byte_range.h"

namespace lode::text {

namespace jinja {
struct Program;
}

struct ParseLimits {
  std::size_t source_bytes_max = std::size_t{1} << 20;  // The longest template known to us has 51 KB.
  int nesting_max = 200;  // Statements in statements and operands in operands; real templates stay under 20.
};

// What one render may use. A template that wants more ends with one error, code resource_exhausted.
struct RenderLimits {
  std::int64_t steps_max = 20'000'000;                    // One a node visited, one more each 256 bytes copied.
  std::size_t output_bytes_max = std::size_t{32} << 20;   // Of the prompt, and of each captured block.
  std::size_t memory_bytes_max = std::size_t{256} << 20;  // Of live values and buffers, within a factor of two.
  int depth_max = 1500;  // Nested visits, macro calls included: under 512 KiB of stack in a release build.
};

// A local date and time, as people write it.
struct DateTime {
  int year = 1970, month = 1, day = 1, hour = 0, minute = 0, second = 0;
};

struct RenderOptions {
  std::optional<DateTime> now;  // What strftime_now prints; without it, calling strftime_now is an error.
  RenderLimits limits;
};

// A prompt, and which of its bytes come from the conversation. The others the template itself wrote.
struct Rendered {
  std::string text;
  std::vector<ByteRange> given;  // Ascending, apart from each other.
};

class Template {
 public:
  // Errors: one line, "line N: " with what was expected and what was found.
  static Result<std::shared_ptr<const Template>> parse(std::string_view source, const ParseLimits& limits = {});

  // `input` is an object: the template's variables. The order of its keys is kept wherever the template prints them.
  // Errors: "line N: " and what went wrong there; raise_exception's own text follows the line.
  Result<std::string> render(const nlohmann::ordered_json& input, const RenderOptions& options = {}) const;

  // The same, told apart: `given` holds variables whose texts are somebody else's (messages, tools), `own` those that
  // are as good as the template (bos_token); a name that both have is `own`. Every byte that was copied from a given
  // text is marked, through concatenation, slices, strip, split, replace, join, macros and captured blocks. What other
  // functions make of a given text (tojson, upper, format, ...) is marked whole.
  Result<Rendered> render_marked(const nlohmann::ordered_json& given, const nlohmann::ordered_json& own,
                                 const RenderOptions& options = {}) const;

  explicit Template(std::unique_ptr<const jinja::Program> program);
  ~Template();

 private:
  std::unique_ptr<const jinja::Program> program_;
};

}  // namespace lode::text
