// What files of routes share: answers, the engine for a request, who is asking. Defined in routes.cc. Called on the
// exchange's strand, except where it says otherwise.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serve/api_error.h"
#include "serve/app.h"
#include "serve/body_work.h"
#include "serve/chat_request.h"
#include "serve/http.h"
#include "serve/json.h"

namespace lode::serve {

// Replies, and logs a line.
void answer(const std::shared_ptr<Exchange>& exchange, HttpReply reply);
void answer_json(const std::shared_ptr<Exchange>& exchange, const Json& body);
void answer_error(const std::shared_ptr<Exchange>& exchange, const ApiError& error);
// An answer computed elsewhere, to be given on the strand. Any thread.
Finish then_answer(const std::shared_ptr<Exchange>& exchange, HttpReply reply);
Finish then_error(const std::shared_ptr<Exchange>& exchange, const ApiError& error);

// nullptr: there is none now, or the body is no JSON; answered.
engine::Engine* ready_engine(App& app, const std::shared_ptr<Exchange>& exchange);
engine::Engine* engine_for_body(App& app, const std::shared_ptr<Exchange>& exchange);
// work_on_body for a body that must be a JSON object. One that names a grammar goes to the workers, however small.
void work_on_json(App& app, const std::shared_ptr<Exchange>& exchange, std::function<Finish(const Json&)> compute);
// What reading a chat body needs; an answer where the model has no chat template.
std::optional<ChatContext> chat_context(App& app, const engine::Engine& engine,
                                        const std::shared_ptr<Exchange>& exchange);

std::optional<ChatContext> chat_context_if_any(App& app, const engine::Engine& engine);

// Whether the key lets its bearer in, and the KV namespace of one who names this salt. Any thread.
bool allowed(const App& app, const std::string& api_key);
std::string salt_for(const App& app, const std::string& api_key, const std::string& salt);

// Work on the step thread (Engine::run_inside), and then an answer on the strand. nullopt: call it again soon.
using InsideWork = std::function<std::optional<Finish>(engine::Inside&)>;
void work_inside(engine::Engine& engine, const std::shared_ptr<Exchange>& exchange, InsideWork work);

std::string percent_decoded(std::string_view path);
// A field of the query, decoded. nullopt (or, of the second, empty) where it is absent.
std::optional<std::string> query_value(const HttpRequest& request, std::string_view name);
std::string query_field(const HttpRequest& request, std::string_view name);

}  // namespace lode::serve
