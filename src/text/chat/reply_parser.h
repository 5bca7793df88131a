// A model's answer, as text that comes in pieces -> content, reasoning and tool calls, in pieces too. One a choice; not
// shared between threads. Whatever the pieces, the same parts come out, so that a stream and a whole reply agree.
//
// Rules, where a model may write anything:
// - Reasoning opens with its mark at the start of the answer (or was opened by the prompt) and ends at the first
// closing
//   mark that is not quoted: a mark with the same quote sign (` ' ") on both sides is text. Without a closing mark all
//   of it is reasoning.
// - What begins like a call but is none (no name, no object) is content, mark and all: no text is lost.
// - A call is reported when its name is known; its arguments follow as they come and are only ever extended. If the
//   answer ends inside of them they stay unfinished, and unfinished_call() says so.
// - White space between content, reasoning and calls belongs to none of them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/format.h"

namespace lode::text {

struct ReplyDelta {
  enum class Kind : std::uint8_t {
    content,
    reasoning,
    call,       // A new tool call; `text` is its name, `id` what the model called it, if anything.
    arguments,  // More of the last call's arguments: text of a JSON object.
  };
  Kind kind = Kind::content;
  std::string text, id;
};

class ReplyParser {
 public:
  struct Options {
    enum class Tools : std::uint8_t { ignore, parse } tools = Tools::ignore;
    enum class Reasoning : std::uint8_t { keep, split } reasoning = Reasoning::split;  // keep: it stays content.
    enum class Start : std::uint8_t { outside, in_reasoning } start = Start::outside;
    const nlohmann::ordered_json* tools_json = nullptr;  // OpenAI's `tools`; only read while constructing.
  };
  ReplyParser(const ChatFormat& format, const Options& options);
  ~ReplyParser();
  ReplyParser(ReplyParser&&) noexcept;
  ReplyParser& operator=(ReplyParser&&) noexcept;

  // Appends to `out` what became certain.
  void push(std::string_view text, std::vector<ReplyDelta>& out);
  void finish(std::vector<ReplyDelta>& out);  // No more text comes.

  std::size_t calls() const;
  bool unfinished_call() const;  // After finish(): the last call's arguments were cut.

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lode::text
