// `lode audit MODEL`: does reuse change answers? The same questions are asked cold, again cold, and in every way that
// reuses stored KV; each answer is compared with the cold one, bit for bit. Owns the run. Main thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "cli/audit_report.h"
#include "cli/audit_target.h"

namespace lode::cli {

// Exit codes of the command, beside 2 for a wrong command line.
inline constexpr int kAuditClean = 0;   // Nothing is WRONG.
inline constexpr int kAuditFailed = 1;  // It could not be done, or not in whole.
inline constexpr int kAuditWrong = 3;   // Some answer is WRONG.

// Called with what is being asked now: "f16 warm", question (from 1), of how many.
using AuditProgress = std::function<void(const std::string& arm, std::size_t question, std::size_t of)>;

// All arms of one target, added to the report. Errors: the prompts can't be made, or somebody interrupted; a request
// that fails ends its arm only.
Status audit(AuditTarget& target, const AuditInput& input, const AuditProgress& progress, AuditReport& report);

int exit_code(const AuditReport& report);

}  // namespace lode::cli
