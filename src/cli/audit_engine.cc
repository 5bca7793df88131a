// An audit's own engines: one that keeps nothing for the cold runs, one with a KV folder for the others, and a new one
// over that folder for each restart.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>

#include "cli/audit_target.h"
#include "cli/temporary_folder.h"
#include "kv/extent_file.h"
#include "kv/key.h"
#include "plan/plan.h"
#include "platform/file_system.h"

namespace lode::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

// One request's events, put together on the step thread; waited for elsewhere.
class Gathering {
 public:
  void take(engine::Event&& event) {
    const std::lock_guard lock(mutex_);
    answer_.text += event.text;
    for (const engine::TokenInfo& token : event.tokens) {
      if (answer_.steps.empty())
        answer_.first_token_s = std::chrono::duration<double>(SteadyClock::now() - begin_).count();
      AuditStep& step = answer_.steps.emplace_back();
      step.token = std::to_string(token.id);
      step.text = token.bytes.empty() ? step.token : token.bytes;
      for (const auto& [id, logprob] : token.top) step.top.emplace_back(std::to_string(id), logprob);
    }
    if (event.kind != engine::Event::Kind::finished && event.kind != engine::Event::Kind::failed) return;
    answer_.prompt_tokens = event.reuse.prompt_tokens;
    answer_.reused_tokens = event.reuse.tokens_reused;
    answer_.from_ram = event.reuse.from_ram;
    answer_.from_disk = event.reuse.from_disk;
    answer_.from_in_flight = event.reuse.from_in_flight;
    if (event.kind == engine::Event::Kind::failed) status_ = event.error;
    else if (event.finish == engine::FinishReason::cancelled) status_ = Status(Code::cancelled, "interrupted");
    over_ = true;
    changed_.notify_all();
  }
  Result<AuditAnswer> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
    if (!status_.ok()) return status_;
    return std::move(answer_);
  }

 private:
  const SteadyClock::time_point begin_ = SteadyClock::now();
  std::mutex mutex_;
  std::condition_variable changed_;
  AuditAnswer answer_;
  Status status_;
  bool over_ = false;
};

class EngineTarget final : public AuditTarget {
 public:
  explicit EngineTarget(const AuditEngineOptions& options) : options_(options) {}

  Status open();
  std::string description() const override { return description_; }
  std::string kv() const override {
    const auto k = plan::kv_type_name(options_.engine.k_type), v = plan::kv_type_name(options_.engine.v_type);
    return k == v ? std::string(k) : fmt::format("{}/{}", k, v);
  }
  Result<AuditPrompts> prompts(const AuditInput& input) override {
    auto made = prompts_for(engine_->info(), engine_->tokenizer(), input);
    if (made.ok()) prefix_ = made->prefix;
    return made;
  }
  Status prepare(Arm arm) override;
  Status next(Arm arm) override { return arm == Arm::ssd ? start(Keep::everything) : Status::success(); }
  Result<AuditAnswer> answer(const AuditAsk& ask) override;
  bool interrupt() override;

 private:
  enum class Keep : std::uint8_t { nothing, everything };
  Status start(Keep keep);
  Status falsify();

  const AuditEngineOptions options_;
  std::string description_;
  AuditPrompt prefix_;
  TemporaryFolder folder_;
  std::mutex mutex_;  // Guards the engine's pointer, not its use, and what follows.
  std::unique_ptr<engine::Engine> engine_;
  std::set<engine::RequestId> running_;
  bool interrupted_ = false;
};

Status EngineTarget::open() {
  const std::string& parent = options_.engine.kv_disk;
  if (parent != "off") {
    auto folder = parent.empty() ? TemporaryFolder::make("lode-audit") : TemporaryFolder::make("lode-audit", parent);
    if (!folder.ok()) return folder.status();
    folder_ = std::move(folder).value();
  }
  LODE_RETURN_IF_ERROR(start(Keep::nothing));
  const engine::EngineInfo& info = engine_->info();
  description_ =
      fmt::format("{}, {}, {} threads, context {} tokens", info.description, info.isa, info.threads, info.context_max);
  return Status::success();
}

// Ends the engine that runs, which writes what it keeps, and loads the model anew.
Status EngineTarget::start(Keep keep) {
  {
    std::unique_ptr<engine::Engine> old;
    const std::lock_guard lock(mutex_);
    if (interrupted_) return Status(Code::cancelled, "interrupted");
    old = std::move(engine_);
  }
  engine::EngineOptions options = options_.engine;
  options.vocabulary = engine::EngineOptions::Vocabulary::optional;
  options.kv_disk = keep == Keep::everything && !folder_.path().empty() ? folder_.path().string() : "off";
  if (keep == Keep::nothing) options.kv_ram = "0";
  auto created = engine::Engine::create(options);
  if (!created.ok()) return created.status();
  const std::lock_guard lock(mutex_);
  engine_ = std::move(created).value();
  return Status::success();
}

Status EngineTarget::prepare(Arm arm) {
  switch (arm) {
    case Arm::cold: return engine_ ? Status::success() : start(Keep::nothing);
    case Arm::cold_again: return Status::success();
    case Arm::warm: return start(Keep::everything);
    case Arm::ram: return Status::success();
    case Arm::ssd:
      if (folder_.path().empty()) return Status::unsupported("there is no KV folder (--kv-disk off)");
      if (options_.damage == AuditEngineOptions::Damage::one_block) return falsify();
      return Status::success();
    case Arm::batched:
      if (engine_->info().slots < 2) return Status::unsupported("the engine has one slot (-np 1)");
      return Status::success();
  }
  return Status::success();
}

// The last whole block of the prefix, which every question reads.
Status EngineTarget::falsify() {
  const std::string fingerprint = engine_->info().fingerprint;
  {
    const std::lock_guard lock(mutex_);
    engine_.reset();
  }
  const auto& ids = std::get<std::vector<TokenId>>(prefix_.text);
  const std::int64_t index = prefix_.prefix_tokens / kv::kBlockTokens - 1;
  const std::span<const TokenId, kv::kBlockTokens> block(ids.data() + index * kv::kBlockTokens, kv::kBlockTokens);
  auto& fs = platform::real_file_system();
  const auto changed = kv::falsify_block(fs, folder_.path() / fingerprint, index, block);
  if (!changed.ok()) return changed.status();
  if (*changed == 0)
    return Status::not_found(fmt::format("block {} of the prefix is in no file of {}", index, folder_.path().string()));
  return start(Keep::everything);
}

Result<AuditAnswer> EngineTarget::answer(const AuditAsk& ask) {
  engine::Request request;
  request.prompt = std::get<std::vector<TokenId>>(ask.prompt->text);
  request.max_tokens = static_cast<std::int32_t>(ask.tokens_max);
  request.sampling.temperature = 0;
  request.top_logprobs = 5;
  request.end_tokens = engine::Request::EndTokens::ignore;
  request.salt = ask.space;
  if (ask.prompt->prefix_tokens > 0) request.marks = {ask.prompt->prefix_tokens};
  const auto gathering = std::make_shared<Gathering>();
  engine::RequestId id = 0;
  {
    const std::lock_guard lock(mutex_);
    if (interrupted_) return Status(Code::cancelled, "interrupted");
    auto submitted =
        engine_->submit(std::move(request), [gathering](engine::Event&& event) { gathering->take(std::move(event)); });
    if (!submitted.ok()) return submitted.status();
    running_.insert(id = *submitted);
  }
  auto answer = gathering->wait();
  const std::lock_guard lock(mutex_);
  running_.erase(id);
  return answer;
}

bool EngineTarget::interrupt() {
  const std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (const engine::RequestId id : running_) engine_->cancel(id);
  return true;
}

}  // namespace

std::string_view arm_name(Arm arm) {
  switch (arm) {
    case Arm::cold: return "cold";
    case Arm::cold_again: return "cold again";
    case Arm::warm: return "warm";
    case Arm::ram: return "ram";
    case Arm::ssd: return "ssd";
    case Arm::batched: break;
  }
  return "batched";
}

Result<std::unique_ptr<AuditTarget>> open_audit_engine(const AuditEngineOptions& options) {
  auto target = std::make_unique<EngineTarget>(options);
  LODE_RETURN_IF_ERROR(target->open());
  return std::unique_ptr<AuditTarget>(std::move(target));
}

}  // namespace lode::cli
