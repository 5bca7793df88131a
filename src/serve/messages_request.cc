#include "serve/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "serve/chat_messages.h"
#include "serve/chat_request.h"
#include "serve/fields.h"
#include "serve/place.h"

namespace lode::serve {
namespace {

// What is read below. Everything else goes to chat's reader as it is, so that seeds, penalties, salts and template
// variables work here too...
constexpr std::array<std::string_view, 18> kRead = {
    "messages",    "system",    "tools",         "tool_choice",   "max_tokens",    "stop_sequences",
    "thinking",    "metadata",  "service_tier",  "cache_control", "output_config", "output_format",
    "temperature", "container", "inference_geo", "betas",         "stop",          "max_completion_tokens"};
// ...but what would change the reply's shape.
constexpr std::array<std::string_view, 7> kNotHere = {"n",       "logprobs",       "top_logprobs",   "n_probs",
                                                      "best_of", "stream_options", "return_progress"};

template <std::size_t N>
bool one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Json text_part(const Json& text) {
  return {{"type", "text"}, {"text", text}};
}

class Reader {
 public:
  Reader(const Json& body, Fields& fields, MessagesBody& out) : body_(body), fields_(fields), out_(out) {}

  void read(MaxTokens max_tokens) {
    out_.chat = Json::object();
    for (const auto& [name, value] : body_.items()) {
      if (one_of(kRead, name) || value.is_null()) continue;
      if (one_of(kNotHere, name))
        return fields_.fail(name, fmt::format("'{}' is not supported by this endpoint", name));
      out_.chat[name] = value;
    }
    read_lengths(max_tokens);
    out_.chat["messages"] = Json::array();
    read_system();
    read_messages();
    read_tools();
    read_tool_choice();
    read_thinking();
    read_output();
    if (const Json* control = fields_.find("cache_control"); control != nullptr)
      add_mark(*control, {fields_, "cache_control"}, {.messages = messages().size()});
  }

 private:
  Json& messages() { return out_.chat["messages"]; }

  void read_lengths(MaxTokens needed) {
    std::int64_t most = 1;
    fields_.integer("max_tokens", most, 1, std::numeric_limits<std::int32_t>::max());
    if (fields_.find("max_tokens") != nullptr) out_.chat["max_tokens"] = most;
    else if (needed == MaxTokens::needed) fields_.fail("max_tokens", "'max_tokens' is missing");
    if (const Json* temperature = fields_.find("temperature"); temperature != nullptr)
      out_.chat["temperature"] = *temperature;
    const Json* stop = fields_.find("stop_sequences");
    if (stop == nullptr) return;
    const bool strings = stop->is_array() && std::all_of(stop->begin(), stop->end(), [](const Json& s) {
                           return s.is_string() && s.get_ref<const std::string&>().size() <= kStopBytesMax;
                         });
    if (!strings || stop->size() > kStopStringsMax)
      return fields_.fail("stop_sequences",
                          fmt::format("'stop_sequences' must be an array of at most {} strings of at most {} bytes",
                                      kStopStringsMax, kStopBytesMax));
    out_.chat["stop"] = *stop;
  }

  void add_mark(const Json& control, const Place& place, text::ChatMark mark) {
    if (!control.is_object()) return place.fail("an object", describe(control));
    if (out_.marks.size() >= kCacheControlsMax)
      return place.say(
          fmt::format("'{}': a request may have at most {} 'cache_control' places", place.path, kCacheControlsMax));
    out_.marks.push_back(mark);
  }
  // Where a block of a message that is being made says so: behind its last part.
  void mark_block(const Json& block, const Place& place, const Json& parts) {
    const Json* control = member(block, "cache_control");
    if (control != nullptr)
      add_mark(*control, place.at("cache_control"), {.messages = messages().size() + 1, .parts = parts.size()});
  }

  // A block's type; nullptr and an error where it has none.
  const std::string* type_of(const Json& block, const Place& place) {
    if (block.is_object()) return needed_text(block, "type", place);
    place.fail("an object", describe(block));
    return nullptr;
  }

  void read_system() {
    const Json* system = fields_.find("system");
    if (system == nullptr) return;
    const Place place{fields_, "system"};
    Json message{{"role", "system"}, {"content", *system}};
    if (!system->is_string()) {
      if (!system->is_array()) return place.fail("a string or an array of text blocks", describe(*system));
      Json parts = Json::array();
      for (std::size_t i = 0; i < system->size() && place.good(); ++i) {
        const Json& block = (*system)[i];
        const std::string* type = type_of(block, place.at(i));
        if (type == nullptr) return;
        if (*type != "text") return wrong_type(*type, place.at(i), "'text'");
        const std::string* text = needed_text(block, "text", place.at(i));
        if (text == nullptr) return;
        parts.push_back(text_part(*text));
        mark_block(block, place.at(i), parts);
      }
      if (parts.empty()) return;
      message["content"] = std::move(parts);
    }
    messages().push_back(std::move(message));
  }

  void wrong_type(std::string_view type, const Place& place, std::string_view expected) {
    for (const std::string_view media : {"image", "document", "audio", "video"}) {
      if (type == media)
        return place.at("type").say(fmt::format("'{}.type' is '{}': this server takes text only", place.path, type));
    }
    place.at("type").fail(expected, "'" + valid_utf8(type.substr(0, 40)) + "'");
  }

  void read_messages() {
    const Json* list = needed_messages(fields_);
    if (list == nullptr) return;
    for (std::size_t i = 0; i < list->size() && !fields_.error(); ++i)
      read_message((*list)[i], {fields_, fmt::format("messages[{}]", i)});
  }

  void read_message(const Json& message, const Place& place) {
    if (!message.is_object()) return place.fail("an object", describe(message));
    const std::string* role = needed_text(message, "role", place);
    if (role == nullptr) return;
    const Json* content = member(message, "content");
    if (*role != "user" && *role != "assistant" && *role != "system")
      return place.at("role").fail("'user', 'assistant' or 'system'", "'" + valid_utf8(role->substr(0, 40)) + "'");
    if (content == nullptr) return place.at("content").fail("a string or an array of blocks", "missing");
    if (content->is_string()) return messages().push_back({{"role", *role}, {"content", *content}});
    if (!content->is_array()) return place.at("content").fail("a string or an array of blocks", describe(*content));
    if (*role == "assistant") read_assistant(*content, place.at("content"));
    else read_user(*content, *role, place.at("content"));
  }

  // Text goes on as a message of the user's; each tool's result is a message of its own.
  void read_user(const Json& blocks, const std::string& role, const Place& place) {
    Json parts = Json::array();
    const auto flush = [&] {
      if (!parts.empty()) messages().push_back({{"role", role}, {"content", std::exchange(parts, Json::array())}});
    };
    for (std::size_t i = 0; i < blocks.size() && place.good(); ++i) {
      const Json& block = blocks[i];
      const std::string* type = type_of(block, place.at(i));
      if (type == nullptr) return;
      if (*type == "text") {
        const std::string* text = needed_text(block, "text", place.at(i));
        if (text == nullptr) return;
        parts.push_back(text_part(*text));
        mark_block(block, place.at(i), parts);
      } else if (*type == "tool_result" && role == "user") {
        flush();
        read_result(block, place.at(i));
      } else {
        return wrong_type(*type, place.at(i), "'text' or 'tool_result'");
      }
    }
    // A message without any block is an empty one, as "" is.
    if (blocks.empty() && place.good()) messages().push_back({{"role", role}, {"content", ""}});
    flush();
  }

  void read_result(const Json& block, const Place& place) {
    const std::string* id = needed_text(block, "tool_use_id", place);
    if (id == nullptr) return;
    const Json* content = member(block, "content");
    Json parts = Json::array();
    if (content != nullptr && content->is_string()) parts.push_back(text_part(*content));
    else if (content != nullptr && !content->is_array())
      return place.at("content").fail("a string or an array of blocks", describe(*content));
    else if (content != nullptr) {
      for (std::size_t i = 0; i < content->size() && place.good(); ++i) {
        const Place here = place.at("content").at(i);
        const std::string* type = type_of((*content)[i], here);
        if (type == nullptr) return;
        if (*type != "text") return wrong_type(*type, here, "'text'");
        const std::string* text = needed_text((*content)[i], "text", here);
        if (text == nullptr) return;
        parts.push_back(text_part(*text));
      }
    }
    mark_block(block, place, parts);
    Json message{{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(parts)}};
    if (message["content"].empty()) message["content"] = "";
    else if (message["content"].size() == 1) message["content"] = Json(message["content"][0]["text"]);
    messages().push_back(std::move(message));
  }

  void read_assistant(const Json& blocks, const Place& place) {
    Json parts = Json::array(), calls = Json::array();
    std::string reasoning;
    for (std::size_t i = 0; i < blocks.size() && place.good(); ++i) {
      const Json& block = blocks[i];
      const Place here = place.at(i);
      const std::string* type = type_of(block, here);
      if (type == nullptr) return;
      if (*type == "text" || *type == "thinking") {
        const std::string* text = needed_text(block, *type, here);
        if (text == nullptr) return;
        if (*type == "text") parts.push_back(text_part(*text));
        else reasoning += *text;
      } else if (*type == "tool_use") {
        const std::string* id = needed_text(block, "id", here);
        const std::string* name = id == nullptr ? nullptr : needed_text(block, "name", here);
        if (name == nullptr) return;
        const Json* input = member(block, "input");
        if (input != nullptr && !input->is_object()) return here.at("input").fail("an object", describe(*input));
        const std::string arguments = input == nullptr ? "{}" : dump_json(*input);
        calls.push_back({{"id", *id}, {"type", "function"}, {"function", {{"name", *name}, {"arguments", arguments}}}});
      } else if (*type != "redacted_thinking") {  // Of another server's; there is nothing in it to read.
        return wrong_type(*type, here, "'text', 'tool_use' or 'thinking'");
      }
      mark_block(block, here, parts);
    }
    Json message{{"role", "assistant"}, {"content", nullptr}};
    if (!parts.empty() || (calls.empty() && reasoning.empty()))
      message["content"] = parts.empty() ? Json("") : std::move(parts);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    if (!reasoning.empty()) message["reasoning_content"] = std::move(reasoning);
    messages().push_back(std::move(message));
  }

  void read_tools() {
    const Json* tools = fields_.find("tools");
    if (tools == nullptr) return;
    if (!tools->is_array()) return fields_.fail("tools", "an array of tools", describe(*tools));
    if (tools->size() > kToolsMax)
      return fields_.fail("tools", fmt::format("at most {} tools", kToolsMax), std::to_string(tools->size()));
    Json list = Json::array();
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const Place place{fields_, fmt::format("tools[{}]", i)};
      const Json& tool = (*tools)[i];
      if (!tool.is_object()) return place.fail("an object", describe(tool));
      const std::string* type = text_member(tool, "type", place);
      if (type != nullptr && *type != "custom")
        return place.at("type").say(
            fmt::format("'{}.type' is '{}': this server runs no tools of its own; give 'custom' "
                        "ones, with an 'input_schema'",
                        place.path, valid_utf8(type->substr(0, 40))));
      const std::string* name = needed_text(tool, "name", place);
      if (name == nullptr) return;
      if (name->empty()) return place.at("name").fail("a name", "an empty string");
      Json function{{"name", *name}};
      if (const std::string* said = text_member(tool, "description", place); said != nullptr)
        function["description"] = *said;
      const Json* schema = member(tool, "input_schema");
      if (schema == nullptr || !schema->is_object())
        return place.at("input_schema").fail("a JSON Schema object", schema == nullptr ? "missing" : describe(*schema));
      function["parameters"] = *schema;
      if (const Json* strict = member(tool, "strict"); strict != nullptr) function["strict"] = *strict;
      list.push_back({{"type", "function"}, {"function", std::move(function)}});
      if (const Json* control = member(tool, "cache_control"); control != nullptr)
        add_mark(*control, place.at("cache_control"), {});
      if (fields_.error()) return;
    }
    out_.chat["tools"] = std::move(list);
  }

  void read_tool_choice() {
    const Json* choice = fields_.find("tool_choice");
    if (choice == nullptr) return;
    const Place place{fields_, "tool_choice"};
    if (!choice->is_object()) return place.fail("an object", describe(*choice));
    const std::string* type = needed_text(*choice, "type", place);
    if (type == nullptr) return;
    Json& out = out_.chat["tool_choice"];
    if (*type == "auto" || *type == "none") out = *type;
    else if (*type == "any") out = "required";
    else if (*type == "tool") {
      const std::string* name = needed_text(*choice, "name", place);
      if (name == nullptr) return;
      out = {{"type", "function"}, {"function", {{"name", *name}}}};
    } else {
      return place.at("type").fail("'auto', 'any', 'tool' or 'none'", "'" + valid_utf8(type->substr(0, 40)) + "'");
    }
    const Json* one = member(*choice, "disable_parallel_tool_use");
    if (one == nullptr) return;
    if (!one->is_boolean()) return place.at("disable_parallel_tool_use").fail("true or false", describe(*one));
    out_.chat["parallel_tool_calls"] = !one->get<bool>();
  }

  // Templates know two names for it; what the client says itself counts.
  void read_thinking() {
    const Json* thinking = fields_.find("thinking");
    if (thinking == nullptr) return;
    const Place place{fields_, "thinking"};
    if (!thinking->is_object()) return place.fail("an object", describe(*thinking));
    const std::string* type = needed_text(*thinking, "type", place);
    if (type == nullptr) return;
    if (*type != "enabled" && *type != "disabled" && *type != "adaptive")
      return place.at("type").fail("'enabled', 'adaptive' or 'disabled'", "'" + valid_utf8(type->substr(0, 40)) + "'");
    Json& variables = out_.chat["chat_template_kwargs"];
    if (variables.is_null()) variables = Json::object();
    if (!variables.is_object()) return;  // Chat's reader says so.
    for (const char* name : {"enable_thinking", "thinking"})
      if (!variables.contains(name)) variables[name] = *type != "disabled";
  }

  void read_output() {
    const Json* config = fields_.find("output_config");
    const Json* format = fields_.find("output_format");
    std::string place = "output_format";
    if (config != nullptr) {
      const Place at{fields_, "output_config"};
      if (!config->is_object()) return at.fail("an object", describe(*config));
      if (const std::string* effort = text_member(*config, "effort", at); effort != nullptr)
        out_.chat["reasoning_effort"] = *effort;
      if (const Json* inside = member(*config, "format"); inside != nullptr) {
        format = inside;
        place = "output_config.format";
      }
    }
    if (format == nullptr) return;
    const Place at{fields_, place};
    if (!format->is_object()) return at.fail("an object", describe(*format));
    const std::string* type = needed_text(*format, "type", at);
    if (type == nullptr) return;
    if (*type != "json_schema") return at.at("type").fail("'json_schema'", "'" + valid_utf8(type->substr(0, 40)) + "'");
    const Json* schema = member(*format, "schema");
    if (schema == nullptr || !schema->is_object())
      return at.at("schema").fail("a JSON Schema object", schema == nullptr ? "missing" : describe(*schema));
    out_.chat["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"name", "it"}, {"schema", *schema}}}};
  }

  const Json& body_;
  Fields& fields_;
  MessagesBody& out_;
};

}  // namespace

std::variant<MessagesBody, ApiError> read_messages_body(const Json& body, MaxTokens max_tokens) {
  Fields fields(body);
  MessagesBody out;
  Reader(body, fields, out).read(max_tokens);
  if (fields.error()) return *fields.error();
  return out;
}

}  // namespace lode::serve
