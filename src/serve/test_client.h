// A blocking HTTP/1.1 client over loopback for tests: every wait for an answer bounded. Tests only.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/json.h"

namespace lode::serve::test {

struct Reply {
  int status = 0;                              // 0: the connection closed or stayed silent.
  std::map<std::string, std::string> headers;  // Names in lower case.
  std::string body;
  bool whole = false;  // The body ended as its headers said.
  Json json() const {
    Json out = Json::parse(body, nullptr, false);
    return out;
  }
};

class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0, int timeout_s = 5) : timeout_(timeout_s) {
    namespace asio = boost::asio;
    boost::system::error_code error;
    socket_.open(asio::ip::tcp::v4(), error);
    if (receive_buffer != 0) socket_.set_option(asio::socket_base::receive_buffer_size(receive_buffer), error);
    socket_.connect({asio::ip::address_v4::loopback(), port}, error);
    connected_ = !error;
  }

  bool connected() const { return connected_; }
  void close() {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }
  // Closes so that the other side sees a reset at once.
  void abort() {
    boost::system::error_code ignored;
    socket_.set_option(boost::asio::socket_base::linger(true, 0), ignored);
    close();
  }

  bool send(std::string_view bytes) {
    boost::system::error_code error;
    boost::asio::write(socket_, boost::asio::buffer(bytes.data(), bytes.size()), error);
    return !error;
  }
  static std::string head(std::string_view method, std::string_view path, std::string_view extra = {}) {
    return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(extra);
  }
  bool post(std::string_view path, std::string_view body,
            std::string_view extra = "Content-Type: application/json\r\n") {
    return send(head("POST", path, extra) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                std::string(body));
  }
  bool get(std::string_view path, std::string_view extra = {}) { return send(head("GET", path, extra) + "\r\n"); }

  // The next line without its end; nullopt where the connection ended or stayed silent first.
  std::optional<std::string> line() {
    for (;;) {
      if (const auto at = in_.find("\r\n"); at != std::string::npos) {
        std::string out = in_.substr(0, at);
        in_.erase(0, at + 2);
        return out;
      }
      if (!more()) return std::nullopt;
    }
  }
  std::optional<std::string> exactly(std::size_t n) {
    while (in_.size() < n) {
      if (!more()) return std::nullopt;
    }
    std::string out = in_.substr(0, n);
    in_.erase(0, n);
    return out;
  }

  Reply read_head() {
    Reply reply;
    const auto status = line();
    if (!status || status->size() < 12) return reply;
    while (auto header = line()) {
      if (header->empty()) {
        reply.status = std::atoi(status->c_str() + 9);
        break;
      }
      const auto colon = header->find(": ");
      std::string name = header->substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      if (colon != std::string::npos) reply.headers[name] = header->substr(colon + 2);
    }
    return reply;
  }
  // The next chunk of a chunked body; nullopt at its end or when the connection broke (whole tells which).
  std::optional<std::string> chunk(bool* whole = nullptr) {
    const auto size = line();
    if (!size) return std::nullopt;
    const auto n = std::strtoul(size->c_str(), nullptr, 16);
    auto data = exactly(n);
    if (!data || !exactly(2)) return std::nullopt;
    if (n > 0) return data;
    if (whole != nullptr) *whole = true;
    return std::nullopt;
  }
  Reply read() {
    Reply reply = read_head();
    if (reply.headers.contains("transfer-encoding")) {
      while (auto data = chunk(&reply.whole)) reply.body += *data;
    } else if (const auto it = reply.headers.find("content-length"); it != reply.headers.end()) {
      auto data = exactly(std::strtoul(it->second.c_str(), nullptr, 10));
      reply.whole = data.has_value();
      reply.body = data.value_or(in_);
    } else if (reply.status != 0) {  // Until the connection ends.
      while (more()) {
      }
      reply.body = std::exchange(in_, {});
      reply.whole = true;
    }
    return reply;
  }
  // True once the server has closed the connection.
  bool at_end() {
    while (more()) {
    }
    return ended_;
  }

 private:
  bool more() {
    if (ended_ || silent_) return false;
    char bytes[16384];
    std::optional<boost::system::error_code> result;
    std::size_t n = 0;
    socket_.async_read_some(boost::asio::buffer(bytes), [&](const boost::system::error_code& error, std::size_t read) {
      result = error;
      n = read;
    });
    io_.restart();
    io_.run_for(timeout_);
    if (!result) {
      silent_ = true;
      close();
      io_.run();
      return false;
    }
    ended_ = bool(*result);
    in_.append(bytes, n);
    return !*result;
  }

  const std::chrono::seconds timeout_;
  boost::asio::io_context io_{1};
  boost::asio::ip::tcp::socket socket_{io_};
  bool connected_ = false;
  bool ended_ = false;   // The server closed its side.
  bool silent_ = false;  // Nothing came for `timeout_`.
  std::string in_;
};

// The data of every event of a stream; comment lines are counted.
struct Events {
  std::vector<Json> chunks;
  int comments = 0;
  bool done = false;  // [DONE] was the last event.
  std::string text(std::size_t index = 0) const {
    std::string out;
    for (const Json& chunk : chunks) {
      if (!chunk.contains("choices")) continue;
      for (const Json& choice : chunk["choices"]) {
        if (choice["index"] == index) out += choice["text"].get<std::string>();
      }
    }
    return out;
  }
};
// Calls fn with each event of a stream's body, without the empty line behind it.
template <typename Fn>
void for_each_event(std::string_view body, Fn&& fn) {
  while (!body.empty()) {
    const auto end = body.find("\n\n");
    fn(body.substr(0, end));
    body.remove_prefix(end == std::string_view::npos ? body.size() : end + 2);
  }
}
inline Events parse_events(std::string_view body) {
  Events out;
  for_each_event(body, [&](std::string_view event) {
    out.comments += event.starts_with(':');
    if (!event.starts_with("data: ")) return;
    out.done = event == "data: [DONE]";
    if (!out.done) out.chunks.push_back(Json::parse(event.substr(6), nullptr, false));
  });
  return out;
}

}  // namespace lode::serve::test
