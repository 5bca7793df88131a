// An audit of a server that somebody else runs, over /v1/completions.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/audit_target.h"
#include "cli/bench_target.h"

namespace lode::cli {
namespace {

using Json = nlohmann::json;

const Json* at(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() ? nullptr : &*found;
}
double number(const Json* json) {
  return json && json->is_number() ? json->get<double>() : 0;
}
// What tells a token apart: its id, or else its text.
std::string token_of(const Json& entry) {
  if (const Json* id = at(entry, "id"); id && id->is_number_integer()) return std::to_string(id->get<std::int64_t>());
  const Json* text = at(entry, "token");
  return text && text->is_string() ? text->get<std::string>() : std::string();
}

// llama-server's form, which is also chat's: an object a token.
void take_content(const Json& content, AuditAnswer& answer) {
  if (!content.is_array()) return;
  for (const Json& entry : content) {
    AuditStep& step = answer.steps.emplace_back();
    step.token = token_of(entry);
    const Json* text = at(entry, "token");
    step.text = text && text->is_string() ? text->get<std::string>() : step.token;
    const Json* top = at(entry, "top_logprobs");
    if (!top || !top->is_array()) continue;
    for (const Json& t : *top) step.top.emplace_back(token_of(t), number(at(t, "logprob")));
  }
}

// OpenAI's form of completions: parallel arrays, and a map of texts a token.
void take_arrays(const Json& logprobs, AuditAnswer& answer) {
  const Json *tokens = at(logprobs, "tokens"), *tops = at(logprobs, "top_logprobs");
  if (!tokens || !tokens->is_array()) return;
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    AuditStep& step = answer.steps.emplace_back();
    if ((*tokens)[i].is_string()) step.token = step.text = (*tokens)[i].get<std::string>();
    if (!tops || !tops->is_array() || i >= tops->size() || !(*tops)[i].is_object()) continue;
    for (const auto& [text, logprob] : (*tops)[i].items()) step.top.emplace_back(text, number(&logprob));
  }
}

void take_event(std::string_view text, AuditAnswer& answer) {
  const Json json = Json::parse(text, nullptr, false);
  if (const Json* timings = at(json, "timings"))
    if (const Json* cached = at(*timings, "cache_n"); cached && cached->is_number_integer())
      answer.reused_tokens = cached->get<std::int64_t>();
  const Json* choices = at(json, "choices");
  if (!choices || !choices->is_array() || choices->empty()) return;
  const Json* logprobs = at(choices->front(), "logprobs");
  if (!logprobs) return;
  if (const Json* content = at(*logprobs, "content")) take_content(*content, answer);
  else take_arrays(*logprobs, answer);
}

class PeerTarget final : public AuditTarget {
 public:
  PeerTarget(const AuditPeerOptions& options, std::unique_ptr<BenchTarget> target)
      : options_(options), target_(std::move(target)), run_(std::random_device()()) {}

  std::string description() const override {
    return fmt::format("{}{}{}", options_.url, target_->model().empty() ? "" : ", model " + target_->model(),
                       target_->context() > 0 ? fmt::format(", context {} tokens", target_->context()) : "");
  }
  std::string kv() const override { return "peer"; }
  Result<AuditPrompts> prompts(const AuditInput& input) override {
    return prompts_for_server(target_->context(), input);
  }
  Status prepare(Arm arm) override {
    if (arm == Arm::ssd) return Status::unsupported("nobody but its owner can restart this server");
    return Status::success();
  }
  Status next(Arm) override { return Status::success(); }
  Result<AuditAnswer> answer(const AuditAsk& ask) override;
  bool interrupt() override { return false; }

 private:
  Json body_for(const AuditAsk& ask);
  const AuditPeerOptions options_;
  const std::unique_ptr<BenchTarget> target_;
  const std::uint32_t run_;
  std::atomic<std::uint32_t> requests_{0};
  std::atomic<bool> plain_{false};  // The server refuses fields that OpenAI's API lacks.
};

Json PeerTarget::body_for(const AuditAsk& ask) {
  Json body = {{"model", target_->model().empty() ? "default" : target_->model()},
               {"max_tokens", ask.tokens_max},
               {"temperature", 0},
               {"logprobs", 5},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  std::visit([&](const auto& prompt) { body["prompt"] = prompt; }, ask.prompt->text);
  if (plain_) return body;
  const bool cold = ask.arm == Arm::cold || ask.arm == Arm::cold_again;
  body["ignore_eos"] = true;
  body["cache_prompt"] = !cold;  // llama-server's; the salt is vLLM's and Lode's.
  body["cache_salt"] =
      cold ? fmt::format("audit-{:08x}-cold-{}", run_, requests_++) : fmt::format("audit-{:08x}-{}", run_, ask.space);
  return body;
}

Result<AuditAnswer> PeerTarget::answer(const AuditAsk& ask) {
  AuditAnswer answer;
  const auto send = [&] {
    answer = {};
    return stream_completion(target_->endpoint(),
                             {.body = body_for(ask).dump(-1, ' ', false, Json::error_handler_t::replace),
                              .silence_timeout_s = options_.silence_timeout_s,
                              .tick = {},
                              .on_event = [&](std::string_view json) { take_event(json, answer); }});
  };
  auto sample = send();
  if (sample.status().code() == Code::invalid_argument && !plain_) {
    plain_ = true;
    const Status refused = sample.status();
    sample = send();
    if (!sample.ok()) return refused;
  }
  if (!sample.ok()) return sample.status();
  answer.text = sample->text;
  answer.first_token_s = sample->ttft_s;
  answer.prompt_tokens = sample->prompt_tokens;
  if (sample->cached_tokens >= 0) answer.reused_tokens = sample->cached_tokens;
  for (AuditStep& step : answer.steps)
    std::stable_sort(step.top.begin(), step.top.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  if (answer.steps.empty() || answer.steps.front().top.empty())
    return Status::unsupported("the server sends no log-probabilities with a completion: there is nothing to compare");
  return answer;
}

}  // namespace

Result<std::unique_ptr<AuditTarget>> open_audit_peer(const AuditPeerOptions& options) {
  auto target = BenchTarget::open({.target = options.url, .api_key = options.api_key});
  if (!target.ok()) return target.status();
  return std::unique_ptr<AuditTarget>(std::make_unique<PeerTarget>(options, std::move(target).value()));
}

}  // namespace lode::cli
