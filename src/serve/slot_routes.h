// llama-server's /slots: which run, and save, restore, erase. docs/api.md has the shapes. On the exchange's strand.
#pragma once

#include <memory>

#include "serve/app.h"
#include "serve/http.h"

namespace lode::serve {

void slots_list(App& app, const std::shared_ptr<Exchange>& exchange);
void slot_action(App& app, const std::shared_ptr<Exchange>& exchange);

}  // namespace lode::serve
