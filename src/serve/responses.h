// The replies of /v1/responses: OpenAI's responses, whole or as events. See generation.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/chat_answer.h"
#include "serve/completion.h"
#include "serve/generation.h"
#include "serve/responses_request.h"

namespace lode::serve {

class Responses : private RequestHolder<ResponsesRequest>, public Generation {
 public:
  static void start(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ResponsesRequest request);
  Responses(App& app, engine::Engine& engine, std::shared_ptr<Exchange> exchange, ResponsesRequest request);

 private:
  using Kind = text::ReplyDelta::Kind;  // An item is content (message), reasoning or a call (function_call).
  struct Item {
    Kind kind;
    std::string id;
    std::string text;           // Of a call: its arguments.
    std::string call_id, name;  // Of a call.
  };
  enum class State { in_progress, completed, incomplete };
  static std::string_view word(State state);

  void on_stream_begun() override;
  void on_text(std::size_t index, engine::Event& event) override;
  void on_last_text(std::size_t index, engine::Event& event) override;
  Json whole_reply() override;
  void finish_stream() override;
  std::string error_event(const ApiError& error) const override;

  void send(std::string_view type, Json fields);  // With its type and number.
  Json place() const;                             // Of the last item: item_id, output_index.
  void tell(std::vector<text::ReplyDelta> deltas);
  void open(Kind kind, text::ReplyDelta& delta);
  void close(State state);
  static Json part_json(const Item& item, std::string_view text);
  static Json item_json(const Item& item, State state);
  State end_state() const;
  Json response_json(State state) const;
  Json usage_json_of() const;

  ChatAnswer answer_;
  std::vector<Item> items_;
  bool open_ = false;             // The last item is not closed yet.
  std::int64_t next_number_ = 0;  // Of the next event.
};

}  // namespace lode::serve
