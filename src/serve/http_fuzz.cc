// Fuzz target: arbitrary bytes on a connection of a running server, in up to three pieces. The first byte says where
// they are cut and whether the client resets or waits for the answer; after every 32nd client a sound request must
// still be answered. Loopback only.
#include <spdlog/spdlog.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "serve/fake_engine.h"
#include "serve/server.h"
#include "serve/test_client.h"

namespace {

using namespace lode;
using namespace lode::serve;

struct Running {
  std::unique_ptr<FakeEngine> engine;
  std::unique_ptr<Server> server;
  Running() {
    spdlog::set_level(spdlog::level::off);
    ServerOptions options;
    options.port = 0;
    options.connection.tick = std::chrono::milliseconds(10);
    options.connection.linger = std::chrono::milliseconds(20);
    auto started = Server::start(options);
    LODE_CHECK(started.ok());
    server = std::move(*started);
    engine = std::make_unique<FakeEngine>(FakeEngine::Script{});
    server->set_engine(*engine, load_chat_template(*engine, ""));
  }
  void expect_alive() {
    test::Client client(server->port());
    LODE_CHECK(client.post("/v1/completions", R"({"prompt":"alive?","max_tokens":1})"));
    LODE_CHECK(client.read().status == 200);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Running running;
  static int clients = 0;
  if (size < 2) return 0;
  const std::uint8_t how = data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  {
    test::Client client(running.server->port(), 0, 1);
    LODE_CHECK(client.connected());
    const std::size_t first = bytes.size() * (how & 7) / 7,
                      second = first + (bytes.size() - first) * (how >> 3 & 3) / 3;
    const bool sent = client.send(bytes.substr(0, first)) && client.send(bytes.substr(first, second - first)) &&
                      client.send(bytes.substr(second));
    // A whole request with "Connection: close" is answered; of anything else, only that the server outlives it matters.
    if (sent && bytes.find("\r\n\r\n") != bytes.npos && (how & 32)) (void)client.line();
    if (how & 64) client.abort();
    else client.close();
  }
  if (++clients % 32 == 0) running.expect_alive();
  return 0;
}
