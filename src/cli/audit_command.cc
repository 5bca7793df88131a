// The flags of `lode audit`, its progress and its end.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>

#include "cli/audit.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "platform/terminal.h"
#include "serve/signals.h"

namespace lode::cli {
namespace {

struct Flags {
  AuditEngineOptions engine;
  AuditPeerOptions peer;
  AuditInput input;
  std::vector<std::string> types = {"f16", "q8_0"};
  CLI::Option *ctk = nullptr, *ctv = nullptr;
  bool json = false, damage = false, quiet = false;
};

// A line on stderr: redrawn on a terminal, elsewhere one an arm.
class Progress {
 public:
  enum class Kind : std::uint8_t { none, lines, redrawn };
  explicit Progress(Kind kind) : kind_(kind) {}
  void show(const std::string& arm, std::size_t question, std::size_t of) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    if (kind_ == Kind::redrawn)
      fmt::print(stderr, "\r\033[K{}: question {} of {}, {:.0f} s", arm, question, of, seconds);
    else if (kind_ == Kind::lines && arm != last_) fmt::print(stderr, "{}: {} questions, {:.0f} s\n", arm, of, seconds);
    last_ = arm;
    std::fflush(stderr);
  }
  void end() const {
    if (kind_ == Kind::redrawn) fmt::print(stderr, "\r\033[K");
  }

 private:
  const Kind kind_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::string last_;
};

Status run_on(AuditTarget& target, const Flags& flags, Progress& progress, AuditReport& report) {
  const serve::SignalWatch watch([&](int count) {
    if (count > 1 || !target.interrupt()) std::_Exit(130);
  });
  return audit(
      target, flags.input,
      [&](const std::string& arm, std::size_t question, std::size_t of) { progress.show(arm, question, of); }, report);
}

Status audit_engine(const Flags& flags, Progress& progress, AuditReport& report) {
  static const std::map<std::string, kernels::KvType> kTypes = {
      {"f32", kernels::KvType::f32}, {"f16", kernels::KvType::f16}, {"q8_0", kernels::KvType::q8_0}};
  const bool pair = flags.ctk->count() + flags.ctv->count() > 0;
  for (const std::string& type : flags.types) {
    AuditEngineOptions options = flags.engine;
    if (!pair) options.engine.k_type = options.engine.v_type = kTypes.at(type);
    auto target = open_audit_engine(options);
    if (!target.ok()) return target.status();
    LODE_RETURN_IF_ERROR(run_on(**target, flags, progress, report));
    if (pair) break;
  }
  return Status::success();
}

Status audit_peer(const Flags& flags, Progress& progress, AuditReport& report) {
  auto target = open_audit_peer(flags.peer);
  if (!target.ok()) return target.status();
  return run_on(**target, flags, progress, report);
}

// What was altered must be found in each KV type's answers from the SSD, and nowhere else is it looked for.
bool damage_was_found(const AuditReport& report) {
  bool any = false;
  for (const AuditArm& arm : report.arms) {
    if (arm.name != arm_name(Arm::ssd)) continue;
    if (arm.count(Verdict::wrong) == 0) return false;
    any = true;
  }
  return any;
}

void run_audit(Flags& flags) {
  const bool peer = !flags.peer.url.empty();
  if (peer == !flags.engine.engine.model.empty())
    throw CLI::ValidationError("audit needs a MODEL or --peer URL, and not both");
  if (peer && flags.damage) throw CLI::ValidationError("--damage is for a MODEL: nobody else's store is touched");
  if (flags.damage && flags.engine.engine.kv_disk == "off")
    throw CLI::ValidationError("--damage alters a stored block: leave out --kv-disk off");
  AuditReport report;
  if (flags.damage) {
    flags.engine.damage = AuditEngineOptions::Damage::one_block;
    report.damage = "one stored block of the prefix was altered and its checksums made right before the ssd arm";
  }
  Progress progress(flags.quiet                                              ? Progress::Kind::none
                    : platform::is_terminal(platform::StandardStream::error) ? Progress::Kind::redrawn
                                                                             : Progress::Kind::lines);
  const Status status = peer ? audit_peer(flags, progress, report) : audit_engine(flags, progress, report);
  progress.end();
  if (status.code() == Code::cancelled) exit_with(130);
  if (!status.ok()) fail(status);
  const std::string text = flags.json ? to_json(report) : to_table(report);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (flags.damage && !damage_was_found(report))
    fail(Status(Code::internal, "the altered block changed no answer from the ssd: this audit could not have failed"));
  if (const int code = exit_code(report); code != kAuditClean) exit_with(code);
}

}  // namespace

void add_audit_command(CLI::App& app) {
  const auto flags = std::make_shared<Flags>();
  CLI::App& command = *app.add_subcommand("audit", "Does reuse change answers? cold = warm = restored = batched?");
  command.footer(
      "Each question is asked greedily after one long prefix: cold (the reference), cold again, warm, from RAM after "
      "other\n"
      "prompts, from the SSD after a restart, and batched with others; once for each KV type. An answer is "
      "bit-identical to\n"
      "the cold one, within tolerance, or WRONG: its first token's top 5 differ by more than max(0.05, 10 x "
      "cold/cold), or\n"
      "a token flips where cold's top two are more than twice that apart.\n"
      "Exit codes: 0 nothing is WRONG; 1 it could not be done, or not in whole; 2 the command line is wrong; 3 WRONG.");
  auto* positional =
      command.add_option("MODEL", flags->engine.engine.model, "A GGUF file, or the first of a split one");
  auto* named = command.add_option("-m,--model", flags->engine.engine.model, "The same as MODEL");
  positional->excludes(named);
  command.add_option("--peer", flags->peer.url, "http://HOST:PORT of an OpenAI-compatible server to audit instead");
  command.add_option("--api-key", flags->peer.api_key, "Sent to the --peer as a bearer token");
  command.add_option(
      "--prefix", flags->input.prefix,
      "Text, or a JSON array of token ids; default: about 2,000 tokens, more to exceed a sliding window");
  command.add_option("--questions", flags->input.questions,
                     "One a line, or a JSON array of texts and of arrays of ids; default: ten");
  command.add_option("-n,--max-tokens", flags->input.tokens, "Tokens of an answer")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  command.add_option("--types", flags->types, "KV types to audit; -ctk and -ctv audit that pair instead")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}))
      ->capture_default_str();
  command.add_flag("--damage", flags->damage,
                   "Alter one stored block past its checksum first: the verdict must be WRONG, or the exit code is 1");
  command.add_flag("--json", flags->json, "Print JSON instead of a table");
  command.add_flag("--no-progress", flags->quiet, "Nothing on stderr while it runs");
  add_engine_flags(command, flags->engine.engine);
  flags->ctk = command.get_option("--ctk");
  flags->ctv = command.get_option("--ctv");
  command.get_option("--kv-disk")->description("Where a temporary KV folder is made (and removed); off: no ssd arm");
  on_run(command, flags, run_audit);
}

}  // namespace lode::cli
