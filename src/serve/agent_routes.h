// What agents speak beside chat: Anthropic's /v1/messages and /v1/messages/count_tokens, OpenAI's /v1/responses; and
// /v1/embeddings, which answers 501. docs/api.md has the shapes. On the exchange's strand.
#pragma once

#include <memory>

#include "serve/app.h"
#include "serve/http.h"

namespace lode::serve {

void messages(App& app, const std::shared_ptr<Exchange>& exchange);
void count_tokens(App& app, const std::shared_ptr<Exchange>& exchange);
void responses(App& app, const std::shared_ptr<Exchange>& exchange);
// No family that is loaded here gives embeddings: a client must not take a language model's hidden state for one.
void embeddings(App& app, const std::shared_ptr<Exchange>& exchange);

}  // namespace lode::serve
