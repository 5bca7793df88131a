#include "serve/completion_request.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "serve/fields.h"

namespace lode::serve {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
// What llama-server's `false` as a bias means: never, unless nothing else is left. Finite, so that sums stay finite.
constexpr float kNeverBias = -1e9f;

std::optional<TokenId> token_id(const Json& value, const text::Tokenizer& tokenizer) {
  const auto id = as_integer(value);
  if (!id || *id < 0 || *id >= tokenizer.vocab_size()) return std::nullopt;
  return static_cast<TokenId>(*id);
}

std::string id_range(const text::Tokenizer& tokenizer) {
  return fmt::format("token ids from 0 to {}", tokenizer.vocab_size() - 1);
}

// False, with an error, where the text cannot fit whatever it says: that is known without tokenizing megabytes.
bool add_prompt(const std::string& text, Fields& fields, const text::Tokenizer& tokenizer, std::int64_t context_max,
                std::vector<std::vector<TokenId>>& prompts) {
  if (const std::size_t most = tokenizer.text_bytes_max(); most > 0) {
    const auto least = static_cast<std::int64_t>((text.size() + most - 1) / most);
    if (least >= context_max) {
      ApiError error = invalid_field(
          "",
          fmt::format("the prompt has at least {} tokens but the context holds {}, the answer included; shorten the "
                      "prompt or start the server with a larger -c",
                      least, context_max));
      error.code = "context_length_exceeded";
      fields.fail(std::move(error));
      return false;
    }
  }
  prompts.push_back(
      tokenizer.encode(text, {.special = text::EncodeOptions::Special::parse, .bos = text::EncodeOptions::Bos::model}));
  return true;
}

// A string, an array of ids, or an array of those.
void read_prompts(Fields& fields, const text::Tokenizer& tokenizer, std::int64_t context_max, CompletionRequest& out) {
  constexpr std::string_view kExpected =
      "a string, an array of strings, an array of token ids or an array of arrays of token ids";
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) return fields.fail("prompt", "'prompt' is missing");
  const auto read_ids = [&](const Json& array) {
    std::vector<TokenId> ids;
    ids.reserve(array.size());
    for (const Json& value : array) {
      const auto id = token_id(value, tokenizer);
      if (!id) {
        fields.fail("prompt", "made of " + id_range(tokenizer), describe(value));
        return false;
      }
      ids.push_back(*id);
    }
    if (ids.empty()) {
      fields.fail("prompt", "'prompt' holds an empty array of token ids");
      return false;
    }
    out.prompts.push_back(std::move(ids));
    return true;
  };
  if (prompt->is_string()) {
    add_prompt(prompt->get_ref<const std::string&>(), fields, tokenizer, context_max, out.prompts);
    return;
  }
  if (!prompt->is_array()) return fields.fail("prompt", kExpected, describe(*prompt));
  if (prompt->empty()) return fields.fail("prompt", "'prompt' is an empty array");
  if (prompt->front().is_number()) {
    read_ids(*prompt);
    return;
  }
  if (prompt->size() > kChoicesMax)
    return fields.fail("prompt", fmt::format("at most {} prompts", kChoicesMax), std::to_string(prompt->size()));
  const bool strings = prompt->front().is_string();
  for (const Json& one : *prompt) {
    if (strings && one.is_string()) {
      if (!add_prompt(one.get_ref<const std::string&>(), fields, tokenizer, context_max, out.prompts)) return;
    } else if (!strings && one.is_array()) {
      if (!read_ids(one)) return;
    } else return fields.fail("prompt", kExpected, "an array that holds " + describe(one));
  }
}

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
  read_seed(fields, out.seed);
  read_logit_bias(fields, tokenizer, out.logit_bias);
}

void read_lengths(Fields& fields, CompletionRequest& out) {
  std::int64_t max_tokens = -1, logprobs = -1;
  // llama-server's n_predict, OpenAI's two names; -1 (and absent) is until the end of the context.
  for (const char* name : {"n_predict", "max_completion_tokens", "max_tokens"})
    fields.integer(name, max_tokens, -1, kInt32Max);
  out.shared.max_tokens = static_cast<std::int32_t>(max_tokens);
  for (const char* name : {"n_probs", "logprobs"}) fields.integer(name, logprobs, 0, kLogprobsMax);
  if (const Json* n_probs = fields.find("n_probs");
      n_probs != nullptr && logprobs == 0 && fields.find("logprobs") == nullptr) {
    logprobs = -1;  // llama-server's n_probs of 0 means none.
  }
  out.shared.top_logprobs = static_cast<std::int32_t>(logprobs);
  fields.integer("n", out.n, 1, kChoicesPerPromptMax);
  std::int64_t best_of = out.n;
  fields.integer("best_of", best_of, 1, kInt32Max);
  if (best_of != out.n)
    fields.fail("best_of", fmt::format("'best_of' must equal 'n' ({}): choices are not ranked", out.n));
}

void read_delivery(Fields& fields, CompletionRequest& out) {
  bool stream = false, echo = false, ignore_eos = false, progress = false, ignored = false;
  fields.boolean("stream", stream);
  fields.boolean("echo", echo);
  fields.boolean("ignore_eos", ignore_eos);
  fields.boolean("return_progress", progress);
  fields.boolean("cache_prompt", ignored);  // Every prompt is cached, whatever it says.
  out.delivery = stream ? Delivery::stream : Delivery::whole;
  out.echo = echo ? Echo::yes : Echo::no;
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

// Fields that would change the answer and that this version cannot honour, each with a number that means "off" (as
// null, false, an empty string and an empty array or object do for all).
struct Unsupported {
  std::string_view name;
  double off = 0;
};
constexpr Unsupported kUnsupported[] = {{"suffix"},
                                        {"grammar"},
                                        {"json_schema"},
                                        {"response_format"},
                                        {"lora"},
                                        {"tools"},
                                        {"functions"},
                                        {"min_tokens"},
                                        {"stop_token_ids"},
                                        {"bad_words"},
                                        {"allowed_token_ids"},
                                        {"prompt_logprobs", -1},
                                        {"truncate_prompt_tokens", -1},
                                        {"mirostat"},
                                        {"typical_p", 1},
                                        {"typical", 1},
                                        {"top_a"},
                                        {"tfs_z", 1},
                                        {"top_n_sigma", -1},
                                        {"dynatemp_range"},
                                        {"dry_multiplier"},
                                        {"xtc_probability"},
                                        {"guided_json"},
                                        {"guided_regex"},
                                        {"guided_choice"},
                                        {"guided_grammar"},
                                        {"structured_outputs"},
                                        {"length_penalty", 1},
                                        {"use_beam_search"}};

bool is_off(const Json& value, double off) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  if (value.is_structured() && value.empty()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == off;
  return value.is_object() && value.value("type", Json()) == "text";  // The response_format that asks nothing.
}

// Refused by name rather than ignored.
void refuse_unsupported(Fields& fields, const CompletionRequest& request) {
  for (const auto& [name, off] : kUnsupported) {
    const Json* value = fields.find(name);
    if (value != nullptr && !is_off(*value, off))
      return fields.fail(name, fmt::format("'{}' is not supported by this server", name));
  }
  if (request.echo == Echo::yes && request.shared.top_logprobs >= 0 && request.shared.max_tokens == 0) {
    fields.fail("echo",
                "'echo' with 'logprobs' and no new token asks for the prompt's log-probabilities, which are not "
                "supported by this server");
  }
}

}  // namespace

std::variant<CompletionRequest, ApiError> parse_completion_request(const Json& body, const text::Tokenizer& tokenizer,
                                                                   std::int64_t context_max) {
  if (!body.is_object()) return invalid_field("", "the body must be a JSON object, not " + describe(body));
  Fields fields(body);
  CompletionRequest out;
  std::string model;
  // With one model loaded the name does not matter, but its type does: a wrong one points at a client's mistake.
  fields.string("model", model, 4096);
  fields.string("cache_salt", out.shared.salt, 1024);
  read_lengths(fields, out);
  read_delivery(fields, out);
  read_stop(fields, out.shared.stop);
  read_sampling(fields, tokenizer, context_max, out.shared.sampling);
  refuse_unsupported(fields, out);
  if (!fields.error()) read_prompts(fields, tokenizer, context_max, out);  // Last: the costly one.
  if (fields.error()) return *fields.error();
  if (out.prompts.size() * static_cast<std::size_t>(out.n) > kChoicesMax) {
    return invalid_field(
        "n", fmt::format("{} prompts with n = {} are more than {} choices", out.prompts.size(), out.n, kChoicesMax));
  }
  return out;
}

}  // namespace lode::serve
