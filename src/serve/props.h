// GET /props in llama-server's shape. Owns nothing. Any thread.
#pragma once

#include "serve/app.h"
#include "serve/json.h"

namespace lode::serve {

// chat_template, default_generation_settings, total_slots, model_path, bos_token, eos_token, build_info.
Json props_json(const App& app, const engine::Engine& engine);

}  // namespace lode::serve
