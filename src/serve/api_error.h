// Errors with an HTTP status, in OpenAI's shape, {"error": {message, type, param, code}}, or in Anthropic's,
// {"type": "error", "error": {type, message}}, by the path that was asked. Owns nothing. Any thread.
#pragma once

#include <string>

#include "base/status.h"
#include "serve/http.h"
#include "serve/json.h"

namespace lode::serve {

struct ApiError {
  int http_status = 500;
  std::string message;
  std::string type = "server_error";
  std::string param;  // The field at fault; empty: null.
  std::string code;   // A word a program can test; empty: null.
};

// 503, with a code a client can tell apart.
ApiError unavailable(std::string message, std::string code);
// 503: refused because the server is about to end.
ApiError server_stopping();
// 400, naming the field.
ApiError invalid_field(std::string param, std::string message);
// invalid and unsupported: 400; not_found: 404; unavailable and exhausted: 503; the rest: 500.
ApiError from_status(const Status& status);

Json to_json(const ApiError& error);
Json to_anthropic_json(const ApiError& error);
HttpReply to_reply(const ApiError& error);  // In OpenAI's shape. With Retry-After where the status is 503.
// In the shape that the request's endpoint speaks.
HttpReply error_reply(const HttpRequest& request, const ApiError& error);

}  // namespace lode::serve
