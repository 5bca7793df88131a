#include "serve/tls.h"

#include <fmt/format.h>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <utility>

namespace lode::serve {
namespace {

namespace ssl = boost::asio::ssl;
using Error = boost::system::error_code;

}  // namespace

struct TlsContext::Impl {
  ssl::context context{ssl::context::tls_server};
};

TlsContext::TlsContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::load(const std::string& cert_file, const std::string& key_file) {
  auto impl = std::make_unique<Impl>();
  Error error;
  impl->context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                                ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | ssl::context::single_dh_use,
                            error);
  if (!error) impl->context.use_certificate_chain_file(cert_file, error);
  if (error) return Status::invalid(fmt::format("--tls-cert {}: {}", cert_file, error.message()));
  impl->context.use_private_key_file(key_file, ssl::context::pem, error);
  if (error) return Status::invalid(fmt::format("--tls-key {}: {}", key_file, error.message()));
  return std::shared_ptr<TlsContext>(new TlsContext(std::move(impl)));
}

struct ClientStream::Tls {
  Tls(Socket& socket, TlsContext& context) : stream(socket, context.impl().context) {}
  ssl::stream<Socket&> stream;
};

ClientStream::ClientStream(Socket socket, std::shared_ptr<TlsContext> tls)
    : socket_(std::move(socket)), context_(std::move(tls)) {
  if (context_) tls_ = std::make_unique<Tls>(socket_, *context_);
}
ClientStream::~ClientStream() = default;

void ClientStream::handshake(std::function<void(const Error&)> done) {
  if (!tls_) return done({});
  tls_->stream.async_handshake(ssl::stream_base::server, std::move(done));
}

void ClientStream::read_some(boost::asio::mutable_buffer room, Done done) {
  if (tls_) tls_->stream.async_read_some(room, std::move(done));
  else socket_.async_read_some(room, std::move(done));
}

void ClientStream::write_some(boost::asio::const_buffer bytes, Done done) {
  if (tls_) tls_->stream.async_write_some(bytes, std::move(done));
  else socket_.async_write_some(bytes, std::move(done));
}

void ClientStream::shutdown_send(std::shared_ptr<void> keep) {
  Error ignored;
  // The alert goes out; the client's own may come or not, the connection's deadline ends the wait.
  if (tls_) tls_->stream.async_shutdown([keep = std::move(keep)](const Error&) {});
  else socket_.shutdown(Socket::shutdown_send, ignored);
}

void ClientStream::close() {
  Error ignored;
  socket_.close(ignored);
}

}  // namespace lode::serve
