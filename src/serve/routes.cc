#include "serve/routes.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "platform/clock.h"
#include "serve/agent_routes.h"
#include "serve/body_work.h"
#include "serve/cache_routes.h"
#include "serve/chat_completion.h"
#include "serve/chat_request.h"
#include "serve/completion.h"
#include "serve/completion_request.h"
#include "serve/fields.h"
#include "serve/model_host.h"
#include "serve/props.h"
#include "serve/request_log.h"
#include "serve/route_tools.h"
#include "serve/slot_routes.h"
#include "serve/structured_output.h"

namespace lode::serve {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;

enum class Access { open, keyed };  // open: no API key needed.

struct Route {
  std::string_view method, path;
  Access access;
  void (*handle)(App&, const ExchangePtr&);
  enum class Model { needed, none } model = Model::needed;  // Whether it answers for one model.
};

// Printable characters of what a client sent, cut: it goes into a log line.
std::string for_log(std::string_view s) {
  std::string out;
  for (const char c : s.substr(0, 80)) out += c > ' ' && c < 0x7F ? c : '?';
  return out;
}

}  // namespace

void answer(const ExchangePtr& exchange, HttpReply reply) {
  const int status = reply.status;
  const auto ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - exchange->received()).count();
  const HttpRequest& request = exchange->request();
  const bool routine =
      status < 400 && (request.method == "GET" || request.method == "HEAD");  // Probes: not worth a line.
  log_request({.method = for_log(request.method),
               .path = for_log(request.path),
               .status = status,
               .ms = ms,
               .level = routine ? RequestRecord::Level::debug : RequestRecord::Level::info});
  exchange->reply(std::move(reply));
}

void answer_json(const ExchangePtr& exchange, const Json& body) {
  answer(exchange, {.body = dump_json(body)});
}
void answer_error(const ExchangePtr& exchange, const ApiError& error) {
  answer(exchange, error_reply(exchange->request(), error));
}

static ApiError loading(const App& app) {
  return unavailable(fmt::format("the model is loading: {}", app.stage()), "loading");
}

// The engine, or an answer that there is none now.
engine::Engine* ready_engine(App& app, const ExchangePtr& exchange) {
  if (app.stopping()) answer_error(exchange, server_stopping());
  else if (app.engine() == nullptr) answer_error(exchange, loading(app));
  else return app.engine();
  return nullptr;
}

// Whether a body's type is JSON; otherwise an answer.
static bool has_json_type(const ExchangePtr& exchange) {
  const HttpRequest& request = exchange->request();
  // A browser asks nobody before it sends a form or text/plain: either would let any web page use this server behind
  // its user's back.
  const std::string& type = request.content_type;
  const bool json = type.empty() || type == "application/json" || type.ends_with("+json");
  if (json && request.content_encoding.empty()) return true;
  answer_error(exchange,
               {.http_status = 415,
                .message = json ? fmt::format("Content-Encoding is '{}': send the body as it is (identity)",
                                              for_log(request.content_encoding))
                                : fmt::format("Content-Type is '{}': send the body as application/json", for_log(type)),
                .type = "invalid_request_error"});
  return false;
}

// The engine, for a request whose body has a type that is JSON; otherwise an answer.
engine::Engine* engine_for_body(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = ready_engine(app, exchange);
  return engine != nullptr && has_json_type(exchange) ? engine : nullptr;
}

namespace {

std::variant<Json, ApiError> read_body(const std::string& bytes) {
  auto body = parse_json(bytes);
  if (!body.ok()) return invalid_field("", "the body is not valid JSON: " + body.status().message());
  if (!body->is_object()) return invalid_field("", "the body must be a JSON object, not " + describe(*body));
  return std::move(*body);
}

// ---- Keys

// Compares in a time that does not tell how much of a key was right.
bool key_equals(const std::string& a, const std::string& b) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> of_a{}, of_b{};  // Not even the length shows.
  SHA256(reinterpret_cast<const unsigned char*>(a.data()), a.size(), of_a.data());
  SHA256(reinterpret_cast<const unsigned char*>(b.data()), b.size(), of_b.data());
  return CRYPTO_memcmp(of_a.data(), of_b.data(), of_a.size()) == 0;
}

}  // namespace

bool allowed(const App& app, const std::string& api_key) {
  const auto& keys = app.options().api_keys;
  return keys.empty() ||
         std::any_of(keys.begin(), keys.end(), [&](const auto& key) { return key_equals(key, api_key); });
}

// With several API keys each has its own KV namespace: what one user sent is nothing another can time. The digest's
// length is fixed, so no salt of a client's can imitate another key's.
std::string salt_for(const App& app, const std::string& api_key, const std::string& salt) {
  if (app.options().api_keys.size() < 2) return salt;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(api_key.data()), api_key.size(), digest.data());
  std::string out = "key:";
  for (const unsigned char byte : digest) out += fmt::format("{:02x}", byte);
  return out + ":" + salt;
}

// ---- Endpoints

// An answer computed elsewhere, to be given on the strand.
Finish then_answer(const ExchangePtr& exchange, HttpReply reply) {
  return [exchange, reply = std::make_shared<HttpReply>(std::move(reply))] { answer(exchange, std::move(*reply)); };
}

Finish then_error(const ExchangePtr& exchange, const ApiError& error) {
  return then_answer(exchange, error_reply(exchange->request(), error));
}

// work_on_body for a body that must be a JSON object. One that names a grammar goes to the workers, however small.
void work_on_json(App& app, const ExchangePtr& exchange, std::function<Finish(const Json&)> compute) {
  work_on_body(app, exchange, [&app, exchange, compute = std::move(compute)](const std::string& bytes) -> Finish {
    auto body = read_body(bytes);
    if (const auto* error = std::get_if<ApiError>(&body)) return then_error(exchange, *error);
    if (bytes.size() > kInlineBodyMax || !names_structured_output(std::get<Json>(body)))
      return compute(std::get<Json>(body));
    auto json = std::make_shared<const Json>(std::get<Json>(std::move(body)));
    return [&app, exchange, compute, json] {
      work_on_worker(app, exchange, [compute, json](const std::string&) { return compute(*json); });
    };
  });
}

namespace {

void completions(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  work_on_json(app, exchange, [&app, engine, exchange](const Json& body) -> Finish {
    auto parsed = parse_completion_request(body, app.grammars(), engine->info().context_max);
    if (const auto* error = std::get_if<ApiError>(&parsed)) return then_error(exchange, *error);
    auto request = std::make_shared<CompletionRequest>(std::get<CompletionRequest>(std::move(parsed)));
    return [&app, engine, exchange, request] {
      request->shared.salt = salt_for(app, exchange->request().api_key, request->shared.salt);
      Completion::start(app, *engine, exchange, std::move(*request));
    };
  });
}

}  // namespace

static text::DateTime local_now() {
  const std::tm t = platform::local_time(platform::system_clock().wall_seconds());
  return {t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec};
}

std::optional<ChatContext> chat_context_if_any(App& app, const engine::Engine& engine) {
  if (!app.chat().ok()) return std::nullopt;
  return ChatContext{**app.chat(), app.grammars(), engine.info().context_max, local_now()};
}

// What reading a chat body needs; an answer where the model has no chat template.
std::optional<ChatContext> chat_context(App& app, const engine::Engine& engine, const ExchangePtr& exchange) {
  if (auto context = chat_context_if_any(app, engine)) return context;
  answer_error(exchange, {.http_status = 400,
                          .message = app.chat().status().message(),
                          .type = "invalid_request_error",
                          .code = "no_chat_template"});
  return std::nullopt;
}

namespace {

void chat_completions(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  const auto context = chat_context(app, *engine, exchange);
  if (!context) return;
  work_on_json(app, exchange, [&app, engine, exchange, context = *context](const Json& body) -> Finish {
    auto parsed = parse_chat_request(body, context);
    if (const auto* error = std::get_if<ApiError>(&parsed)) return then_error(exchange, *error);
    auto request = std::make_shared<ChatRequest>(std::get<ChatRequest>(std::move(parsed)));
    return [&app, engine, exchange, request] {
      request->shared.salt = salt_for(app, exchange->request().api_key, request->shared.salt);
      ChatCompletion::start(app, *engine, exchange, std::move(*request));
    };
  });
}

// llama-server's: messages -> {"prompt"}.
void apply_template(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  const auto context = chat_context(app, *engine, exchange);
  if (!context) return;
  work_on_json(app, exchange, [exchange, context = *context](const Json& body) -> Finish {
    auto turns = parse_chat_turns(body, context);
    if (const auto* error = std::get_if<ApiError>(&turns)) return then_error(exchange, *error);
    const auto prompt = context.chat.render(std::get<text::ChatTurns>(turns));
    if (!prompt.ok()) return then_answer(exchange, to_reply(invalid_field("messages", prompt.status().message())));
    Json out;
    out["prompt"] = prompt->text;
    return then_answer(exchange, {.body = dump_json(out)});
  });
}

// llama-server's: {content, add_special: false, parse_special: true, with_pieces: false}.
HttpReply tokenize_reply(const text::Tokenizer& tokenizer, const Json& body, std::size_t bytes_max) {
  Fields fields(body);
  std::string content;
  bool add_special = false, parse_special = true, with_pieces = false;
  fields.string("content", content, bytes_max);
  if (fields.find("content") == nullptr) fields.fail("content", "'content' is missing");
  fields.boolean("add_special", add_special);
  fields.boolean("parse_special", parse_special);
  fields.boolean("with_pieces", with_pieces);
  if (fields.error()) return to_reply(*fields.error());
  using Options = text::EncodeOptions;
  const auto ids =
      tokenizer.encode(content, {.special = parse_special ? Options::Special::parse : Options::Special::text,
                                 .bos = add_special ? Options::Bos::model : Options::Bos::none});
  Json list = Json::array();
  for (const TokenId id : ids) {
    if (!with_pieces) {
      list.push_back(id);
      continue;
    }
    const std::string bytes = tokenizer.token_bytes(id, text::Tokenizer::Control::show);
    Json piece = bytes;
    if (!is_valid_utf8(bytes)) {  // Part of a character: as numbers, so that nothing is lost.
      piece = Json::array();
      for (const char c : bytes) piece.push_back(static_cast<unsigned char>(c));
    }
    list.push_back({{"id", id}, {"piece", std::move(piece)}});
  }
  Json out;
  out["tokens"] = std::move(list);
  return {.body = dump_json(out)};
}

void tokenize(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  work_on_json(app, exchange, [&app, engine, exchange](const Json& body) {
    return then_answer(exchange, tokenize_reply(engine->tokenizer(), body, app.options().connection.body_bytes_max));
  });
}

HttpReply detokenize_reply(const text::Tokenizer& tokenizer, const Json& body) {
  Fields fields(body);
  const Json* tokens = fields.find("tokens");
  std::vector<TokenId> ids;
  if (tokens == nullptr) fields.fail("tokens", "'tokens' is missing");
  else if (!tokens->is_array()) fields.fail("tokens", "an array of token ids", describe(*tokens));
  else {
    for (const Json& value : *tokens) {
      const auto id = as_integer(value);
      if (!id || *id < 0 || *id >= tokenizer.vocab_size()) {
        fields.fail("tokens", fmt::format("made of token ids from 0 to {}", tokenizer.vocab_size() - 1),
                    describe(value));
        break;
      }
      ids.push_back(static_cast<TokenId>(*id));
    }
  }
  if (fields.error()) return to_reply(*fields.error());
  Json out;
  out["content"] = tokenizer.decode(ids, text::Tokenizer::Control::show);
  return {.body = dump_json(out)};
}

void detokenize(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = engine_for_body(app, exchange);
  if (engine == nullptr) return;
  work_on_json(app, exchange, [engine, exchange](const Json& body) {
    return then_answer(exchange, detokenize_reply(engine->tokenizer(), body));
  });
}

// llama-server's: what a client needs to know of the model and of what it gets when it does not ask.
void props(App& app, const ExchangePtr& exchange) {
  engine::Engine* engine = ready_engine(app, exchange);
  if (engine != nullptr) answer_json(exchange, props_json(app, *engine));
}

Json model_json(const App& app, const engine::EngineInfo& info) {
  Json out;
  out["id"] = info.model_name;
  out["object"] = "model";
  out["created"] = std::chrono::duration_cast<std::chrono::seconds>(app.started().time_since_epoch()).count();
  out["owned_by"] = "lode";
  out["max_model_len"] = info.context_max;  // vLLM's name for n_ctx.
  out["meta"] = {{"description", info.description},
                 {"architecture", info.architecture},
                 {"n_vocab", info.vocab},
                 {"n_ctx", info.context_max},  // Tokens a sequence: slots do not divide it.
                 {"n_ctx_train", info.context_trained},
                 {"n_slots", info.slots},
                 {"n_params", info.parameters},
                 {"size", info.file_bytes},
                 {"fingerprint", info.fingerprint}};
  return out;
}

// One of several: what is not known before it is loaded is left out.
Json model_json(const App& app, const ModelHost::State& state) {
  using Is = ModelHost::State::Is;
  Json out = state.info ? model_json(app, *state.info) : model_json(app, engine::EngineInfo{.model_name = state.name});
  if (!state.info) {
    out.erase("max_model_len");
    out.erase("meta");
  }
  out["status"] = {{"value", state.is == Is::loaded ? "loaded" : state.is == Is::loading ? "loading" : "unloaded"}};
  return out;
}

// nullopt: none now; answered.
std::optional<Json> all_models(App& app, const ExchangePtr& exchange) {
  Json list = Json::array();
  if (app.stopping()) {
    answer_error(exchange, server_stopping());
    return std::nullopt;
  }
  if (app.models() != nullptr) {
    for (const auto& state : app.models()->models()) list.push_back(model_json(app, state));
    return list;
  }
  const engine::Engine* engine = ready_engine(app, exchange);
  if (engine == nullptr) return std::nullopt;
  list.push_back(model_json(app, engine->info()));
  return list;
}

void models(App& app, const ExchangePtr& exchange) {
  auto list = all_models(app, exchange);
  if (list) answer_json(exchange, {{"object", "list"}, {"data", std::move(*list)}});
}

// %41 is A; what is not two hexadecimal digits stays as it is.
}  // namespace

std::string percent_decoded(std::string_view path) {
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    unsigned char byte = 0;
    const char* const end = path.data() + std::min(i + 3, path.size());
    const bool escape =
        path[i] == '%' && std::from_chars(path.data() + i + 1, end, byte, 16).ptr == path.data() + i + 3;
    out += escape ? static_cast<char>(byte) : path[i];
    if (escape) i += 2;
  }
  return out;
}

namespace {

void one_model(App& app, const ExchangePtr& exchange) {
  const auto list = all_models(app, exchange);
  if (!list) return;
  const std::string name =
      percent_decoded(std::string_view(exchange->request().path).substr(std::string_view("/v1/models/").size()));
  for (const Json& model : *list)
    if (model["id"] == name) return answer_json(exchange, model);
  answer_error(exchange, {.http_status = 404,
                          .message = fmt::format("no model '{}' here; this server has '{}'", for_log(name),
                                                 (*list)[0]["id"].get<std::string>()),
                          .type = "not_found_error",
                          .code = "model_not_found"});
}

void health(App& app, const ExchangePtr& exchange) {
  if (app.stopping()) return answer_error(exchange, server_stopping());
  if (app.engine() != nullptr || app.models() != nullptr) return answer_json(exchange, {{"status", "ok"}});
  const auto seconds = std::chrono::duration<double>(std::chrono::system_clock::now() - app.started()).count();
  HttpReply reply = to_reply(loading(app));
  Json body = to_json(loading(app));
  body["status"] = "loading";
  body["stage"] = app.stage();
  body["seconds"] = seconds;
  reply.body = dump_json(body);
  answer(exchange, std::move(reply));
}

void metrics(App& app, const ExchangePtr& exchange) {
  std::optional<engine::EngineStats> stats;
  if (app.models() != nullptr) stats = app.models()->stats();
  else if (app.engine() != nullptr) stats = app.engine()->stats();
  answer(exchange, {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                    .body = prometheus_text(app.counters(), stats ? &*stats : nullptr)});
}

void openapi(App& app, const ExchangePtr& exchange) {
  static const std::string document = openapi_document(route_names());
  answer(exchange, {.body = document});
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", Access::keyed, chat_completions},
    {"POST", "/chat/completions", Access::keyed, chat_completions},
    {"POST", "/v1/completions", Access::keyed, completions},
    {"POST", "/v1/messages", Access::keyed, messages},
    {"POST", "/v1/messages/count_tokens", Access::keyed, count_tokens},
    {"POST", "/v1/responses", Access::keyed, responses},
    {"POST", "/v1/embeddings", Access::keyed, embeddings},
    {"POST", "/apply-template", Access::keyed, apply_template},
    {"GET", "/props", Access::keyed, props},
    {"POST", "/tokenize", Access::keyed, tokenize},
    {"POST", "/detokenize", Access::keyed, detokenize},
    {"GET", "/v1/models", Access::keyed, models, Route::Model::none},
    {"GET", "/v1/cache", Access::keyed, cache_list},
    {"POST", "/v1/cache/explain", Access::keyed, cache_explain},
    {"POST", "/v1/cache/pin", Access::keyed, cache_pin},
    {"POST", "/v1/cache/unpin", Access::keyed, cache_unpin},
    {"POST", "/v1/cache/purge", Access::keyed, cache_purge},
    {"GET", "/slots", Access::keyed, slots_list},
    {"GET", "/health", Access::open, health, Route::Model::none},
    {"GET", "/metrics", Access::keyed, metrics, Route::Model::none},
    {"GET", "/openapi.json", Access::open, openapi, Route::Model::none},
};
// The rest of the path is a name.
constexpr Route kPrefixes[] = {{"GET", "/v1/models/", Access::keyed, one_model, Route::Model::none},
                               {"POST", "/slots/", Access::keyed, slot_action}};

const Route* find_route(std::string_view path) {
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  for (const Route& route : kPrefixes) {
    if (path.size() > route.path.size() && path.starts_with(route.path)) return &route;
  }
  return nullptr;
}

}  // namespace

std::vector<RouteName> route_names() {
  std::vector<RouteName> out;
  for (const Route& route : kRoutes) out.push_back({route.method, route.path});
  for (const Route& route : kPrefixes) out.push_back({route.method, route.path});
  return out;
}

// A browser asks before it sends what a page of another origin wants to send. It sends no key with that.
static bool answered_preflight(const App& app, const Route& route, const ExchangePtr& exchange) {
  const HttpRequest& request = exchange->request();
  if (request.method != "OPTIONS" || app.options().connection.cors_origins.empty() || request.origin.empty())
    return false;
  HttpReply reply{.content_type = "text/plain"};
  reply.headers.emplace_back("Access-Control-Allow-Methods", route.method == "GET" ? "GET, HEAD" : "POST");
  if (!request.asked_headers.empty()) reply.headers.emplace_back("Access-Control-Allow-Headers", request.asked_headers);
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  answer(exchange, std::move(reply));
  return true;
}

// Which of several models a request is for; empty: it does not say.
static std::string model_named_by(const HttpRequest& request) {
  if (request.method == "POST") {
    if (auto name = top_level_string(request.body, "model")) return std::move(*name);
  }
  return query_field(request, "model");
}

void handle_request(App& app, const ExchangePtr& exchange) {
  const HttpRequest& request = exchange->request();
  const Route* route = find_route(request.path);
  if (route == nullptr) {
    return answer_error(
        exchange, {.http_status = 404,
                   .message = fmt::format("no such endpoint: {} {}", for_log(request.method), for_log(request.path)),
                   .type = "not_found_error",
                   .code = "unknown_url"});
  }
  if (answered_preflight(app, *route, exchange)) return;
  const bool head = route->method == "GET" && request.method == "HEAD";
  if (request.method != route->method && !head) {
    HttpReply reply = error_reply(
        request, {.http_status = 405,
                  .message = fmt::format("{} takes {}, not {}", route->path, route->method, for_log(request.method)),
                  .type = "invalid_request_error",
                  .code = "method_not_allowed"});
    reply.headers.emplace_back("Allow", route->method == "GET" ? "GET, HEAD" : std::string(route->method));
    return answer(exchange, std::move(reply));
  }
  if (route->access == Access::keyed && !allowed(app, request.api_key)) {
    return answer_error(exchange, {.http_status = 401,
                                   .message = "a valid API key is needed: send 'Authorization: Bearer KEY'",
                                   .type = "authentication_error",
                                   .code = "invalid_api_key"});
  }
  ModelHost* const host = app.models();
  if (host == nullptr || route->model == Route::Model::none) return route->handle(app, exchange);
  if (request.method == "POST" && !has_json_type(exchange)) return;  // Nor may it have a model loaded.
  host->run_with(model_named_by(request), exchange, [&app, exchange, route] { route->handle(app, exchange); });
}

}  // namespace lode::serve
