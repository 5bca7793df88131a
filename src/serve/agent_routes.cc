#include "serve/agent_routes.h"

#include <string_view>
#include <utility>
#include <variant>

#include "serve/messages.h"
#include "serve/messages_request.h"
#include "serve/responses.h"
#include "serve/responses_request.h"
#include "serve/route_tools.h"

namespace lode::serve {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

// An error that chat's reader found, in the words of the endpoint whose body was translated.
ApiError in_words_of(ApiError error, std::string_view schema, std::string_view length) {
  const auto rename = [&](std::string_view from, std::string_view to) {
    if (error.param != from) return;
    error.param = to;
    if (const std::size_t at = error.message.find(from); at != std::string::npos)
      error.message.replace(at, from.size(), to);
  };
  rename("response_format.json_schema.schema", schema);
  rename("max_tokens", length);
  return error;
}

std::string_view schema_field(const Json& body) {
  return body.contains("output_format") ? "output_format.schema" : "output_config.format.schema";
}

}  // namespace

void messages(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  const auto context = chat_context(app, *engine, exchange);
  if (!context) return;
  work_on_json(app, exchange, [&app, engine, exchange, context = *context](const Json& body) -> Finish {
    auto read = read_messages_body(body, MaxTokens::needed);
    if (const auto* error = std::get_if<ApiError>(&read)) return then_error(exchange, *error);
    auto& chat = std::get<MessagesBody>(read);
    auto parsed = parse_chat_request(chat.chat, context, std::move(chat.marks));
    if (const auto* error = std::get_if<ApiError>(&parsed))
      return then_error(exchange, in_words_of(*error, schema_field(body), "max_tokens"));
    auto request = std::make_shared<ChatRequest>(std::get<ChatRequest>(std::move(parsed)));
    return [&app, engine, exchange, request] {
      request->shared.salt = salt_for(app, exchange->request().api_key, request->shared.salt);
      Messages::start(app, *engine, exchange, std::move(*request));
    };
  });
}

void count_tokens(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  const auto context = chat_context(app, *engine, exchange);
  if (!context) return;
  work_on_json(app, exchange, [exchange, context = *context](const Json& body) -> Finish {
    auto read = read_messages_body(body, MaxTokens::optional);
    if (const auto* error = std::get_if<ApiError>(&read)) return then_error(exchange, *error);
    const auto parsed = parse_chat_request(std::get<MessagesBody>(read).chat, context);
    if (const auto* error = std::get_if<ApiError>(&parsed))
      return then_error(exchange, in_words_of(*error, schema_field(body), "max_tokens"));
    return then_answer(exchange,
                       {.body = dump_json({{"input_tokens", std::get<ChatRequest>(parsed).prompt.ids.size()}})});
  });
}

void responses(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  const auto context = chat_context(app, *engine, exchange);
  if (!context) return;
  work_on_json(app, exchange, [&app, engine, exchange, context = *context](const Json& body) -> Finish {
    auto read = read_responses_body(body);
    if (const auto* error = std::get_if<ApiError>(&read)) return then_error(exchange, *error);
    auto& in = std::get<ResponsesBody>(read);
    auto parsed = parse_chat_request(in.chat, context);
    if (const auto* error = std::get_if<ApiError>(&parsed))
      return then_error(exchange, in_words_of(*error, "text.format.schema", "max_output_tokens"));
    auto request = std::make_shared<ResponsesRequest>(
        ResponsesRequest{std::get<ChatRequest>(std::move(parsed)), std::move(in.echo)});
    return [&app, engine, exchange, request] {
      engine::Request& shared = request->chat.shared;
      shared.salt = salt_for(app, exchange->request().api_key, shared.salt);
      Responses::start(app, *engine, exchange, std::move(*request));
    };
  });
}

void embeddings(App&, const ExchangePtr& exchange) {
  answer_error(exchange, {.http_status = 400,
                          .message = "this model makes no embeddings: Lode runs language models, and no embedding "
                                     "model's family yet",
                          .type = "invalid_request_error",
                          .code = "embeddings_unsupported"});
}

}  // namespace lode::serve
