// The replies of /v1/chat/completions: messages, deltas, tool calls. See generation.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/chat_request.h"
#include "serve/completion.h"
#include "serve/generation.h"
#include "text/chat/reply_parser.h"

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

class ChatCompletion : private RequestHolder<ChatRequest>, public Generation {
 public:
  static void start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request);
  ChatCompletion(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request);

 private:
  struct Call {
    std::string id, name, arguments;
  };
  struct Choice {
    explicit Choice(text::ReplyParser p) : parser(std::move(p)) {}
    text::ReplyParser parser;
    ChatLogprobs logprobs;
    bool begun = false;              // The role has been sent.
    std::size_t calls = 0;           // Reported so far.
    std::string content, reasoning;  // Whole delivery only, like `made`.
    std::vector<Call> made;
  };

  void on_text(std::size_t index, engine::Event& event) override;
  void on_last_text(std::size_t index, engine::Event& event) override;
  Json choice_json(std::size_t index) override;
  Json empty_choice(std::size_t index) const override;

  void take(std::size_t index, engine::Event& event, std::vector<text::ReplyDelta>& deltas);
  bool reported(Choice& choice, const text::ReplyDelta& delta) const;
  void gather(Choice& choice, text::ReplyDelta& delta);
  void stream(std::size_t index, text::ReplyDelta& delta);
  void send_delta(std::size_t index, Json delta);
  Json finish(std::size_t index) const;
  std::string call_id(const text::ReplyDelta& delta) const;

  std::vector<Choice> choices_;
};

}  // namespace lode::serve
