#include "serve/route_tools.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace lode::serve {

void work_inside(engine::Engine& engine, const std::shared_ptr<Exchange>& exchange, InsideWork work) {
  using Work = engine::Engine::Work;
  const Status asked = engine.run_inside([exchange, work = std::move(work)](engine::Inside* inside) {
    std::optional<Finish> finish;
    try {
      if (inside) finish = work(*inside);
      else finish = [exchange] { answer_error(exchange, server_stopping()); };
    } catch (const std::exception& e) {  // Out of memory, say: it ends this request, never the server.
      spdlog::error("internal error while looking into the store: {}", e.what());
      finish = [exchange] { answer_error(exchange, ApiError{.message = "internal error"}); };
    }
    if (!finish) return Work::again;
    exchange->post(std::move(*finish));
    return Work::done;
  });
  if (!asked.ok()) answer_error(exchange, from_status(asked));
}

std::string query_field(const HttpRequest& request, std::string_view name) {
  std::string_view rest = request.query;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (part.substr(0, equals) != name) continue;
    return equals == std::string_view::npos ? std::string() : percent_decoded(part.substr(equals + 1));
  }
  return {};
}

}  // namespace lode::serve
