// Any answer, in any pieces, of any family: the parser ends, loses nothing that it should not, and gives the same parts
// however the text is cut.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/chat/reply_parser.h"

namespace lode::text {
namespace {

constexpr std::array<std::string_view, 10> kTemplates = {
    "tools <tool_call> <think>", "tools [TOOL_CALLS] [THINK]",  "tools <|tool_call> <|channel>",
    "tools <|channel|>",         "tools <｜tool▁call▁begin｜>", "tools <|start_header_id|>",
    "tools ｜DSML｜ <think>",    "tools <|tool_call_begin|>",   "tools <function=",
    "tools <tool_calls>"};

struct Parts {
  std::string content, reasoning, calls;
  bool unfinished = false;
  bool operator==(const Parts&) const = default;
};

Parts parsed(std::string_view source, std::string_view text, std::size_t piece, const ReplyParser::Options& options) {
  ReplyParser parser(chat_format(source), options);
  std::vector<ReplyDelta> deltas;
  for (std::size_t at = 0; at < text.size(); at += piece) parser.push(text.substr(at, piece), deltas);
  parser.finish(deltas);
  Parts out;
  std::size_t calls = 0;
  for (const ReplyDelta& d : deltas) {
    LODE_CHECK(!d.text.empty());
    switch (d.kind) {
      case ReplyDelta::Kind::content: out.content += d.text; break;
      case ReplyDelta::Kind::reasoning: out.reasoning += d.text; break;
      case ReplyDelta::Kind::call:
        ++calls;
        out.calls += "\x01" + d.id + "\x02" + d.text + "\x03";
        break;
      case ReplyDelta::Kind::arguments:
        LODE_CHECK(calls > 0);
        out.calls += d.text;
        break;
    }
  }
  LODE_CHECK(calls == parser.calls());
  out.unfinished = parser.unfinished_call();
  return out;
}

}  // namespace
}  // namespace lode::text

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lode::text;
  if (size < 2) return 0;
  using Options = ReplyParser::Options;
  const std::string_view source = kTemplates[data[0] % kTemplates.size()];
  Options options{.tools = data[1] & 1 ? Options::Tools::parse : Options::Tools::ignore,
                  .reasoning = data[1] & 2 ? Options::Reasoning::split : Options::Reasoning::keep,
                  .start = (data[1] & 6) == 6 ? Options::Start::in_reasoning : Options::Start::outside};
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Parts whole = parsed(source, text, size, options);
  for (const std::size_t piece : {1, 2, 5}) LODE_CHECK(parsed(source, text, piece, options) == whole);
  return 0;
}
