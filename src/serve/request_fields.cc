#include "serve/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

namespace lode::serve {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
// What llama-server's `false` as a bias means: never, unless nothing else is left. Finite, so that sums stay finite.
constexpr float kNeverBias = -1e9f;

void read_stop(Fields& fields, std::vector<std::string>& stop) {
  constexpr std::string_view kExpected = "a string or an array of strings";
  const Json* value = fields.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const Json& one) {
    if (!one.is_string())
      return fields.fail("stop", kExpected, value->is_array() ? "an array that holds " + describe(one) : describe(one));
    const auto& s = one.get_ref<const std::string&>();
    if (s.size() > kStopBytesMax)
      return fields.fail("stop", fmt::format("made of strings of at most {} bytes", kStopBytesMax),
                         fmt::format("one of {}", s.size()));
    if (!s.empty()) stop.push_back(s);  // An empty one would match before the first character: it is no stop at all.
  };
  if (!value->is_array()) return add(*value);
  if (value->size() > kStopStringsMax)
    return fields.fail("stop", fmt::format("at most {} strings", kStopStringsMax), std::to_string(value->size()));
  for (const Json& one : *value) add(one);
}

std::optional<float> bias_value(const Json& value) {
  if (value.is_boolean() && !value.get<bool>()) return kNeverBias;
  if (!value.is_number()) return std::nullopt;
  const double d = value.get<double>();
  if (!std::isfinite(d) || std::abs(d) > std::numeric_limits<float>::max()) return std::nullopt;
  return static_cast<float>(d);
}

// OpenAI's {"id": bias}, or llama-server's [[id or text, bias], ...], where a bias of false means never.
void read_logit_bias(Fields& fields, const text::Tokenizer& tokenizer, std::vector<std::pair<TokenId, float>>& out) {
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return;
  const auto bad_bias = [&](const Json& bias) { fields.fail("logit_bias", "made of finite numbers", describe(bias)); };
  if (value->is_object()) {
    for (const auto& [key, bias_json] : value->items()) {
      TokenId id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= tokenizer.vocab_size()) {
        return fields.fail("logit_bias", "keyed by " + id_range(tokenizer), "'" + key.substr(0, 40) + "'");
      }
      const auto bias = bias_value(bias_json);
      if (!bias) return bad_bias(bias_json);
      out.emplace_back(id, *bias);
    }
    return;
  }
  if (!value->is_array())
    return fields.fail("logit_bias", "an object of id: bias or an array of [id, bias]", describe(*value));
  for (const Json& pair : *value) {
    if (!pair.is_array() || pair.size() != 2)
      return fields.fail("logit_bias", "made of [id, bias] pairs", describe(pair));
    const auto bias = bias_value(pair[1]);
    if (!bias) return bad_bias(pair[1]);
    if (pair[0].is_string()) {
      for (const TokenId id : tokenizer.encode(pair[0].get_ref<const std::string&>(), {})) out.emplace_back(id, *bias);
    } else if (const auto id = token_id(pair[0], tokenizer)) {
      out.emplace_back(*id, *bias);
    } else {
      return fields.fail("logit_bias", "made of pairs whose first is one of the " + id_range(tokenizer),
                         describe(pair[0]));
    }
  }
}

void read_seed(Fields& fields, std::uint64_t& seed) {
  const Json* value = fields.find("seed");
  if (value != nullptr && value->is_number_unsigned()) {
    seed = value->get<std::uint64_t>();
    return;
  }
  std::int64_t given = -1;
  fields.integer("seed", given, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  // 32 random bits: enough to be different each time, and exact in every JSON reader.
  seed = given >= 0 ? static_cast<std::uint64_t>(given) : std::random_device{}();
}

// Tokens whose text holds one of the breakers: a repetition that the DRY penalty looks for does not reach across them.
std::vector<TokenId> breaking_tokens(const std::vector<std::string>& breakers, const text::Tokenizer& tokenizer) {
  std::vector<TokenId> out;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes = tokenizer.token_bytes(id, text::Tokenizer::Control::show);
    const bool breaks = std::any_of(breakers.begin(), breakers.end(), [&](const std::string& breaker) {
      return bytes.find(breaker) != std::string::npos;
    });
    if (breaks || tokenizer.kind(id) == text::TokenKind::control) out.push_back(id);
  }
  return out;
}

void read_dry(Fields& fields, const text::Tokenizer& tokenizer, std::int64_t context_max, engine::SamplingParams& out) {
  fields.number("dry_multiplier", out.dry_multiplier, 0);
  fields.number("dry_base", out.dry_base, 0);
  std::int64_t allowed = out.dry_allowed_length, last_n = out.dry_penalty_last_n;
  fields.integer("dry_allowed_length", allowed, 0, kInt32Max);
  fields.integer("dry_penalty_last_n", last_n, -1, kInt32Max);
  out.dry_allowed_length = static_cast<std::int32_t>(allowed);
  out.dry_penalty_last_n = static_cast<std::int32_t>(last_n < 0 ? std::min(context_max, kInt32Max) : last_n);
  std::vector<std::string> breakers = {"\n", ":", "\"", "*"};
  if (const Json* value = fields.find("dry_sequence_breakers"); value != nullptr) {
    if (!value->is_array()) return fields.fail("dry_sequence_breakers", "an array of strings", describe(*value));
    if (value->size() > kDryBreakersMax) {
      return fields.fail("dry_sequence_breakers", fmt::format("at most {} strings", kDryBreakersMax),
                         std::to_string(value->size()));
    }
    breakers.clear();
    for (const Json& one : *value) {
      if (!one.is_string() || one.get_ref<const std::string&>().empty()) {
        return fields.fail("dry_sequence_breakers", "made of strings that are not empty",
                           one.is_string() ? "an empty one" : describe(one));
      }
      breakers.push_back(one.get<std::string>());
    }
  }
  // Some milliseconds over a large vocabulary: only for who asks.
  if (out.dry_multiplier > 0 && !fields.error()) out.dry_breakers = breaking_tokens(breakers, tokenizer);
}

void read_sampling(Fields& fields, const text::Tokenizer& tokenizer, std::int64_t context_max,
                   engine::SamplingParams& out) {
  fields.number("temperature", out.temperature, 0);
  fields.number("top_p", out.top_p, 0, 1);
  fields.number("min_p", out.min_p, 0, 1);
  fields.number("presence_penalty", out.presence_penalty);
  fields.number("frequency_penalty", out.frequency_penalty);
  fields.number("repetition_penalty", out.repeat_penalty, 1e-3);  // vLLM's name for the same.
  fields.number("repeat_penalty", out.repeat_penalty, 1e-3);
  std::int64_t top_k = out.top_k, last_n = out.penalty_last_n;
  fields.integer("top_k", top_k, -1, kInt32Max);
  fields.integer("repeat_last_n", last_n, -1, kInt32Max);
  out.top_k = static_cast<std::int32_t>(top_k);
  out.penalty_last_n = static_cast<std::int32_t>(last_n < 0 ? std::min(context_max, kInt32Max) : last_n);
  for (const char* name : {"typical_p", "typical"}) fields.number(name, out.typical_p, 0, 1);
  fields.number("xtc_probability", out.xtc_probability, 0, 1);
  fields.number("xtc_threshold", out.xtc_threshold, 0, 1);
  read_dry(fields, tokenizer, context_max, out);
  read_seed(fields, out.seed);
  read_logit_bias(fields, tokenizer, out.logit_bias);
}

void read_lengths(Fields& fields, const text::Tokenizer& tokenizer, GenerationRequest& out) {
  std::int64_t max_tokens = -1, min_tokens = 0;
  // llama-server's n_predict, OpenAI's two names; -1 (and absent) is until the end of the context.
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"})
    fields.integer(name, max_tokens, -1, kInt32Max);
  fields.integer("min_tokens", min_tokens, 0, kInt32Max);
  out.shared.max_tokens = static_cast<std::int32_t>(max_tokens);
  out.shared.min_tokens = static_cast<std::int32_t>(min_tokens);
  fields.integer("n", out.n, 1, kChoicesPerPromptMax);
  const Json* ids = fields.find("stop_token_ids");
  if (ids == nullptr) return;
  if (!ids->is_array()) return fields.fail("stop_token_ids", "an array of token ids", describe(*ids));
  for (const Json& value : *ids) {
    const auto id = token_id(value, tokenizer);
    if (!id) return fields.fail("stop_token_ids", "made of " + id_range(tokenizer), describe(value));
    out.shared.stop_tokens.push_back(*id);
  }
  std::sort(out.shared.stop_tokens.begin(), out.shared.stop_tokens.end());
}

void read_delivery(Fields& fields, GenerationRequest& out) {
  bool stream = false, ignore_eos = false, progress = false, ignored = false;
  fields.boolean("stream", stream);
  fields.boolean("ignore_eos", ignore_eos);
  fields.boolean("return_progress", progress);
  fields.boolean("cache_prompt", ignored);  // Every prompt is cached, whatever it says.
  out.delivery = stream ? Delivery::stream : Delivery::whole;
  if (ignore_eos) out.shared.end_tokens = engine::Request::EndTokens::ignore;
  if (progress) out.shared.progress = engine::Request::Progress::yes;
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.fail("stream_options", "an object", describe(*options));
  Fields inner(*options, "stream_options.");
  bool include_usage = false;
  inner.boolean("include_usage", include_usage);
  if (inner.error()) return fields.fail(*inner.error());
  out.stream_usage = include_usage ? StreamUsage::yes : StreamUsage::no;
}

constexpr Unsupported kUnsupported[] = {{"lora"},
                                        {"functions"},
                                        {"function_call"},
                                        {"bad_words"},
                                        {"allowed_token_ids"},
                                        {"prompt_logprobs", -1},
                                        {"truncate_prompt_tokens", -1},
                                        {"mirostat"},
                                        {"top_a"},
                                        {"tfs_z", 1},
                                        {"top_n_sigma", -1},
                                        {"dynatemp_range"},
                                        {"samplers"},
                                        {"post_sampling_probs"},
                                        {"t_max_predict_ms"},
                                        {"n_indent"},
                                        {"include_stop_str_in_output"},
                                        {"skip_special_tokens", 1},
                                        {"length_penalty", 1},
                                        {"use_beam_search"}};

bool is_off(const Json& value, double off) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  if (value.is_structured() && value.empty()) return true;
  if (value.is_boolean()) return value.get<bool>() == (off == 1);
  if (value.is_number()) return value.get<double>() == off || (off < 1 && value.get<double>() < 0);
  return false;
}

}  // namespace

std::optional<TokenId> token_id(const Json& value, const text::Tokenizer& tokenizer) {
  const auto id = as_integer(value);
  if (!id || *id < 0 || *id >= tokenizer.vocab_size()) return std::nullopt;
  return static_cast<TokenId>(*id);
}

std::string id_range(const text::Tokenizer& tokenizer) {
  return fmt::format("token ids from 0 to {}", tokenizer.vocab_size() - 1);
}

std::optional<ApiError> too_long(std::size_t bytes, const text::Tokenizer& tokenizer, std::int64_t context_max) {
  const std::size_t most = tokenizer.text_bytes_max();
  if (most == 0) return std::nullopt;
  const auto least = static_cast<std::int64_t>((bytes + most - 1) / most);
  if (least < context_max) return std::nullopt;
  ApiError error = invalid_field(
      "", fmt::format("the prompt has at least {} tokens but the context holds {}, the answer included; shorten the "
                      "prompt or start the server with a larger -c",
                      least, context_max));
  error.code = "context_length_exceeded";
  return error;
}

void read_generation(Fields& fields, const text::Tokenizer& tokenizer, std::int64_t context_max,
                     GenerationRequest& out) {
  std::string model;
  // With one model loaded the name does not matter, but its type does: a wrong one points at a client's mistake.
  fields.string("model", model, 4096);
  fields.string("cache_salt", out.shared.salt, 1024);
  std::int64_t slot = -1;
  fields.integer("id_slot", slot, -1, kInt32Max);
  out.shared.slot = static_cast<std::int32_t>(slot);
  read_lengths(fields, tokenizer, out);
  read_delivery(fields, out);
  read_stop(fields, out.shared.stop);
  read_sampling(fields, tokenizer, context_max, out.shared.sampling);
}

void refuse_unsupported(Fields& fields, std::span<const Unsupported> more) {
  const auto refuse = [&](const Unsupported& field) {
    const Json* value = fields.find(field.name);
    if (value != nullptr && !is_off(*value, field.off))
      fields.fail(field.name, fmt::format("'{}' is not supported by this server", field.name));
  };
  for (const Unsupported& field : kUnsupported) refuse(field);
  for (const Unsupported& field : more) refuse(field);
}

}  // namespace lode::serve
