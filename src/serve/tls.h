// TLS for client connections: the server's certificate and key, and the bytes of one connection, plain or encrypted. No
// Boost.Asio SSL header here: few files need to compile one.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace lode::serve {

class TlsContext {
 public:
  // PEM files. TLS 1.2 and later. Errors name the file and say what is wrong with it; the key must be the
  // certificate's.
  static Result<std::shared_ptr<TlsContext>> load(const std::string& cert_file, const std::string& key_file);
  ~TlsContext();

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  explicit TlsContext(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One connection's socket and, where there is a context, TLS on it. One read and one write may be pending. Everything
// on the socket's strand.
class ClientStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Done = std::function<void(const boost::system::error_code&, std::size_t bytes)>;

  ClientStream(Socket socket, std::shared_ptr<TlsContext> tls);  // tls: nullptr for plain bytes.
  ~ClientStream();

  Socket& socket() { return socket_; }
  // Before the first read; done at once, and well, on plain bytes.
  void handshake(std::function<void(const boost::system::error_code&)> done);
  void read_some(boost::asio::mutable_buffer room, Done done);
  void write_some(boost::asio::const_buffer bytes, Done done);
  // Says that nothing more follows. `keep` lives until that is said.
  void shutdown_send(std::shared_ptr<void> keep);
  void close();

 private:
  struct Tls;
  Socket socket_;
  std::shared_ptr<TlsContext> context_;
  std::unique_ptr<Tls> tls_;  // Over socket_.
};

}  // namespace lode::serve
