#include "serve/responses_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "serve/chat_messages.h"
#include "serve/fields.h"
#include "serve/place.h"

namespace lode::serve {
namespace {

// What is read below, or of no meaning here. Everything else goes to chat's reader as it is, so that seeds, penalties,
// salts and template variables work here too...
constexpr std::array<std::string_view, 25> kRead = {"input",
                                                    "instructions",
                                                    "tools",
                                                    "tool_choice",
                                                    "text",
                                                    "reasoning",
                                                    "max_output_tokens",
                                                    "max_tokens",
                                                    "max_completion_tokens",
                                                    "max_tool_calls",
                                                    "messages",
                                                    "store",
                                                    "metadata",
                                                    "include",
                                                    "truncation",
                                                    "previous_response_id",
                                                    "conversation",
                                                    "background",
                                                    "prompt",
                                                    "prompt_cache_key",
                                                    "prompt_cache_retention",
                                                    "safety_identifier",
                                                    "service_tier",
                                                    "user",
                                                    "stream_options"};
// ...but what would change the reply's shape.
constexpr std::array<std::string_view, 6> kNotHere = {"n",       "logprobs", "top_logprobs",
                                                      "n_probs", "best_of",  "return_progress"};

template <std::size_t N>
bool one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string in_quotes(std::string_view s) {
  return "'" + valid_utf8(s.substr(0, 40)) + "'";
}

// true, a name, an object: something is asked for.
bool asks(const Json& value) {
  return !value.is_null() && value != false && value != 0 && !(value.is_structured() && value.empty());
}

class Reader {
 public:
  Reader(const Json& body, Fields& fields, ResponsesBody& out) : body_(body), fields_(fields), out_(out) {}

  void read() {
    out_.chat = Json::object();
    refuse_state();
    for (const auto& [name, value] : body_.items()) {
      if (one_of(kRead, name) || value.is_null()) continue;
      if (one_of(kNotHere, name) && asks(value))
        return fields_.fail(name, fmt::format("'{}' is not supported by this endpoint", name));
      if (!one_of(kNotHere, name)) out_.chat[name] = value;
    }
    std::int64_t most = 1;
    fields_.integer("max_output_tokens", most, 1, std::numeric_limits<std::int32_t>::max());
    if (fields_.find("max_output_tokens") != nullptr) out_.chat["max_tokens"] = most;
    out_.chat["messages"] = Json::array();
    if (const Json* said = fields_.find("instructions"); said != nullptr) {
      if (!said->is_string()) return fields_.fail("instructions", "a string", describe(*said));
      if (!said->get_ref<const std::string&>().empty()) messages().push_back({{"role", "system"}, {"content", *said}});
    }
    read_input();
    read_tools();
    read_tool_choice();
    read_text();
    read_reasoning();
    if (!fields_.error()) echo();
  }

 private:
  Json& messages() { return out_.chat["messages"]; }

  // This server keeps no responses: a client that counts on one would get an answer to half of its conversation.
  void refuse_state() {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kState = {
        {{"previous_response_id",
          "this server keeps no responses. Send the whole conversation as 'input': what it computed before is reused"},
         {"conversation", "this server keeps no conversations. Send the whole conversation as 'input'"},
         {"background", "this server answers while the client waits. Use 'stream'"},
         {"prompt", "this server keeps no prompts. Send 'instructions' and 'input'"}}};
    for (const auto& [name, why] : kState) {
      const Json* value = fields_.find(name);
      if (value != nullptr && asks(*value))
        return fields_.fail(std::string(name), fmt::format("'{}' is not supported: {}", name, why));
    }
  }

  void read_input() {
    const Json* input = fields_.find("input");
    if (input == nullptr) return fields_.fail("input", "'input' is missing");
    if (input->is_string()) return messages().push_back({{"role", "user"}, {"content", *input}});
    if (!input->is_array()) return fields_.fail("input", "a string or an array of items", describe(*input));
    if (!fields_.filled("input", *input, kMessagesMax, "items")) return;
    for (std::size_t i = 0; i < input->size() && !fields_.error(); ++i)
      read_item((*input)[i], {fields_, fmt::format("input[{}]", i)});
  }

  void read_item(const Json& item, const Place& place) {
    if (!item.is_object()) return place.fail("an object", describe(item));
    const std::string* type = text_member(item, "type", place);
    if (!place.good()) return;
    if (type == nullptr || *type == "message") return read_message(item, place);
    if (*type == "function_call") return read_call(item, place);
    if (*type == "function_call_output") return read_result(item, place);
    if (*type == "reasoning") return read_thought(item, place);
    if (*type == "item_reference")
      return place.at("type").say(
          fmt::format("'{}.type' is 'item_reference': this server keeps no items. Send the item itself", place.path));
    place.at("type").fail("'message', 'function_call', 'function_call_output' or 'reasoning'", in_quotes(*type));
  }

  // The assistant's message that is being put together: thoughts, text and calls of one turn are one message of chat's.
  // `field`: what is to be added; a message that has it already is followed by another.
  Json& turn(const char* field) {
    Json& list = messages();
    const bool open = !list.empty() && list.back()["role"] == "assistant" && !list.back().contains(field) &&
                      (std::string_view(field) != "content" || !list.back().contains("tool_calls"));
    if (!open) list.push_back({{"role", "assistant"}});
    return list.back();
  }

  void read_message(const Json& item, const Place& place) {
    const std::string* role = needed_text(item, "role", place);
    if (role == nullptr) return;
    if (*role != "user" && *role != "assistant" && *role != "system" && *role != "developer")
      return place.at("role").fail("'user', 'assistant', 'system' or 'developer'", in_quotes(*role));
    const Json* content = member(item, "content");
    if (content == nullptr) return place.at("content").fail("a string or an array of parts", "missing");
    Json read = read_content(content, place.at("content"));
    if (read.is_array() && read.empty()) read = "";
    if (!place.good()) return;
    if (*role == "assistant") turn("content")["content"] = std::move(read);
    else messages().push_back({{"role", *role}, {"content", std::move(read)}});
  }

  void read_call(const Json& item, const Place& place) {
    const std::string* id = needed_text(item, "call_id", place);
    const std::string* name = id == nullptr ? nullptr : needed_text(item, "name", place);
    const std::string* arguments = name == nullptr ? nullptr : needed_text(item, "arguments", place);
    if (arguments == nullptr) return;
    const Json call = {{"id", *id}, {"type", "function"}, {"function", {{"name", *name}, {"arguments", *arguments}}}};
    Json& list = messages();
    if (!list.empty() && list.back()["role"] == "assistant" && list.back().contains("tool_calls"))
      return list.back()["tool_calls"].push_back(call);
    turn("tool_calls")["tool_calls"] = Json::array({call});
  }

  void read_result(const Json& item, const Place& place) {
    const std::string* id = needed_text(item, "call_id", place);
    if (id == nullptr) return;
    const Json* output = member(item, "output");
    if (output == nullptr) return place.at("output").fail("a string or an array of parts", "missing");
    Json content = read_content(output, place.at("output"));
    if (content.is_array() && content.empty()) content = "";
    messages().push_back({{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(content)}});
  }

  // The text of the thoughts where it is there, else their summary. Encrypted ones are another server's.
  void read_thought(const Json& item, const Place& place) {
    std::string text;
    for (const char* list : {"content", "summary"}) {
      const Json* parts = member(item, list);
      if (parts == nullptr || !text.empty()) continue;
      if (!parts->is_array()) return place.at(list).fail("an array of parts", describe(*parts));
      for (std::size_t i = 0; i < parts->size() && place.good(); ++i) {
        const Place here = place.at(list).at(i);
        if (!(*parts)[i].is_object()) return here.fail("an object", describe((*parts)[i]));
        const std::string* said = needed_text((*parts)[i], "text", here);
        if (said != nullptr) text += *said;
      }
    }
    if (place.good() && !text.empty()) turn("reasoning_content")["reasoning_content"] = text;
  }

  void read_tools() {
    const Json* tools = fields_.find("tools");
    if (tools == nullptr || fields_.error()) return;
    if (!tools->is_array()) return fields_.fail("tools", "an array of tools", describe(*tools));
    if (tools->size() > kToolsMax)
      return fields_.fail("tools", fmt::format("at most {} tools", kToolsMax), std::to_string(tools->size()));
    Json list = Json::array();
    for (std::size_t i = 0; i < tools->size() && !fields_.error(); ++i) {
      const Place place{fields_, fmt::format("tools[{}]", i)};
      const Json& tool = (*tools)[i];
      if (!tool.is_object()) return place.fail("an object", describe(tool));
      const std::string* type = needed_text(tool, "type", place);
      if (type == nullptr) return;
      if (*type != "function")
        return place.at("type").say(
            fmt::format("'{}.type' is {}: this server runs no tools of its own; give 'function' ones", place.path,
                        in_quotes(*type)));
      const std::string* name = needed_text(tool, "name", place);
      if (name == nullptr) return;
      if (name->empty()) return place.at("name").fail("a name", "an empty string");
      Json function{{"name", *name}};
      if (const std::string* said = text_member(tool, "description", place); said != nullptr)
        function["description"] = *said;
      if (const Json* schema = member(tool, "parameters"); schema != nullptr) {
        if (!schema->is_object()) return place.at("parameters").fail("a JSON Schema object", describe(*schema));
        function["parameters"] = *schema;
      }
      if (const Json* strict = member(tool, "strict"); strict != nullptr) function["strict"] = *strict;
      list.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    if (!list.empty()) out_.chat["tools"] = std::move(list);
  }

  void read_tool_choice() {
    const Json* choice = fields_.find("tool_choice");
    if (choice == nullptr || fields_.error()) return;
    if (!choice->is_object()) {
      out_.chat["tool_choice"] = *choice;  // A word; chat's reader knows which.
      return;
    }
    const Place place{fields_, "tool_choice"};
    const std::string* type = needed_text(*choice, "type", place);
    if (type == nullptr) return;
    if (*type == "allowed_tools") return allow_tools(*choice, place);
    if (*type != "function") return place.at("type").fail("'function' or 'allowed_tools'", in_quotes(*type));
    const std::string* name = needed_text(*choice, "name", place);
    if (name != nullptr) out_.chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", *name}}}};
  }

  // {"mode": "auto" or "required", "tools": [{"type": "function", "name"}, ...]}: the others are as if they were not
  // there.
  void allow_tools(const Json& choice, const Place& place) {
    const std::string* mode = needed_text(choice, "mode", place);
    if (mode == nullptr) return;
    const Json* allowed = member(choice, "tools");
    if (allowed == nullptr || !allowed->is_array())
      return place.at("tools").fail("an array of tools", allowed == nullptr ? "missing" : describe(*allowed));
    Json kept = Json::array();
    for (std::size_t i = 0; i < allowed->size(); ++i) {
      const Place here = place.at("tools").at(i);
      const Json& one = (*allowed)[i];
      if (!one.is_object()) return here.fail("an object", describe(one));
      const std::string* name = needed_text(one, "name", here);
      if (name == nullptr) return;
      for (const Json& tool : out_.chat.value("tools", Json::array()))
        if (tool["function"]["name"] == *name) kept.push_back(tool);
      if (kept.size() != i + 1) return here.at("name").fail("a name among 'tools'", in_quotes(*name));
    }
    out_.chat["tools"] = std::move(kept);
    out_.chat["tool_choice"] = *mode;
  }

  void read_text() {
    const Json* text = fields_.find("text");
    if (text == nullptr || fields_.error()) return;
    const Place place{fields_, "text"};
    if (!text->is_object()) return place.fail("an object", describe(*text));
    const Json* format = member(*text, "format");
    if (format == nullptr) return;
    const Place at = place.at("format");
    if (!format->is_object()) return at.fail("an object", describe(*format));
    const std::string* type = needed_text(*format, "type", at);
    if (type == nullptr || *type == "text") return;
    if (*type == "json_object") {
      out_.chat["response_format"] = {{"type", "json_object"}};
      return;
    }
    if (*type != "json_schema") return at.at("type").fail("'text', 'json_object' or 'json_schema'", in_quotes(*type));
    const Json* schema = member(*format, "schema");
    if (schema == nullptr || !schema->is_object())
      return at.at("schema").fail("a JSON Schema object", schema == nullptr ? "missing" : describe(*schema));
    out_.chat["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "it"}, {"schema", *schema}}}};
  }

  // Effort "none" is a template's word for thoughts that do not begin; what the client says itself counts.
  void read_reasoning() {
    const Json* reasoning = fields_.find("reasoning");
    if (reasoning == nullptr || fields_.error()) return;
    const Place place{fields_, "reasoning"};
    if (!reasoning->is_object()) return place.fail("an object", describe(*reasoning));
    const std::string* effort = text_member(*reasoning, "effort", place);
    if (effort == nullptr) return;
    if (*effort != "none") {
      out_.chat["reasoning_effort"] = *effort;
      return;
    }
    Json& variables = out_.chat["chat_template_kwargs"];
    if (variables.is_null()) variables = Json::object();
    if (variables.is_object() && !variables.contains("enable_thinking")) variables["enable_thinking"] = false;
  }

  void echo() {
    const auto or_else = [&](const char* name, Json other) {
      const Json* value = fields_.find(name);
      return value == nullptr ? std::move(other) : *value;
    };
    Json& e = out_.echo;
    e = Json::object();
    e["instructions"] = or_else("instructions", nullptr);
    e["max_output_tokens"] = or_else("max_output_tokens", nullptr);
    e["metadata"] = or_else("metadata", Json::object());
    e["parallel_tool_calls"] = or_else("parallel_tool_calls", true);
    e["previous_response_id"] = nullptr;
    e["reasoning"] = or_else("reasoning", {{"effort", nullptr}, {"summary", nullptr}});
    e["store"] = false;
    e["temperature"] = or_else("temperature", nullptr);
    e["text"] = or_else("text", {{"format", {{"type", "text"}}}});
    if (!e["text"].contains("format")) e["text"]["format"] = {{"type", "text"}};
    e["tool_choice"] = or_else("tool_choice", "auto");
    e["tools"] = or_else("tools", Json::array());
    e["top_p"] = or_else("top_p", nullptr);
    e["truncation"] = "disabled";
  }

  const Json& body_;
  Fields& fields_;
  ResponsesBody& out_;
};

}  // namespace

std::variant<ResponsesBody, ApiError> read_responses_body(const Json& body) {
  Fields fields(body);
  ResponsesBody out;
  Reader(body, fields, out).read();
  if (fields.error()) return *fields.error();
  return out;
}

}  // namespace lode::serve
