// One answer to messages while it comes: text in pieces -> content, reasoning and tool calls, whatever shape the reply
// has. Used by the replies of chat, messages and responses. One a choice; the exchange's strand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "serve/chat_request.h"
#include "text/chat/reply_parser.h"

namespace lode::serve {

class ChatAnswer {
 public:
  explicit ChatAnswer(const ChatRequest& request) : request_(&request), parser_(request.new_parser()) {}

  // The parts that became certain. With parallel calls forbidden, those of the first call alone.
  std::vector<text::ReplyDelta> take(std::string_view text);
  // The same, and no more text comes.
  std::vector<text::ReplyDelta> finish(std::string_view text);

  std::size_t calls() const { return calls_; }  // Told so far.
  enum class End { stop, length, calls };
  // After finish(). A call that the length, or a stop string, cut is no call to make.
  End end(engine::FinishReason finish, std::string_view stop_string) const;
  // A stop string ended the answer in the midst of a call.
  bool cut_call(std::string_view stop_string) const { return parser_.unfinished_call() && !stop_string.empty(); }
  // What to call a call: the model's own name for it, or a new one.
  std::string call_id(const text::ReplyDelta& call, std::string_view prefix) const;

 private:
  void keep_told(std::vector<text::ReplyDelta>& deltas);

  const ChatRequest* request_;
  text::ReplyParser parser_;
  bool begun_ = false;
  std::size_t seen_ = 0, calls_ = 0;
};

}  // namespace lode::serve
