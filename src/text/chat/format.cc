#include "text/chat/format.h"

namespace lode::text {
namespace {

struct Known {
  std::string_view sign;  // Stands in the template.
  CallFormat calls;
  std::vector<std::string> open;
  std::string close;
  std::vector<std::string> marks;
};

// In this order: what is more particular comes first.
const std::vector<Known>& known_calls() {
  static const std::vector<Known> kKnown = {
      {"<|channel|>", CallFormat::harmony, {}, "", {}},
      {"<|tool_call>", CallFormat::gemma, {"<|tool_call>"}, "<tool_call|>", {"<|tool_call>", "<tool_call|>", "<|\"|>"}},
      {"[TOOL_CALLS]", CallFormat::mistral, {"[TOOL_CALLS]"}, "", {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}},
      {"｜DSML｜",
       CallFormat::dsml,
       {"<｜DSML｜tool_calls>", "<｜DSML｜function_calls>"},
       "",
       {"｜DSML｜", "<｜DSML｜tool_calls>", "<｜DSML｜function_calls>"}},
      {"<｜tool▁call▁begin｜>",
       CallFormat::deepseek,
       {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
       "<｜tool▁calls▁end｜>",
       {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>"}},
      {"<|tool_call_begin|>",
       CallFormat::kimi,
       {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"},
       "<|tool_calls_section_end|>",
       {"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
        "<|tool_calls_section_end|>"}},
      {"<tool_calls>", CallFormat::list, {"<tool_calls>"}, "</tool_calls>", {"<tool_calls>", "</tool_calls>"}},
      {"<TOOLCALL>", CallFormat::list, {"<TOOLCALL>"}, "</TOOLCALL>", {"<TOOLCALL>", "</TOOLCALL>"}},
      {"functools[", CallFormat::list, {"functools["}, "", {}},
      {"<tool_call>", CallFormat::tool_call, {"<tool_call>"}, "</tool_call>", {"<tool_call>", "</tool_call>"}},
      {"<function=", CallFormat::functionary, {"<function="}, "", {}},
      {"<|python_tag|>", CallFormat::llama, {"<|python_tag|>"}, "", {"<|python_tag|>"}},
      {"<|start_header_id|>", CallFormat::llama, {"<|python_tag|>"}, "", {"<|python_tag|>"}},
  };
  return kKnown;
}

}  // namespace

ChatFormat chat_format(std::string_view source) {
  const auto has = [source](std::string_view sign) { return source.find(sign) != std::string_view::npos; };
  ChatFormat out{.think_open = "<think>", .think_close = "</think>"};
  const bool speaks_of_tools = has("tools") || has("tool_calls");
  for (const Known& known : known_calls()) {
    // Channels structure every answer, with tools or without.
    if (!has(known.sign) || (!speaks_of_tools && known.calls != CallFormat::harmony)) continue;
    out.calls = known.calls;
    out.calls_open = known.open;
    out.calls_close = known.close;
    out.call_marks = known.marks;
    break;
  }
  if (out.calls == CallFormat::harmony) {
    out.reasoning_marks = {"<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>"};
    return out;
  }
  if (has("<|channel>")) {
    out.think_open = "<|channel>thought";
    out.think_close = "<channel|>";
    out.reasoning_marks = {"<|channel>", "<channel|>"};
    return out;
  }
  if (has("[THINK]")) {
    out.think_open = "[THINK]";
    out.think_close = "[/THINK]";
  } else if (has("<thinking>") && !has("<think>")) {
    out.think_open = "<thinking>";
    out.think_close = "</thinking>";
  }
  out.reasoning_marks = {out.think_open, out.think_close};
  return out;
}

}  // namespace lode::text
