// One HTTP request and the means to answer it, without a word about sockets. Handlers and jobs see only this.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lode::serve {

using Time = std::chrono::steady_clock::time_point;

struct HttpRequest {
  std::string method, path;      // Path without the query.
  std::string query;             // What follows the path's '?', as it was sent.
  std::string content_type;      // Lower case, without parameters.
  std::string content_encoding;  // Lower case; empty for none and identity.
  std::string api_key;           // From "Authorization: Bearer K" or "X-Api-Key: K".
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// Something that goes on after its handler returned. Called on the exchange's strand.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_gone() = 0;          // The client has left, or was too slow and was dropped. Nothing follows.
  virtual void on_tick(Time now) = 0;  // A few times a second while the answer is not finished.
};

// One request being answered, exactly once: reply(), or begin_stream() write()* end_stream(). All but post() are called
// on the exchange's strand (handlers run there). Calls after the client has gone do nothing.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // The request's body, moved out: for work that goes on elsewhere. request().body is empty from then on.
  virtual std::string take_body() = 0;
  virtual Time received() const = 0;  // When the last byte of the request was read.

  virtual void reply(HttpReply reply) = 0;
  virtual void begin_stream(std::string_view content_type) = 0;
  // Queues bytes. When a slow client leaves more than ServerOptions::unsent_bytes_max unsent, it is dropped and the
  // observer told, so a queue never grows without bound.
  virtual void write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;
  // Ends an unfinished stream by closing the connection, once what is queued has been sent.
  virtual void abort_stream() = 0;

  // Keeps the observer alive until the answer is finished or the client gone.
  virtual void observe(std::shared_ptr<Observer> observer) = 0;
  // Any thread: runs `fn` on the strand.
  virtual void post(std::function<void()> fn) = 0;
};

}  // namespace lode::serve
