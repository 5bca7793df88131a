// The replies of /v1/completions: OpenAI's legacy shape. See choice_generation.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/choice_generation.h"
#include "serve/completion_request.h"

namespace lode::serve {

// What Completion and ChatCompletion keep alive beside their Generation part, which refers to it.
template <typename Request>
struct RequestHolder {
  Request held;
};

class Completion : private RequestHolder<CompletionRequest>, public ChoiceGeneration {
 public:
  static void start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, CompletionRequest request);
  Completion(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, CompletionRequest request);

 private:
  struct Choice {
    bool echoed = false;  // The prompt's text and logprobs are in.
    std::string text;     // Whole delivery only.
    LegacyLogprobs logprobs;
  };

  void on_stream_begun() override;
  void on_text(std::size_t index, engine::Event& event) override;
  void on_last_text(std::size_t index, engine::Event& event) override;
  Json choice_json(std::size_t index) override;
  Json empty_choice(std::size_t index) const override;

  void add_logprobs(std::size_t index, const engine::Event& event);
  Json choice_with(std::size_t index, std::string text, engine::FinishReason finish);
  std::string echo_text(std::size_t index);

  std::vector<Choice> choices_;
};

}  // namespace lode::serve
