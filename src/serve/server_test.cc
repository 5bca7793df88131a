// The server's life, its small endpoints, and clients that leave.
#include "serve/server.h"

#include <csignal>
#include <future>

#include "serve/signals.h"
#include "serve/test_fixture.h"

namespace lode::serve::test {
namespace {

using Text = FakeEngine::Script::Text;

class ServerTest : public ServeTest {};

TEST_F(ServerTest, AnswersLoadingUntilTheEngineIsThere) {
  start_without_engine();
  server->set_loading("reading weights");
  const Reply health = get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_EQ(health.json()["error"]["code"], "loading");
  EXPECT_EQ(health.json()["stage"], "reading weights");
  EXPECT_TRUE(health.headers.contains("retry-after"));
  EXPECT_EQ(complete(R"({"prompt":"a"})").status, 503);
  EXPECT_EQ(get("/v1/models").status, 503);
  EXPECT_NE(get("/metrics").body.find("lode_ready 0"), std::string::npos);
  engine = std::make_unique<FakeEngine>(FakeEngine::Script{});
  server->set_engine(*engine, load_chat_template(*engine, ""));
  EXPECT_EQ(get("/health").body, R"({"status":"ok"})");
  expect_alive();
}

TEST_F(ServerTest, ATakenPortIsAClearError) {
  start();
  ServerOptions same = options;
  same.port = server->port();
  const auto second = Server::start(same);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find(std::to_string(server->port())), std::string::npos);
  EXPECT_NE(second.status().message().find("--port"), std::string::npos);
  same.host = "203.0.113.7";  // Not an address of this machine.
  EXPECT_NE(Server::start(same).status().message().find("--host"), std::string::npos);
}

TEST_F(ServerTest, ModelsTellContextAndSize) {
  start();
  const Json json = get("/v1/models").json();
  ASSERT_EQ(json["data"].size(), 1u);
  EXPECT_EQ(json["data"][0]["id"], "fake");
  const Json& meta = json["data"][0]["meta"];
  EXPECT_EQ(meta["n_ctx"], 1000);
  EXPECT_EQ(meta["n_ctx_train"], 2000);
  EXPECT_EQ(meta["n_vocab"], 258);
  EXPECT_EQ(meta["n_params"], 42);
  EXPECT_EQ(meta["size"], 4242);
  EXPECT_EQ(get("/v1/models/fake").json()["id"], "fake");
  EXPECT_EQ(get("/v1/models/other").status, 404);
}

TEST_F(ServerTest, TokenizeAndDetokenize) {
  start();
  EXPECT_EQ(post("/tokenize", R"({"content":"ab"})").body, R"({"tokens":[97,98]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"a</s>","add_special":true})").body, R"({"tokens":[256,97,257]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"</s>","parse_special":false})").json()["tokens"].size(), 4u);
  EXPECT_EQ(post("/tokenize", R"({"content":"é","with_pieces":true})").body,
            R"({"tokens":[{"id":195,"piece":[195]},{"id":169,"piece":[169]}]})");
  EXPECT_EQ(post("/tokenize", R"({})").json()["error"]["param"], "content");
  EXPECT_EQ(post("/tokenize", R"({"content":5})").status, 400);
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97,98,257]})").body, R"({"content":"ab</s>"})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[195]})").body, "{\"content\":\"\xEF\xBF\xBD\"}");
  for (const char* bad : {R"({"tokens":[258]})", R"({"tokens":["a"]})", R"({"tokens":7})", R"({})"}) {
    EXPECT_EQ(post("/detokenize", bad).json()["error"]["param"], "tokens") << bad;
  }
}

TEST_F(ServerTest, MetricsAreWellFormed) {
  start();
  expect_alive();
  const Reply reply = get("/metrics");
  EXPECT_EQ(reply.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_NE(reply.body.find("\nlode_tokens_generated_total 1\n"), std::string::npos);
  EXPECT_NE(reply.body.find("\nlode_http_replies_total{class=\"2xx\"} 1\n"), std::string::npos);
  std::string family;
  std::string_view rest = reply.body;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() + 1);
    if (line.starts_with("# HELP ")) family = line.substr(7, line.find(' ', 7) - 7);
    if (line.starts_with("# TYPE ")) EXPECT_TRUE(line.substr(7).starts_with(family + " ")) << line;
    if (line.starts_with("# ")) continue;
    EXPECT_TRUE(line.starts_with(family)) << line << ": no HELP or TYPE before it";
    const std::string value(line.substr(line.rfind(' ') + 1));
    char* end = nullptr;
    EXPECT_GE(std::strtod(value.c_str(), &end), 0) << line;
    EXPECT_EQ(*end, '\0') << line;
  }
}

// Every request for text is in every histogram once, in all buckets from its own on, and in the sum.
TEST_F(ServerTest, LatenciesAreCounted) {
  start({.reply = "0123456789", .step = std::chrono::milliseconds(3)});
  for (int i = 0; i < 3; ++i) complete(R"({"prompt":"a","max_tokens":5})");
  EXPECT_EQ(complete(R"({"prompt":5})").status, 400);  // None of them.
  const std::string page = get("/metrics").body;
  const auto value = [&](const std::string& sample) {
    const auto at = page.find("\n" + sample + " ");
    return at == std::string::npos ? -1.0 : std::stod(page.substr(at + sample.size() + 2));
  };
  for (const char* name : {"time_to_first_token", "queue", "request"}) {
    const std::string family = "lode_" + std::string(name) + "_seconds";
    EXPECT_EQ(value(family + "_count"), 3) << family;
    EXPECT_EQ(value(family + "_bucket{le=\"+Inf\"}"), 3) << family;
    EXPECT_EQ(value(family + "_bucket{le=\"100\"}"), 3) << family;
    EXPECT_GE(value(family + "_sum"), 0) << family;
  }
  EXPECT_GT(value("lode_request_seconds_sum"), 3 * 5 * 0.003);
  EXPECT_GE(value("lode_inter_token_latency_seconds_count"), 3 * 3);
  EXPECT_EQ(value("lode_inter_token_latency_seconds_bucket{le=\"0.001\"}"), 0) << "a step takes 3 ms";
  EXPECT_EQ(value("llamacpp:tokens_predicted_total"), 15);
  EXPECT_GT(value("process_resident_memory_bytes"), 1e6);
}

TEST_F(ServerTest, PagesOfOtherOriginsMayNotUnlessTheyAreNamed) {
  const auto ask = [&](const std::string& method, const std::string& origin) {
    Client client(server->port());
    client.send(Client::head(method, "/v1/completions",
                             "Origin: " + origin + "\r\nAccess-Control-Request-Method: POST\r\n" +
                                 "Access-Control-Request-Headers: authorization, x-one\r\n") +
                "\r\n");
    return client.read();
  };
  const auto allowed = [](const Reply& reply) {
    const auto at = reply.headers.find("access-control-allow-origin");
    return at == reply.headers.end() ? std::string() : at->second;
  };
  start();
  EXPECT_EQ(ask("OPTIONS", "https://a.example").status, 405);
  EXPECT_EQ(allowed(ask("OPTIONS", "https://a.example")), "");
  engine->stop(0);
  server.reset();
  options.connection.cors_origins = {"https://a.example", "https://b.example"};
  options.api_keys = {"k"};  // A preflight carries none.
  start();
  const Reply preflight = ask("OPTIONS", "https://b.example");
  EXPECT_EQ(preflight.status, 200);
  EXPECT_EQ(allowed(preflight), "https://b.example");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization, x-one");
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "POST");
  EXPECT_EQ(preflight.headers.at("vary"), "Origin");
  EXPECT_EQ(allowed(ask("OPTIONS", "https://c.example")), "") << "not named";
  EXPECT_EQ(allowed(ask("OPTIONS", "https://a.example.evil")), "");
  EXPECT_EQ(allowed(ask("GET", "https://a.example")), "https://a.example") << "an error can be read too";
  Client client(server->port());
  client.post("/v1/completions", R"({"prompt":"p","stream":true})",
              "Authorization: Bearer k\r\nOrigin: https://a.example\r\n");
  EXPECT_EQ(allowed(client.read()), "https://a.example");
}

TEST_F(ServerTest, KeysAreAskedForAndSeparateCaches) {
  options.api_keys = {"one", "two"};
  start();
  const auto with = [&](const std::string& key) {
    Client client(server->port());
    client.post("/v1/completions", R"({"prompt":"a","cache_salt":"s"})", "Authorization: Bearer " + key + "\r\n");
    return client.read().status;
  };
  EXPECT_EQ(complete(R"({"prompt":"a"})").status, 401);
  EXPECT_EQ(with("three"), 401);
  EXPECT_EQ(with("on"), 401);
  EXPECT_EQ(with("one"), 200);
  EXPECT_EQ(with("two"), 200);
  EXPECT_EQ(with("one"), 200);
  EXPECT_EQ(get("/health").status, 200);
  const auto submitted = engine->submitted();
  ASSERT_EQ(submitted.size(), 3u);
  EXPECT_NE(submitted[0].salt, submitted[1].salt);
  EXPECT_EQ(submitted[0].salt, submitted[2].salt);
}

// ---- Clients that leave

TEST_F(ServerTest, I01_ALeavingClientIsCancelledInEveryPhase) {
  struct Phase {
    const char* name;
    FakeEngine::Script script;
  };
  const Phase phases[] = {
      {"decode", {.text = Text::endless}},
      {"prefill", {.prefill_steps = 100'000}},
      {"queued", {.text = Text::endless, .slots = 0}},
  };
  for (const auto& phase : phases) {
    for (const char* stream : {"true", "false"}) {
      if (engine) engine->stop(0);
      server.reset();
      start(phase.script);
      Client client(server->port());
      client.post("/v1/completions", R"({"prompt":"p","n":2,"stream":)" + std::string(stream) + "}");
      ASSERT_TRUE(eventually([&] { return engine->live() == 2; }));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      client.close();
      EXPECT_TRUE(eventually([&] { return engine->live() == 0; })) << phase.name << stream;
      EXPECT_EQ(engine->stats().requests_cancelled, 2);
      EXPECT_EQ(engine->started(), phase.script.slots == 0 ? 0 : 2) << "a queued request ran after its client left";
      EXPECT_EQ(server->counters().clients_gone.load(), 1);
    }
  }
}

TEST_F(ServerTest, I02_AQueuedClientsLeavingHarmsNobody) {
  start({.reply = "0123456789", .slots = 1, .step = std::chrono::milliseconds(5)});
  Client a(server->port());
  a.post("/v1/completions", R"({"prompt":"a","stream":true})");
  ASSERT_EQ(a.read_head().status, 200);
  Client b(server->port());
  b.post("/v1/completions", R"({"prompt":"b","stream":true})");
  ASSERT_TRUE(eventually([&] { return engine->live() == 2; }));
  b.abort();
  std::string body;
  while (auto chunk = a.chunk()) body += *chunk;
  EXPECT_EQ(parse_events(body).text(), "0123456789");
  EXPECT_TRUE(parse_events(body).done);
  EXPECT_TRUE(eventually([&] { return engine->stats().requests_cancelled == 1; }));
}

TEST_F(ServerTest, I03_EventsForClientsThatLeftAreDropped) {
  start({.reply = "0123456789", .slots = 8, .prefill_steps = 3});
  std::vector<std::future<int>> others;
  std::atomic<bool> stop{false};
  for (int i = 0; i < 4; ++i) {
    others.push_back(std::async(std::launch::async, [&] {
      int good = 0, all = 0;
      while (!stop) {
        ++all;
        good += complete(R"({"prompt":"p","stream":true})").whole ? 1 : 0;
      }
      return good == all && all > 0 ? 0 : 1;
    }));
  }
  for (int i = 0; i < 200; ++i) {
    Client client(server->port());
    client.post("/v1/completions", R"({"prompt":"p","stream":true})");
    std::this_thread::sleep_for(std::chrono::microseconds(137 * (i % 13)));
    client.abort();
  }
  stop = true;
  for (auto& other : others) EXPECT_EQ(other.get(), 0) << "a reply was not whole";
  EXPECT_TRUE(eventually([&] { return engine->live() == 0; }));
  expect_alive();
}

TEST_F(ServerTest, I04_SlotsComeBackAndTheEngineRests) {
  start({.reply = "0123456789", .text = Text::endless, .slots = 2});
  Client a(server->port()), b(server->port());
  a.post("/v1/completions", R"({"prompt":"a","stream":true})");
  b.post("/v1/completions", R"({"prompt":"b","max_tokens":300})");
  ASSERT_TRUE(eventually([&] { return engine->started() == 2; }));
  a.abort();
  EXPECT_EQ(b.read().status, 200);
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(complete(R"({"prompt":"p","max_tokens":5})").json()["choices"][0]["text"], "01234");
  ASSERT_TRUE(eventually([&] { return engine->live() == 0; }));
  const auto steps = engine->stats().steps;
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(engine->stats().steps, steps);
}

// ---- Large bodies

// 100 kB of text and a tokenizer that takes its time over it.
const std::string kLarge = R"({"content":")" + std::string(100'000, ' ') + R"("})";

TEST_F(ServerTest, TokenizingALargeBodyDelaysNobodyElse) {
  start({.encode_delay = std::chrono::milliseconds(700)});
  Client a(server->port()), b(server->port()), c(server->port());
  for (Client* client : {&a, &b, &c}) client->post("/tokenize", kLarge);
  ASSERT_TRUE(eventually([&] { return engine->encodings() == 2; }));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(300));
  for (Client* client : {&a, &b, &c}) EXPECT_EQ(client->read().json()["tokens"].size(), 100'000u);
}

TEST_F(ServerTest, ALargeBodyOfAClientThatLeftIsNotTokenized) {
  start({.encode_delay = std::chrono::milliseconds(300)});
  Client a(server->port()), b(server->port()), leaving(server->port());
  a.post("/tokenize", kLarge);
  b.post("/tokenize", kLarge);
  ASSERT_TRUE(eventually([&] { return engine->encodings() == 2; }));
  leaving.post("/tokenize", kLarge);
  ASSERT_TRUE(eventually([&] { return server->counters().requests_open.load() == 3; }));
  leaving.abort();
  EXPECT_EQ(a.read().status, 200);
  EXPECT_EQ(b.read().status, 200);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(engine->encodings(), 2);
}

TEST_F(ServerTest, ALargeBodyThatWaitsIsRefusedWhenTheServerStops) {
  start({.encode_delay = std::chrono::milliseconds(300)});
  Client a(server->port()), b(server->port()), waiting(server->port());
  a.post("/tokenize", kLarge);
  b.post("/tokenize", kLarge);
  ASSERT_TRUE(eventually([&] { return engine->encodings() == 2; }));
  waiting.post("/tokenize", kLarge);
  ASSERT_TRUE(eventually([&] { return server->counters().requests_open.load() == 3; }));
  server->stop_accepting();
  EXPECT_EQ(waiting.read().status, 503);
  EXPECT_EQ(engine->encodings(), 2);
  server->finish(std::chrono::milliseconds(500));
}

TEST_F(ServerTest, APromptThatCannotFitIsRefusedBeforeItIsTokenized) {
  start({.context = 20});
  for (const std::size_t bytes : {80, 100'000}) {
    const Reply reply = complete(R"({"prompt":")" + std::string(bytes, 'x') + R"("})");
    EXPECT_EQ(reply.status, 400);
    EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded") << reply.body;
    EXPECT_NE(reply.body.find("at least " + std::to_string(bytes / 4) + " tokens"), std::string::npos) << reply.body;
  }
  EXPECT_EQ(engine->encodings(), 0);
}

TEST_F(ServerTest, BodiesOfFormsAndOfOtherCodingsAreRefused) {
  start();
  const auto status = [&](const char* header) {
    Client client(server->port());
    client.post("/v1/completions", R"({"prompt":"a"})", header);
    return client.read().status;
  };
  for (const char* header : {"Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: text/plain\r\n",
                             "Content-Type: multipart/form-data; boundary=x\r\n", "Content-Encoding: gzip\r\n"}) {
    EXPECT_EQ(status(header), 415) << header;
  }
  EXPECT_EQ(status("Content-Encoding: identity\r\n"), 200);
}

TEST_F(ServerTest, ModelNamesInPathsArePercentDecoded) {
  start();
  EXPECT_EQ(get("/v1/models/f%61k%65").status, 200);
  for (const char* path : {"/v1/models/fake%", "/v1/models/fake%2", "/v1/models/%zzfake", "/v1/models/%+1fake"}) {
    EXPECT_EQ(get(path).status, 404) << path;
  }
}

// ---- Stopping

TEST_F(ServerTest, StoppingFinishesWhatRunsAndRefusesTheRest) {
  start({.reply = "0123456789", .step = std::chrono::milliseconds(10)});
  Client running(server->port()), idle(server->port()), late(server->port());
  running.post("/v1/completions", R"({"prompt":"p","stream":true})");
  late.post("/v1/completions", R"({"prompt":"p"})");
  ASSERT_TRUE(eventually([&] { return engine->live() == 2; }));
  server->stop_accepting();
  EXPECT_TRUE(idle.at_end());
  ASSERT_TRUE(eventually([&] { return !Client(server->port()).connected(); }));
  auto drained = std::async(std::launch::async, [&] { engine->stop(5000); });
  const Reply reply = running.read();
  EXPECT_EQ(parse_events(reply.body).text(), "0123456789");
  EXPECT_TRUE(parse_events(reply.body).done);
  EXPECT_EQ(late.read().status, 200);
  drained.get();
  server->finish(std::chrono::milliseconds(500));
  EXPECT_EQ(server->counters().requests_open.load(), 0);
  EXPECT_EQ(server->counters().connections_open.load(), 0);
}

TEST_F(ServerTest, WhatDoesNotFinishInTimeIsToldSo) {
  start({.text = Text::endless});
  Client streaming(server->port()), whole(server->port());
  streaming.post("/v1/completions", R"({"prompt":"p","stream":true})");
  whole.post("/v1/completions", R"({"prompt":"p"})");
  ASSERT_TRUE(eventually([&] { return engine->started() == 2; }));
  server->stop_accepting();
  engine->stop(20);
  const Events events = parse_events(streaming.read().body);
  EXPECT_FALSE(events.done);
  EXPECT_EQ(events.chunks.back()["error"]["type"], "unavailable_error");
  EXPECT_EQ(whole.read().status, 503);
  server->finish(std::chrono::milliseconds(500));
}

TEST_F(ServerTest, DestroyedInTheMiddleOfEverything) {
  start({.text = Text::endless});
  Client a(server->port()), b(server->port());
  a.post("/v1/completions", R"({"prompt":"p","stream":true})");
  b.send("POST /v1/completions HTTP/1.1\r\n");
  ASSERT_TRUE(eventually([&] { return engine->started() == 1; }));
  engine->stop(0);
  server.reset();
  EXPECT_TRUE(a.at_end());
}

TEST(SignalTest, CountsSignals) {
  std::atomic<int> count{0};
  SignalWatch watch([&](int n) { count = n; });
  std::raise(SIGTERM);
  EXPECT_TRUE(eventually([&] { return count == 1; }));
  std::raise(SIGINT);
  EXPECT_TRUE(eventually([&] { return count == 2; }));
}

}  // namespace
}  // namespace lode::serve::test
