#include "serve/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "engine/grammar_constraint.h"
#include "serve/chat_messages.h"
#include "serve/fields.h"
#include "serve/structured_output.h"

namespace lode::serve {
namespace {

using text::CallFormat;
using Options = text::ReplyParser::Options;

enum class Choice { none, automatic, required };

struct ToolChoice {
  Choice choice = Choice::automatic;
  std::string name;  // Of the one tool that must be called; empty: any.
};

bool has_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(), [&](const Json& tool) { return tool["function"]["name"] == name; });
}

ToolChoice read_tool_choice(Fields& fields, const Json& tools) {
  constexpr std::string_view kExpected =
      "'none', 'auto', 'required' or {\"type\": \"function\", \"function\": {\"name\": ...}}";
  ToolChoice out;
  const Json* value = fields.find("tool_choice");
  if (value == nullptr) return out;
  if (value->is_string()) {
    if (*value == "none") out.choice = Choice::none;
    else if (*value == "required" || *value == "any") out.choice = Choice::required;
    else if (*value != "auto") fields.fail("tool_choice", kExpected, "another string");
  } else if (value->is_object()) {
    const auto function = value->find("function");
    const auto name = function != value->end() && function->is_object() ? function->find("name") : value->end();
    if (function == value->end() || !function->is_object() || name == function->end() || !name->is_string()) {
      fields.fail("tool_choice", kExpected, "an object without a function's name");
      return out;
    }
    out.choice = Choice::required;
    out.name = name->get<std::string>();
    if (!tools.is_array() || !has_tool(tools, out.name))
      fields.fail("tool_choice", fmt::format("'tool_choice' names '{}', which is not among 'tools'",
                                             valid_utf8(std::string_view(out.name).substr(0, 64))));
  } else {
    fields.fail("tool_choice", kExpected, describe(*value));
  }
  if (out.choice == Choice::required && !tools.is_array() && !fields.error())
    fields.fail("tool_choice", "'tool_choice' asks for a call, but there are no 'tools'");
  return out;
}

// What a template may be told beside messages and tools.
void read_variables(Fields& fields, Json& variables) {
  for (const char* name : {"reasoning_effort"}) {
    std::string value;
    fields.string(name, value, 64);
    if (!value.empty()) variables[name] = value;
  }
  if (const Json* documents = fields.find("documents"); documents != nullptr) {
    if (documents->is_array()) variables["documents"] = *documents;
    else fields.fail("documents", "an array", describe(*documents));
  }
  const Json* given = fields.find("chat_template_kwargs");
  if (given == nullptr) return;
  if (!given->is_object()) return fields.fail("chat_template_kwargs", "an object", describe(*given));
  for (const auto& [name, value] : given->items()) {
    for (const char* ours : {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}) {
      if (name == ours)
        return fields.fail("chat_template_kwargs", fmt::format("'chat_template_kwargs' cannot set '{}'", name));
    }
    variables[name] = value;
  }
}

// What comes next: a new turn of the assistant's, or, after an assistant's message, more of that one.
void read_next(Fields& fields, text::ChatTurns& turns) {
  using Next = text::ChatTurns::Next;
  bool go_on = false, generation = true;
  fields.boolean("continue_final_message", go_on);
  fields.boolean("add_generation_prompt", generation);
  if (fields.error()) return;
  const Json& last = turns.messages.back();
  const bool assistant = last["role"] == "assistant";
  const bool calls = last.contains("tool_calls") && !last["tool_calls"].empty();
  const bool said = fields.find("add_generation_prompt") != nullptr;
  if (go_on && said && generation)
    return fields.fail("continue_final_message",
                       "'continue_final_message' and 'add_generation_prompt' cannot both be true");
  if (go_on && (!assistant || calls))
    return fields.fail("continue_final_message",
                       "'continue_final_message' needs an assistant's text as the last message");
  if (go_on) turns.next = Next::go_on;
  else if (said) turns.next = generation ? Next::start : Next::none;
  else if (assistant && !calls) turns.next = Next::go_on;  // As llama-server takes it: a prefill.
}

void read_logprobs(Fields& fields, ChatRequest& out) {
  bool logprobs = false;
  std::int64_t top = 0, n_probs = 0;
  fields.boolean("logprobs", logprobs);
  fields.integer("top_logprobs", top, 0, kLogprobsMax);
  fields.integer("n_probs", n_probs, 0, kLogprobsMax);  // llama-server's: of itself enough.
  if (fields.find("top_logprobs") != nullptr && top > 0 && !logprobs)
    return fields.fail("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  if (logprobs) out.shared.top_logprobs = static_cast<std::int32_t>(std::max(top, n_probs));
  else if (n_probs > 0) out.shared.top_logprobs = static_cast<std::int32_t>(n_probs);
}

void read_modalities(Fields& fields) {
  const Json* value = fields.find("modalities");
  if (value == nullptr) return;
  if (!value->is_array()) return fields.fail("modalities", "an array", describe(*value));
  for (const Json& one : *value) {
    if (one != "text")
      return fields.fail("modalities", "'modalities' may hold 'text' alone: this server makes no other");
  }
}

void read_reasoning_format(Fields& fields, Options& parser) {
  std::string format = "auto";
  fields.string("reasoning_format", format, 64);
  if (format == "none") parser.reasoning = Options::Reasoning::keep;
  else if (format != "auto" && format != "deepseek")
    fields.fail("reasoning_format", "'auto', 'deepseek' or 'none'", "another string");
}

// How an answer begins that calls a tool: what the model would have written itself.
std::string call_start(const text::ChatTemplate& chat, const ToolChoice& choice) {
  const std::string& name = choice.name;
  const auto has = [&](std::string_view sign) { return chat.source().find(sign) != std::string::npos; };
  const std::string json = "{\"name\": \"" + (name.empty() ? std::string() : name + "\", ");
  switch (chat.format().calls) {
    case CallFormat::tool_call:
      if (has("<function=")) return "<tool_call>\n<function=" + (name.empty() ? "" : name + ">\n");
      if (has("<arg_key>")) return "<tool_call>" + name;
      return "<tool_call>\n" + json + (name.empty() ? "" : "\"arguments\": {");
    case CallFormat::llama: return json + (name.empty() ? "" : "\"parameters\": {");
    case CallFormat::mistral:
      if (has("[ARGS]")) return "[TOOL_CALLS]" + (name.empty() ? "" : name + "[ARGS]{");
      return "[TOOL_CALLS][" + json + (name.empty() ? "" : "\"arguments\": {");
    case CallFormat::gemma: return "<|tool_call>call:" + (name.empty() ? "" : name + "{");
    case CallFormat::harmony:
      return "<|channel|>commentary to=functions." + (name.empty() ? "" : name + " <|constrain|>json<|message|>{");
    case CallFormat::deepseek:
      return "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" +
             (has("```json") ? "function<｜tool▁sep｜>" + (name.empty() ? "" : name + "\n```json\n{")
                             : (name.empty() ? "" : name + "<｜tool▁sep｜>{"));
    case CallFormat::dsml:
      return "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"" + (name.empty() ? "" : name + "\">\n");
    case CallFormat::kimi:
      return "<|tool_calls_section_begin|><|tool_call_begin|>functions." +
             (name.empty() ? "" : name + ":0<|tool_call_argument_begin|>{");
    case CallFormat::functionary: return "<function=" + (name.empty() ? "" : name + ">{");
    case CallFormat::list:
      return chat.format().calls_open[0] + (chat.format().calls_open[0].ends_with('[') ? "" : "[") + json +
             (name.empty() ? "" : "\"arguments\": {");
    case CallFormat::none: break;
  }
  return {};
}

// What ends the thoughts that the prompt has opened; nothing where it has not.
std::string closed_thoughts(const ChatContext& context, const ChatRequest& request) {
  return request.prompt.in_reasoning ? "\n" + context.chat.format().think_close + "\n\n" : std::string();
}

// Puts the answer's beginning into the prompt. `given`: its bytes that are the client's.
void begin_answer(const ChatContext& context, std::string start, std::span<const text::ByteRange> given,
                  ChatRequest& out) {
  const auto ids = context.tokenizer().encode(start, {.special = text::EncodeOptions::Special::parse, .plain = given});
  out.prompt.ids.insert(out.prompt.ids.end(), ids.begin(), ids.end());
  out.forced_start = std::move(start);
}

// What stands before a call's JSON, where a call of this format is an object {"name", "arguments"}; nullopt: it is not.
std::optional<std::string> before_call_object(const text::ChatTemplate& chat) {
  const auto has = [&](std::string_view sign) { return chat.source().find(sign) != std::string::npos; };
  switch (chat.format().calls) {
    case CallFormat::tool_call:
      if (has("<function=") || has("<arg_key>")) return std::nullopt;
      return "<tool_call>\n";
    case CallFormat::llama: return "";
    case CallFormat::mistral: return has("[ARGS]") ? std::nullopt : std::optional<std::string>("[TOOL_CALLS][");
    case CallFormat::list: return chat.format().calls_open[0] + (chat.format().calls_open[0].ends_with('[') ? "" : "[");
    default: return std::nullopt;
  }
}

// A schema that stands inside of another one: what it says of its own root is said of `root`.
void move_references(Json& schema, const std::string& root) {
  if (schema.is_array()) {
    for (Json& one : schema) move_references(one, root);
  } else if (schema.is_object()) {
    for (auto& [name, value] : schema.items()) {
      const bool pointer = name == "$ref" && value.is_string() && value.get_ref<const std::string&>().starts_with('#');
      if (pointer) value = root + value.get_ref<const std::string&>().substr(1);
      else if (name != "const" && name != "enum" && name != "default" && name != "examples")
        move_references(value, root);
    }
  }
}

// One call of one of the tools that `choice` allows, as a JSON Schema.
Json call_schema(const Json& tools, const ToolChoice& choice, const char* arguments) {
  Json any = Json::array();
  for (const Json& tool : tools) {
    const Json& function = tool["function"];
    if (!choice.name.empty() && function["name"] != choice.name) continue;
    Json inner = function.value("parameters", Json());
    if (!inner.is_object() || inner.empty()) inner = {{"type", "object"}};
    move_references(inner, fmt::format("#/anyOf/{}/properties/{}", any.size(), arguments));
    Json one;
    one["type"] = "object";
    one["properties"] = {{"name", {{"const", function["name"]}}}, {arguments, std::move(inner)}};
    one["required"] = {"name", arguments};
    one["additionalProperties"] = false;
    any.push_back(std::move(one));
  }
  return {{"anyOf", std::move(any)}};
}

// A call whose arguments keep to their schema (field report E15): where the format's calls are JSON objects. False:
// they are not, or a schema that is not "strict" says what no grammar can keep to; then the beginning alone is put
// there.
bool constrain_call(Fields& fields, const ChatContext& context, const ToolChoice& choice, ChatRequest& out) {
  const auto before = before_call_object(context.chat);
  if (!before) return false;
  const bool llama = context.chat.format().calls == CallFormat::llama;
  auto masks = context.grammars.json_schema(call_schema(out.tools, choice, llama ? "parameters" : "arguments"));
  if (!masks.ok()) {
    for (const Json& tool : out.tools) {
      if (tool["function"].value("strict", Json(false)) != true) continue;
      fields.fail("tools", fmt::format("'tools': a strict tool's parameters cannot be kept to: {}",
                                       valid_utf8(masks.status().message())));
      return true;
    }
    return false;
  }
  out.shared.constraint = std::make_shared<engine::GrammarConstraint>(std::move(masks).value(), context.tokenizer());
  begin_answer(context, closed_thoughts(context, out) + *before, {}, out);
  return true;
}

// tool_choice "required": the answer begins with a call, since that beginning is put there. What follows is the
// model's.
void force_call(Fields& fields, const ChatContext& context, const ToolChoice& choice, ChatRequest& out) {
  std::string start = call_start(context.chat, choice);
  if (!start.empty() && constrain_call(fields, context, choice, out)) return;
  if (start.empty())
    return fields.fail("tool_choice", "'tool_choice' asks for a call, but this model's chat template knows no tools");
  start = closed_thoughts(context, out) + start;
  // A tool's name is the client's text.
  std::vector<text::ByteRange> given;
  if (const std::size_t at = start.rfind(choice.name); !choice.name.empty() && at != std::string::npos)
    given.push_back({at, at + choice.name.size()});
  begin_answer(context, std::move(start), given, out);
}

// A document has no room for thoughts: where the template has opened them, they are closed before it begins.
void constrain(Fields& fields, const ChatContext& context, const ToolChoice& choice, ChatRequest& out) {
  read_structured_output(fields, context.grammars, out.shared);
  if (fields.error() || !out.shared.constraint) return;
  if (choice.choice == Choice::required)
    return fields.fail("tool_choice",
                       "'tool_choice' asks for a call, and another field for a document: give one of them");
  if (out.prompt.in_reasoning) begin_answer(context, closed_thoughts(context, out), {}, out);
}

void make_prompt(Fields& fields, const ChatContext& context, const text::ChatTurns& turns, ChatRequest& out) {
  auto rendered = context.chat.render(turns);
  if (!rendered.ok()) {
    return fields.fail("messages", fmt::format("the chat template refuses these messages: {}",
                                               valid_utf8(rendered.status().message())));
  }
  if (auto error = too_long(rendered->text.size(), context.tokenizer(), context.context_max))
    return fields.fail(std::move(*error));
  out.prompt = std::move(*rendered);
  context.chat.tokenize(turns, out.prompt, context.context_max);
  if (out.prompt.ids.empty()) fields.fail("messages", "'messages': the chat template makes an empty prompt of them");
}

text::ChatTurns read_turns(Fields& fields, const ChatContext& context) {
  text::ChatTurns turns{.now = context.now};
  turns.messages = read_messages(fields);
  turns.tools = read_tools(fields);
  read_variables(fields, turns.variables);
  if (!fields.error()) read_next(fields, turns);
  return turns;
}

}  // namespace

text::ReplyParser ChatRequest::new_parser() const {
  Options options = parser;
  options.tools_json = &tools;
  return {format, options};
}

std::variant<text::ChatTurns, ApiError> parse_chat_turns(const Json& body, const ChatContext& context) {
  Fields fields(body);
  text::ChatTurns turns = read_turns(fields, context);
  if (fields.error()) return *fields.error();
  return turns;
}

std::variant<ChatRequest, ApiError> parse_chat_request(const Json& body, const ChatContext& context,
                                                       std::vector<text::ChatMark> marks) {
  if (!body.is_object()) return invalid_field("", "the body must be a JSON object, not " + describe(body));
  Fields fields(body);
  ChatRequest out;
  read_generation(fields, context.tokenizer(), context.context_max, out);
  read_logprobs(fields, out);
  read_modalities(fields);
  read_reasoning_format(fields, out.parser);
  bool parallel = true;
  fields.boolean("parallel_tool_calls", parallel);
  out.parallel_calls = parallel ? ParallelCalls::yes : ParallelCalls::no;
  constexpr Unsupported kAlso[] = {{"chat_template"}, {"echo"}, {"audio"}, {"best_of", 1}};
  refuse_unsupported(fields, kAlso);

  text::ChatTurns turns = read_turns(fields, context);
  turns.marks = std::move(marks);
  const ToolChoice choice = read_tool_choice(fields, turns.tools);
  if (fields.error()) return *fields.error();
  if (choice.choice == Choice::none) turns.tools = nullptr;
  else if (const Json* said = fields.find("tool_choice"); said != nullptr) turns.tool_choice = *said;

  out.format = context.chat.format();
  out.tools = turns.tools;
  if (turns.tools.is_array()) out.parser.tools = Options::Tools::parse;
  make_prompt(fields, context, turns, out);  // Last: the costly one.
  if (!fields.error()) constrain(fields, context, choice, out);
  if (!fields.error() && choice.choice == Choice::required) force_call(fields, context, choice, out);
  if (fields.error()) return *fields.error();

  out.parser.start = out.prompt.in_reasoning ? Options::Start::in_reasoning : Options::Start::outside;
  std::vector<std::string> shown = out.format.reasoning_marks;
  if (out.parser.tools == Options::Tools::parse)
    shown.insert(shown.end(), out.format.call_marks.begin(), out.format.call_marks.end());
  out.shared.shown = context.chat.shown_tokens(shown);
  out.shared.marks = out.prompt.marks;
  return out;
}

}  // namespace lode::serve
