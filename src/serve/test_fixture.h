// A server on a free loopback port with a FakeEngine behind it. Tests only.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "serve/fake_engine.h"
#include "serve/server.h"
#include "serve/test_client.h"

namespace lode::serve::test {

// Waits up to 3 s until `what` holds; false if it never does.
inline bool eventually(const std::function<bool()>& what) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (!what()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// A template with tools and thoughts, which shows what it was given.
inline constexpr const char* kToolTemplate =
    "{% for t in tools or [] %}{{ t.function.name }},{% endfor %}<tool_call></tool_call>"
    "{% for m in messages %}[{{ m.role }}]{{ m.reasoning_content or '' }}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}({{ c.function.name }}){% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}";

class ServeTest : public testing::Test {
 protected:
  ServeTest() {
    spdlog::set_level(spdlog::level::off);
    options.port = 0;
    options.heartbeat = std::chrono::milliseconds(60);
    options.connection.tick = std::chrono::milliseconds(10);
    options.connection.linger = std::chrono::milliseconds(300);
  }
  ~ServeTest() override {
    if (engine) engine->stop(0);
  }

  void start(FakeEngine::Script script = {}) {
    start_without_engine();
    engine = std::make_unique<FakeEngine>(std::move(script));
    server->set_engine(*engine, load_chat_template(*engine, chat_template));
  }
  void start_without_engine() {
    auto started = Server::start(options);
    ASSERT_TRUE(started.ok()) << started.status().message();
    server = std::move(*started);
  }

  Reply post(const std::string& path, const std::string& body) {
    Client client(server->port());
    client.post(path, body);
    return client.read();
  }
  Reply complete(const std::string& body) { return post("/v1/completions", body); }
  Reply chat(const std::string& body) { return post("/v1/chat/completions", body); }
  Reply get(const std::string& path) {
    Client client(server->port());
    client.get(path);
    return client.read();
  }
  // 200 on a well-formed request: the server is alive and takes work.
  void expect_alive() {
    const Reply reply = complete(R"({"prompt":"alive?","max_tokens":1})");
    EXPECT_EQ(reply.status, 200) << reply.body;
  }
  // A 400 in OpenAI's shape whose param is `param`.
  void expect_refused(const std::string& body, const std::string& param, const std::string& path = "/v1/completions") {
    const Reply reply = post(path, body);
    EXPECT_EQ(reply.status, 400) << body << " -> " << reply.body;
    const Json error = reply.json();
    ASSERT_TRUE(error.is_object() && error.contains("error")) << body << " -> " << reply.body;
    EXPECT_EQ(error["error"]["type"], "invalid_request_error") << body;
    EXPECT_EQ(error["error"]["param"], param.empty() ? Json(nullptr) : Json(param)) << body << " -> " << reply.body;
    EXPECT_FALSE(error["error"]["message"].get<std::string>().empty());
  }

  ServerOptions options;
  std::string chat_template;           // Empty: the fake's own.
  std::unique_ptr<FakeEngine> engine;  // Outlives the server.
  std::unique_ptr<Server> server;
};

}  // namespace lode::serve::test
