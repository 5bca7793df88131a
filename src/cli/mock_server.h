// A server for tests that answers each connection with a script of delayed raw bytes. Owns its socket and thread.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cli/bench_client.h"

namespace lode::cli::test {

struct Piece {
  int delay_ms = 0;  // Before the bytes.
  std::string bytes;
};

inline std::string ok_header(std::string_view type = "text/event-stream") {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nConnection: close\r\n\r\n", type);
}
inline std::string event(std::string_view json) {
  return fmt::format("data: {}\n\n", json);
}
inline std::string text_event(std::string_view text) {
  return event(fmt::format(R"({{"choices":[{{"index":0,"text":"{}","finish_reason":null}}]}})", text));
}
inline std::string finish_event() {
  return event(R"({"choices":[{"index":0,"text":"","finish_reason":"length"}]})");
}
inline std::string usage_event(int prompt, int generated, int cached = 0) {
  return event(fmt::format(
      R"({{"choices":[],"usage":{{"prompt_tokens":{},"completion_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}}}})",
      prompt, generated, cached));
}

class MockServer {
 public:
  // script(n, head) answers the n-th connection, whose request line and header fields are `head`.
  using Script = std::function<std::vector<Piece>(int n, const std::string& head)>;

  explicit MockServer(Script script)
      : script_(std::move(script)),
        acceptor_(context_, {boost::asio::ip::make_address("127.0.0.1"), 0}),
        thread_([this] { serve(); }) {}
  ~MockServer() {
    stopping_ = true;
    boost::system::error_code ignored;
    boost::asio::ip::tcp::socket knock(context_);  // Wakes the accept.
    knock.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }

  std::string url() const { return fmt::format("http://127.0.0.1:{}", acceptor_.local_endpoint().port()); }
  Endpoint endpoint() const { return {"127.0.0.1", std::to_string(acceptor_.local_endpoint().port()), "", ""}; }

 private:
  void serve() {
    for (int n = 0;; ++n) {
      boost::system::error_code error;
      boost::asio::ip::tcp::socket socket(context_);
      acceptor_.accept(socket, error);
      if (error || stopping_) return;
      boost::asio::streambuf buffer;
      const std::size_t head = boost::asio::read_until(socket, buffer, "\r\n\r\n", error);
      const auto* data = static_cast<const char*>(buffer.data().data());
      for (const Piece& piece : script_(n, std::string(data, head))) {
        std::this_thread::sleep_for(std::chrono::milliseconds(piece.delay_ms));
        boost::asio::write(socket, boost::asio::buffer(piece.bytes), error);
        if (error) break;
      }
      // The rest of the request must be read, or closing resets the connection under the answer.
      socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send, error);
      char rest[4096];
      while (socket.read_some(boost::asio::buffer(rest), error) > 0) {
      }
    }
  }

  Script script_;
  std::atomic<bool> stopping_{false};
  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

}  // namespace lode::cli::test
