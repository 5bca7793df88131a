// /v1/responses and /v1/embeddings as a client sees them. Names such as D11 are entries of the field reports.
#include "serve/responses.h"

#include "serve/test_fixture.h"

namespace lode::serve::test {
namespace {

constexpr const char* kTool = R"("tools":[{"type":"function","name":"add","parameters":{"type":"object"}}])";

class ResponsesTest : public ServeTest {
 protected:
  static std::string body(const std::string& fields) {
    return R"({"model":"m","input":"p")" + (fields.empty() ? "" : "," + fields) + "}";
  }
  Json whole(const std::string& body) {
    const Reply reply = post("/v1/responses", body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  std::vector<Json> heard(const std::string& body) {
    Client client(server->port());
    client.post("/v1/responses", body.substr(0, body.size() - 1) + R"(,"stream":true})");
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<Json> out;
    for_each_event(reply.body, [&](std::string_view event) {
      const auto line = event.find("\ndata: ");
      if (event.starts_with(':') || line == std::string_view::npos) return;
      out.push_back(Json::parse(event.substr(line + 7)));
      EXPECT_EQ(out.back()["type"], event.substr(7, line - 7));
      EXPECT_EQ(out.back()["sequence_number"], out.size() - 1);
    });
    return out;
  }
  static Json nameless(Json output) {
    for (Json& item : output) {
      item.erase("id");
      item.erase("call_id");
    }
    return output;
  }
  // The same request both ways: the same output; deltas add up to what the last event says.
  Json both(const std::string& body) {
    const Json json = whole(body);
    const std::vector<Json> events = heard(body);
    if (events.empty()) {
      ADD_FAILURE() << "no events";
      return json;
    }
    const Json& last = events.back()["response"];
    EXPECT_EQ(events.back()["type"], "response." + json["status"].get<std::string>());
    EXPECT_EQ(nameless(last["output"]), nameless(json["output"]));
    EXPECT_EQ(last["status"], json["status"]);
    EXPECT_EQ(last["usage"], json["usage"]);
    std::vector<std::string> texts(json["output"].size());
    for (const Json& event : events) {
      if (event.contains("delta"))
        texts.at(event["output_index"].get<std::size_t>()) += event["delta"].get<std::string>();
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Json& item = json["output"][i];
      const Json& whole = item.contains("arguments") ? item["arguments"] : item["content"][0]["text"];
      EXPECT_EQ(texts[i], whole.get<std::string>());
    }
    return json;
  }
  std::string prompt() {
    std::string out;
    const auto sent = engine->submitted();
    for (const TokenId id : sent.back().prompt)
      out += engine->tokenizer().token_bytes(id, text::Tokenizer::Control::show);
    return out;
  }
};

TEST_F(ResponsesTest, AReplyHasOpenAisShape) {
  start();
  const Json json = both(body(R"("instructions":"I","metadata":{"k":"v"})"));
  EXPECT_EQ(json["object"], "response");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("resp_"));
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["error"], nullptr);
  EXPECT_EQ(json["instructions"], "I");
  EXPECT_EQ(json["metadata"]["k"], "v");
  ASSERT_EQ(json["output"].size(), 1u);
  EXPECT_EQ(json["output"][0]["type"], "message");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "Hello, world.");
  EXPECT_NE(prompt().find("[system]I[user]p[assistant]"), std::string::npos) << prompt();
  const auto tokens = engine->submitted()[0].prompt.size();
  EXPECT_EQ(json["usage"]["input_tokens"], tokens);
  EXPECT_EQ(json["usage"]["input_tokens_details"]["cached_tokens"], tokens / 2);
  EXPECT_EQ(json["usage"]["output_tokens"], 13);
}

TEST_F(ResponsesTest, EventsComeInOpenAisOrder) {
  start({.reply = "<think>\nHm.\n</think>\n\nOk"});
  std::vector<std::string> names;
  for (const Json& event : heard(body("")))
    if (!event.contains("delta")) names.push_back(event["type"]);
  EXPECT_EQ(names,
            (std::vector<std::string>{
                "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
                "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
                "response.output_item.added", "response.content_part.added", "response.output_text.done",
                "response.content_part.done", "response.output_item.done", "response.completed"}));
  const Json json = both(body(""));
  EXPECT_EQ(json["output"][0]["type"], "reasoning");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "Hm.");
  EXPECT_GT(json["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

TEST_F(ResponsesTest, ACutAnswerIsIncomplete) {
  start();
  const Json json = both(body(R"("max_output_tokens":4)"));
  EXPECT_EQ(json["status"], "incomplete");
  EXPECT_EQ(json["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(json["output"][0]["status"], "incomplete");
}

TEST_F(ResponsesTest, ItemsOfATurnAreOneMessage) {
  chat_template = kToolTemplate;
  start();
  whole(R"({"input":[{"role":"user","content":[{"type":"input_text","text":"q"}]},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"T"}]},
      {"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"A","annotations":[]}]},
      {"type":"function_call","call_id":"c1","name":"add","arguments":"{}"},
      {"type":"function_call","call_id":"c2","name":"add","arguments":"{}"},
      {"type":"function_call_output","call_id":"c1","output":"R"},
      {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"Q"}]}],)" +
        std::string(kTool) + "}");
  EXPECT_NE(prompt().find("[user]q[assistant]TA(add)(add)[tool]R[tool]Q[assistant]"), std::string::npos) << prompt();
}

TEST_F(ResponsesTest, CallsWholeAndStreamed) {
  chat_template = kToolTemplate;
  start({.reply = "I add.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n"
                  "{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>"});
  const Json json = both(body(kTool));
  ASSERT_EQ(json["output"].size(), 3u);
  EXPECT_EQ(json["output"][1]["type"], "function_call");
  EXPECT_EQ(json["output"][1]["name"], "add");
  EXPECT_EQ(json["output"][1]["arguments"], R"({"a": 1})");
  EXPECT_NE(json["output"][1]["call_id"], json["output"][2]["call_id"]);
  EXPECT_EQ(both(body(std::string(kTool) + R"(,"parallel_tool_calls":false)"))["output"].size(), 2u);
  EXPECT_EQ(both(body(std::string(kTool) + R"(,"tool_choice":"none")"))["output"].size(), 1u);
  const std::string cut = body(std::string(kTool) + R"(,"max_output_tokens":50)");  // D11
  EXPECT_EQ(both(cut)["status"], "incomplete");
}

TEST_F(ResponsesTest, D16_ErrorsNameTheFieldAsItWasWritten) {
  start();
  const auto refused = [&](const std::string& body, const std::string& param) {
    expect_refused(body, param, "/v1/responses");
  };
  refused("{", "");
  refused("{}", "input");
  refused(R"({"input":5})", "input");
  refused(R"({"input":[]})", "input");
  refused(R"({"input":[{"role":"tool","content":"x"}]})", "input[0].role");
  refused(R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})", "input[0].content[0].type");
  refused(R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type");
  refused(body(R"("previous_response_id":"resp_1")"), "previous_response_id");
  refused(body(R"("background":true)"), "background");
  refused(body(R"("max_output_tokens":"many")"), "max_output_tokens");
  refused(body(R"("temperature":"hot")"), "temperature");
  refused(body(R"("tools":[{"type":"web_search"}])"), "tools[0].type");
  refused(body(R"("tool_choice":{"type":"function","name":"nobody"})"), "tool_choice");
  refused(body(R"("text":{"format":{"type":"json_schema","name":"n","schema":{"type":1}}})"), "text.format.schema");
  refused(body(R"("text":{"format":{"type":"xml"}})"), "text.format.type");
  expect_alive();
}

TEST_F(ResponsesTest, D27_AnErrorInAStreamIsAnErrorEvent) {
  start({.fail_at = 5});
  const std::vector<Json> events = heard(body(""));
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["type"], "error");
  EXPECT_FALSE(events.back()["message"].get<std::string>().empty());
}

TEST_F(ResponsesTest, EmbeddingsAreAClear400) {
  start();
  const Reply reply = post("/v1/embeddings", R"({"input":"x","model":"m"})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["code"], "embeddings_unsupported");
}

}  // namespace
}  // namespace lode::serve::test
