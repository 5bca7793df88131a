// Whom an audit asks: an engine of its own, made anew with each KV type, or somebody else's server. Owns what it makes,
// a temporary KV folder included. prepare() on one thread; answer() from any number; interrupt() from any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/audit_prompts.h"
#include "cli/audit_report.h"
#include "engine/engine.h"

namespace lode::cli {

enum class Arm : std::uint8_t { cold, cold_again, warm, ram, ssd, batched };
inline constexpr Arm kArms[] = {Arm::cold, Arm::cold_again, Arm::warm, Arm::ram, Arm::ssd, Arm::batched};
std::string_view arm_name(Arm arm);

struct AuditAsk {
  const AuditPrompt* prompt = nullptr;
  std::int64_t tokens_max = 0;
  Arm arm = Arm::cold;
  std::string space;  // Requests of one name may reuse each other's KV, and no others'.
};

class AuditTarget {
 public:
  virtual ~AuditTarget() = default;
  virtual std::string description() const = 0;
  virtual std::string kv() const = 0;  // "f16"; "peer".
  virtual Result<AuditPrompts> prompts(const AuditInput& input) = 0;
  // Before the questions of an arm. `unsupported` with the reason: it can't be asked here.
  virtual Status prepare(Arm arm) = 0;
  // Before each single question of an arm.
  virtual Status next(Arm arm) = 0;
  virtual Result<AuditAnswer> answer(const AuditAsk& ask) = 0;
  // Ends what runs, and lets no more begin. False: that can't be done.
  virtual bool interrupt() = 0;
};

struct AuditEngineOptions {
  enum class Damage : std::uint8_t { none, one_block };
  engine::EngineOptions engine;  // Its KV types are the ones audited; its kv_disk is where the folder is made.
  Damage damage = Damage::none;  // one_block: falsified before the ssd arm, its checksums made right.
};
// Loads the model once, to see that it can. The folder goes with the target.
Result<std::unique_ptr<AuditTarget>> open_audit_engine(const AuditEngineOptions& options);

struct AuditPeerOptions {
  std::string url, api_key;
  double silence_timeout_s = 1800;
};
Result<std::unique_ptr<AuditTarget>> open_audit_peer(const AuditPeerOptions& options);

}  // namespace lode::cli
