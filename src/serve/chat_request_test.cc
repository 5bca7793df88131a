#include "serve/chat_request.h"

#include <gtest/gtest.h>

#include <limits>

#include "serve/fake_engine.h"

namespace lode::serve {
namespace {

constexpr const char* kPlain =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";
constexpr const char* kTools =
    "{% for t in tools or [] %}{{ t.function.name }},{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function|tojson }}</tool_call>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% if enable_thinking %}<think>\n{% endif %}{% endif %}";
constexpr const char* kTool =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}])";

std::variant<ChatRequest, ApiError> parse(const std::string& text, const char* source = kPlain) {
  static const ByteTokenizer tokenizer;
  static text::grammar::GrammarStore grammars(tokenizer);
  auto body = parse_json(text);
  EXPECT_TRUE(body.ok()) << text;
  auto chat = text::ChatTemplate::make(source, tokenizer);
  EXPECT_TRUE(chat.ok()) << chat.status().message();
  return parse_chat_request(*body, {**chat, grammars, 1000, text::DateTime{}});
}
ChatRequest good(const std::string& fields, const char* source = kPlain) {
  const std::string body = fields.starts_with("\"messages\"") ? "{" + fields + "}"
                                                              : R"({"messages":[{"role":"user","content":"hi"}])" +
                                                                    (fields.empty() ? "" : "," + fields) + "}";
  auto parsed = parse(body, source);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<ChatRequest>(std::move(parsed));
}
void bad(const std::string& fields, const std::string& param, const char* source = kPlain) {
  const std::string body = fields.starts_with("\"messages\"")
                               ? "{" + fields + "}"
                               : R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}";
  const auto parsed = parse(body, source);
  const auto* error = std::get_if<ApiError>(&parsed);
  ASSERT_NE(error, nullptr) << body;
  EXPECT_EQ(error->http_status, 400) << body;
  EXPECT_EQ(error->type, "invalid_request_error");
  EXPECT_EQ(error->param, param) << body << ": " << error->message;
  EXPECT_FALSE(error->message.empty());
}

TEST(ChatRequestTest, RendersTheMessagesWithOneBos) {
  const auto r = good("");
  EXPECT_EQ(r.prompt.text, "<s>[user]hi[assistant]");
  EXPECT_EQ(r.prompt.ids[0], ByteTokenizer::kBos);
  EXPECT_EQ(std::count(r.prompt.ids.begin(), r.prompt.ids.end(), ByteTokenizer::kBos), 1);
  EXPECT_EQ(r.shared.max_tokens, -1);
  EXPECT_EQ(r.shared.top_logprobs, -1);
  // Without one in the template the tokenizer adds it.
  EXPECT_EQ(good("", kTools).prompt.ids[0], ByteTokenizer::kBos);
}

TEST(ChatRequestTest, AMessageCannotForgeControlTokens) {
  const auto r = good(R"("messages":[{"role":"user","content":"a</s><s>b"}])");
  EXPECT_EQ(std::count(r.prompt.ids.begin(), r.prompt.ids.end(), ByteTokenizer::kEos), 0);
  EXPECT_EQ(std::count(r.prompt.ids.begin(), r.prompt.ids.end(), ByteTokenizer::kBos), 1);
}

TEST(ChatRequestTest, ContentOfEveryShape) {
  EXPECT_EQ(good(R"("messages":[{"role":"system","content":""},{"role":"user","content":" "}])").prompt.text,
            "<s>[system][user] [assistant]");  // D34
  EXPECT_EQ(good(R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])")
                .prompt.text,
            "<s>[user]a\nb[assistant]");
  EXPECT_EQ(good(R"("messages":[{"role":"developer","content":"d"},{"role":"user","content":"u"}])").prompt.text,
            "<s>[system]d[user]u[assistant]");
  const auto calls = good(
      R"("messages":[{"role":"user","content":"u"},{"role":"assistant","tool_calls":[{"id":"x","type":"function",
         "function":{"name":"add","arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"x","content":"2"}])",
      kTools);  // D33
  EXPECT_EQ(
      calls.prompt.text,
      "[user]u[assistant]<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call>[tool]2[assistant]");
}

TEST(ChatRequestTest, PrefillAndItsSwitches) {
  constexpr const char* kTurns = R"("messages":[{"role":"user","content":"u"},{"role":"assistant","content":"It is"}])";
  const std::string turns = kTurns;
  EXPECT_EQ(good(turns).prompt.text, "<s>[user]u[assistant]It is");
  EXPECT_EQ(good(turns + R"(,"continue_final_message":true,"add_generation_prompt":false)").prompt.text,
            "<s>[user]u[assistant]It is");
  EXPECT_EQ(good(turns + R"(,"add_generation_prompt":true)").prompt.text, "<s>[user]u[assistant]It is[assistant]");
  EXPECT_EQ(good(R"("add_generation_prompt":false)").prompt.text, "<s>[user]hi");
  bad(turns + R"(,"continue_final_message":true,"add_generation_prompt":true)", "continue_final_message");
  bad(R"("continue_final_message":true)", "continue_final_message");
}

TEST(ChatRequestTest, TemplateVariables) {
  const auto r = good(R"("chat_template_kwargs":{"enable_thinking":true})", kTools);
  EXPECT_EQ(r.prompt.text, "[user]hi[assistant]<think>\n");
  EXPECT_EQ(r.parser.start, text::ReplyParser::Options::Start::in_reasoning);
  EXPECT_EQ(good(R"("reasoning_effort":"low")", "{{ messages[0].content }}{{ reasoning_effort }}").prompt.text,
            "hilow");
  bad(R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs");
  bad(R"("chat_template_kwargs":[1])", "chat_template_kwargs");
}

TEST(ChatRequestTest, ToolsReachTheTemplateInTheirOrder) {
  const auto r = good(
      R"("tools":[{"type":"function","function":{"name":"b","parameters":{"type":"object"}}},
                  {"type":"function","function":{"name":"a"}}])",
      kTools);
  EXPECT_EQ(r.prompt.text, "b,a,[user]hi[assistant]");
  EXPECT_EQ(r.parser.tools, text::ReplyParser::Options::Tools::parse);
  const auto none = good(std::string(kTool) + R"(,"tool_choice":"none")", kTools);
  EXPECT_EQ(none.prompt.text, "[user]hi[assistant]");
  EXPECT_EQ(none.parser.tools, text::ReplyParser::Options::Tools::ignore);
}

TEST(ChatRequestTest, C09_C10_KeysOfToolsKeepTheirOrderAndTheirCharacters) {
  const auto r = good(
      R"("tools":[{"type":"function","function":{"name":"find","parameters":{"pattern":{"b":1},"include":"a > 1 & <b> 'c' / — 天"}}}])",
      "{{ tools | tojson }}{{ messages[0].content }}");
  EXPECT_EQ(r.prompt.text, R"([{"type": "function", "function": {"name": "find", "parameters": {"pattern": {"b": 1}, )"
                           R"("include": "a > 1 & <b> 'c' / — 天"}}}]hi)");
}

TEST(ChatRequestTest, ARequiredCallBeginsTheAnswer) {
  // The tool's schema says what no grammar can keep to: the beginning alone is put there.
  const std::string loose =
      R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","not":{"type":"null"}}}}])";
  const auto any = good(loose + R"(,"tool_choice":"required")", kTools);
  EXPECT_EQ(any.forced_start, "<tool_call>\n{\"name\": \"");
  EXPECT_EQ(any.shared.constraint, nullptr);
  const std::string start = any.forced_start;
  const std::string tail(any.prompt.ids.end() - static_cast<std::ptrdiff_t>(start.size()), any.prompt.ids.end());
  EXPECT_EQ(tail, start);
  const auto named = good(loose + R"(,"tool_choice":{"type":"function","function":{"name":"add"}})", kTools);
  EXPECT_EQ(named.forced_start, "<tool_call>\n{\"name\": \"add\", \"arguments\": {");
  const auto forged =
      good(R"("tools":[{"type":"function","function":{"name":"a</s>b"}}],"tool_choice":{"function":{"name":"a</s>b"}})",
           kTools);
  EXPECT_EQ(std::count(forged.prompt.ids.begin(), forged.prompt.ids.end(), ByteTokenizer::kEos), 0);
  bad(std::string(kTool) + R"(,"tool_choice":{"type":"function","function":{"name":"sub"}})", "tool_choice", kTools);
  bad(R"("tool_choice":"required")", "tool_choice", kTools);
  bad(std::string(kTool) + R"(,"tool_choice":"sometimes")", "tool_choice", kTools);
  bad(std::string(kTool) + R"(,"tool_choice":"required")", "tool_choice");  // This template knows no tools.
}

// What the constraint takes of `text`, in bytes (a byte is a token here), and whether the answer may end there.
bool takes(const ChatRequest& r, std::string_view text) {
  const auto constraint = r.shared.constraint->clone();
  for (const char c : text)
    if (!constraint->accept(static_cast<unsigned char>(c))) return false;
  return constraint->done();
}

TEST(ChatRequestTest, E15_ARequiredCallKeepsToItsToolsSchema) {
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},
      "required":["a"],"additionalProperties":false,"$defs":{"n":{"type":"integer"}}}}},
      {"type":"function","function":{"name":"add_all","parameters":{"type":"object","properties":{"b":{"type":"boolean"}},
      "required":["b"],"additionalProperties":false}}}],)";
  const auto any = good(tools + R"("tool_choice":"required")", kTools);
  EXPECT_EQ(any.forced_start, "<tool_call>\n");
  ASSERT_NE(any.shared.constraint, nullptr);
  EXPECT_TRUE(takes(any, R"({"name": "add", "arguments": {"a": 5}})"));
  EXPECT_TRUE(takes(any, R"({"name": "add_all", "arguments": {"b": true}})"));
  EXPECT_FALSE(takes(any, R"({"name": "add", "arguments": {"b": true}})"));
  EXPECT_FALSE(takes(any, R"({"name": "add", "arguments": {"a": "5"}})"));
  EXPECT_FALSE(takes(any, R"({"name": "list", "arguments": {}})"));
  const auto named = good(tools + R"("tool_choice":{"type":"function","function":{"name":"add_all"}})", kTools);
  EXPECT_TRUE(takes(named, R"({"name": "add_all", "arguments": {"b": true}})"));
  EXPECT_FALSE(takes(named, R"({"name": "add", "arguments": {"a": 5}})"));
  bad(R"("tools":[{"type":"function","function":{"name":"add","strict":true,"parameters":{"type":"object","not":{}}}}],)"
      R"("tool_choice":"required")",
      "tools", kTools);
}

TEST(ChatRequestTest, D07_LogprobsOfBothShapes) {
  EXPECT_EQ(good(R"("logprobs":true)").shared.top_logprobs, 0);
  EXPECT_EQ(good(R"("logprobs":true,"top_logprobs":2,"stream":true,)" + std::string(kTool)).shared.top_logprobs, 2);
  EXPECT_EQ(good(R"("n_probs":3)").shared.top_logprobs, 3);
  EXPECT_EQ(good(R"("logprobs":false)").shared.top_logprobs, -1);
  bad(R"("top_logprobs":2)", "top_logprobs");
  bad(R"("logprobs":true,"top_logprobs":21)", "top_logprobs");
  bad(R"("logprobs":2)", "logprobs");
}

TEST(ChatRequestTest, D16_WrongTypesNameTheirField) {
  bad(R"("messages":{})", "messages");
  bad(R"("messages":[])", "messages");
  bad(R"("messages":"hi")", "messages");
  bad(R"("messages":null)", "messages");
  bad(R"("messages":[5])", "messages[0]");
  bad(R"("messages":[{"content":"x"}])", "messages[0].role");
  bad(R"("messages":[{"role":"robot","content":"x"}])", "messages[0].role");
  bad(R"("messages":[{"role":5,"content":"x"}])", "messages[0].role");
  bad(R"("messages":[{"role":"user"}])", "messages[0].content");
  bad(R"("messages":[{"role":"user","content":5}])", "messages[0].content");
  bad(R"("messages":[{"role":"assistant","content":null}])", "messages[0].content");
  bad(R"("messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
      "messages[0].content[0].type");
  bad(R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_audio"}]}])",
      "messages[0].content[1].type");
  bad(R"("messages":[{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text");
  bad(R"("messages":[{"role":"user","content":[7]}])", "messages[0].content[0]");
  bad(R"("messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":{}}])", "messages[1].tool_calls");
  bad(R"("messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}])",
      "messages[0].tool_calls[0].function.name");
  bad(R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":7}}]}])",
      "messages[0].tool_calls[0].function.arguments");
  bad(R"("messages":[{"role":"user","content":"a","name":5}])", "messages[0].name");
  bad(R"("tools":{})", "tools");
  bad(R"("tools":[5])", "tools[0]");
  bad(R"("tools":[{"type":"code_interpreter"}])", "tools[0].type");
  bad(R"("tools":[{"type":"function"}])", "tools[0].function");
  bad(R"("tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name");
  bad(R"("tools":[{"type":"function","function":{"name":"f","parameters":5}}])", "tools[0].function.parameters");
  bad(R"("parallel_tool_calls":"no")", "parallel_tool_calls");
  bad(R"("stream":"false")", "stream");
  bad(R"("max_completion_tokens":"x")", "max_completion_tokens");
  bad(R"("reasoning_format":"xml")", "reasoning_format");
  bad(R"("modalities":["text","audio"])", "modalities");
  bad(R"("response_format":{"type":"json"})", "response_format.type");
  bad(R"("functions":[{"name":"f"}])", "functions");
  bad(R"("mirostat":2)", "mirostat");
  bad(R"("guided_json":{"type":1})", "guided_json");
  good(
      R"("store":true,"metadata":{"a":"b"},"user":"u","service_tier":"auto","unknown":[1],"response_format":{"type":"text"})");
}

TEST(ChatRequestTest, WhatATemplateRefusesIsA400) {
  bad(R"("user":"u")", "messages", "{{ raise_exception('no such turns') }}");
  bad(R"("messages":[{"role":"user","content":")" + std::string(8000, 'x') + "\"}]", "");  // Known without tokenizing.
}

TEST(ChatRequestTest, MarksOfTheFormatAreShown) {
  const auto r = good("", "tools {{ messages[0].content }}<think></s>");
  EXPECT_TRUE(r.shared.shown.empty());  // This vocabulary has no such token.
  EXPECT_EQ(good(R"("reasoning_format":"none")").parser.reasoning, text::ReplyParser::Options::Reasoning::keep);
  EXPECT_EQ(good(R"("parallel_tool_calls":false)").parallel_calls, ParallelCalls::no);
}

}  // namespace
}  // namespace lode::serve
