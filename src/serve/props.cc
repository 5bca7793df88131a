#include "serve/props.h"

#include <string>

namespace lode::serve {
namespace {

// What a request that says nothing gets.
Json default_parameters() {
  const engine::SamplingParams p;
  Json out;
  out["seed"] = -1;  // Drawn for each request, and told in its reply.
  out["temperature"] = p.temperature;
  out["top_k"] = p.top_k;
  out["top_p"] = p.top_p;
  out["min_p"] = p.min_p;
  out["typical_p"] = p.typical_p;
  out["xtc_probability"] = p.xtc_probability;
  out["xtc_threshold"] = p.xtc_threshold;
  out["repeat_last_n"] = p.penalty_last_n;
  out["repeat_penalty"] = p.repeat_penalty;
  out["presence_penalty"] = p.presence_penalty;
  out["frequency_penalty"] = p.frequency_penalty;
  out["dry_multiplier"] = p.dry_multiplier;
  out["dry_base"] = p.dry_base;
  out["dry_allowed_length"] = p.dry_allowed_length;
  out["dry_penalty_last_n"] = p.dry_penalty_last_n;
  out["dry_sequence_breakers"] = Json::array({"\n", ":", "\"", "*"});
  out["max_tokens"] = -1;
  out["n_predict"] = -1;
  out["min_tokens"] = 0;
  out["ignore_eos"] = false;
  out["stream"] = false;
  out["n_probs"] = 0;
  out["stop"] = Json::array();
  out["logit_bias"] = Json::array();
  out["reasoning_format"] = "auto";
  out["samplers"] = Json::array({"penalties", "dry", "temperature", "top_k", "typ_p", "min_p", "top_p", "xtc"});
  return out;
}

}  // namespace

Json props_json(const App& app, const engine::Engine& engine) {
  const auto& info = engine.info();
  const auto& tokenizer = engine.tokenizer();
  const auto token = [&](TokenId id) {
    return id >= 0 ? valid_utf8(tokenizer.token_bytes(id, text::Tokenizer::Control::show)) : std::string();
  };
  Json out;
  out["default_generation_settings"] = {{"n_ctx", info.context_max}, {"params", default_parameters()}};
  out["total_slots"] = info.slots;
  out["model_alias"] = info.model_name;
  out["model_path"] = info.model_path;
  out["modalities"] = {{"vision", false}, {"audio", false}};
  out["chat_template"] = app.chat().ok() ? (*app.chat())->source() : info.chat_template;
  if (app.chat().ok()) {
    const text::ChatTraits& traits = (*app.chat())->traits();
    out["chat_template_caps"] = {{"supports_tools", (*app.chat())->format().calls != text::CallFormat::none},
                                 {"supports_system_role", traits.system_role},
                                 {"supports_object_arguments", traits.object_arguments},
                                 {"supports_typed_content", traits.list_content}};
  }
  out["bos_token"] = token(tokenizer.bos());
  out["eos_token"] = token(tokenizer.eos());
  out["build_info"] = app.options().build_info;
  return out;
}

}  // namespace lode::serve
