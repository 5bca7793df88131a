#include "cli/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

namespace lode::cli {
namespace {

constexpr const char* kSpace = "shared";       // Of the arms that reuse each other's KV.
constexpr const char* kTogether = "together";  // Of `batched`, which so begins cold.
constexpr int kNoise = 2;                      // Other requests in flight in `batched`.
constexpr int kPeers = 2;                      // Questions in flight there: one computes the prefix, one waits for it.
constexpr std::int64_t kNoiseTokens = 48;

// One run over all arms of one target.
class Run {
 public:
  Run(AuditTarget& target, const AuditInput& input, const AuditProgress& progress, const AuditPrompts& prompts)
      : target_(target), input_(input), progress_(progress), prompts_(prompts) {}

  Result<AuditArm> run(Arm arm);

 private:
  Status ask_all(Arm arm, AuditArm& out);
  Status ask_together(AuditArm& out);
  Status before(Arm arm, std::size_t i);
  void check_reuse(Arm arm, AuditArm& out) const;
  Result<AuditAnswer> ask(const AuditPrompt& prompt, Arm arm, std::int64_t tokens, const char* space) {
    return target_.answer({.prompt = &prompt, .tokens_max = tokens, .arm = arm, .space = space});
  }

  AuditTarget& target_;
  const AuditInput& input_;
  const AuditProgress& progress_;
  const AuditPrompts& prompts_;
};

// What must have happened before a question is asked.
Status Run::before(Arm arm, std::size_t i) {
  LODE_RETURN_IF_ERROR(target_.next(arm));
  if (arm == Arm::warm && i == 0) return ask(prompts_.prefix, arm, 1, kSpace).status();
  // Somebody else's turn: what the question will reuse is no longer what was used last.
  if (arm == Arm::ram) return ask(prompts_.unrelated[i % prompts_.unrelated.size()], arm, 4, kSpace).status();
  return Status::success();
}

Status Run::ask_all(Arm arm, AuditArm& out) {
  for (std::size_t i = 0; i < prompts_.questions.size(); ++i) {
    progress_(fmt::format("{} {}", out.kv, out.name), i + 1, prompts_.questions.size());
    LODE_RETURN_IF_ERROR(before(arm, i));
    auto answer = ask(prompts_.questions[i], arm, input_.tokens, kSpace);
    if (!answer.ok()) return answer.status();
    out.questions.push_back({.answer = std::move(answer).value(), .difference = {}});
  }
  return Status::success();
}

// Questions in flight beside each other and beside other prompts, which are asked until the last question is answered.
Status Run::ask_together(AuditArm& out) {
  const std::size_t count = prompts_.questions.size();
  out.questions.resize(count);
  std::mutex mutex;
  Status failed;
  std::atomic<std::size_t> next{0};
  std::atomic<bool> over{false};
  const auto note = [&](const Status& status) {
    const std::lock_guard lock(mutex);
    if (failed.ok()) failed = status;
    over = true;
  };
  std::vector<std::thread> noise, workers;
  for (int n = 0; n < kNoise; ++n)
    noise.emplace_back([&, n] {
      for (std::size_t i = static_cast<std::size_t>(n); !over; i += kNoise) {
        const auto& prompt = prompts_.unrelated[i % prompts_.unrelated.size()];
        const auto answer = ask(prompt, Arm::batched, kNoiseTokens >> n, kTogether);
        if (!answer.ok()) return note(answer.status());
      }
    });
  for (int n = 0; n < kPeers; ++n)
    workers.emplace_back([&] {
      for (std::size_t i = next++; i < count && !over; i = next++) {
        {
          const std::lock_guard lock(mutex);
          progress_(fmt::format("{} {}", out.kv, out.name), i + 1, count);
        }
        auto answer = ask(prompts_.questions[i], Arm::batched, input_.tokens, kTogether);
        if (!answer.ok()) return note(answer.status());
        out.questions[i].answer = std::move(answer).value();
      }
    });
  for (auto& thread : workers) thread.join();
  over = true;
  for (auto& thread : noise) thread.join();
  return failed;
}

// An arm that did not go the way it is named for proves nothing about it.
void Run::check_reuse(Arm arm, AuditArm& out) const {
  const auto from = [&](const AuditAnswer& a) {
    if (a.from_ram < 0) return a.reused_tokens;  // Somebody else's server: where from, nobody knows.
    return arm == Arm::ssd ? a.from_disk : arm == Arm::warm || arm == Arm::ram ? a.from_ram : a.reused_tokens;
  };
  std::size_t unknown = 0, some = 0;
  for (const auto& q : out.questions) {
    unknown += from(q.answer) < 0;
    some += from(q.answer) > 0;
  }
  const std::size_t all = out.questions.size();
  if (unknown > 0) {
    out.remark = "the server does not say what it reused";
  } else if (arm == Arm::cold || arm == Arm::cold_again) {
    if (some > 0) out.remark = fmt::format("{} of {} answers reused something: they were not cold", some, all);
  } else if (some == 0 && arm != Arm::batched) {
    out.not_possible = "nothing was reused this way";
    out.questions.clear();
  } else if (some < all && arm != Arm::batched) {
    out.remark = fmt::format("{} of {} answers reused nothing this way", all - some, all);
  }
}

Result<AuditArm> Run::run(Arm arm) {
  AuditArm out{.kv = target_.kv(), .name = std::string(arm_name(arm))};
  Status status = target_.prepare(arm);
  if (status.code() == Code::unsupported) {
    out.not_possible = status.message();
    return out;
  }
  if (status.ok()) status = arm == Arm::batched ? ask_together(out) : ask_all(arm, out);
  if (status.code() == Code::cancelled) return status;
  if (!status.ok()) {
    out.failure = status.message();
    out.questions.clear();
    return out;
  }
  check_reuse(arm, out);
  return out;
}

// Compares an arm with the cold one.
void compare(const AuditArm& cold, AuditArm& arm) {
  for (std::size_t i = 0; i < arm.questions.size(); ++i)
    arm.questions[i].difference = compare_answers(cold.questions[i].answer, arm.questions[i].answer);
}

}  // namespace

Status audit(AuditTarget& target, const AuditInput& input, const AuditProgress& progress, AuditReport& report) {
  const auto prompts = target.prompts(input);
  if (!prompts.ok()) return prompts.status();
  if (report.target.empty()) report.target = target.description();
  report.prefix = prompts->description;
  report.tokens = input.tokens;
  Run run(target, input, progress, *prompts);
  auto cold = run.run(Arm::cold);
  if (!cold.ok()) return cold.status();
  if (!cold->failure.empty()) {
    report.references.emplace_back(std::move(cold).value(), allowed_difference(0));
    return Status::success();
  }
  double cold_against_cold = 0;
  std::vector<AuditArm> arms;
  for (const Arm arm : kArms) {
    if (arm == Arm::cold) continue;
    auto done = run.run(arm);
    if (!done.ok()) return done.status();
    compare(*cold, *done);
    if (arm == Arm::cold_again)
      for (const auto& q : done->questions) cold_against_cold = std::max(cold_against_cold, q.difference.first_token);
    arms.push_back(std::move(done).value());
  }
  const double allowed = allowed_difference(cold_against_cold);
  for (AuditArm& arm : arms) {
    for (AuditQuestion& q : arm.questions) q.verdict = judge(q.difference, allowed);
    report.arms.push_back(std::move(arm));
  }
  report.references.emplace_back(std::move(cold).value(), allowed);
  return Status::success();
}

int exit_code(const AuditReport& report) {
  if (report.any_wrong()) return kAuditWrong;
  return report.any_failed() ? kAuditFailed : kAuditClean;
}

}  // namespace lode::cli
