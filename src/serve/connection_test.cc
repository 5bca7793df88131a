// HTTP itself: what is no request, what is too much, what is too slow.
#include "serve/connection.h"

#include <random>

#include "serve/test_fixture.h"

namespace lode::serve::test {
namespace {

class ConnectionTest : public ServeTest {};

TEST_F(ConnectionTest, KeepsAConnectionForManyRequests) {
  start();
  Client client(server->port());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client.post("/v1/completions", R"({"prompt":"a"})"));
    EXPECT_EQ(client.read().status, 200);
    ASSERT_TRUE(client.post("/v1/completions", R"({"prompt":"a","stream":true})"));
    const Reply streamed = client.read();
    EXPECT_TRUE(streamed.whole);
    EXPECT_TRUE(parse_events(streamed.body).done);
    ASSERT_TRUE(client.get("/health"));
    EXPECT_EQ(client.read().status, 200);
  }
  EXPECT_EQ(server->counters().connections_open.load(), 1);
  client.get("/health", "Connection: close\r\n");
  const Reply last = client.read();
  EXPECT_EQ(last.headers.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

TEST_F(ConnectionTest, PipelinedRequestsAreAnsweredInOrder) {
  start();
  Client client(server->port());
  client.send(Client::head("GET", "/health") + "\r\n" + Client::head("GET", "/nowhere") + "\r\n" +
              Client::head("GET", "/v1/models") + "\r\n");
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(client.read().status, 404);
  EXPECT_EQ(client.read().json()["object"], "list");
}

TEST_F(ConnectionTest, UnknownPathsAndMethods) {
  start();
  const Reply missing = get("/v1/nothing");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.json()["error"]["type"], "not_found_error");
  EXPECT_TRUE(missing.json()["error"].contains("param") && missing.json()["error"].contains("code"));
  const Reply wrong = get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST");
  EXPECT_EQ(post("/health", "{}").status, 405);
  EXPECT_EQ(get("/health?probe=1").status, 200);
  Client client(server->port());
  client.send(Client::head("HEAD", "/health") + "\r\n" + Client::head("GET", "/health") + "\r\n");
  EXPECT_EQ(client.read_head().headers.at("content-length"), "15");
  EXPECT_EQ(client.read().body, R"({"status":"ok"})");
}

TEST_F(ConnectionTest, ChunkedAndExpectingBodies) {
  start();
  Client client(server->port());
  client.send(Client::head("POST", "/v1/completions", "Transfer-Encoding: chunked\r\n") +
              "\r\n8\r\n{\"prompt\r\n5\r\n\":\"a\"\r\n1\r\n}\r\n0\r\n\r\n");
  EXPECT_EQ(client.read().status, 200);
  client.send(Client::head("POST", "/v1/completions", "Expect: 100-continue\r\nContent-Length: 14\r\n") + "\r\n");
  EXPECT_EQ(client.line(), "HTTP/1.1 100 Continue");
  EXPECT_EQ(client.line(), "");
  client.send(R"({"prompt":"a"})");
  EXPECT_EQ(client.read().status, 200);
}

TEST_F(ConnectionTest, OldClientsGetTheStreamUntilTheEnd) {
  start();
  Client client(server->port());
  const std::string body = R"({"prompt":"a","stream":true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const Reply reply = client.read();
  EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
  EXPECT_TRUE(parse_events(reply.body).done);
}

TEST_F(ConnectionTest, WhatIsTooLargeIsRefused) {
  options.connection.body_bytes_max = 1000;
  options.connection.header_bytes_max = 1000;
  start();
  {
    Client client(server->port());
    client.post("/v1/completions", R"({"prompt":")" + std::string(2000, 'a') + "\"}");
    const Reply reply = client.read();
    EXPECT_EQ(reply.status, 413);
    EXPECT_FALSE(reply.json().is_discarded());
    EXPECT_TRUE(client.at_end());
  }
  {
    Client client(server->port());  // A body that never says how long it is.
    client.send(Client::head("POST", "/v1/completions", "Transfer-Encoding: chunked\r\n") + "\r\n");
    for (int i = 0; i < 20; ++i) client.send("64\r\n" + std::string(100, 'a') + "\r\n");
    EXPECT_EQ(client.read().status, 413);
  }
  {
    Client client(server->port());
    client.send(Client::head("GET", "/health", "X-Long: " + std::string(2000, 'a') + "\r\n") + "\r\n");
    EXPECT_EQ(client.read().status, 431);
  }
  expect_alive();
}

TEST_F(ConnectionTest, MalformedHttpIsAnsweredOrClosedAndNeverFatal) {
  start();
  const char* cases[] = {
      "\r\n\r\n\r\n",
      "GET\r\n\r\n",
      "GET /health\r\n\r\n",
      "GET /health HTTP/9.9\r\n\r\n",
      "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
      "GET /health HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
      "GET /health HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "GET /health HTTP/1.1\r\n: x\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
      "GET  /health  HTTP/1.1\r\n\r\n",
      "\xff\xff\xff\xff\r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
  };
  for (const char* bytes : cases) {
    Client client(server->port(), 0, 1);
    client.send(bytes);
    const Reply reply = client.read();
    if (reply.status == 0) continue;  // Closed without a word: fine too.
    EXPECT_EQ(reply.status, 400) << bytes;
    EXPECT_EQ(reply.json()["error"]["type"], "invalid_request_error") << bytes;
  }
  expect_alive();
}

TEST_F(ConnectionTest, RandomDamageToARequestIsHarmless) {
  start();
  const std::string whole =
      Client::head("POST", "/v1/completions", "Content-Type: application/json\r\nContent-Length: 29\r\n") + "\r\n" +
      R"({"prompt":"abc","max_tokens"})";
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = whole;
    for (int k = 0; k < 1 + i % 4; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (i % 3 == 0) bytes.resize(random() % bytes.size());
    Client client(server->port());
    ASSERT_TRUE(client.connected());
    client.send(bytes);
    if (i % 2 == 0) client.abort();
  }
  expect_alive();
  EXPECT_TRUE(eventually([&] { return server->counters().requests_open.load() == 0; }));
}

TEST_F(ConnectionTest, ClientsThatDoNotSendAreTimedOut) {
  options.connection.read_timeout = std::chrono::milliseconds(80);
  start();
  Client idle(server->port());
  EXPECT_TRUE(idle.at_end());
  Client slow(server->port());
  slow.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(slow.read().status, 408);
  Client header(server->port());
  header.send("POST /v1/com");
  EXPECT_EQ(header.read().status, 408);
  EXPECT_GE(server->counters().clients_slow.load(), 2);
}

TEST_F(ConnectionTest, AStreamNobodyReadsIsBoundedAndThenCancelled) {
  options.connection.unsent_bytes_max = 64 << 10;
  options.connection.send_buffer_bytes = 4096;
  start({.reply = "0123456789", .text = FakeEngine::Script::Text::endless, .step = std::chrono::microseconds(1)});
  Client slow(server->port(), 4096);
  slow.post("/v1/completions", R"({"prompt":"p","stream":true,"logprobs":5})");
  Client other(server->port());
  other.post("/v1/completions", R"({"prompt":"p","max_tokens":20,"stream":true})");
  EXPECT_EQ(parse_events(other.read().body).text(), "01234567890123456789");
  EXPECT_TRUE(eventually([&] { return server->counters().clients_slow.load() == 1; }));
  EXPECT_TRUE(eventually([&] { return engine->live() == 0; }));
  expect_alive();
}

TEST_F(ConnectionTest, AClientThatStopsReadingTimesOut) {
  options.connection.write_timeout = std::chrono::milliseconds(100);
  options.connection.unsent_bytes_max = 1 << 30;  // Time alone must do it.
  options.connection.send_buffer_bytes = 4096;
  start({.reply = "0123456789", .text = FakeEngine::Script::Text::endless, .step = std::chrono::microseconds(1)});
  Client slow(server->port(), 4096);
  slow.post("/v1/completions", R"({"prompt":"p","stream":true,"logprobs":5})");
  EXPECT_TRUE(eventually([&] { return server->counters().clients_slow.load() == 1 && engine->live() == 0; }));
}

TEST_F(ConnectionTest, ConnectionsBeyondTheLimitAreRefused) {
  options.connections_max = 2;
  start();
  Client a(server->port()), b(server->port());
  EXPECT_TRUE(eventually([&] { return server->counters().connections_open.load() == 2; }));
  Client c(server->port());
  EXPECT_TRUE(c.at_end());
  a.get("/health");
  EXPECT_EQ(a.read().status, 200);
  b.close();
  EXPECT_TRUE(eventually([&] { return server->counters().connections_open.load() == 1; }));
  Client d(server->port());
  d.get("/health");
  EXPECT_EQ(d.read().status, 200);
}

TEST_F(ConnectionTest, ABodyOfUnclearLengthIsNotTheNextRequest) {
  start();
  for (const char* headers :
       {"Transfer-Encoding: gzip\r\n", "Transfer-Encoding: identity\r\n", "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", "Transfer-Encoding: \r\n",
        "Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"}) {
    Client client(server->port());
    client.send(Client::head("POST", "/v1/completions", headers) + "\r\n" + Client::head("GET", "/health") + "\r\n");
    EXPECT_EQ(client.read().status, 400) << headers;
    EXPECT_EQ(client.read().status, 0) << headers << "the body was taken for a request";
    EXPECT_TRUE(client.at_end()) << headers;
  }
  expect_alive();
}

}  // namespace
}  // namespace lode::serve::test
