#include "serve/api_error.h"

#include <utility>

namespace lode::serve {

ApiError unavailable(std::string message, std::string code) {
  return {.http_status = 503, .message = std::move(message), .type = "unavailable_error", .code = std::move(code)};
}

ApiError server_stopping() {
  return unavailable("the server is stopping", "stopping");
}

ApiError invalid_field(std::string param, std::string message) {
  return {
      .http_status = 400, .message = std::move(message), .type = "invalid_request_error", .param = std::move(param)};
}

ApiError from_status(const Status& status) {
  ApiError error{.message = status.message()};
  switch (status.code()) {
    case Code::invalid_argument:
    case Code::unsupported:
      error.http_status = 400;
      error.type = "invalid_request_error";
      break;
    case Code::not_found:
      error.http_status = 404;
      error.type = "not_found_error";
      break;
    case Code::unavailable:
    case Code::resource_exhausted:
      error.http_status = 503;
      error.type = "unavailable_error";
      break;
    default: break;
  }
  if (!status.ok() && error.http_status >= 500) error.code = code_name(status.code());
  return error;
}

Json to_json(const ApiError& error) {
  const auto or_null = [](const std::string& s) { return s.empty() ? Json(nullptr) : Json(s); };
  Json out;
  out["error"] = {
      {"message", error.message}, {"type", error.type}, {"param", or_null(error.param)}, {"code", or_null(error.code)}};
  return out;
}

Json to_anthropic_json(const ApiError& error) {
  const auto type = [&]() -> std::string_view {
    switch (error.http_status) {
      case 401: return "authentication_error";
      case 403: return "permission_error";
      case 404: return "not_found_error";
      case 413: return "request_too_large";
      case 429: return "rate_limit_error";
      case 503: return "overloaded_error";
      default: return error.http_status < 500 ? "invalid_request_error" : "api_error";
    }
  };
  Json out;
  out["type"] = "error";
  out["error"] = {{"type", type()}, {"message", error.message}};
  return out;
}

HttpReply error_reply(const HttpRequest& request, const ApiError& error) {
  HttpReply reply = to_reply(error);
  if (request.path.starts_with("/v1/messages")) reply.body = dump_json(to_anthropic_json(error));
  return reply;
}

HttpReply to_reply(const ApiError& error) {
  HttpReply reply{.status = error.http_status, .body = dump_json(to_json(error))};
  if (error.http_status == 503) reply.headers.emplace_back("Retry-After", "1");
  if (error.http_status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

}  // namespace lode::serve
