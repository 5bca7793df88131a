#include "serve/server.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <mutex>
#include <thread>
#include <utility>

#include "serve/app.h"
#include "serve/connection.h"
#include "serve/model_host.h"
#include "serve/routes.h"
#include "serve/tls.h"

namespace lode::serve {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

// How long accepting pauses when the system has no descriptor left: it would spin otherwise.
constexpr std::chrono::milliseconds kAcceptPause{100};
// For connections to notice that they are closed. What is left then is destroyed with the io_context.
constexpr std::chrono::milliseconds kCloseTime{500};

// Polled: this happens once in a process's life, and every answer's end would have to notify otherwise.
void wait_for_zero(const std::atomic<std::int64_t>& count, std::chrono::steady_clock::time_point deadline) {
  while (count.load() > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

Status bind_error(const std::string& host, std::uint16_t port, const Error& error) {
  const std::string where = fmt::format("cannot listen on {}:{}: ", host, port);
  if (error == asio::error::address_in_use) {
    return {Code::unavailable,
            where + "another program has this port; choose another one with --port, or stop that program"};
  }
  if (error == asio::error::access_denied) {
    return {Code::unavailable,
            where + "not permitted (ports under 1024 need privileges); choose another one with --port"};
  }
  return {Code::unavailable,
          where + error.message() + "; --host takes an address of this machine, such as 127.0.0.1 or 0.0.0.0"};
}

}  // namespace

struct Server::Impl {
  explicit Impl(const ServerOptions& options)
      : app(options), handler([this](const std::shared_ptr<Exchange>& exchange) { handle_request(app, exchange); }) {}

  Status listen();
  void accept();
  void on_accept(const Error& error, tcp::socket socket);
  void each_connection(Connection::Close how);

  App app;
  std::shared_ptr<TlsContext> tls;  // nullptr: plain HTTP.
  const Connection::Handler handler;
  asio::io_context io;
  asio::strand<asio::io_context::executor_type> accept_strand{asio::make_strand(io)};
  tcp::acceptor acceptor{accept_strand};
  asio::steady_timer accept_pause{accept_strand};
  std::uint16_t port = 0;

  std::mutex mutex;
  std::vector<std::weak_ptr<Connection>> connections;  // Guarded by mutex; dead ones are swept as it grows.
  std::size_t sweep_at = 64;
  std::vector<std::thread> threads;
  bool finished = false;
};

Status Server::Impl::listen() {
  const auto& options = app.options();
  Error error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::numeric_service, error);
  if (error || found.empty()) return bind_error(options.host, options.port, error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  // Only so that a restart need not wait for the last process's closed connections to expire.
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return bind_error(options.host, options.port, error);
  port = acceptor.local_endpoint(error).port();
  return Status::success();
}

void Server::Impl::accept() {
  acceptor.async_accept(asio::make_strand(io),
                        [this](const Error& error, tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void Server::Impl::on_accept(const Error& error, tcp::socket socket) {
  if (!acceptor.is_open()) return;
  if (error) {
    if (error == asio::error::operation_aborted) return;
    accept_pause.expires_after(kAcceptPause);
    accept_pause.async_wait([this](const Error& e) {
      if (!e && acceptor.is_open()) accept();
    });
    return;
  }
  if (app.counters().connections_open.load() >= app.options().connections_max) {
    app.counters().connections_refused.fetch_add(1);  // Closed unread: a flood must not cost us answers as well.
  } else {
    auto connection =
        std::make_shared<Connection>(std::move(socket), tls, app.options().connection, handler, app.counters());
    {
      const std::lock_guard lock(mutex);
      if (connections.size() >= sweep_at) {
        std::erase_if(connections, [](const auto& c) { return c.expired(); });
        sweep_at = 2 * connections.size() + 64;
      }
      connections.push_back(connection);
    }
    connection->start();
  }
  accept();
}

void Server::Impl::each_connection(Connection::Close how) {
  std::vector<std::weak_ptr<Connection>> all;
  {
    const std::lock_guard lock(mutex);
    all = connections;
  }
  for (const auto& weak : all) {
    if (const auto connection = weak.lock()) connection->close(how);
  }
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (!options.tls_cert.empty()) {
    auto tls = TlsContext::load(options.tls_cert, options.tls_key);
    if (!tls.ok()) return tls.status();
    impl->tls = std::move(*tls);
  }
  LODE_RETURN_IF_ERROR(impl->listen());
  Impl* const p = impl.get();
  asio::post(p->accept_strand, [p] { p->accept(); });
  for (int i = 0; i < std::max(1, options.io_threads); ++i) {
    // The pending accept keeps run() going; finish() ends it.
    p->threads.emplace_back([p] {
      for (;;) {
        try {
          p->io.run();
          return;
        } catch (const std::exception& e) {  // Out of memory in a handler, say: the thread must live on.
          spdlog::error("internal error in the HTTP server: {}", e.what());
        }
      }
    });
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Server::~Server() {
  finish(std::chrono::milliseconds(0));
}

std::uint16_t Server::port() const {
  return impl_->port;
}

std::string Server::url() const {
  const std::string& host = impl_->app.options().host;
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", impl_->tls ? "https" : "http", v6 ? "[" : "", host, v6 ? "]" : "", impl_->port);
}

const HttpCounters& Server::counters() const {
  return impl_->app.counters();
}
void Server::set_loading(std::string stage) {
  impl_->app.set_stage(std::move(stage));
}
void Server::set_engine(engine::Engine& engine, ChatResult chat) {
  impl_->app.set_engine(engine, std::move(chat));
}

void Server::set_models(ModelHost& models) {
  App& app = impl_->app;
  models.start({.loaded = [&app](engine::Engine& engine, ChatResult chat) { app.set_engine(engine, std::move(chat)); },
                .unloading = [&app] { app.clear_engine(); }});
  app.set_models(models);
}

ChatResult load_chat_template(const engine::Engine& engine, std::string source) {
  const bool own = source.empty();
  if (own) source = engine.info().chat_template;
  if (source.empty()) {
    return Status(Code::not_found,
                  "this model's file has no chat template: start the server with --chat-template-file FILE, or use "
                  "/v1/completions with a prompt");
  }
  auto made = text::ChatTemplate::make(std::move(source), engine.tokenizer());
  if (made.ok()) return made;
  return Status(made.status().code(),
                fmt::format("{} cannot be used: {}; start the server with --chat-template-file FILE",
                            own ? "this model's own chat template" : "the chat template", made.status().message()));
}

void Server::stop_accepting() {
  impl_->app.set_stopping();
  asio::post(impl_->accept_strand, [p = impl_.get()] {
    Error ignored;
    p->acceptor.close(ignored);
    p->accept_pause.cancel();
    p->each_connection(Connection::Close::finish);
  });
}

void Server::finish(std::chrono::milliseconds flush) {
  if (std::exchange(impl_->finished, true)) return;
  stop_accepting();
  const auto deadline = std::chrono::steady_clock::now() + flush;
  wait_for_zero(impl_->app.counters().requests_open, deadline);
  impl_->each_connection(Connection::Close::abandon);
  impl_->app.workers().stop();  // Before the io_context goes: its jobs hold connections.
  wait_for_zero(impl_->app.counters().connections_open, std::chrono::steady_clock::now() + kCloseTime);
  impl_->io.stop();
  for (auto& thread : impl_->threads) thread.join();
  impl_->threads.clear();
}

}  // namespace lode::serve
