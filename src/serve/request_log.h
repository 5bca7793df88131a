// The log's line of a request, as words or as JSON, and the format of JSON lines. Any thread.
#pragma once

#include <spdlog/formatter.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace lode::serve {

struct RequestRecord {
  std::uint64_t number = 0;  // Of a request for text; 0: it is another.
  std::string_view method, path;
  int status = 0;  // 499: the client left.
  double ms = 0;   // Since the request's last byte.
  struct Text {
    std::int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    double first_token_ms = -1;  // -1: there was none.
  };
  std::optional<Text> text;
  enum class Level { info, debug } level = Level::info;
};
void log_request(const RequestRecord& record);

// One JSON object a line: {"time": "2026-12-01T02:00:00.123Z", "level": "info", "message": "..."}, or, of a request,
// its fields instead of a message. Given to spdlog, it also makes log_request() write fields.
std::unique_ptr<spdlog::formatter> json_log_formatter();

}  // namespace lode::serve
