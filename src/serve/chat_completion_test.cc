// /v1/chat/completions as a client sees it. Names such as D01 are entries of the field reports.
#include "serve/chat_completion.h"

#include <set>

#include "serve/test_fixture.h"

namespace lode::serve::test {
namespace {

constexpr const char* kToolTemplate =
    "{% for t in tools or [] %}{{ t.function.name }},{% endfor %}<tool_call></tool_call>"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif "
    "%}";
constexpr const char* kTool =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}])";

// One choice of a stream, put together as clients do.
struct Streamed {
  std::string content, reasoning, finish;
  std::vector<Json> calls;
  Json logprobs = Json::array();
  int roles = 0, finishes = 0;
};

class ChatCompletionTest : public ServeTest {
 protected:
  static std::string body(const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"p"}])" + (fields.empty() ? "" : "," + fields) + "}";
  }
  Json whole(const std::string& fields) {
    const Reply reply = chat(body(fields));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  Events events(const std::string& fields) {
    Client client(server->port());
    client.post("/v1/chat/completions", body(R"("stream":true)" + (fields.empty() ? "" : "," + fields)));
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_TRUE(reply.whole);
    Events out = parse_events(reply.body);
    EXPECT_TRUE(out.done);
    return out;
  }
  static Streamed joined(const Events& events, int index = 0) {
    Streamed out;
    for (const Json& chunk : events.chunks) {
      EXPECT_EQ(chunk["object"], "chat.completion.chunk");
      for (const Json& choice : chunk["choices"]) {
        if (choice["index"] != index) continue;
        EXPECT_EQ(out.finishes, 0) << "a chunk after the finish reason";
        const Json& delta = choice["delta"];
        out.roles += delta.contains("role");
        if (delta.contains("content")) out.content += delta["content"].get<std::string>();
        if (delta.contains("reasoning_content")) out.reasoning += delta["reasoning_content"].get<std::string>();
        if (delta.contains("tool_calls")) {
          for (const Json& call : delta["tool_calls"]) {
            const auto at = call["index"].get<std::size_t>();
            if (at == out.calls.size()) out.calls.push_back(call);
            else
              out.calls.at(at)["function"]["arguments"] = out.calls.at(at)["function"]["arguments"].get<std::string>() +
                                                          call["function"]["arguments"].get<std::string>();
          }
        }
        if (!choice["logprobs"].is_null()) {
          for (const Json& token : choice["logprobs"]["content"]) out.logprobs.push_back(token);
        }
        if (!choice["finish_reason"].is_null()) {
          ++out.finishes;
          out.finish = choice["finish_reason"];
          EXPECT_TRUE(chunk.contains("timings") && chunk.contains("cache") && chunk.contains("seed"));
        }
      }
    }
    return out;
  }
  // The same request both ways: the same message. Gives the whole reply's choice.
  Json both(const std::string& fields) {
    const Json choice = whole(fields)["choices"][0];
    const Streamed s = joined(events(fields));
    EXPECT_EQ(s.roles, 1);
    EXPECT_EQ(s.finishes, 1);
    EXPECT_EQ(s.finish, choice["finish_reason"].get<std::string>());
    const Json& message = choice["message"];
    EXPECT_EQ(s.content, message["content"].is_null() ? "" : message["content"].get<std::string>());
    EXPECT_EQ(s.reasoning, message.value("reasoning_content", std::string()));
    const Json calls = message.value("tool_calls", Json::array());
    EXPECT_EQ(s.calls.size(), calls.size());
    for (std::size_t i = 0; i < std::min(s.calls.size(), calls.size()); ++i) {
      EXPECT_EQ(s.calls[i]["function"], calls[i]["function"]);
      EXPECT_EQ(s.calls[i]["type"], "function");
      EXPECT_FALSE(calls[i]["id"].get<std::string>().empty());
    }
    if (!choice["logprobs"].is_null()) {
      EXPECT_EQ(s.logprobs, choice["logprobs"]["content"]);
    }
    return choice;
  }
};

TEST_F(ChatCompletionTest, ReplyHasOpenAisShape) {
  start();
  const Json json = whole(R"("max_tokens":50)");
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("chatcmpl-"));
  EXPECT_EQ(json["model"], "fake");
  ASSERT_EQ(json["choices"].size(), 1u);
  EXPECT_EQ(json["choices"][0]["message"],
            Json::parse(R"({"role":"assistant","content":"Hello, world.","refusal":null})"));
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["logprobs"], nullptr);
  const auto prompt = engine->submitted()[0].prompt.size();
  EXPECT_EQ(prompt, std::string("S[user]p[assistant]").size());
  EXPECT_EQ(json["usage"]["prompt_tokens"], prompt);
  EXPECT_EQ(json["usage"]["completion_tokens"], 13);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], prompt / 2);
  EXPECT_TRUE(json["timings"].contains("predicted_per_second"));
  EXPECT_EQ(json["cache"]["resume"], "block");
  EXPECT_TRUE(json["seed"].is_number());
}

TEST_F(ChatCompletionTest, AStreamSaysTheRoleFirst) {
  start();
  const Events e = events("");
  EXPECT_EQ(e.chunks[0]["choices"][0]["delta"], Json::parse(R"({"role":"assistant","content":""})"));
  EXPECT_EQ(joined(e).content, "Hello, world.");
  EXPECT_EQ(both("")["message"]["content"], "Hello, world.");
}

TEST_F(ChatCompletionTest, D01_UsageOnlyOnAnExtraChunkAndOnlyWhenAsked) {
  start();
  const Events with = events(R"("stream_options":{"include_usage":true})");
  for (std::size_t i = 0; i + 1 < with.chunks.size(); ++i) EXPECT_FALSE(with.chunks[i].contains("usage"));
  EXPECT_EQ(with.chunks.back()["choices"], Json::array());
  EXPECT_EQ(with.chunks.back()["usage"]["completion_tokens"], 13);
  for (const Json& chunk : events("").chunks) EXPECT_FALSE(chunk.contains("usage"));
}

TEST_F(ChatCompletionTest, ChoicesAreToldApart) {
  start({.text = FakeEngine::Script::Text::seeded});
  const Json json = whole(R"("n":3,"seed":5)");
  ASSERT_EQ(json["choices"].size(), 3u);
  const Events e = events(R"("n":3,"seed":5)");
  std::set<std::string> texts;
  for (int i = 0; i < 3; ++i) {
    const Json& choice = json["choices"][static_cast<std::size_t>(i)];
    EXPECT_EQ(choice["index"], i);
    EXPECT_EQ(joined(e, i).content, choice["message"]["content"].get<std::string>());
    texts.insert(joined(e, i).content);
  }
  EXPECT_EQ(texts.size(), 3u);
}

TEST_F(ChatCompletionTest, D06_LogprobsHaveChatsShape) {
  start();
  const Json choice = both(R"("logprobs":true,"top_logprobs":2,"max_tokens":3)");
  const Json& content = choice["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0], Json::parse(R"({"token":"H","logprob":-0.5,"bytes":[72],"top_logprobs":[
      {"token":"H","logprob":-0.5,"bytes":[72]},{"token":"I","logprob":-1.5,"bytes":[73]}]})"));
  EXPECT_EQ(both(R"("logprobs":true,"max_tokens":1)")["logprobs"]["content"][0]["top_logprobs"], Json::array());
}

TEST_F(ChatCompletionTest, D08_MinusInfinityStaysStrictJson) {
  start({.logprob = -std::numeric_limits<float>::infinity()});
  const Json choice = both(R"("logprobs":true,"top_logprobs":5,"max_tokens":2)");
  EXPECT_EQ(choice["logprobs"]["content"][0]["logprob"], -9999.0);
}

TEST_F(ChatCompletionTest, ReasoningIsToldApart) {
  start({.reply = "<think>\nSimple.\n</think>\n\nFour."});
  const Json choice = both("");
  EXPECT_EQ(choice["message"]["reasoning_content"], "Simple.");
  EXPECT_EQ(choice["message"]["content"], "Four.");
  EXPECT_EQ(both(R"("reasoning_format":"none")")["message"]["content"], "<think>\nSimple.\n</think>\n\nFour.");
  const Json cut = both(R"("max_tokens":12)");
  EXPECT_EQ(cut["message"]["content"], "");
  EXPECT_EQ(cut["message"]["reasoning_content"], "Simp");
  EXPECT_EQ(cut["finish_reason"], "length");
}

TEST_F(ChatCompletionTest, ToolCallsAreParsedAndStreamed) {
  chat_template = kToolTemplate;
  start({.reply = "I add.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n"
                  "{\"name\": \"add\", \"arguments\": {\"a\": 2}}\n</tool_call>"});
  const Json choice = both(kTool);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], "I add.");
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0]["function"], Json::parse(R"({"name":"add","arguments":"{\"a\": 1}"})"));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  EXPECT_TRUE(calls[0]["id"].get<std::string>().starts_with("call_"));
  EXPECT_EQ(both(std::string(kTool) + R"(,"parallel_tool_calls":false)")["message"]["tool_calls"].size(), 1u);
  // Without tools it is text.
  const Json text = both("");
  EXPECT_FALSE(text["message"].contains("tool_calls"));
  EXPECT_EQ(text["finish_reason"], "stop");
  EXPECT_EQ(both(std::string(kTool) + R"(,"tool_choice":"none")")["finish_reason"], "stop");
}

TEST_F(ChatCompletionTest, ContentIsNullWhereACallIsAll) {
  chat_template = kToolTemplate;
  start({.reply = "<tool_call>{\"name\":\"add\",\"arguments\":{}}</tool_call>"});
  EXPECT_EQ(both(kTool)["message"]["content"], nullptr);
}

TEST_F(ChatCompletionTest, ARequiredCallIsPartOfTheAnswer) {
  chat_template = kToolTemplate;
  start({.reply = "{\"name\": \"add\", \"arguments\": {\"a\": 1}}"});  // The constraint ends it there.
  const Json choice = both(std::string(kTool) + R"(,"tool_choice":{"type":"function","function":{"name":"add"}})");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"], Json::parse(R"({"name":"add","arguments":"{\"a\": 1}"})"));
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(ChatCompletionTest, D11_ACallThatTheLengthCutsIsNoFinishedCall) {
  chat_template = kToolTemplate;
  const std::string reply = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"xyz\"}}\n</tool_call>";
  start({.reply = reply});
  for (std::size_t n = 1; n < reply.size(); n += 3) {
    const Json choice = both(std::string(kTool) + ",\"max_tokens\":" + std::to_string(n));
    EXPECT_EQ(choice["finish_reason"], "length") << n;
  }
  EXPECT_EQ(both(kTool)["finish_reason"], "tool_calls");
}

TEST_F(ChatCompletionTest, D04_StopStringsAndToolCallsAgreeInBothModes) {
  chat_template = kToolTemplate;
  start({.reply = "Well <tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}}</tool_call> END more"});
  const Json choice = both(std::string(kTool) + R"(,"stop":["END"])");
  EXPECT_EQ(choice["message"]["content"], "Well");
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["stop_reason"], "END");
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json inside = both(std::string(kTool) + R"(,"stop":["arg"])");
  EXPECT_EQ(inside["finish_reason"], "stop");
}

TEST_F(ChatCompletionTest, E17_BrokenCallsAreNever500) {
  chat_template = kToolTemplate;
  for (const char* reply :
       {"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"un", "<tool_call>{\"name\": \"add\", ",
        "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"say \"hi\"\"}}</tool_call>",
        "<tool_call>{]</tool_call>", "<tool_call>"}) {
    start({.reply = reply});
    both(kTool);
    engine->stop(0);
    server.reset();
  }
}

TEST_F(ChatCompletionTest, D05_D12_StopStringsAndLengths) {
  start();
  for (const char* stop : {R"("")", R"([""])", "[]", "null"})
    EXPECT_EQ(both(std::string("\"stop\":") + stop)["message"]["content"], "Hello, world.") << stop;
  const Json stopped = both(R"("stop":["wor"])");
  EXPECT_EQ(stopped["message"]["content"], "Hello, ");
  EXPECT_EQ(stopped["finish_reason"], "stop");
  EXPECT_EQ(stopped["stop_reason"], "wor");
  EXPECT_EQ(both(R"("max_tokens":1)")["finish_reason"], "length");
  EXPECT_EQ(both(R"("max_completion_tokens":2)")["message"]["content"], "He");
}

TEST_F(ChatCompletionTest, D16_D17_ErrorsNameTheirFieldAndTheServerLives) {
  start();
  const std::string path = "/v1/chat/completions";
  expect_refused(R"({"messages":{}})", "messages", path);
  expect_refused(R"({"messages":{"messages":[]}})", "messages", path);
  expect_refused(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "messages[0].content[0].type",
                 path);
  expect_refused(body(R"("temperature":"hot")"), "temperature", path);
  expect_refused(R"({"messages":[], x})", "", path);
  expect_refused("", "", path);
  expect_alive();
}

TEST_F(ChatCompletionTest, D27_ErrorsBeforeTheFirstByteHaveARealStatus) {
  start({.context = 20});
  for (const char* stream : {"true", "false"}) {
    const Reply reply =
        chat(R"({"messages":[{"role":"user","content":"longer than the twenty tokens there are"}],"stream":)" +
             std::string(stream) + "}");
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
  }
}

TEST_F(ChatCompletionTest, D27_ErrorsInAStreamAreEvents) {
  start({.fail_at = 5});
  Client client(server->port());
  client.post("/v1/chat/completions", body(R"("stream":true)"));
  const Reply reply = client.read();
  const Events e = parse_events(reply.body);
  EXPECT_FALSE(e.done);
  ASSERT_FALSE(e.chunks.empty());
  EXPECT_EQ(e.chunks.back()["error"]["type"], "server_error");
}

TEST_F(ChatCompletionTest, I01_AClientThatLeavesCancelsItsRequest) {
  start({.text = FakeEngine::Script::Text::endless});
  Client client(server->port());
  client.post("/v1/chat/completions", body(R"("stream":true,"n":2)"));
  (void)client.read_head();
  ASSERT_TRUE(eventually([&] { return engine->started() == 2; }));
  client.abort();
  EXPECT_TRUE(eventually([&] { return engine->live() == 0; }));
  expect_alive();
}

TEST_F(ChatCompletionTest, AModelWithoutATemplateSaysWhatToDo) {
  start({.chat_template = ""});
  const Reply reply = chat(body(""));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["code"], "no_chat_template");
  EXPECT_NE(reply.body.find("--chat-template-file"), std::string::npos);
  expect_alive();
}

TEST_F(ChatCompletionTest, C04_ATemplateThatCannotBeReadIsAnErrorWithItsReason) {
  start({.chat_template = "{% for %}"});
  const Reply reply = chat(body(""));
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("line 1"), std::string::npos) << reply.body;
}

TEST_F(ChatCompletionTest, ApplyTemplateAndProps) {
  start();
  const Reply applied = post("/apply-template", body(R"("add_generation_prompt":true)"));
  EXPECT_EQ(applied.status, 200);
  EXPECT_EQ(applied.json(), Json::parse(R"({"prompt":"<s>[user]p[assistant]"})"));
  expect_refused(R"({"messages":5})", "messages", "/apply-template");
  const Json props = get("/props").json();
  EXPECT_EQ(props["total_slots"], 4);
  EXPECT_EQ(props["bos_token"], "<s>");
  EXPECT_EQ(props["eos_token"], "</s>");
  EXPECT_EQ(props["chat_template"], FakeEngine::Script().chat_template);
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 1000);
  EXPECT_EQ(props["default_generation_settings"]["params"]["temperature"], 1.0);
  EXPECT_FALSE(props["build_info"].get<std::string>().empty());
  EXPECT_TRUE(props.contains("model_path"));
  EXPECT_EQ(get("/v1/models").json()["data"][0]["max_model_len"], 1000);
}

TEST_F(ChatCompletionTest, ProgressIsToldWhileThePromptIsComputed) {
  start({.prefill_steps = 5});
  int seen = 0;
  for (const Json& chunk : events(R"("return_progress":true)").chunks) seen += chunk.contains("prompt_progress");
  EXPECT_EQ(seen, 5);
}

}  // namespace
}  // namespace lode::serve::test
