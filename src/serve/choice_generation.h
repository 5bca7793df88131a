// Replies that are a list of choices: OpenAI's completions and chat completions. See generation.h.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "serve/generation.h"

namespace lode::serve {

class ChoiceGeneration : public Generation {
 protected:
  struct Objects {
    std::string_view whole, chunk;  // "text_completion", ...
  };
  ChoiceGeneration(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, const Names& names,
                   const Objects& objects, GenerationRequest& request, std::vector<std::vector<TokenId>> prompts)
      : Generation(app, engine, std::move(exchange), names, request, std::move(prompts)),
        objects_(objects),
        request_(request) {}

  // One choice of a whole reply, in index order.
  virtual Json choice_json(std::size_t index) = 0;
  // A chunk's choice that says nothing: for progress.
  virtual Json empty_choice(std::size_t index) const = 0;

  Json envelope() const;  // id, object, created, model
  void send(const Json& chunk);
  void send_choice(Json choice);  // In an envelope.
  // Adds what only a stream's last chunk of a choice says: seed, timings, cache.
  void add_account(Json& chunk, std::size_t index) const;
  // A stop string that matched, for "stop_reason"; null: none.
  Json stop_reason(std::size_t index) const;

 private:
  void on_progress(std::size_t index, const engine::Event& event) override;
  Json whole_reply() override;
  void finish_stream() override;

  const Objects objects_;
  GenerationRequest& request_;
};

}  // namespace lode::serve
