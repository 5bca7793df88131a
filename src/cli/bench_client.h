// The benchmark's client: one request at a time to an OpenAI-compatible server over plain HTTP, with the clock read at
// every piece that arrives. Owns one connection a request. One thread.
//
// What counts: the tokens are those that `usage` reports, never the number of chunks; a reply that failed, stopped
// early or was empty is an error, never a measurement of zero; a chunk without text (usage, finish reason) ends
// nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lode::cli {

struct Endpoint {
  std::string host;
  std::string port;
  std::string prefix;   // Path before /v1, without a slash at its end; usually empty.
  std::string api_key;  // Empty: none is sent.
};

// "http://host[:port][/prefix][/v1]". https is refused by name.
Result<Endpoint> parse_url(std::string_view url);

struct HttpReply {
  int status = 0;
  std::string body;
};

// A whole reply; an error where the server cannot be reached or is silent for `timeout_s`.
Result<HttpReply> http_get(const Endpoint& endpoint, std::string_view path, double timeout_s);

// One streamed completion, measured.
struct Sample {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = -1;      // Of the prompt, reused; -1: the server does not say.
  std::int64_t generated_tokens = 0;    // From `usage`.
  std::int64_t first_chunk_tokens = 0;  // Of these, in the first piece of text.
  std::int64_t chunks = 0;              // Pieces with text.
  double ttft_s = 0;                    // Request sent -> first piece of text.
  double last_s = 0;                    // Request sent -> last piece of text.
  std::string by_tier;                  // "15,968 ram": Lode's own detail of the reuse, where it is given.
  std::string text;

  // (tokens after the first piece) / (last piece - first piece); nullopt where everything came in one piece.
  std::optional<double> generation_tokens_per_s() const;
};

// Turns the bytes of an event stream, each with its time of arrival, into a Sample.
class StreamMeter {
 public:
  // Called with the JSON of each event, before it is counted; may be empty.
  using OnEvent = std::function<void(std::string_view json)>;
  explicit StreamMeter(OnEvent on_event = {}) : on_event_(std::move(on_event)) {}

  struct Progress {
    std::int64_t processed = 0, total = 0;  // Prompt tokens.
  };

  // `now_s` counts from the moment the request was sent. An error: the server reported one inside the stream, or sent
  // what is no JSON.
  Status feed(double now_s, std::string_view bytes);
  // After the last byte. Errors: the stream broke off before its end, held no text, or no `usage`.
  Result<Sample> finish();

  const Progress& progress() const { return progress_; }
  std::int64_t chunks() const { return sample_.chunks; }

 private:
  Status take_event(double now_s, std::string_view data);

  OnEvent on_event_;
  std::string line_;  // The bytes of an unfinished line.
  Sample sample_;
  Progress progress_;
  std::int64_t first_chunk_bytes_ = 0;
  std::int64_t logprob_tokens_ = 0;  // Tokens listed with the first piece; 0: the server lists none.
  enum class End : std::uint8_t { open, finish_reason, done } end_ = End::open;
};

struct StreamRequest {
  std::string body;                              // JSON.
  double silence_timeout_s = 900;                // Without a byte; a cold prompt may take minutes.
  std::function<void(const StreamMeter&)> tick;  // Called about five times a second and with each piece.
  StreamMeter::OnEvent on_event = {};
};

// POST /v1/completions.
Result<Sample> stream_completion(const Endpoint& endpoint, const StreamRequest& request);

}  // namespace lode::cli
