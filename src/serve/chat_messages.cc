#include "serve/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "serve/chat_request.h"
#include "serve/place.h"

namespace lode::serve {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// A text part, alone of what it may say.
Json read_part(const Json& part, const Place& place) {
  if (part.is_string()) return {{"type", "text"}, {"text", part}};
  if (!part.is_object()) {
    place.fail("an object", describe(part));
    return {};
  }
  const Json* type = member(part, "type");
  if (type == nullptr || !type->is_string()) {
    place.at("type").fail("a string", type == nullptr ? "missing" : describe(*type));
    return {};
  }
  const auto& said = type->get_ref<const std::string&>();
  const bool refusal = said == "refusal";
  if (said != "text" && said != "input_text" && said != "output_text" && !refusal) {
    const bool media = said.find("image") != std::string::npos || said.find("audio") != std::string::npos ||
                       said.find("video") != std::string::npos || said == "file";
    place.fields.fail(place.path + ".type",
                      media ? fmt::format("'{}.type' is '{}': this server takes text only", place.path, said)
                            : fmt::format("'{}.type' must be 'text', not '{}'", place.path,
                                          valid_utf8(std::string_view(said).substr(0, 40))));
    return {};
  }
  const char* name = refusal ? "refusal" : "text";
  const Json* text = member(part, name);
  if (text == nullptr || !text->is_string()) {
    place.at(name).fail("a string", text == nullptr ? "missing" : describe(*text));
    return {};
  }
  return {{"type", "text"}, {"text", *text}};
}

}  // namespace

Json read_content(const Json* content, const Place& place) {
  if (content == nullptr) return nullptr;
  if (content->is_string()) return *content;
  if (!content->is_array()) {
    place.fail("a string or an array of parts", describe(*content));
    return {};
  }
  Json parts = Json::array();
  for (std::size_t i = 0; i < content->size() && place.good(); ++i)
    parts.push_back(read_part((*content)[i], place.at(i)));
  return parts;
}

namespace {

Json read_call(const Json& call, const Place& place) {
  if (!call.is_object()) {
    place.fail("an object", describe(call));
    return {};
  }
  const Json* function = member(call, "function");
  if (function == nullptr || !function->is_object()) {
    place.at("function").fail("an object", function == nullptr ? "missing" : describe(*function));
    return {};
  }
  const Json* name = member(*function, "name");
  const Json* arguments = member(*function, "arguments");
  const Json* id = member(call, "id");
  if (name == nullptr || !name->is_string())
    place.at("function").at("name").fail("a string", name == nullptr ? "missing" : describe(*name));
  if (arguments != nullptr && !arguments->is_string() && !arguments->is_object())
    place.at("function").at("arguments").fail("a string of JSON", describe(*arguments));
  if (id != nullptr && !id->is_string()) place.at("id").fail("a string", describe(*id));
  if (!place.good()) return {};
  Json out = call;
  out["type"] = "function";
  out["function"] = *function;
  if (arguments == nullptr) out["function"]["arguments"] = "{}";
  return out;
}

Json read_message(const Json& message, const Place& place) {
  if (!message.is_object()) {
    place.fail("an object", describe(message));
    return {};
  }
  const Json* role = member(message, "role");
  const bool known = role != nullptr && role->is_string() &&
                     std::find(kRoles.begin(), kRoles.end(), role->get_ref<const std::string&>()) != kRoles.end();
  if (!known) {
    place.at("role").fail("one of 'system', 'developer', 'user', 'assistant', 'tool'",
                          role == nullptr     ? "missing"
                          : role->is_string() ? "'" + valid_utf8(role->get<std::string>().substr(0, 40)) + "'"
                                              : describe(*role));
    return {};
  }
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning"}) {
    const Json* value = member(message, name);
    if (value != nullptr && !value->is_string()) place.at(name).fail("a string", describe(*value));
  }
  Json out = message;
  out["content"] = read_content(member(message, "content"), place.at("content"));
  const Json* calls = member(message, "tool_calls");
  if (calls != nullptr && !calls->is_array()) place.at("tool_calls").fail("an array", describe(*calls));
  if (!place.good()) return {};
  if (calls != nullptr) {
    Json list = Json::array();
    for (std::size_t i = 0; i < calls->size() && place.good(); ++i)
      list.push_back(read_call((*calls)[i], place.at("tool_calls").at(i)));
    out["tool_calls"] = std::move(list);
  }
  // An assistant's message may be calls or reasoning alone.
  const bool says_otherwise = *role == "assistant" && ((calls != nullptr && !calls->empty()) ||
                                                       member(message, "reasoning_content") != nullptr ||
                                                       member(message, "reasoning") != nullptr);
  if (out["content"].is_null() && !says_otherwise) place.at("content").fail("a string or an array of parts", "missing");
  return out;
}

}  // namespace

const Json* needed_messages(Fields& fields) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) fields.fail("messages", "'messages' is missing");
  else if (!messages->is_array()) fields.fail("messages", "an array of messages", describe(*messages));
  else if (fields.filled("messages", *messages, kMessagesMax, "messages")) return messages;
  return nullptr;
}

Json read_messages(Fields& fields) {
  Json out = Json::array();
  const Json* messages = needed_messages(fields);
  if (messages == nullptr) return out;
  for (std::size_t i = 0; i < messages->size() && !fields.error(); ++i)
    out.push_back(read_message((*messages)[i], {fields, fmt::format("messages[{}]", i)}));
  return out;
}

Json read_tools(Fields& fields) {
  const Json* tools = fields.find("tools");
  if (tools == nullptr) return nullptr;
  if (!tools->is_array()) {
    fields.fail("tools", "an array of tools", describe(*tools));
    return nullptr;
  }
  if (tools->size() > kToolsMax)
    fields.fail("tools", fmt::format("at most {} tools", kToolsMax), std::to_string(tools->size()));
  for (std::size_t i = 0; i < tools->size() && !fields.error(); ++i) {
    const Place place{fields, fmt::format("tools[{}]", i)};
    const Json& tool = (*tools)[i];
    if (!tool.is_object()) {
      place.fail("an object", describe(tool));
      break;
    }
    const Json* type = member(tool, "type");
    if (type != nullptr && *type != "function") {
      place.at("type").fail("'function'", type->is_string() ? "another type of tool" : describe(*type));
      break;
    }
    const Json* function = member(tool, "function");
    if (function == nullptr || !function->is_object()) {
      place.at("function").fail("an object", function == nullptr ? "missing" : describe(*function));
      break;
    }
    const Json* name = member(*function, "name");
    if (name == nullptr || !name->is_string() || name->get_ref<const std::string&>().empty())
      place.at("function").at("name").fail("a string", name == nullptr ? "missing" : describe(*name));
    const Json* parameters = member(*function, "parameters");
    if (parameters != nullptr && !parameters->is_object())
      place.at("function").at("parameters").fail("a JSON Schema object", describe(*parameters));
  }
  return tools->empty() ? Json(nullptr) : *tools;
}

}  // namespace lode::serve
