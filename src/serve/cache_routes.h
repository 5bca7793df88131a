// /v1/cache: what is stored, why a prompt misses, pins, purges. docs/api.md has the shapes. On the exchange's strand.
#pragma once

#include <memory>

#include "serve/app.h"
#include "serve/http.h"

namespace lode::serve {

void cache_list(App& app, const std::shared_ptr<Exchange>& exchange);
void cache_explain(App& app, const std::shared_ptr<Exchange>& exchange);
void cache_pin(App& app, const std::shared_ptr<Exchange>& exchange);
void cache_unpin(App& app, const std::shared_ptr<Exchange>& exchange);
void cache_purge(App& app, const std::shared_ptr<Exchange>& exchange);

}  // namespace lode::serve
