// Several models behind one server, one of them in memory at a time: loads the model that a request names once the
// requests of the one before it have ended, and lets go of that one first. What the old one has published of its KV is
// on the SSD tier by then, and is found there when it comes back. Owns the engines and the thread that swaps them.
//
// Requests are served in the order in which they came, except that all that wait for a model run as soon as it is
// there; nobody starves. Life: the constructor -> start() -> stop() -> the server's finish() -> the destructor.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "serve/http.h"
#include "serve/server.h"

namespace lode::serve {

struct ModelEntry {
  std::string name;  // What clients call it.
  std::filesystem::path file;
};

// The models that command-line arguments mean: a GGUF file is itself, a folder all GGUF files right in it by name (of a
// split one the first part). A model's name is its file's without ".gguf" and the number of the part. Errors:
// not_found, and invalid for two of one name.
Result<std::vector<ModelEntry>> find_models(const std::vector<std::string>& arguments);

struct LoadedModel {
  std::unique_ptr<engine::Engine> engine;
  ChatResult chat;
};

class ModelHost {
 public:
  using Loader = std::function<Result<LoadedModel>(const ModelEntry&)>;
  // `load` runs on the host's thread. `waiting_max`: requests that wait for a model; more are refused.
  ModelHost(std::vector<ModelEntry> entries, Loader load, std::size_t waiting_max = 256);
  ~ModelHost();

  // What is told of a model that came, and before one goes. Called on the host's thread while nobody uses a model.
  struct Hooks {
    std::function<void(engine::Engine&, ChatResult)> loaded;
    std::function<void()> unloading;
  };
  void start(Hooks hooks);

  // Calls `handle` on the exchange's strand once the model is there, which then stays until the answer is finished or
  // nobody works for it any more. An empty name is the model that is there, or else the first. Otherwise answers: 404
  // for a name that is unknown, 503 where too many wait or the server stops, and what loading fails with. On the
  // strand.
  void run_with(const std::string& name, const std::shared_ptr<Exchange>& exchange, std::function<void()> handle);

  // Any thread.
  struct State {
    std::string name;
    enum class Is { unloaded, loading, loaded } is = Is::unloaded;
    std::optional<engine::EngineInfo> info;  // Once it has been loaded for the first time.
  };
  std::vector<State> models() const;
  std::optional<engine::EngineStats> stats() const;  // Of the model that is there.

  // Refuses what waits and what comes, and stops the engine as Engine::stop does. The engine goes with the destructor.
  void stop(std::int64_t drain_ms);

 private:
  class Lease;
  class Waiting;

  void run();
  bool due() const;  // Something waits for the model that is there, or that one is free to go.
  void swap(std::unique_lock<std::mutex>& lock);
  void dispatch(const std::shared_ptr<Waiting>& waiting);
  void release();
  void forget(const Waiting* waiting);
  std::optional<std::size_t> find(const std::string& name) const;

  const std::vector<ModelEntry> entries_;
  const Loader load_;
  const std::size_t waiting_max_;
  Hooks hooks_;

  mutable std::mutex mutex_;  // Guards all below.
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Waiting>> waiting_;
  std::optional<std::size_t> resident_, loading_;
  LoadedModel loaded_;
  std::vector<std::optional<engine::EngineInfo>> infos_;
  std::size_t leases_ = 0;  // Of the resident model.
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lode::serve
