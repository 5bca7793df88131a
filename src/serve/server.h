// The HTTP server: listens, keeps connections, routes requests to the engine once there is one. Owns the listening
// socket, the io threads and all connections. Its functions may be called from any thread.
//
// Life: start() (answers 503 "loading" at once) -> set_engine() -> stop_accepting() -> the owner stops the engine ->
// finish(). The engine must be stopped before the server is destroyed, and outlive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "serve/connection_options.h"
#include "serve/metrics.h"
#include "text/chat/chat_template.h"

namespace lode::serve {

// The model's chat template, or why it has none that can be used.
using ChatResult = Result<std::shared_ptr<const text::ChatTemplate>>;
// The template in `source`; where that is empty, the model's own. not_found where there is neither.
ChatResult load_chat_template(const engine::Engine& engine, std::string source);

struct ServerOptions {
  std::string host = "127.0.0.1";  // A name or an address.
  std::uint16_t port = 8080;       // 0: any free one.
  int io_threads = 2;
  int connections_max = 512;
  ConnectionOptions connection;
  std::chrono::milliseconds heartbeat{1000};  // A stream is never silent for longer.
  std::string build_info = "lode";            // For /props.
  std::string slot_save_path;                 // Folder of slot files; empty: slots are neither saved nor restored.
  std::vector<std::string> api_keys;  // Empty: everybody is let in. With several, each has its own KV namespace.
};

class Server {
 public:
  // Binds and answers from then on. Errors name the address and say what to do (a port that is taken, say).
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  const HttpCounters& counters() const;

  void set_loading(std::string stage);  // What /health says meanwhile: "reading weights", ...
  // `chat`: what answers /v1/chat/completions, or the reason that clients are told.
  void set_engine(engine::Engine& engine, ChatResult chat);

  // Closes the listening socket and idle connections; new requests on others get 503. Running ones go on.
  void stop_accepting();
  // Waits up to `flush` for answers to be sent, then closes every connection and ends the io threads.
  void finish(std::chrono::milliseconds flush);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lode::serve
