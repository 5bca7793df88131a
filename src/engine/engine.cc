#include "engine/engine.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "engine/runtime.h"
#include "engine/stepper.h"

namespace lode::engine {
namespace {

// How long an idle step thread sleeps before it lets the store seal extents and collect completions.
constexpr auto kIdlePoll = std::chrono::milliseconds(100);
// The same while sequences wait for a peer or for the disk.
constexpr auto kWaitPoll = std::chrono::milliseconds(1);
// The same while work waits for something, such as a write.
constexpr auto kWorkPoll = std::chrono::milliseconds(5);

// The thread-safe shell: an inbox in front of the Stepper, which only the step thread touches.
class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(std::unique_ptr<Runtime> rt, const EngineOptions& options)
      : rt_(std::move(rt)), queue_max_(options.queue_max), stepper_(*rt_, platform::system_clock()) {
    publish_stats();
    thread_ = std::thread([this] { loop(); });
  }
  ~EngineImpl() override { stop(0); }

  const EngineInfo& info() const override { return rt_->info; }
  const text::Tokenizer& tokenizer() const override { return *rt_->tokenizer; }
  Result<RequestId> submit(Request request, EventSink sink) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;
  Status run_inside(std::function<Work(Inside*)> work) override;
  void stop(std::int64_t drain_ms) override;

 private:
  struct Command {
    std::unique_ptr<Live> request;  // Null: cancel `id`.
    RequestId id = 0;
  };
  Status check(const Request& request) const;
  void loop();
  bool take_commands();
  bool do_work();
  void end_work();
  void publish_stats();
  // Requests without a slot. mutex_ held: a request is always in the inbox, in the stepper's queue, or in a slot.
  std::int64_t waiting() const { return inbox_requests_ + stepper_.queued(); }

  std::unique_ptr<Runtime> rt_;
  const std::int32_t queue_max_;
  Stepper stepper_;                                 // Step thread only,
  std::vector<std::function<Work(Inside*)>> work_;  // and so is this.

  mutable std::mutex mutex_;  // Guards what follows.
  std::condition_variable wake_;
  std::deque<Command> inbox_;
  std::int64_t inbox_requests_ = 0;  // Of them.
  RequestId next_id_ = 1;
  bool stopping_ = false;
  std::int64_t drain_deadline_ns_ = 0;
  std::vector<std::function<Work(Inside*)>> new_work_;
  EngineStats stats_;
  std::mutex stop_mutex_;  // One stop() at a time.
  std::thread thread_;
};

Status EngineImpl::check(const Request& request) const {
  const auto n = static_cast<std::int64_t>(request.prompt.size());
  if (n == 0) return Status::invalid("the prompt is empty; send at least one token");
  for (TokenId id : request.prompt)
    if (id < 0 || id >= rt_->info.vocab)
      return Status::invalid(fmt::format("prompt token {}: expected an id from 0 to {}", id, rt_->info.vocab - 1));
  if (n >= rt_->info.context_max)
    return Status::invalid(
        fmt::format("the prompt has {} tokens but the context holds {}, the answer included; shorten the prompt or "
                    "start the server with a larger -c",
                    n, rt_->info.context_max));
  return Status::success();
}

Result<RequestId> EngineImpl::submit(Request request, EventSink sink) {
  LODE_RETURN_IF_ERROR(check(request));
  const std::int64_t now = platform::system_clock().now_ns();
  const std::lock_guard lock(mutex_);
  if (stopping_) return Status(Code::unavailable, "the server is stopping");
  if (waiting() >= queue_max_)
    return Status(Code::unavailable, fmt::format("{} requests are waiting already; try again later", waiting()));
  const RequestId id = next_id_++;
  ++inbox_requests_;
  inbox_.push_back({std::make_unique<Live>(id, std::move(request), std::move(sink), *rt_->tokenizer, now), id});
  wake_.notify_one();
  return id;
}

void EngineImpl::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  inbox_.push_back({nullptr, id});
  wake_.notify_one();
}

Status EngineImpl::run_inside(std::function<Work(Inside*)> work) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return Status(Code::unavailable, "the server is stopping");
  new_work_.push_back(std::move(work));
  wake_.notify_one();
  return Status::success();
}

// One call of each. True: some is left.
bool EngineImpl::do_work() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& work : new_work_) work_.push_back(std::move(work));
    new_work_.clear();
  }
  if (work_.empty()) return false;
  Inside inside{*rt_->store, stepper_.slots()};
  std::erase_if(work_, [&](auto& work) { return work(&inside) == Work::done; });
  return !work_.empty();
}

void EngineImpl::end_work() {
  const std::lock_guard lock(mutex_);
  for (auto* all : {&work_, &new_work_}) {
    for (auto& work : *all) work(nullptr);
    all->clear();
  }
}

EngineStats EngineImpl::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats now = stats_;  // As of the last step; who waits and who runs, as of now.
  now.queued = waiting();
  now.slots_busy = stepper_.running();
  return now;
}

void EngineImpl::stop(std::int64_t drain_ms) {
  const std::lock_guard once(stop_mutex_);
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    drain_deadline_ns_ = platform::system_clock().now_ns() + drain_ms * 1'000'000;
    wake_.notify_one();
  }
  thread_.join();
}

// Moves the inbox into the stepper. False: time to end.
bool EngineImpl::take_commands() {
  std::vector<RequestId> cancelled;  // Each after the request that it names. Cancelling calls sinks: not with the lock.
  bool over = false;
  {
    const std::lock_guard lock(mutex_);
    for (Command& c : inbox_) {
      if (c.request) stepper_.enqueue(std::move(c.request));
      else cancelled.push_back(c.id);
    }
    inbox_.clear();
    inbox_requests_ = 0;
    over = stopping_ && platform::system_clock().now_ns() >= drain_deadline_ns_;
  }
  for (const RequestId id : cancelled) stepper_.cancel(id);
  if (over) stepper_.cancel_all();
  const std::lock_guard lock(mutex_);
  return !(stopping_ && inbox_.empty() && stepper_.idle());
}

void EngineImpl::loop() {
  std::int64_t published = 0;
  while (take_commands()) {
    const std::int64_t before = stepper_.running() + stepper_.queued();
    const bool progressed = stepper_.step();
    const bool working = do_work();
    const std::int64_t now = platform::system_clock().now_ns();
    if (stepper_.running() + stepper_.queued() != before || now - published > 50'000'000) {
      publish_stats();
      published = now;
    }
    if (progressed) continue;
    std::unique_lock lock(mutex_);
    const bool idle = stepper_.idle();
    if (idle)
      wake_.wait_for(lock, working ? kWorkPoll : kIdlePoll,
                     [&] { return !inbox_.empty() || !new_work_.empty() || stopping_; });
    else wake_.wait_for(lock, kWaitPoll, [&] { return !inbox_.empty(); });
  }
  end_work();
  // Published blocks outlive the process: 30 s is enough for a full write queue on a slow disk.
  rt_->store->flush(30'000);
  publish_stats();
}

void EngineImpl::publish_stats() {
  kv::StoreStats kv = rt_->store->stats();
  const StepCounters& c = stepper_.counters();
  const std::lock_guard lock(mutex_);
  stats_ = {.kv = std::move(kv),
            .experts = rt_->experts ? std::optional(rt_->experts->stats()) : std::nullopt,
            .steps = c.steps,
            .tokens_prefilled = c.tokens_prefilled,
            .tokens_generated = c.tokens_generated,
            .requests = c.requests,
            .requests_failed = c.failed,
            .requests_cancelled = c.cancelled,
            .preemptions = c.preemptions};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineOptions& options) {
  const std::int64_t start = platform::system_clock().now_ns();
  auto rt = make_runtime(options);
  if (!rt.ok()) return rt.status();
  rt.value()->info.load_ms = static_cast<double>(platform::system_clock().now_ns() - start) / 1e6;
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(std::move(rt).value(), options));
}

}  // namespace lode::engine
