// The replies of /v1/chat/completions: messages, deltas, tool calls. See choice_generation.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/chat_answer.h"
#include "serve/chat_request.h"
#include "serve/choice_generation.h"
#include "serve/completion.h"

namespace lode::serve {

// Chat's logprobs: {"content": [{token, logprob, bytes, top_logprobs: [...]}]}, built token by token. Log-probabilities
// are the model's own, before temperature and filters; minus infinity is written as -9999.
class ChatLogprobs {
 public:
  void add(const engine::TokenInfo& token, const text::Tokenizer& tokenizer);
  bool empty() const { return content_.empty(); }
  Json take();  // What was added since the last take.

 private:
  Json content_ = Json::array();
};

class ChatCompletion : private RequestHolder<ChatRequest>, public ChoiceGeneration {
 public:
  static void start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request);
  ChatCompletion(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request);

 private:
  struct Call {
    std::string id, name, arguments;
  };
  struct Choice {
    explicit Choice(const ChatRequest& request) : answer(request) {}
    ChatAnswer answer;
    ChatLogprobs logprobs;
    bool begun = false;              // The role has been sent.
    std::size_t told = 0;            // Calls whose beginning has been sent.
    std::string content, reasoning;  // Whole delivery only, like `made`.
    std::vector<Call> made;
  };

  void on_text(std::size_t index, engine::Event& event) override;
  void on_last_text(std::size_t index, engine::Event& event) override;
  Json choice_json(std::size_t index) override;
  Json empty_choice(std::size_t index) const override;

  void begin(std::size_t index, const engine::Event& event);
  void tell(std::size_t index, std::vector<text::ReplyDelta> deltas);
  void gather(Choice& choice, text::ReplyDelta& delta);
  void stream(std::size_t index, text::ReplyDelta& delta);
  void send_delta(std::size_t index, Json delta);
  Json finish(std::size_t index) const;

  std::vector<Choice> choices_;
};

}  // namespace lode::serve
