// How a model family writes what is not plain text in an answer: reasoning and tool calls. Read off its chat template.
// Plain data and pure functions. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lode::text {

enum class CallFormat : std::uint8_t {
  none,         // The template says nothing of tools.
  tool_call,    // <tool_call>: {"name", "arguments"} (Hermes, Qwen), <function=..> (Qwen3-Coder) or arg_key (GLM)
  llama,        // {"name", "parameters"} as the whole answer, maybe after <|python_tag|>; more after a semicolon
  mistral,      // [TOOL_CALLS] and a list of objects, or NAME[ARGS]{..}
  gemma,        // <|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>
  harmony,      // gpt-oss: messages on channels, a call has a recipient
  deepseek,     // <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{..}<｜tool▁call▁end｜>
  dsml,         // <｜DSML｜invoke name="NAME"> and parameters
  kimi,         // <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{..}<|tool_call_end|>
  functionary,  // <function=NAME>{..}</function>
  list,         // A list of {"name", "arguments"} between two marks of the model's own
};

struct ChatFormat {
  CallFormat calls = CallFormat::none;
  // What begins and ends a stretch of calls. No end: it goes on to the answer's.
  std::vector<std::string> calls_open;
  std::string calls_close;
  // Around reasoning. Never empty: where a template names none, <think> and </think>, as most models write.
  std::string think_open, think_close;
  // Control tokens that the parser of answers needs to see; elsewhere they are hidden from text.
  std::vector<std::string> reasoning_marks, call_marks;
};

ChatFormat chat_format(std::string_view template_source);

}  // namespace lode::text
