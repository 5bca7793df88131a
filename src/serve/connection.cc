#include "serve/connection.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/status.hpp>
#include <cctype>

#include "serve/api_error.h"

namespace lode::serve {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using Error = boost::system::error_code;

constexpr std::size_t kReadBytes = 16 << 10;
// What a client may send ahead of our answer. More than this is not pipelining but abuse, and it would blind the watch
// for its disconnect.
constexpr std::size_t kAheadBytesMax = 64 << 10;
constexpr std::size_t kMergeBytes = 16 << 10;  // Queued events are joined up to this size: fewer system calls.

Time now() {
  return std::chrono::steady_clock::now();
}

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string api_key_of(const http::request<http::string_body>& message) {
  if (const auto it = message.find(http::field::authorization); it != message.end()) {
    const std::string_view value(it->value().data(), it->value().size());
    constexpr std::string_view kBearer = "bearer ";
    if (value.size() > kBearer.size() && lower(value.substr(0, kBearer.size())) == kBearer) {
      return std::string(value.substr(kBearer.size()));
    }
  }
  if (const auto it = message.find("X-Api-Key"); it != message.end())
    return std::string(it->value().data(), it->value().size());
  return {};
}

std::string header_of(const http::request<http::string_body>& message, http::field field) {
  const auto it = message.find(field);
  return it == message.end() ? std::string() : std::string(it->value().data(), it->value().size());
}

// RFC 9112, 6.3: where the last coding is not chunked nobody knows where the body ends, and what follows must not be
// taken for the next request. Other codings before it would need decoding. Both lengths at once are an attack, or a
// client that is not to be trusted with either.
bool has_unclear_length(const http::request<http::string_body>& message) {
  const auto [begin, end] = message.equal_range(http::field::transfer_encoding);
  if (begin == end) return false;
  const std::string_view value(begin->value().data(), begin->value().size());
  return std::next(begin) != end || lower(value) != "chunked" || message.version() < 11 ||
         message.count(http::field::content_length) > 0;
}

HttpRequest to_request(http::request<http::string_body>&& message) {
  HttpRequest request;
  request.method = std::string(message.method_string().data(), message.method_string().size());
  const std::string_view target(message.target().data(), message.target().size());
  const std::size_t mark = target.find('?');
  request.path = std::string(target.substr(0, mark));
  if (mark != std::string_view::npos) request.query = std::string(target.substr(mark + 1));
  if (const auto it = message.find(http::field::content_type); it != message.end()) {
    std::string_view type(it->value().data(), it->value().size());
    type = type.substr(0, type.find(';'));
    while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
    request.content_type = lower(type);
  }
  if (const auto it = message.find(http::field::content_encoding); it != message.end()) {
    request.content_encoding = lower({it->value().data(), it->value().size()});
    if (request.content_encoding == "identity") request.content_encoding.clear();
  }
  request.origin = header_of(message, http::field::origin);
  request.asked_headers = header_of(message, http::field::access_control_request_headers);
  request.api_key = api_key_of(message);
  request.body = std::move(message.body());
  return request;
}

std::string_view reason(int status) {
  const auto s = http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status)));
  return {s.data(), s.size()};
}

}  // namespace

Connection::Connection(Socket socket, std::shared_ptr<TlsContext> tls, const ConnectionOptions& options,
                       const Handler& handler, HttpCounters& counters)
    : stream_(std::move(socket), std::move(tls)),
      options_(options),
      handler_(handler),
      counters_(counters),
      timer_(stream_.socket().get_executor()),
      read_room_(kReadBytes),
      in_(options.header_bytes_max + kAheadBytesMax + kReadBytes) {
  counters_.connections_open.fetch_add(1);
}

Connection::~Connection() {
  count_open(-1);
  counters_.connections_open.fetch_sub(1);
}

void Connection::start() {
  post([this] {
    Error ignored;
    Socket& socket = stream_.socket();
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    if (options_.send_buffer_bytes != 0) {
      socket.set_option(asio::socket_base::send_buffer_size(static_cast<int>(options_.send_buffer_bytes)), ignored);
    }
    await_request();
    arm_tick();
    stream_.handshake([self = shared_from_this()](const Error& error) {
      if (error) self->shut();
      else if (self->state_ != State::closed) self->read_some();
    });
  });
}

void Connection::close(Close how) {
  post([this, how] {
    closing_ = true;
    if (state_ == State::closed) return;
    if (state_ == State::reading || state_ == State::lingering) return shut();
    if (how == Close::abandon) gone();
  });
}

void Connection::post(std::function<void()> fn) {
  asio::post(stream_.socket().get_executor(), [self = shared_from_this(), fn = std::move(fn)] { self->guarded(fn); });
}

// ---- Reading

void Connection::await_request() {
  state_ = State::reading;
  parser_.emplace();
  parser_->eager(true);
  parser_->header_limit(static_cast<std::uint32_t>(options_.header_bytes_max));
  parser_->body_limit(options_.body_bytes_max);
  continue_sent_ = false;
  read_deadline_ = now() + options_.read_timeout;
}

// One read is always pending, in every state but closed: that is how a client's leaving is noticed.
void Connection::read_some() {
  stream_.read_some(asio::buffer(read_room_), [self = shared_from_this()](const Error& error, std::size_t bytes) {
    self->on_read(error, bytes);
  });
}

void Connection::on_read(const Error& error, std::size_t bytes) {
  if (state_ == State::closed) return;
  if (error) {
    const bool answering = state_ == State::answering || state_ == State::sending;
    return answering ? gone() : shut();
  }
  in_.commit(asio::buffer_copy(in_.prepare(bytes), asio::buffer(read_room_, bytes)));
  if (state_ == State::reading) feed();
  else if (state_ == State::lingering) in_.consume(in_.size());
  else if (in_.size() > kAheadBytesMax) return gone();
  if (state_ != State::closed) read_some();
}

void Connection::feed() {
  while (state_ == State::reading && in_.size() > 0) {
    Error error;
    const std::size_t used = parser_->put(in_.data(), error);
    in_.consume(used);
    if (error == http::error::need_more) break;
    if (error) return reject(error);
    if (parser_->is_header_done() && has_unclear_length(parser_->get()))
      return reject(invalid_field("",
                                  "the length of the request's body is not clear: send it with Content-Length alone, "
                                  "or with 'Transfer-Encoding: chunked' alone"));
    if (parser_->is_done()) return dispatch();
    if (used == 0) break;
  }
  if (state_ != State::reading || parser_->is_done() || !parser_->is_header_done() || continue_sent_) return;
  const auto it = parser_->get().find(http::field::expect);
  if (it == parser_->get().end() || lower({it->value().data(), it->value().size()}) != "100-continue") return;
  continue_sent_ = true;
  enqueue("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::dispatch() {
  received_ = now();
  keep_alive_ = parser_->get().keep_alive() && !closing_;
  http_1_0_ = parser_->get().version() < 11;
  request_ = to_request(parser_->release());
  head_only_ = request_.method == "HEAD";
  chunked_ = streaming_ = false;
  state_ = State::answering;
  counters_.requests.fetch_add(1);
  count_open(+1);
  guarded([this] { handler_(shared_from_this()); });
}

// A library's exception (out of memory, say) ends this request, never the server.
void Connection::guarded(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const std::exception& e) {
    spdlog::error("internal error while answering {}: {}", request_.method, e.what());
    if (state_ != State::answering) return;
    if (const auto observer = std::move(observer_)) observer->on_gone();  // Its work is for nobody now.
    if (streaming_) return abort_stream();
    reply(error_reply(request_, ApiError{.message = "internal error"}));
  }
}

// The bytes are not a request: say so, and close, since nobody knows where the next request would start.
void Connection::reject(const Error& error) {
  ApiError answer = invalid_field("", fmt::format("not a valid HTTP request: {}", error.message()));
  if (error == http::error::body_limit) {
    answer.http_status = 413;
    answer.message = fmt::format("the request body is larger than {} bytes", options_.body_bytes_max);
  } else if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    answer.http_status = 431;
    answer.message = fmt::format("the request headers are larger than {} bytes", options_.header_bytes_max);
  }
  reject(answer);
}

void Connection::reject(const ApiError& answer) {
  keep_alive_ = false;
  request_ = {};
  head_only_ = streaming_ = false;
  state_ = State::answering;
  in_.consume(in_.size());
  reply(to_reply(answer));
}

// ---- Answering

std::string Connection::cors_headers() const {
  const auto& allowed = options_.cors_origins;
  if (allowed.empty()) return {};
  // Another origin gets another answer, and no cache may mix them up.
  std::string out = "Vary: Origin\r\n";
  for (const std::string& origin : allowed) {
    if (origin != "*" && origin != request_.origin) continue;
    if (request_.origin.empty()) break;
    return out + fmt::format("Access-Control-Allow-Origin: {}\r\n", origin);
  }
  return out;
}

void Connection::send_head(int status, std::string_view content_type, const HttpReply* reply) {
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\nServer: lode\r\nContent-Type: {}\r\n", status, reason(status), content_type);
  if (reply != nullptr) {
    for (const auto& [name, value] : reply->headers) head += fmt::format("{}: {}\r\n", name, value);
    head += fmt::format("Content-Length: {}\r\n", reply->body.size());
  } else {
    head += "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n";  // The latter: proxies must pass events on at once.
    if (chunked_) head += "Transfer-Encoding: chunked\r\n";
  }
  head += cors_headers();
  if (!keep_alive_) head += "Connection: close\r\n";
  else if (http_1_0_) head += "Connection: keep-alive\r\n";
  head += "\r\n";
  if (reply != nullptr && !head_only_) head += reply->body;
  counters_.count_reply(status);
  enqueue(std::move(head));
}

void Connection::reply(HttpReply reply) {
  if (state_ != State::answering || streaming_) return;
  send_head(reply.status, reply.content_type, &reply);
  finish_answer();
}

void Connection::begin_stream(std::string_view content_type) {
  if (state_ != State::answering || streaming_) return;
  streaming_ = true;
  chunked_ = !http_1_0_;
  if (http_1_0_) keep_alive_ = false;  // Only the end of the connection can end a body of unknown length there.
  send_head(200, content_type, nullptr);
}

void Connection::write(std::string_view bytes) {
  if (state_ != State::answering || !streaming_ || bytes.empty()) return;
  enqueue(chunked_ ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : std::string(bytes));
  if (unsent_ > options_.unsent_bytes_max) {
    counters_.clients_slow.fetch_add(1);
    spdlog::warn("a client left {} bytes of its stream unread: dropped", unsent_);
    gone();
  }
}

void Connection::end_stream() {
  if (state_ != State::answering || !streaming_) return;
  if (chunked_) enqueue("0\r\n\r\n");
  finish_answer();
}

void Connection::abort_stream() {
  if (state_ != State::answering || !streaming_) return;
  keep_alive_ = false;
  finish_answer();
}

void Connection::observe(std::shared_ptr<Observer> observer) {
  if (state_ == State::answering) observer_ = std::move(observer);
}

void Connection::finish_answer() {
  state_ = State::sending;
  observer_.reset();
  if (out_.empty()) answer_sent();
}

void Connection::answer_sent() {
  count_open(-1);
  request_ = {};
  held_.reset();
  if (!keep_alive_ || closing_) return linger();
  await_request();
  feed();  // The client may have sent the next one already.
}

void Connection::enqueue(std::string bytes) {
  unsent_ += bytes.size();
  // The front may be in the middle of a write and must not move.
  if (out_.size() > 1 && out_.back().size() + bytes.size() <= kMergeBytes) out_.back() += bytes;
  else out_.push_back(std::move(bytes));
  if (!writing_) {
    write_deadline_ = now() + options_.write_timeout;
    write_some();
  }
}

void Connection::write_some() {
  writing_ = true;
  const std::string& front = out_.front();
  stream_.write_some(
      asio::buffer(front.data() + sent_of_front_, front.size() - sent_of_front_),
      [self = shared_from_this()](const Error& error, std::size_t bytes) { self->on_written(error, bytes); });
}

void Connection::on_written(const Error& error, std::size_t bytes) {
  writing_ = false;
  if (state_ == State::closed) return;
  if (error) return gone();
  write_deadline_ = now() + options_.write_timeout;
  unsent_ -= bytes;
  sent_of_front_ += bytes;
  if (sent_of_front_ == out_.front().size()) {
    out_.pop_front();
    sent_of_front_ = 0;
  }
  if (!out_.empty()) write_some();
  else if (state_ == State::sending) answer_sent();
}

// ---- Time and the end

void Connection::arm_tick() {
  timer_.expires_after(options_.tick);
  timer_.async_wait([self = shared_from_this()](const Error& error) {
    if (!error) self->on_tick();
  });
}

void Connection::on_tick() {
  if (state_ == State::closed) return;
  const Time t = now();
  if (writing_ && t > write_deadline_) {
    counters_.clients_slow.fetch_add(1);
    return gone();
  }
  if (state_ == State::lingering && t > linger_deadline_) return shut();
  if (state_ == State::reading && t > read_deadline_) {
    if (in_.size() == 0 && !parser_->is_header_done()) return shut();  // Idle between requests.
    counters_.clients_slow.fetch_add(1);
    keep_alive_ = false;
    state_ = State::answering;
    reply(to_reply(ApiError{
        .http_status = 408, .message = "the request did not arrive in time", .type = "invalid_request_error"}));
  }
  if (const auto observer = observer_) observer->on_tick(t);
  if (state_ != State::closed) arm_tick();
}

void Connection::gone() {
  if (state_ == State::closed) return;
  if (state_ == State::answering) counters_.clients_gone.fetch_add(1);
  const auto observer = std::move(observer_);
  shut();
  if (observer) observer->on_gone();
}

void Connection::linger() {
  stream_.shutdown_send(shared_from_this());
  state_ = State::lingering;
  linger_deadline_ = now() + options_.linger;
  in_.consume(in_.size());
}

void Connection::shut() {
  state_ = State::closed;
  count_open(-1);
  observer_.reset();
  stream_.close();
  timer_.cancel();
}

void Connection::count_open(std::int64_t by) {
  if ((by > 0) == request_open_) return;
  request_open_ = by > 0;
  counters_.requests_open.fetch_add(by);
}

}  // namespace lode::serve
