// One request while it lives in the engine. Step thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "engine/stop_matcher.h"
#include "kv/store.h"
#include "text/tokenizer.h"

namespace lode::engine {

struct Live {
  Live(RequestId id_, Request&& request_, EventSink&& sink_, const text::Tokenizer& tokenizer, std::int64_t now_ns)
      : id(id_),
        request(std::move(request_)),
        sink(std::move(sink_)),
        tokens(std::move(request.prompt)),
        prompt_n(static_cast<std::int64_t>(tokens.size())),
        text(tokenizer, {.start = text::Detokenizer::Start::continuation}),
        stops(request.stop),
        constraint(request.constraint ? request.constraint->clone() : nullptr),
        submitted_ns(now_ns) {}

  RequestId id;
  Request request;  // Its prompt has moved to `tokens`.
  EventSink sink;
  std::vector<TokenId> tokens;  // Prompt, then what was generated.
  std::int64_t prompt_n;
  text::Detokenizer text;
  StopMatcher stops;
  std::unique_ptr<Constraint> constraint;  // This choice's own; null: anything may come.
  std::vector<TokenInfo> unsent;           // Tokens whose text is held back.

  int slot = -1;                // While admitted.
  kv::Sequence* kv = nullptr;   // Null while queued.
  bool first_admission = true;  // A preempted request comes back with its history; its first Reuse is the one told.
  kv::Reuse reuse;
  bool prompt_done = false;  // The first token was sampled; what remains is decoding.

  std::int64_t submitted_ns, admitted_ns = 0, first_token_ns = 0;

  std::int64_t generated() const { return static_cast<std::int64_t>(tokens.size()) - prompt_n; }
};

}  // namespace lode::engine
