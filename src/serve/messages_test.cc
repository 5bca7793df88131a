// /v1/messages as a client sees it. Names such as D11 are entries of the field reports.
#include "serve/messages.h"

#include "serve/test_fixture.h"

namespace lode::serve::test {
namespace {

constexpr const char* kTool = R"("tools":[{"name":"add","description":"sums","input_schema":{"type":"object"}}])";

// The events of a stream as a client puts them together.
struct Heard {
  std::vector<std::string> names;
  std::vector<Json> events;
  Json message;  // message_start's, with content, stop_reason and usage filled in.
};

class MessagesTest : public ServeTest {
 protected:
  static std::string body(const std::string& fields, const std::string& most = "50") {
    return R"({"model":"m","max_tokens":)" + most + R"(,"messages":[{"role":"user","content":"p"}])" +
           (fields.empty() ? "" : "," + fields) + "}";
  }
  Json whole(const std::string& body) {
    const Reply reply = post("/v1/messages", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  Heard heard(const std::string& body) {
    Client client(server->port());
    client.post("/v1/messages", body.substr(0, body.size() - 1) + R"(,"stream":true})");
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 200) << reply.body;
    Heard out;
    for_each_event(reply.body, [&](std::string_view event) {
      const auto line = event.find("\ndata: ");
      if (!event.starts_with("event: ") || line == std::string_view::npos) {
        ADD_FAILURE() << "not an event: " << event;
        return;
      }
      const std::string name(event.substr(7, line - 7));
      if (name == "ping") return;
      out.names.push_back(name);
      out.events.push_back(Json::parse(event.substr(line + 7)));
      EXPECT_EQ(out.events.back()["type"], name);
      put_together(out);
    });
    return out;
  }
  static void put_together(Heard& out) {
    const Json& event = out.events.back();
    const std::string& name = out.names.back();
    if (name == "message_start") out.message = event["message"];
    if (name == "content_block_start") {
      EXPECT_EQ(event["index"], out.message["content"].size());
      out.message["content"].push_back(event["content_block"]);
    }
    if (name == "content_block_delta") {
      Json& block = out.message["content"].at(event["index"].get<std::size_t>());
      const Json& delta = event["delta"];
      if (delta["type"] == "text_delta") block["text"] = block["text"].get<std::string>() + std::string(delta["text"]);
      if (delta["type"] == "thinking_delta")
        block["thinking"] = block["thinking"].get<std::string>() + std::string(delta["thinking"]);
      if (delta["type"] == "input_json_delta")
        block["json"] = block.value("json", std::string()) + std::string(delta["partial_json"]);
    }
    if (name == "message_delta") {
      out.message.update(event["delta"]);
      out.message["usage"].update(event["usage"]);
    }
  }
  // The same request both ways: the same message.
  Json both(const std::string& body) {
    const Json json = whole(body);
    Heard h = heard(body);
    for (Json& block : h.message["content"]) {
      if (!block.contains("json")) continue;
      block["input"] = Json::parse(block["json"].get<std::string>(), nullptr, false);
      if (!block["input"].is_object()) block["input"] = Json::object();
      block.erase("json");
    }
    EXPECT_EQ(h.message["content"].size(), json["content"].size());
    for (std::size_t i = 0; i < std::min(h.message["content"].size(), json["content"].size()); ++i) {
      Json one = h.message["content"][i], other = json["content"][i];
      one.erase("id");
      other.erase("id");
      EXPECT_EQ(one, other);
    }
    EXPECT_EQ(h.message["stop_reason"], json["stop_reason"]);
    EXPECT_EQ(h.message["stop_sequence"], json["stop_sequence"]);
    EXPECT_EQ(h.message["usage"], json["usage"]);
    return json;
  }
  std::string prompt() {
    std::string out;
    const auto sent = engine->submitted();
    for (const TokenId id : sent.back().prompt)
      out += engine->tokenizer().token_bytes(id, text::Tokenizer::Control::show);
    return out;
  }
  // A 400 in Anthropic's shape that says `word`.
  void refused(const std::string& body, const std::string& word) {
    const Reply reply = post("/v1/messages", body);
    EXPECT_EQ(reply.status, 400) << body << " -> " << reply.body;
    const Json json = reply.json();
    EXPECT_EQ(json["type"], "error") << reply.body;
    EXPECT_EQ(json["error"]["type"], "invalid_request_error") << reply.body;
    EXPECT_NE(json["error"]["message"].get<std::string>().find(word), std::string::npos) << body << reply.body;
  }
};

TEST_F(MessagesTest, AReplyHasAnthropicsShape) {
  start();
  const Json json = both(body(""));
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_EQ(json["model"], "fake");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("msg_"));
  EXPECT_EQ(json["content"], Json::parse(R"([{"type":"text","text":"Hello, world."}])"));
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_EQ(json["stop_sequence"], nullptr);
  const auto tokens = static_cast<std::int64_t>(engine->submitted()[0].prompt.size());
  EXPECT_EQ(json["usage"]["cache_read_input_tokens"], tokens / 2);
  EXPECT_EQ(json["usage"]["input_tokens"], tokens - tokens / 2);
  EXPECT_EQ(json["usage"]["cache_creation_input_tokens"], 0);
  EXPECT_EQ(json["usage"]["output_tokens"], 13);
}

TEST_F(MessagesTest, EventsComeInAnthropicsOrder) {
  start({.reply = "<think>\nHm.\n</think>\n\nOk"});
  std::vector<std::string> without_deltas;
  for (const std::string& name : heard(body("")).names)
    if (name != "content_block_delta") without_deltas.push_back(name);
  EXPECT_EQ(without_deltas,
            (std::vector<std::string>{"message_start", "content_block_start", "content_block_stop",
                                      "content_block_start", "content_block_stop", "message_delta", "message_stop"}));
  const Json json = both(body(""));
  EXPECT_EQ(json["content"][0], Json::parse(R"({"type":"thinking","thinking":"Hm.","signature":""})"));
  EXPECT_EQ(json["content"][1]["text"], "Ok");
}

TEST_F(MessagesTest, ReasonsToStop) {
  start();
  EXPECT_EQ(both(body("", "4"))["stop_reason"], "max_tokens");
  const Json json = both(body(R"("stop_sequences":["wor"])"));
  EXPECT_EQ(json["stop_reason"], "stop_sequence");
  EXPECT_EQ(json["stop_sequence"], "wor");
  EXPECT_EQ(json["content"][0]["text"], "Hello, ");
}

TEST_F(MessagesTest, SystemBlocksToolsAndResultsReachTheTemplate) {
  chat_template = kToolTemplate;
  start();
  whole(R"({"max_tokens":5,"system":[{"type":"text","text":"S"}],)" + std::string(kTool) +
        R"(,"messages":[{"role":"user","content":[{"type":"text","text":"q"}]},
            {"role":"assistant","content":[{"type":"thinking","thinking":"T","signature":""},{"type":"text","text":"A"},
              {"type":"tool_use","id":"toolu_1","name":"add","input":{"a":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"R"}]},
              {"type":"text","text":"next"}]}]})");
  EXPECT_NE(prompt().find("add,<tool_call></tool_call>[system]S[user]q[assistant]TA(add)[tool]R[user]next[assistant]"),
            std::string::npos)
      << prompt();
}

TEST_F(MessagesTest, ToolUseWholeAndStreamed) {
  chat_template = kToolTemplate;
  start({.reply = "I add.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n"
                  "{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>"});
  const Json json = both(body(kTool, "300"));
  EXPECT_EQ(json["stop_reason"], "tool_use");
  ASSERT_EQ(json["content"].size(), 3u);
  EXPECT_EQ(json["content"][1]["type"], "tool_use");
  EXPECT_EQ(json["content"][1]["name"], "add");
  EXPECT_EQ(json["content"][1]["input"], Json::parse(R"({"a":1})"));
  EXPECT_TRUE(json["content"][1]["id"].get<std::string>().starts_with("toolu_"));
  EXPECT_NE(json["content"][1]["id"], json["content"][2]["id"]);
  const Json one =
      both(body(std::string(kTool) + R"(,"tool_choice":{"type":"auto","disable_parallel_tool_use":true})", "300"));
  EXPECT_EQ(one["content"].size(), 2u);
  EXPECT_EQ(both(body(std::string(kTool) + R"(,"tool_choice":{"type":"none"})", "300"))["stop_reason"], "end_turn");
}

TEST_F(MessagesTest, D11_ACallThatTheLengthCutsIsNoToolUse) {
  chat_template = kToolTemplate;
  start({.reply = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"xyz\"}}\n</tool_call>"});
  for (const char* most : {"30", "45", "52"}) EXPECT_EQ(both(body(kTool, most))["stop_reason"], "max_tokens") << most;
}

TEST_F(MessagesTest, CacheControlIsAResumePointAndCountedAsCreation) {
  start();
  const std::string long_text(200, 's');
  const Json json = whole(
      R"({"max_tokens":5,"system":[{"type":"text","text":")" + long_text +
      R"(","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"and the question, a longer one than the system prompt is not"}]})");
  const auto sent = engine->submitted().back();
  const auto mark = static_cast<std::int64_t>(std::string("S[system]").size() + long_text.size());
  bool near = false;
  for (const std::int64_t m : sent.marks) near |= std::abs(m - mark) <= 8;
  EXPECT_TRUE(near);
  const auto tokens = static_cast<std::int64_t>(sent.prompt.size());
  const Json& usage = json["usage"];
  EXPECT_GT(usage["cache_creation_input_tokens"].get<std::int64_t>(), 0);
  EXPECT_EQ(usage["cache_creation_input_tokens"].get<std::int64_t>() + usage["input_tokens"].get<std::int64_t>() +
                usage["cache_read_input_tokens"].get<std::int64_t>(),
            tokens);
}

TEST_F(MessagesTest, CountsTokensAsTheyWouldBeSent) {
  start();
  const Reply reply = post("/v1/messages/count_tokens", R"({"model":"m","messages":[{"role":"user","content":"p"}]})");
  EXPECT_EQ(reply.status, 200) << reply.body;
  whole(body(""));
  EXPECT_EQ(reply.json(), Json({{"input_tokens", engine->submitted().back().prompt.size()}}));
}

TEST_F(MessagesTest, D16_ErrorsHaveAnthropicsShapeAndNameTheirField) {
  start();
  refused("{", "JSON");
  refused(R"({"messages":[{"role":"user","content":"p"}]})", "max_tokens");
  refused(R"({"max_tokens":5})", "messages");
  refused(R"({"max_tokens":5,"messages":[{"role":"tool","content":"p"}]})", "messages[0].role");
  refused(R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]})",
          "messages[0].content[0].type");
  refused(body(R"("temperature":"hot")"), "temperature");
  refused(body(R"("stop_sequences":"x")"), "stop_sequences");
  refused(body(R"("tools":[{"type":"web_search_20250305","name":"w"}])"), "tools[0].type");
  refused(body(R"("tool_choice":{"type":"tool","name":"nobody"})"), "nobody");
  refused(body(R"("output_format":{"type":"json_schema","schema":{"type":1}})"), "output_format.schema");
  const Reply wrong = get("/v1/messages");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.json()["type"], "error");
  expect_alive();
}

TEST_F(MessagesTest, D27_AnErrorInAStreamIsAnErrorEvent) {
  start({.fail_at = 5});
  const Heard h = heard(body(""));
  ASSERT_FALSE(h.names.empty());
  EXPECT_EQ(h.names.back(), "error");
  EXPECT_EQ(h.events.back()["error"]["type"], "api_error");
}

}  // namespace
}  // namespace lode::serve::test
