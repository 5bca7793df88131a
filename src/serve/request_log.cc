#include "serve/request_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <string>

#include "serve/json.h"

namespace lode::serve {
namespace {

std::atomic<bool> as_json{false};  // Set once, when the log is set up.
constexpr char kFields = '\x1e';   // Before a payload that is an object of fields, not a message.

std::string utc(std::chrono::system_clock::time_point at) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(at);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count() % 1000;
  std::tm t{};
  gmtime_r(&seconds, &t);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour,
                     t.tm_min, t.tm_sec, ms);
}

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    std::string_view payload(message.payload.data(), message.payload.size());
    Json line;
    line["time"] = utc(message.time);
    const auto level = spdlog::level::to_string_view(message.level);
    line["level"] = std::string(level.data(), level.size());
    if (payload.starts_with(kFields)) line.update(Json::parse(payload.substr(1), nullptr, false));
    else line["message"] = valid_utf8(payload);
    const std::string text = dump_json(line) + "\n";
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

std::string words(const RequestRecord& r) {
  if (!r.text) return fmt::format("{} {} {} {:.1f} ms", r.method, r.path, r.status, r.ms);
  if (r.status == 499) {
    return fmt::format("#{} {} 499 prompt {}: the client left after {:.0f} ms", r.number, r.path, r.text->prompt_tokens,
                       r.ms);
  }
  return fmt::format("#{} {} {} prompt {} cached {} generated {} {:.0f} ms", r.number, r.path, r.status,
                     r.text->prompt_tokens, r.text->cached_tokens, r.text->generated_tokens, r.ms);
}

std::string fields(const RequestRecord& r) {
  Json out;
  out["event"] = "request";
  if (r.number > 0) out["request"] = r.number;
  out["method"] = r.method;
  out["path"] = r.path;
  out["status"] = r.status;
  out["ms"] = finite(r.ms);
  if (r.text) {
    out["prompt_tokens"] = r.text->prompt_tokens;
    out["cached_tokens"] = r.text->cached_tokens;
    out["generated_tokens"] = r.text->generated_tokens;
    out["first_token_ms"] = r.text->first_token_ms >= 0 ? Json(finite(r.text->first_token_ms)) : Json(nullptr);
  }
  return kFields + dump_json(out);
}

}  // namespace

void log_request(const RequestRecord& record) {
  const auto level = record.level == RequestRecord::Level::debug ? spdlog::level::debug : spdlog::level::info;
  if (!spdlog::should_log(level)) return;
  spdlog::log(level, "{}", as_json ? fields(record) : words(record));
}

std::unique_ptr<spdlog::formatter> json_log_formatter() {
  as_json = true;
  return std::make_unique<JsonFormatter>();
}

}  // namespace lode::serve
