// A blocking HTTP/1.1 client over loopback for tests: plain sockets, every wait bounded. Tests only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

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
  int status = 0;                        // 0: the connection closed or stayed silent.
  std::map<std::string, std::string> headers;   // Names in lower case.
  std::string body;
  bool whole = false;                    // The body ended as its headers said.
  Json json() const {
    Json out = Json::parse(body, nullptr, false);
    return out;
  }
};

class Client {
 public:
  explicit Client(std::uint16_t port, int receive_buffer = 0, int timeout_s = 5) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer != 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    const timeval limit{.tv_sec = timeout_s};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { close(); }

  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Closes so that the other side sees a reset at once.
  void abort() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  static std::string head(std::string_view method, std::string_view path, std::string_view extra = {}) {
    return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(extra);
  }
  bool post(std::string_view path, std::string_view body, std::string_view extra = "Content-Type: application/json\r\n") {
    return send(head("POST", path, extra) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
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
    } else if (reply.status != 0) {      // Until the connection ends.
      while (more()) {}
      reply.body = std::exchange(in_, {});
      reply.whole = true;
    }
    return reply;
  }
  // True once the server has closed the connection.
  bool at_end() {
    while (more()) {}
    return ended_;
  }

 private:
  bool more() {
    char bytes[16384];
    const auto n = ::recv(fd_, bytes, sizeof bytes, 0);
    if (n == 0) ended_ = true;
    if (n <= 0) return false;
    in_.append(bytes, static_cast<std::size_t>(n));
    return true;
  }

  int fd_;
  bool connected_ = false, ended_ = false;
  std::string in_;
};

// The data of every event of a stream; comment lines are counted.
struct Events {
  std::vector<Json> chunks;
  int comments = 0;
  bool done = false;                     // [DONE] was the last event.
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
inline Events parse_events(std::string_view body) {
  Events out;
  while (!body.empty()) {
    const auto end = body.find("\n\n");
    const std::string_view event = body.substr(0, end);
    body.remove_prefix(end == std::string_view::npos ? body.size() : end + 2);
    out.comments += event.starts_with(':');
    if (!event.starts_with("data: ")) continue;
    out.done = event == "data: [DONE]";
    if (!out.done) out.chunks.push_back(Json::parse(event.substr(6), nullptr, false));
  }
  return out;
}

}  // namespace lode::serve::test
