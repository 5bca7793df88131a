// One client connection: reads requests, answers them one after another, notices when the client leaves. Owns the
// socket, the parser, the queue of unsent bytes and the timeouts. Everything but post() runs on its strand.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/api_error.h"
#include "serve/connection_options.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/tls.h"

namespace lode::serve {

class Connection : public Exchange, public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Handler = std::function<void(const std::shared_ptr<Exchange>&)>;

  // The socket's executor is a strand. `options`, `handler` and `counters` outlive the connection.
  // `tls`: nullptr for plain HTTP.
  Connection(Socket socket, std::shared_ptr<TlsContext> tls, const ConnectionOptions& options, const Handler& handler,
             HttpCounters& counters);
  ~Connection() override;

  void start();  // Any thread.
  // Any thread. Closes at once when idle; otherwise after the current answer (`finish`) or now (`abandon`).
  enum class Close { finish, abandon };
  void close(Close how);

  const HttpRequest& request() const override { return request_; }
  std::string take_body() override { return std::exchange(request_.body, {}); }
  Time received() const override { return received_; }
  void reply(HttpReply reply) override;
  void begin_stream(std::string_view content_type) override;
  void write(std::string_view bytes) override;
  void end_stream() override;
  void abort_stream() override;
  void observe(std::shared_ptr<Observer> observer) override;
  void hold(std::shared_ptr<const void> what) override { held_ = std::move(what); }
  void post(std::function<void()> fn) override;

 private:
  enum class State {
    reading,    // Waiting for a request, or in the middle of one.
    answering,  // A handler or a job has the exchange.
    sending,    // The answer is complete; its last bytes are on their way.
    lingering,  // We have closed our side and discard what still comes, so that the client can read our last bytes.
    closed,
  };
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  void await_request();
  void read_some();
  void on_read(const boost::system::error_code& error, std::size_t bytes);
  void feed();
  void dispatch();
  void guarded(const std::function<void()>& fn);
  void reject(const boost::system::error_code& error);
  void reject(const ApiError& answer);
  // What lets a web page of the request's origin read the answer; empty where it may not.
  std::string cors_headers() const;
  void send_head(int status, std::string_view content_type, const HttpReply* reply);
  void finish_answer();  // The answer is queued whole.
  void answer_sent();
  void enqueue(std::string bytes);
  void write_some();
  void on_written(const boost::system::error_code& error, std::size_t bytes);
  void arm_tick();
  void on_tick();
  void gone();
  void linger();
  void shut();  // Closes the socket; the object goes with its last pending handler.
  void count_open(std::int64_t by);

  ClientStream stream_;
  const ConnectionOptions& options_;
  const Handler& handler_;
  HttpCounters& counters_;
  boost::asio::steady_timer timer_;

  State state_ = State::reading;
  bool keep_alive_ = true, closing_ = false;
  Time read_deadline_, write_deadline_, linger_deadline_;
  // The pending read's room. Apart from in_, which may be parsed and emptied while that read is pending.
  std::vector<char> read_room_;
  boost::beast::flat_buffer in_;  // Bytes read and not yet parsed.
  std::optional<Parser> parser_;
  bool continue_sent_ = false;  // "100 Continue" for the request being read.

  HttpRequest request_;
  Time received_;
  bool head_only_ = false;  // HEAD: the body is not sent.
  bool http_1_0_ = false;
  bool chunked_ = false, streaming_ = false;
  bool request_open_ = false;  // Counted in requests_open.
  std::shared_ptr<Observer> observer_;
  std::shared_ptr<const void> held_;

  std::deque<std::string> out_;
  std::size_t sent_of_front_ = 0, unsent_ = 0;  // Bytes.
  bool writing_ = false;
};

}  // namespace lode::serve
