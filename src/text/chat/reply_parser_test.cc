// Answers as models of each family write them, whole and byte by byte.
#include "text/chat/reply_parser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lode::text {
namespace {

using Json = nlohmann::ordered_json;

const Json kTools = Json::parse(R"([
  {"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{
     "city":{"type":"string"},"days":{"type":"integer"}}}}},
  {"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{
     "a":{"type":"number"},"b":{"type":"number"}}}}}])");

struct Call {
  std::string name, arguments, id;
};
struct Parsed {
  std::string content, reasoning;
  std::vector<Call> calls;
  bool unfinished = false;
};

Parsed gathered(const std::vector<ReplyDelta>& deltas) {
  Parsed out;
  for (const ReplyDelta& d : deltas) {
    switch (d.kind) {
      case ReplyDelta::Kind::content: out.content += d.text; break;
      case ReplyDelta::Kind::reasoning: out.reasoning += d.text; break;
      case ReplyDelta::Kind::call: out.calls.push_back({d.text, "", d.id}); break;
      case ReplyDelta::Kind::arguments:
        if (out.calls.empty()) ADD_FAILURE() << "arguments without a call";
        else out.calls.back().arguments += d.text;
        break;
    }
  }
  return out;
}

// Fed in pieces of `piece` bytes.
Parsed parse_in(std::string_view source, std::string_view text, std::size_t piece, ReplyParser::Options options) {
  options.tools_json = &kTools;
  ReplyParser parser(chat_format(source), options);
  std::vector<ReplyDelta> deltas;
  for (std::size_t at = 0; at < text.size(); at += piece) parser.push(text.substr(at, piece), deltas);
  parser.finish(deltas);
  Parsed out = gathered(deltas);
  out.unfinished = parser.unfinished_call();
  EXPECT_EQ(parser.calls(), out.calls.size());
  return out;
}

// All ways of cutting the text must agree.
Parsed parse(std::string_view source, std::string_view text, ReplyParser::Options options) {
  const Parsed whole = parse_in(source, text, text.size() + 1, options);
  for (const std::size_t piece : {1, 2, 3, 7}) {
    const Parsed cut = parse_in(source, text, piece, options);
    EXPECT_EQ(cut.content, whole.content) << text;
    EXPECT_EQ(cut.reasoning, whole.reasoning) << text;
    EXPECT_EQ(cut.unfinished, whole.unfinished) << text;
    EXPECT_EQ(cut.calls.size(), whole.calls.size()) << text;
    if (cut.calls.size() != whole.calls.size()) continue;
    for (std::size_t i = 0; i < cut.calls.size(); ++i) {
      EXPECT_EQ(cut.calls[i].name, whole.calls[i].name) << text;
      EXPECT_EQ(cut.calls[i].arguments, whole.calls[i].arguments) << text;
    }
  }
  return whole;
}
Parsed with_tools(std::string_view source, std::string_view text) {
  return parse(source, text, {.tools = ReplyParser::Options::Tools::parse});
}
Parsed plain(std::string_view source, std::string_view text) {
  return parse(source, text, {});
}

constexpr std::string_view kQwen = "tools <tool_call> <think>";

void expect_weather(const Parsed& p, std::size_t calls = 1) {
  ASSERT_EQ(p.calls.size(), calls);
  EXPECT_EQ(p.calls[0].name, "get_weather");
  const Json arguments = Json::parse(p.calls[0].arguments, nullptr, false);
  EXPECT_EQ(arguments, Json::parse(R"({"city":"Zürich","days":2})")) << p.calls[0].arguments;
  EXPECT_FALSE(p.unfinished);
}

TEST(ReplyParser, PlainTextIsContentAsItIs) {
  EXPECT_EQ(plain(kQwen, " Hello,\n\nworld. \n").content, " Hello,\n\nworld. \n");
  EXPECT_EQ(plain(kQwen, "").content, "");
  EXPECT_EQ(plain(kQwen, "a < b && <tool").content, "a < b && <tool");
  // Without tools in the request a call is text.
  EXPECT_EQ(plain(kQwen, "<tool_call>\n{}").content, "<tool_call>\n{}");
}

TEST(ReplyParser, ReasoningIsSplitOff) {
  const Parsed p = plain(kQwen, "<think>\nTwo and two.\n</think>\n\nFour.");
  EXPECT_EQ(p.reasoning, "Two and two.");
  EXPECT_EQ(p.content, "Four.");
  const Parsed opened = parse(kQwen, "\nTwo.\n</think>\n\nFour.", {.start = ReplyParser::Options::Start::in_reasoning});
  EXPECT_EQ(opened.reasoning, "Two.");
  EXPECT_EQ(opened.content, "Four.");
  const Parsed cut = plain(kQwen, "<think>\nTwo and</thi");
  EXPECT_EQ(cut.reasoning, "Two and</thi");
  EXPECT_EQ(cut.content, "");
  EXPECT_EQ(plain(kQwen, "Write <think> here.").content, "Write <think> here.");
  EXPECT_EQ(parse(kQwen, "<think>a</think>b", {.reasoning = ReplyParser::Options::Reasoning::keep}).content,
            "<think>a</think>b");
  EXPECT_EQ(
      parse(kQwen, "a</think>b",
            {.reasoning = ReplyParser::Options::Reasoning::keep, .start = ReplyParser::Options::Start::in_reasoning})
          .content,
      "a</think>b");
  const Parsed gemma = plain("<|channel> <|tool_call> tools", "<|channel>thought\nHm.\n<channel|>Yes.");
  EXPECT_EQ(gemma.reasoning, "Hm.");
  EXPECT_EQ(gemma.content, "Yes.");
}

TEST(ReplyParserFieldReport, C22AQuotedClosingTagDoesNotEndTheReasoning) {
  const Parsed p = plain(kQwen, "<think>the tag `</think>` ends it</think>ok");
  EXPECT_EQ(p.reasoning, "the tag `</think>` ends it");
  EXPECT_EQ(p.content, "ok");
  const Parsed last = plain(kQwen, "<think>it ends with `</think>");
  EXPECT_EQ(last.reasoning, "it ends with `");  // Nothing quotes it on the other side.
  EXPECT_EQ(plain(kQwen, "<think>a '</think>b").content, "b");
}

TEST(ReplyParser, HermesAndQwen) {
  const Parsed p =
      with_tools(kQwen,
                 "<think>x</think>\nLet me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                 "{\"city\": \"Zürich\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"arguments\": {\"a\": "
                 "{\"}\": \"]\"}}, \"name\": \"add\"}\n</tool_call>");
  expect_weather(p, 2);
  EXPECT_EQ(p.reasoning, "x");
  EXPECT_EQ(p.content, "Let me see.");
  EXPECT_EQ(p.calls[1].name, "add");
  EXPECT_EQ(p.calls[1].arguments, "{\"a\": {\"}\": \"]\"}}");
  EXPECT_EQ(with_tools(kQwen, "<tool_call>{\"name\":\"add\"}</tool_call>").calls[0].arguments, "{}");
  EXPECT_EQ(with_tools(kQwen, R"(<tool_call>{"name":"add","arguments":"{\"a\": 1}"}</tool_call>)").calls[0].arguments,
            "{\"a\": 1}");
}

TEST(ReplyParser, QwenCoderTags) {
  const Parsed p = with_tools(
      "tools <tool_call> <function= <parameter=",
      "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n2\n"
      "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=add>\n</function>\n</tool_call>");
  expect_weather(p, 2);
  EXPECT_EQ(p.content, "I look.");
  EXPECT_EQ(p.calls[1].arguments, "{}");
  // What the schema calls a text stays one, and what no JSON is too.
  const Parsed texts = with_tools(kQwen,
                                  "<tool_call><function=get_weather><parameter=city>12</parameter><parameter=other>a "
                                  "\"b\"\n</parameter></function></tool_call>");
  ASSERT_EQ(texts.calls.size(), 1u);
  EXPECT_EQ(Json::parse(texts.calls[0].arguments), Json::parse(R"({"city":"12","other":"a \"b\""})"));
}

TEST(ReplyParser, GlmTags) {
  const Parsed p = with_tools("tools <tool_call> <arg_key>",
                              "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Zürich</arg_value>\n"
                              "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>done");
  expect_weather(p);
  EXPECT_EQ(p.content, "done");
}

TEST(ReplyParser, Llama) {
  constexpr std::string_view kLlama = "tools <|start_header_id|> <|python_tag|>";
  expect_weather(with_tools(kLlama, R"({"name": "get_weather", "parameters": {"city": "Zürich", "days": 2}})"));
  const Parsed two =
      with_tools(kLlama, R"(<|python_tag|>{"name": "get_weather", "parameters": {"city": "Zürich", "days": 2}}; )"
                         R"({"name": "add", "parameters": {"a": 1}})");
  expect_weather(two, 2);
  EXPECT_EQ(two.calls[1].arguments, "{\"a\": 1}");
  // JSON that names no tool is an answer.
  const std::string answer = R"({"name": "Ada", "age": 3})";
  EXPECT_EQ(with_tools(kLlama, answer).content, answer);
  EXPECT_EQ(with_tools(kLlama, R"({"x": [1, 2]} and more)").content, R"({"x": [1, 2]} and more)");
}

TEST(ReplyParser, Mistral) {
  constexpr std::string_view kMistral = "tools [TOOL_CALLS]";
  const Parsed list =
      with_tools(kMistral, R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}, )"
                           R"("id": "call00001"}, {"name": "add", "arguments": {}}])");
  expect_weather(list, 2);
  const Parsed named =
      with_tools(kMistral,
                 "Wait.[TOOL_CALLS]get_weather[CALL_ID]call00001[ARGS]{\"city\": \"Zürich\", \"days\": "
                 "2}[TOOL_CALLS]add[ARGS]{\"a\": \"}\"}");
  expect_weather(named, 2);
  EXPECT_EQ(named.content, "Wait.");
  EXPECT_EQ(named.calls[0].id, "call00001");
  EXPECT_EQ(named.calls[1].arguments, "{\"a\": \"}\"}");
}

TEST(ReplyParser, Gemma) {
  constexpr std::string_view kGemma = "tools <|tool_call> <|channel>";
  expect_weather(
      with_tools(kGemma, "<|tool_call>call:get_weather{city:<|\"|>Zürich<|\"|>,days:2}<tool_call|><|tool_response>"));
  const Parsed deep = with_tools(kGemma,
                                 "<|tool_call>call:add{a:[1,<|\"|>x, }<|\"|>,{b:true}],c:null}<tool_call|>"
                                 "<|tool_call>call:add{}<tool_call|>");
  ASSERT_EQ(deep.calls.size(), 2u);
  EXPECT_EQ(Json::parse(deep.calls[0].arguments), Json::parse(R"({"a":[1,"x, }",{"b":true}],"c":null})"));
  EXPECT_EQ(deep.calls[1].arguments, "{}");
  EXPECT_EQ(with_tools(kGemma, "<|tool_call>call:add{a:[}<tool_call|>").content,
            "<|tool_call>call:add{a:[}<tool_call|>");
}

TEST(ReplyParser, Harmony) {
  constexpr std::string_view kHarmony = "tools <|channel|>analysis<|message|>";
  const Parsed p =
      plain(kHarmony, "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>final<|message|>Four.");
  EXPECT_EQ(p.reasoning, "Simple.");
  EXPECT_EQ(p.content, "Four.");
  const Parsed call =
      with_tools(kHarmony,
                 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary "
                 "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Zürich\", \"days\": 2}");
  expect_weather(call);
  EXPECT_EQ(call.reasoning, "Hm.");
  EXPECT_EQ(call.content, "");
  const Parsed other =
      with_tools(kHarmony,
                 " to=functions.get_weather<|channel|>commentary json<|message|>{\"city\": \"Zürich\", "
                 "\"days\": 2}<|call|>");
  expect_weather(other);
  EXPECT_EQ(plain(kHarmony, "No channel at all.").content, "No channel at all.");
  const Parsed cut = with_tools(kHarmony, "<|channel|>commentary to=functions.add<|message|>{\"a\": 1");
  EXPECT_TRUE(cut.unfinished);
  EXPECT_EQ(cut.calls[0].arguments, "{\"a\": 1");
}

TEST(ReplyParser, DeepSeek) {
  constexpr std::string_view kDeepSeek = "tools <｜tool▁call▁begin｜> <think>";
  expect_weather(
      with_tools(kDeepSeek,
                 "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
                 "\"Zürich\", \"days\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"));
  const Parsed p =
      with_tools(kDeepSeek,
                 "Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Zürich\", "
                 "\"days\": 2}<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
                 "<｜tool▁calls▁end｜>");
  expect_weather(p, 2);
  EXPECT_EQ(p.content, "Hm.");
  const Parsed dsml =
      with_tools("tools ｜DSML｜",
                 "</think>\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
                 "name=\"city\" string=\"true\">Zürich</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
                 "string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>");
  expect_weather(dsml);
}

TEST(ReplyParser, KimiFunctionaryAndLists) {
  const Parsed kimi = with_tools("tools <|tool_call_begin|>",
                                 "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
                                 "<|tool_call_argument_begin|>{\"city\": \"Zürich\", \"days\": 2}<|tool_call_end|>"
                                 "<|tool_calls_section_end|>");
  expect_weather(kimi);
  EXPECT_EQ(kimi.calls[0].id, "functions.get_weather:0");
  expect_weather(
      with_tools("tools <function=", "<function=get_weather>{\"city\": \"Zürich\", \"days\": 2}</function>"));
  const std::string list = R"([{"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}])";
  expect_weather(with_tools("tools <TOOLCALL>", "<TOOLCALL>" + list + "</TOOLCALL>"));
  expect_weather(with_tools("tools <tool_calls>", "<tool_calls>" + list + "</tool_calls>"));
  expect_weather(with_tools("tools functools[", " functools" + list));
}

TEST(ReplyParserFieldReport, E17BrokenCallsAreTextOrPartialCalls) {
  // No name: text, mark and all.
  for (const std::string text : {"<tool_call>\n{\"nam", "<tool_call>\n{\"arguments\": {}}\n</tool_call>", "<tool_call>",
                                 "<tool_call>\n</tool_call>", "<tool_call>oops, no call",
                                 "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>"}) {
    const Parsed p = with_tools(kQwen, text);
    EXPECT_TRUE(p.calls.empty()) << text;
    EXPECT_EQ(p.content, text);
  }
  const Parsed cut = with_tools(kQwen, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"x");
  ASSERT_EQ(cut.calls.size(), 1u);
  EXPECT_EQ(cut.calls[0].arguments, "{\"a\": \"x");
  EXPECT_TRUE(cut.unfinished);
  const Parsed quote =
      with_tools(kQwen, "<tool_call>{\"name\":\"add\",\"arguments\":{\"a\":\"say \"hi\"\"}}</tool_call>");
  ASSERT_EQ(quote.calls.size(), 1u);
  EXPECT_EQ(quote.calls[0].name, "add");
  const Parsed between =
      with_tools(kQwen,
                 "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call> and <tool_call>{\"name\":"
                 "\"add\",\"arguments\":{}}</tool_call>");
  EXPECT_EQ(between.calls.size(), 2u);
  EXPECT_EQ(between.content, "and");
  const Parsed tags = with_tools(kQwen, "<tool_call><function=get_weather><parameter=city>Zür");
  ASSERT_EQ(tags.calls.size(), 1u);
  EXPECT_TRUE(tags.unfinished);
}

TEST(ReplyParserFieldReport, E15ATriggerWithSomethingElseBehindItIsText) {
  for (const std::string text : {"<tool_call>list them", "<tool_call><function=>", "<tool_call>\n<other>"}) {
    const Parsed p = with_tools(kQwen, text);
    EXPECT_TRUE(p.calls.empty()) << text;
    EXPECT_EQ(p.content, text);
  }
}

// No text that a model may write makes the parser stumble, and each way of cutting it gives the same.
TEST(ReplyParser, AnyTextInAnyPieces) {
  const std::vector<std::string> words = {"<tool_call>",
                                          "</tool_call>",
                                          "{",
                                          "}",
                                          "\"name\": \"add\"",
                                          "\"arguments\": {",
                                          ",",
                                          "<think>",
                                          "</think>",
                                          "[",
                                          "]",
                                          "<function=add>",
                                          "<parameter=a>",
                                          "</parameter>",
                                          "</function>",
                                          "[TOOL_CALLS]",
                                          "[ARGS]",
                                          "add",
                                          "\n",
                                          " ",
                                          "<|channel|>",
                                          "<|message|>",
                                          "<|end|>",
                                          "<|start|>assistant",
                                          "<|tool_call>call:add{",
                                          "<|\"|>",
                                          "<tool_call|>",
                                          "a:",
                                          "é",
                                          "`",
                                          "\"",
                                          "\\",
                                          "<｜tool▁call▁begin｜>",
                                          "<｜tool▁sep｜>",
                                          "<arg_key>",
                                          "</arg_key>",
                                          "<arg_value>",
                                          "</arg_value>",
                                          "｜DSML｜",
                                          "1"};
  std::uint64_t x = 1;
  const auto next = [&x] {
    x = x * 6364136223846793005u + 1442695040888963407u;
    return x >> 33;
  };
  for (const std::string_view source :
       {"tools <tool_call> <think>", "tools [TOOL_CALLS]", "tools <|tool_call> <|channel>", "tools <|channel|>",
        "tools <｜tool▁call▁begin｜>", "tools <|start_header_id|>", "tools ｜DSML｜", "tools <function="}) {
    for (int i = 0; i < 300; ++i) {
      std::string text;
      for (std::uint64_t n = next() % 14; n-- > 0;) text += words[next() % words.size()];
      with_tools(source, text);
    }
  }
}

}  // namespace
}  // namespace lode::text
