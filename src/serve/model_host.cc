#include "serve/model_host.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "platform/file_system.h"
#include "serve/api_error.h"
#include "serve/route_tools.h"

namespace lode::serve {
namespace {

namespace fs = std::filesystem;

// The "-00002-of-00003" of a split model's part; -1: it is none.
int part_number(std::string_view stem) {
  constexpr std::size_t kLength = 15;  // "-00001-of-00003"
  if (stem.size() <= kLength) return -1;
  const std::string_view tail = stem.substr(stem.size() - kLength);
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-") return -1;
  int number = 0;
  for (const std::size_t i : {1u, 2u, 3u, 4u, 5u, 10u, 11u, 12u, 13u, 14u}) {
    if (tail[i] < '0' || tail[i] > '9') return -1;
    if (i < 10) number = 10 * number + (tail[i] - '0');
  }
  return number;
}

ModelEntry entry_of(const fs::path& file) {
  std::string name = file.stem().string();
  if (part_number(name) >= 0) name.resize(name.size() - 15);
  return {std::move(name), file};
}

Status add_folder(const fs::path& folder, std::vector<ModelEntry>& out) {
  const auto listed = platform::real_file_system().list(folder);
  if (!listed.ok()) return listed.status();
  std::vector<fs::path> files;
  for (const auto& one : *listed) {
    const fs::path name = one.name;
    const int part = part_number(name.stem().string());
    if (name.extension() == ".gguf" && part <= 1) files.push_back(folder / name);
  }
  std::sort(files.begin(), files.end());
  for (const auto& file : files) out.push_back(entry_of(file));
  if (files.empty()) return Status::not_found(fmt::format("there is no .gguf file in {}", folder.string()));
  return Status::success();
}

ApiError too_many() {
  return unavailable("too many requests wait for a model; try again later", "queue_full");
}

}  // namespace

Result<std::vector<ModelEntry>> find_models(const std::vector<std::string>& arguments) {
  std::vector<ModelEntry> out;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    if (fs::is_directory(argument, ignored)) LODE_RETURN_IF_ERROR(add_folder(argument, out));
    else out.push_back(entry_of(argument));
  }
  std::set<std::string> names;
  for (const ModelEntry& entry : out) {
    if (!names.insert(entry.name).second)
      return Status::invalid(fmt::format("two models are named '{}': clients could not tell them apart", entry.name));
    // One model alone is loaded at once, which says more. Of several, nobody would notice before a request names it.
    std::error_code ignored;
    if (out.size() > 1 && !fs::is_regular_file(entry.file, ignored))
      return Status::not_found(fmt::format("{}: no such model file", entry.file.string()));
  }
  return out;
}

// Held by an exchange while it may use the model.
class ModelHost::Lease {
 public:
  explicit Lease(ModelHost& host) : host_(host) {}
  ~Lease() { host_.release(); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  ModelHost& host_;
};

// A request that waits for its model. The exchange's strand and the host's thread share it.
class ModelHost::Waiting : public Observer {
 public:
  Waiting(ModelHost& host, std::size_t index, std::shared_ptr<Exchange> waiting_exchange, std::function<void()> then)
      : model(index), exchange(std::move(waiting_exchange)), handle(std::move(then)), host_(host) {}
  void on_gone() override {
    gone = true;
    host_.forget(this);
  }
  void on_tick(Time) override {}

  const std::size_t model;
  const std::shared_ptr<Exchange> exchange;
  const std::function<void()> handle;
  bool gone = false;  // Strand only.

 private:
  ModelHost& host_;
};

ModelHost::ModelHost(std::vector<ModelEntry> entries, Loader load, std::size_t waiting_max)
    : entries_(std::move(entries)),
      load_(std::move(load)),
      waiting_max_(waiting_max),
      loaded_{nullptr, Status(Code::unavailable, "no model is loaded")},
      infos_(entries_.size()) {}

ModelHost::~ModelHost() {
  stop(0);
}

void ModelHost::start(Hooks hooks) {
  hooks_ = std::move(hooks);
  thread_ = std::thread([this] { run(); });
}

std::optional<std::size_t> ModelHost::find(const std::string& name) const {
  if (name.empty()) return resident_ ? resident_ : loading_ ? loading_ : std::optional<std::size_t>(0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const ModelEntry& entry = entries_[i];
    // Also as the file's name or path: what a client may have been given for another server.
    if (name == entry.name || name == entry.file.filename().string() || name == entry.file.string()) return i;
  }
  return std::nullopt;
}

void ModelHost::run_with(const std::string& name, const std::shared_ptr<Exchange>& exchange,
                         std::function<void()> handle) {
  std::unique_lock lock(mutex_);
  const auto index = find(name);
  const auto refuse = [&](const ApiError& error) {
    lock.unlock();
    answer_error(exchange, error);
  };
  if (!index) {
    return refuse({.http_status = 404,
                   .message = fmt::format("no model '{}' here; GET /v1/models lists those that there are",
                                          valid_utf8(std::string_view(name).substr(0, 80))),
                   .type = "not_found_error",
                   .param = "model",
                   .code = "model_not_found"});
  }
  if (stopping_) return refuse(server_stopping());
  if (resident_ == index && waiting_.empty()) {
    ++leases_;
    lock.unlock();
    exchange->hold(std::make_shared<Lease>(*this));
    return handle();
  }
  if (waiting_.size() >= waiting_max_) return refuse(too_many());
  auto waiting = std::make_shared<Waiting>(*this, *index, exchange, std::move(handle));
  waiting_.push_back(waiting);
  lock.unlock();
  exchange->observe(waiting);
  changed_.notify_all();
}

void ModelHost::dispatch(const std::shared_ptr<Waiting>& waiting) {
  ++leases_;
  auto lease = std::make_shared<Lease>(*this);
  waiting->exchange->post([waiting, lease = std::move(lease)]() mutable {
    if (waiting->gone) return;
    waiting->exchange->hold(std::move(lease));
    waiting->handle();
  });
}

void ModelHost::release() {
  const std::lock_guard lock(mutex_);
  --leases_;
  changed_.notify_all();
}

void ModelHost::forget(const Waiting* waiting) {
  std::shared_ptr<Waiting> last;  // May hold the last word of its exchange: not under the lock.
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& one) { return one.get() == waiting; });
  if (at == waiting_.end()) return;
  last = std::move(*at);
  waiting_.erase(at);
  changed_.notify_all();  // What waited behind it may be for the model that is there.
}

bool ModelHost::due() const {
  return !waiting_.empty() && (leases_ == 0 || resident_ == waiting_.front()->model);
}

void ModelHost::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || due(); });
    if (stopping_) return;
    swap(lock);
  }
}

// Brings the model of the first that waits, and lets all run that wait for it.
void ModelHost::swap(std::unique_lock<std::mutex>& lock) {
  const std::size_t wanted = waiting_.front()->model;
  Status failed = Status::success();
  if (resident_ != wanted) {
    const bool one_goes = resident_.has_value();
    const auto begun = std::chrono::steady_clock::now();
    resident_.reset();
    loading_ = wanted;
    LoadedModel old = std::exchange(loaded_, {nullptr, Status(Code::unavailable, "no model is loaded")});
    lock.unlock();
    if (one_goes) hooks_.unloading();
    if (old.engine) old.engine->stop(0);  // Nobody uses it; its KV goes to the SSD.
    old.engine.reset();
    auto made = load_(entries_[wanted]);
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
    if (made.ok()) hooks_.loaded(*made->engine, made->chat);
    lock.lock();
    loading_.reset();
    if (made.ok()) {
      loaded_ = std::move(*made);
      infos_[wanted] = loaded_.engine->info();
      resident_ = wanted;
      spdlog::info("model {} is there after {:.0f} ms", entries_[wanted].name, ms);
    } else {
      failed = made.status();
      spdlog::error("model {} cannot be loaded: {}", entries_[wanted].name, failed.message());
    }
  }
  std::deque<std::shared_ptr<Waiting>> all = std::exchange(waiting_, {});
  std::vector<std::shared_ptr<Waiting>> refused;
  for (auto& one : all) {
    if (one->model != wanted) waiting_.push_back(std::move(one));
    else if (failed.ok()) dispatch(one);
    else refused.push_back(std::move(one));
  }
  lock.unlock();
  for (const auto& one : refused) {
    ApiError error = unavailable(
        fmt::format("the model '{}' cannot be loaded: {}", entries_[wanted].name, valid_utf8(failed.message())),
        "model_not_loaded");
    one->exchange->post([one, error] { answer_error(one->exchange, error); });
  }
  all.clear();
  refused.clear();
  lock.lock();
}

std::vector<ModelHost::State> ModelHost::models() const {
  const std::lock_guard lock(mutex_);
  std::vector<State> out;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const auto is = resident_ == i ? State::Is::loaded : loading_ == i ? State::Is::loading : State::Is::unloaded;
    out.push_back({entries_[i].name, is, infos_[i]});
  }
  return out;
}

std::optional<engine::EngineStats> ModelHost::stats() const {
  const std::lock_guard lock(mutex_);
  if (!resident_) return std::nullopt;
  return loaded_.engine->stats();
}

void ModelHost::stop(std::int64_t drain_ms) {
  std::deque<std::shared_ptr<Waiting>> waiting;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waiting = std::exchange(waiting_, {});
  }
  changed_.notify_all();
  for (const auto& one : waiting) {
    one->exchange->post([one] { answer_error(one->exchange, server_stopping()); });
  }
  if (thread_.joinable()) thread_.join();
  // The thread has ended: the engine stays until the destructor.
  if (loaded_.engine) loaded_.engine->stop(drain_ms);
}

}  // namespace lode::serve
