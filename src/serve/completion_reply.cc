#include "serve/completion_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lode::serve {
namespace {

constexpr double kVeryUnlikely = -9999.0;

// Characters that begin in `bytes`.
std::int64_t characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

double per_second(std::int64_t n, double ms) {
  return ms > 0 ? finite(static_cast<double>(n) * 1000.0 / ms) : 0.0;
}
double per_token(std::int64_t n, double ms) {
  return n > 0 ? finite(ms / static_cast<double>(n)) : 0.0;
}

}  // namespace

double json_logprob(float logprob) {
  if (std::isnan(logprob)) return kVeryUnlikely;
  return std::clamp(static_cast<double>(logprob), kVeryUnlikely, 0.0);
}

std::string token_text(std::string_view bytes) {
  if (is_valid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return out;
}

void LegacyLogprobs::add_prompt_token(TokenId id, const text::Tokenizer& tokenizer) {
  tokens_.push_back(token_text(tokenizer.token_bytes(id, text::Tokenizer::Control::show)));
  token_logprobs_.push_back(nullptr);
  top_logprobs_.push_back(nullptr);
  text_offset_.push_back(offset_);
  offset_ += characters(tokenizer.token_bytes(id, text::Tokenizer::Control::hide));
}

void LegacyLogprobs::add(const engine::TokenInfo& token, const text::Tokenizer& tokenizer) {
  const auto text_of = [&](TokenId id) {
    return token_text(tokenizer.token_bytes(id, text::Tokenizer::Control::show));
  };
  const std::string text = token.bytes.empty() ? text_of(token.id) : token_text(token.bytes);
  Json top = Json::object();
  // emplace keeps the first of two tokens with the same text: the likelier one.
  for (const auto& [id, logprob] : token.top) top.emplace(id == token.id ? text : text_of(id), json_logprob(logprob));
  top.emplace(text, json_logprob(token.logprob));
  tokens_.push_back(text);
  token_logprobs_.push_back(json_logprob(token.logprob));
  top_logprobs_.push_back(std::move(top));
  text_offset_.push_back(offset_);
  offset_ += characters(token.bytes);
}

Json LegacyLogprobs::take() {
  Json out;
  out["tokens"] = std::exchange(tokens_, Json::array());
  out["token_logprobs"] = std::exchange(token_logprobs_, Json::array());
  out["top_logprobs"] = std::exchange(top_logprobs_, Json::array());
  out["text_offset"] = std::exchange(text_offset_, Json::array());
  return out;
}

Json finish_reason(engine::FinishReason reason) {
  switch (reason) {
    case engine::FinishReason::stop: return "stop";
    case engine::FinishReason::length: return "length";
    default: return nullptr;
  }
}

Json usage_json(const Usage& usage) {
  Json out;
  out["prompt_tokens"] = usage.prompt_tokens;
  out["completion_tokens"] = usage.completion_tokens;
  out["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  out["prompt_tokens_details"]["cached_tokens"] = usage.cached_tokens;
  return out;
}

Json timings_json(const engine::Timings& t) {
  Json out;
  out["cache_n"] = t.cache_n;
  out["prompt_n"] = t.prompt_n;
  out["prompt_ms"] = finite(t.prompt_ms);
  out["prompt_per_token_ms"] = per_token(t.prompt_n, t.prompt_ms);
  out["prompt_per_second"] = per_second(t.prompt_n, t.prompt_ms);
  out["predicted_n"] = t.predicted_n;
  out["predicted_ms"] = finite(t.predicted_ms);
  out["predicted_per_token_ms"] = per_token(t.predicted_n, t.predicted_ms);
  out["predicted_per_second"] = per_second(t.predicted_n, t.predicted_ms);
  out["queue_ms"] = finite(t.queue_ms);
  return out;
}

Json cache_json(const kv::Reuse& r) {
  Json out;
  out["tokens_reused"] = r.tokens_reused;
  out["by_tier"] = {{"ram", r.from_ram}, {"disk", r.from_disk}, {"in_flight", r.from_in_flight}};
  out["resume"] = r.resume;
  out["reason"] = r.reason;
  out["load_ms"] = finite(r.load_ms);
  return out;
}

Json progress_json(const engine::Event& event, double elapsed_ms) {
  Json out;
  out["total"] = event.total;
  out["cache"] = event.reuse.tokens_reused;
  out["processed"] = event.processed;
  out["time_ms"] = std::round(finite(elapsed_ms));
  return out;
}

void merge(engine::Timings& into, const engine::Timings& more) {
  into.prompt_n += more.prompt_n;
  into.cache_n += more.cache_n;
  into.predicted_n += more.predicted_n;
  into.queue_ms = std::max(into.queue_ms, more.queue_ms);
  into.prompt_ms = std::max(into.prompt_ms, more.prompt_ms);
  into.predicted_ms = std::max(into.predicted_ms, more.predicted_ms);
}

void merge(kv::Reuse& into, const kv::Reuse& more) {
  into.prompt_tokens += more.prompt_tokens;
  into.tokens_reused += more.tokens_reused;
  into.from_ram += more.from_ram;
  into.from_disk += more.from_disk;
  into.from_in_flight += more.from_in_flight;
  into.load_ms = std::max(into.load_ms, more.load_ms);
  if (into.reason.empty()) into.reason = more.reason;
}

}  // namespace lode::serve
