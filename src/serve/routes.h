// Method and path -> what answers it. Runs on the exchange's strand; never blocks for longer than tokenizing takes.
#pragma once

#include <memory>
#include <vector>

#include "serve/app.h"
#include "serve/http.h"
#include "serve/openapi.h"

namespace lode::serve {

void handle_request(App& app, const std::shared_ptr<Exchange>& exchange);

// Every method and path that is answered.
std::vector<RouteName> route_names();

}  // namespace lode::serve
