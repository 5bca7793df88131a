// The replies of /v1/messages: Anthropic's messages, whole or as events. See generation.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/chat_answer.h"
#include "serve/chat_request.h"
#include "serve/completion.h"
#include "serve/generation.h"

namespace lode::serve {

class Messages : private RequestHolder<ChatRequest>, public Generation {
 public:
  static void start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request);
  Messages(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ChatRequest request);

 private:
  using Kind = text::ReplyDelta::Kind;  // A block is content (text), reasoning (thinking) or a call (tool_use).
  struct Block {
    Kind kind;
    std::string text;      // Of a call: its arguments. Whole delivery only.
    std::string id, name;  // Of a call.
  };

  void on_progress(std::size_t index, const engine::Event& event) override;
  void on_text(std::size_t index, engine::Event& event) override;
  void on_last_text(std::size_t index, engine::Event& event) override;
  Json whole_reply() override;
  void finish_stream() override;
  std::string error_event(const ApiError& error) const override;
  std::string_view heartbeat() const override { return "event: ping\ndata: {\"type\": \"ping\"}\n\n"; }

  void begin(const kv::Reuse& reuse);
  void tell(std::vector<text::ReplyDelta> deltas);
  void open(Kind kind, text::ReplyDelta& delta);
  void close();
  Json block_json(const Block& block) const;
  Json message_json() const;
  Json usage_of(const kv::Reuse& reuse, std::int64_t output) const;
  Json stop_fields() const;

  ChatAnswer answer_;
  std::vector<Block> blocks_;
  bool begun_ = false, open_ = false;  // message_start has been sent; the last block is not closed yet.
};

}  // namespace lode::serve
