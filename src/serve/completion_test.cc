// /v1/completions as a client sees it. Names such as D01 are entries of the field reports.
#include "serve/completion.h"

#include <cmath>
#include <set>

#include "serve/test_fixture.h"

namespace lode::serve::test {
namespace {

class CompletionTest : public ServeTest {
 protected:
  Events stream(const std::string& fields) {
    Client client(server->port());
    client.post("/v1/completions", R"({"prompt":"p","stream":true)" + (fields.empty() ? "" : "," + fields) + "}");
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_TRUE(reply.whole);
    return parse_events(reply.body);
  }
};

TEST_F(CompletionTest, ReplyHasOpenAisShape) {
  start();
  const Reply reply = complete(R"({"prompt":"abc","max_tokens":50})");
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "application/json; charset=utf-8");
  const Json json = reply.json();
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(json["model"], "fake");
  EXPECT_EQ(json["choices"].size(), 1u);
  EXPECT_EQ(json["choices"][0]["text"], "Hello, world.");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(json["usage"], Json::parse(
                               R"({"prompt_tokens":4,"completion_tokens":13,"total_tokens":17,
                                          "prompt_tokens_details":{"cached_tokens":2}})"));
  EXPECT_EQ(json["cache"], Json::parse(
                               R"({"tokens_reused":2,"by_tier":{"ram":2,"disk":0,"in_flight":0},
                                          "resume":"block","reason":"test","load_ms":0.5})"));
  for (const char* name : {"prompt_n", "cache_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second",
                           "predicted_n", "predicted_ms", "predicted_per_token_ms", "predicted_per_second"}) {
    EXPECT_TRUE(json["timings"][name].is_number()) << name;
  }
}

TEST_F(CompletionTest, SeveralPromptsAndChoicesComeInIndexOrder) {
  start({.text = FakeEngine::Script::Text::seeded});
  const Json json = complete(R"({"prompt":["a","bb"],"n":2,"seed":5})").json();
  ASSERT_EQ(json["choices"].size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(json["choices"][i]["index"], i);
  EXPECT_NE(json["choices"][0]["text"], json["choices"][1]["text"]);
  EXPECT_EQ(json["choices"][0]["text"], json["choices"][2]["text"]);  // Same draw: the prompt has no part in this fake.
  EXPECT_EQ(json["usage"]["prompt_tokens"], 2 + 3);
  EXPECT_EQ(json["usage"]["completion_tokens"], 32);
  const auto submitted = engine->submitted();
  ASSERT_EQ(submitted.size(), 4u);
  EXPECT_EQ(submitted[1].choice, 1u);
  EXPECT_EQ(submitted[2].choice, 0u);
  EXPECT_EQ(submitted[2].prompt.size(), 3u);
}

TEST_F(CompletionTest, EchoPutsThePromptFirst) {
  start();
  EXPECT_EQ(complete(R"({"prompt":"abc ","echo":true})").json()["choices"][0]["text"], "abc Hello, world.");
  EXPECT_EQ(stream(R"("echo":true)").text(), "pHello, world.");
  const Json none = complete(R"({"prompt":"abc","echo":true,"max_tokens":0})").json();
  EXPECT_EQ(none["choices"][0]["text"], "abc");
  EXPECT_EQ(none["choices"][0]["finish_reason"], "length");
}

TEST_F(CompletionTest, D01_UsageOnlyOnAnExtraChunkAndOnlyWhenAsked) {
  start();
  const Events with = stream(R"("stream_options":{"include_usage":true})");
  ASSERT_TRUE(with.done);
  ASSERT_GE(with.chunks.size(), 2u);
  for (std::size_t i = 0; i + 1 < with.chunks.size(); ++i) EXPECT_FALSE(with.chunks[i].contains("usage"));
  EXPECT_EQ(with.chunks.back()["choices"], Json::array());
  EXPECT_EQ(with.chunks.back()["usage"]["completion_tokens"], 13);
  for (const char* fields : {"", R"("stream_options":{"include_usage":false})", R"("stream_options":{})"}) {
    const Events without = stream(fields);
    EXPECT_TRUE(without.done);
    for (const Json& chunk : without.chunks) EXPECT_FALSE(chunk.contains("usage"));
  }
  EXPECT_EQ(complete(R"({"prompt":"a","stream_options":{"include_usage":true}})").status, 200);
}

TEST_F(CompletionTest, D05_EmptyStopDoesNotEndTheText) {
  start();
  for (const char* stop : {R"("")", R"([""])", "[]", "null", R"(["1","2","3","4","5"])"}) {
    const Json json = complete(std::string(R"({"prompt":"a","stop":)") + stop + "}").json();
    EXPECT_EQ(json["choices"][0]["text"], "Hello, world.") << stop;
  }
  expect_refused(R"({"prompt":"a","stop":7})", "stop");
}

TEST_F(CompletionTest, D06_LogprobsHaveTheLegacyShapeStreamedAndNot) {
  start();
  const Json whole = complete(R"({"prompt":"something","logprobs":2,"max_tokens":3})").json()["choices"][0]["logprobs"];
  EXPECT_EQ(whole["tokens"], Json::parse(R"(["H","e","l"])"));
  EXPECT_EQ(whole["token_logprobs"], Json::parse("[-0.5,-0.5,-0.5]"));
  EXPECT_EQ(whole["top_logprobs"][0], Json::parse(R"({"H":-0.5,"I":-1.5})"));
  EXPECT_EQ(whole["text_offset"], Json::parse("[0,1,2]"));

  Json joined = {{"tokens", Json::array()},
                 {"token_logprobs", Json::array()},
                 {"top_logprobs", Json::array()},
                 {"text_offset", Json::array()}};
  for (const Json& chunk : stream(R"("logprobs":2,"max_tokens":3)").chunks) {
    const Json& part = chunk["choices"][0]["logprobs"];
    if (part.is_null()) continue;
    for (auto& [key, list] : joined.items()) {
      for (const Json& value : part[key]) list.push_back(value);
    }
  }
  EXPECT_EQ(joined, whole);

  // 0: the chosen token alone.
  const Json chosen = complete(R"({"prompt":"x","logprobs":0,"max_tokens":1})").json()["choices"][0]["logprobs"];
  EXPECT_EQ(chosen["top_logprobs"][0], Json::parse(R"({"H":-0.5})"));
}

TEST_F(CompletionTest, EchoedPromptTokensHaveNullLogprobs) {
  start();
  for (const bool streamed : {false, true}) {
    Json tokens = Json::array(), logprobs = Json::array(), offsets = Json::array();
    const std::string body = std::string(R"({"prompt":"pq","logprobs":1,"echo":true,"max_tokens":2,"stream":)") +
                             (streamed ? "true}" : "false}");
    const Reply reply = complete(body);
    const std::vector<Json> chunks = streamed ? parse_events(reply.body).chunks : std::vector<Json>{reply.json()};
    for (const Json& chunk : chunks) {
      const Json& part = chunk["choices"][0]["logprobs"];
      if (part.is_null()) continue;
      for (const Json& t : part["tokens"]) tokens.push_back(t);
      for (const Json& t : part["token_logprobs"]) logprobs.push_back(t);
      for (const Json& t : part["text_offset"]) offsets.push_back(t);
    }
    EXPECT_EQ(tokens, Json::parse(R"(["<s>","p","q","H","e"])"));
    EXPECT_EQ(logprobs, Json::parse("[null,null,null,-0.5,-0.5]"));
    EXPECT_EQ(offsets, Json::parse("[0,0,1,2,3]"));
  }
}

TEST_F(CompletionTest, D08_MinusInfinityStaysStrictJson) {
  start({.logprob = -std::numeric_limits<float>::infinity()});
  const Reply reply = complete(R"({"prompt":"a","logprobs":5,"max_tokens":4})");
  const Json json = reply.json();
  ASSERT_FALSE(json.is_discarded()) << reply.body;
  for (const Json& x : json["choices"][0]["logprobs"]["token_logprobs"])
    EXPECT_TRUE(x.is_null() || std::isfinite(x.get<double>()));
}

TEST_F(CompletionTest, D10_ExactlyOneFinishReasonPerChoice) {
  start();
  for (const char* fields : {"", R"("stop":"wor")", R"("max_tokens":3)", R"("n":3)", R"("max_tokens":0)"}) {
    const Events events = stream(fields);
    EXPECT_TRUE(events.done);
    std::map<int, int> reasons;
    std::set<int> seen;
    for (const Json& chunk : events.chunks) {
      for (const Json& choice : chunk["choices"]) {
        seen.insert(choice["index"].get<int>());
        EXPECT_EQ(reasons[choice["index"].get<int>()], 0) << "a chunk after the finish reason";
        if (!choice["finish_reason"].is_null()) {
          ++reasons[choice["index"].get<int>()];
          EXPECT_TRUE(chunk.contains("timings") && chunk.contains("cache") && chunk.contains("seed"));
        }
      }
    }
    for (const int index : seen) EXPECT_EQ(reasons[index], 1) << fields;
  }
}

TEST_F(CompletionTest, D12_LengthAndStopAreToldApart) {
  start();
  const auto reason = [&](const std::string& fields) {
    const Json whole = complete(R"({"prompt":"p",)" + fields + "}").json()["choices"][0];
    const Events events = stream(fields);
    EXPECT_EQ(events.chunks.back()["choices"][0]["finish_reason"], whole["finish_reason"]);
    EXPECT_EQ(events.text(), whole["text"].get<std::string>());
    return whole["finish_reason"].get<std::string>();
  };
  EXPECT_EQ(reason(R"("max_tokens":1)"), "length");
  EXPECT_EQ(reason(R"("max_tokens":100)"), "stop");
  EXPECT_EQ(reason(R"("max_tokens":100,"stop":["wor"])"), "stop");
  EXPECT_EQ(complete(R"({"prompt":"p","stop":["wor"]})").json()["choices"][0]["stop_reason"], "wor");
}

TEST_F(CompletionTest, D16_WrongTypesAre400AndTheServerLives) {
  start();
  expect_refused(R"({"prompt":"a","stream":"false"})", "stream");
  expect_refused(R"({"prompt":"a","top_k":0.01})", "top_k");
  expect_refused(R"({"prompt":"a","temperature":"hot"})", "temperature");
  expect_refused(R"({"prompt":{"a":"b"}})", "prompt");
  expect_refused(R"({"prompt":"a","model":5})", "model");
  expect_refused(R"({"prompt":"a","seed":1.5})", "seed");
  expect_refused(R"({"messages":{}})", "prompt");
  EXPECT_EQ(complete(R"({"prompt":"a","seed":-1})").status, 200);
  expect_alive();
}

TEST_F(CompletionTest, D17_MalformedJsonIs400) {
  start();
  for (const std::string& body :
       {std::string(R"({"prompt":"a", x})"), std::string(), std::string("  "), std::string("[]"), std::string("null"),
        std::string("\"p\""), std::string("\xff\xfe{\0\"\0", 6), std::string("{\"prompt\":\"\xff\"}"),
        std::string(100'000, '['), std::string("{\"a\":{\"a\":"), std::string("prompt=a&b=c"),
        std::string("\0\0\0\0", 4)}) {
    expect_refused(body, "");
  }
  Client client(server->port());
  client.post("/v1/completions", R"({"prompt":"a"})", "Content-Type: text/plain\r\n");
  EXPECT_EQ(client.read().status, 415);
  client.post("/v1/completions", R"({"prompt":"a"})", "Content-Type: application/json; charset=utf-8\r\n");
  EXPECT_EQ(client.read().status, 200);
  client.post("/v1/completions", R"({"prompt":"a"})", "");
  EXPECT_EQ(client.read().status, 200);
}

TEST_F(CompletionTest, D18_NonFiniteIsRefused) {
  start();
  EXPECT_EQ(complete(R"({"prompt":"a","temperature":NaN})").status, 400);
  EXPECT_EQ(complete(R"({"prompt":"a","temperature":1e999})").status, 400);
  EXPECT_EQ(complete(R"({"prompt":"a","temperature":Infinity})").status, 400);
  expect_refused(R"({"prompt":"a","temperature":1e39})", "temperature");
  expect_refused(R"({"prompt":"a","logit_bias":{"1":1e300}})", "logit_bias");
  for (const char* t : {"1e-4", "1e-40", "1e-300", "0"}) {
    EXPECT_EQ(complete(std::string(R"({"prompt":"a","temperature":)") + t + "}").status, 200) << t;
  }
  EXPECT_EQ(complete(R"({"prompt":"a","top_p":0.0001,"presence_penalty":1e30})").status, 200);
}

TEST_F(CompletionTest, D27_ErrorsBeforeTheFirstByteHaveARealStatus) {
  start({.context = 20});
  for (const char* stream : {"true", "false"}) {
    const Reply reply =
        complete(R"({"prompt":"a prompt that is longer than twenty tokens","stream":)" + std::string(stream) + "}");
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
    EXPECT_NE(reply.body.find("20"), std::string::npos);
  }
}

TEST_F(CompletionTest, D27_ErrorsInAStreamAreEventsAndThenItCloses) {
  start({.fail_at = 5});
  Client client(server->port());
  client.post("/v1/completions", R"({"prompt":"p","stream":true})");
  const Reply reply = client.read();
  EXPECT_EQ(reply.status, 200);
  EXPECT_FALSE(reply.whole) << "the body must not end as if all were well";
  const Events events = parse_events(reply.body);
  EXPECT_FALSE(events.done);
  ASSERT_FALSE(events.chunks.empty());
  EXPECT_EQ(events.chunks.back()["error"]["type"], "server_error");
  EXPECT_TRUE(client.at_end());
  EXPECT_EQ(events.text(), "Hello");
  EXPECT_EQ(complete(R"({"prompt":"p"})").status, 500);
  EXPECT_EQ(complete(R"({"prompt":"p","max_tokens":2})").status, 200);
}

TEST_F(CompletionTest, B07_TextThatIsNoUtf8NeverBreaksAReply) {
  start({.reply = "a\xF0\x9F\x98\x8A\xF0"});
  const Json whole = complete(R"({"prompt":"p"})").json();
  EXPECT_EQ(whole["choices"][0]["text"], "a😊\xEF\xBF\xBD");
  const Json cut = complete(R"({"prompt":"p","max_tokens":2,"logprobs":1})").json();
  EXPECT_EQ(cut["choices"][0]["text"], "a\xEF\xBF\xBD");
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(cut["choices"][0]["logprobs"]["tokens"][1], "bytes:\\xf0");
  EXPECT_EQ(stream("").text(), "a😊\xEF\xBF\xBD");
  // Error texts that echo raw bytes.
  const Reply reply = complete("{\"prompt\":\"a\",\"logit_bias\":{\"\xC3\xA9\\u0007\":1}}");
  EXPECT_EQ(reply.status, 400);
  EXPECT_FALSE(reply.json().is_discarded());
  expect_alive();
}

TEST_F(CompletionTest, H02_TheReportedSeedReproducesTheText) {
  start({.text = FakeEngine::Script::Text::seeded});
  const Json first = complete(R"({"prompt":"p"})").json();
  const Json other = complete(R"({"prompt":"p"})").json();
  EXPECT_NE(first["seed"], other["seed"]);
  const Json again = complete(R"({"prompt":"p","seed":)" + first["seed"].dump() + "}").json();
  EXPECT_EQ(again["choices"][0]["text"], first["choices"][0]["text"]);
  EXPECT_EQ(again["seed"], first["seed"]);
  EXPECT_EQ(stream(R"("seed":12)").chunks.back()["seed"], 12);
}

TEST_F(CompletionTest, HeadersAndHeartbeatsComeDuringALongPrompt) {
  start({.prefill_steps = 30, .step = std::chrono::milliseconds(10)});
  Client client(server->port());
  const auto begin = std::chrono::steady_clock::now();
  client.post("/v1/completions", R"({"prompt":"p","stream":true})");
  EXPECT_EQ(client.read_head().status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(200)) << "headers wait for the prompt";
  const auto first = client.chunk();
  ASSERT_TRUE(first);
  EXPECT_EQ(*first, ": keep-alive\n\n");
  std::string body = *first;
  while (auto chunk = client.chunk()) body += *chunk;
  const Events events = parse_events(body);
  EXPECT_GE(events.comments, 2);
  EXPECT_LE(events.comments, 6);
  EXPECT_EQ(events.text(), "Hello, world.");
}

TEST_F(CompletionTest, ProgressIsSentOnlyWhereAsked) {
  start({.prefill_steps = 4});
  int progress = 0;
  std::int64_t last = 0;
  for (const Json& chunk : stream(R"("return_progress":true)").chunks) {
    if (!chunk.contains("prompt_progress")) continue;
    ++progress;
    EXPECT_EQ(chunk["prompt_progress"]["total"], 2);
    EXPECT_GE(chunk["prompt_progress"]["processed"].get<std::int64_t>(), last);
    last = chunk["prompt_progress"]["processed"].get<std::int64_t>();
    EXPECT_EQ(chunk["choices"][0]["text"], "");
  }
  EXPECT_EQ(progress, 4);
  for (const Json& chunk : stream("").chunks) EXPECT_FALSE(chunk.contains("prompt_progress"));
}

TEST_F(CompletionTest, RefusalsOfTheEngineKeepTheirMeaning) {
  const std::pair<Status, int> cases[] = {{Status(Code::unavailable, "the queue is full"), 503},
                                          {Status::exhausted("no memory"), 503},
                                          {Status::invalid("bad"), 400},
                                          {Status::unsupported("not here"), 400},
                                          {Status::not_found("gone"), 404},
                                          {Status(Code::internal, "oops"), 500}};
  for (const auto& [status, http] : cases) {
    if (engine) engine->stop(0);
    server.reset();
    start({.refuse = status});
    for (const char* stream : {"true", "false"}) {
      const Reply reply = complete(R"({"prompt":"p","stream":)" + std::string(stream) + "}");
      EXPECT_EQ(reply.status, http);
      EXPECT_EQ(reply.json()["error"]["message"], status.message());
      EXPECT_EQ(reply.headers.contains("retry-after"), http == 503);
    }
  }
}

TEST_F(CompletionTest, AnExceptionEndsOneRequestOnly) {
  start({.text = FakeEngine::Script::Text::endless, .throw_from = 2});
  Client client(server->port());
  client.post("/v1/completions", R"({"prompt":"p","n":3})");
  EXPECT_EQ(client.read().status, 500);
  EXPECT_TRUE(eventually([&] { return engine->live() == 0; }));
  client.get("/health");
  EXPECT_EQ(client.read().status, 200);
}

TEST_F(CompletionTest, ARefusedChoiceCancelsTheOthers) {
  start({.text = FakeEngine::Script::Text::endless, .refuse = Status(Code::unavailable, "full"), .refuse_from = 2});
  const Reply reply = complete(R"({"prompt":"p","n":4})");
  EXPECT_EQ(reply.status, 503);
  EXPECT_TRUE(eventually([&] { return engine->live() == 0; }));
  EXPECT_EQ(engine->stats().requests_cancelled, 2);
}

}  // namespace
}  // namespace lode::serve::test
