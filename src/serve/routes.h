// Method and path -> what answers it. Runs on the exchange's strand; never blocks for longer than tokenizing takes.
#pragma once

#include <memory>

#include "serve/app.h"
#include "serve/http.h"

namespace lode::serve {

void handle_request(App& app, const std::shared_ptr<Exchange>& exchange);

}  // namespace lode::serve
