#include "cli/bench_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace lode::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using Json = nlohmann::json;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kPieceBytes = 64 * 1024;

// An integer at a path of keys, or `otherwise` where there is none: servers differ in what they report.
std::int64_t integer_at(const Json& json, std::initializer_list<const char*> path, std::int64_t otherwise) {
  const Json* at = &json;
  for (const char* key : path) {
    if (!at->is_object()) return otherwise;
    const auto found = at->find(key);
    if (found == at->end()) return otherwise;
    at = &*found;
  }
  return at->is_number() ? at->get<std::int64_t>() : otherwise;
}

std::string string_at(const Json& json, const char* key) {
  if (!json.is_object()) return {};
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The start of a body that is meant for a person: one line, at most 200 bytes.
std::string excerpt(std::string_view text) {
  std::string line(text.substr(0, 200));
  std::replace_if(line.begin(), line.end(), [](unsigned char c) { return c < ' '; }, ' ');
  return line.empty() ? "an empty body" : line;
}

// One connection, each operation run to its end with a limit on silence.
class Connection {
 public:
  explicit Connection(const Endpoint& endpoint) : endpoint_(endpoint), stream_(context_) {}

  Status open(double timeout_s) {
    asio::ip::tcp::resolver resolver(context_);
    error_code error;
    const auto addresses = resolver.resolve(endpoint_.host, endpoint_.port, error);
    if (error) return problem("find", error);
    error = wait(timeout_s, {}, [&](auto done) {
      stream_.async_connect(addresses, [done](error_code e, const asio::ip::tcp::endpoint&) mutable { done(e); });
    });
    return error ? problem("reach", error) : Status::success();
  }

  Status send(http::verb verb, std::string_view path, std::string_view body, double timeout_s) {
    http::request<http::string_body> request(verb, fmt::format("{}{}", endpoint_.prefix, path), 11);
    request.set(http::field::host, endpoint_.host);
    request.set(http::field::connection, "close");
    if (!endpoint_.api_key.empty()) request.set(http::field::authorization, "Bearer " + endpoint_.api_key);
    if (verb == http::verb::post) {
      request.set(http::field::content_type, "application/json");
      request.body() = body;
    }
    request.prepare_payload();
    const error_code error = wait(timeout_s, {}, [&](auto done) {
      http::async_write(stream_, request, [done](error_code e, std::size_t) mutable { done(e); });
    });
    return error ? problem("send to", error) : Status::success();
  }

  Status read_header(double timeout_s, const std::function<void()>& tick) {
    parser_.body_limit(boost::none);
    const error_code error = wait(timeout_s, tick, [&](auto done) {
      http::async_read_header(stream_, buffer_, parser_, [done](error_code e, std::size_t) mutable { done(e); });
    });
    return error ? problem("read from", error) : Status::success();
  }

  int status() { return static_cast<int>(parser_.get().result_int()); }

  // The next bytes of the body; empty at its end.
  Result<std::string_view> read_piece(double timeout_s, const std::function<void()>& tick) {
    while (!parser_.is_done()) {
      parser_.get().body().data = piece_.data();
      parser_.get().body().size = piece_.size();
      error_code error = wait(timeout_s, tick, [&](auto done) {
        http::async_read_some(stream_, buffer_, parser_, [done](error_code e, std::size_t) mutable { done(e); });
      });
      if (error == http::error::need_buffer) error = {};
      if (error) return problem("read from", error);
      const std::size_t got = piece_.size() - parser_.get().body().size;
      if (got > 0) return std::string_view(piece_.data(), got);
    }
    return std::string_view();
  }

 private:
  // Starts an asynchronous operation and runs it to its end. The limit counts from its start.
  template <typename Start>
  error_code wait(double timeout_s, const std::function<void()>& tick, Start start) {
    std::optional<error_code> result;
    stream_.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1e3)));
    context_.restart();
    start([&result](error_code error) { result = error; });
    while (!result) {
      context_.run_one_for(std::chrono::milliseconds(200));
      if (tick) tick();
    }
    return *result;
  }

  Status problem(const char* what, error_code error) const {
    return Status(Code::unavailable,
                  fmt::format("cannot {} http://{}:{}: {}", what, endpoint_.host, endpoint_.port,
                              error == beast::error::timeout ? "it was silent for too long" : error.message()));
  }

  const Endpoint& endpoint_;
  asio::io_context context_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
  std::vector<char> piece_ = std::vector<char>(kPieceBytes);
};

}  // namespace

Result<Endpoint> parse_url(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    return Status::unsupported(fmt::format("{}: https is not supported here; name the server's http address", url));
  }
  if (!url.starts_with(kScheme)) return Status::invalid(fmt::format("{}: expected http://HOST:PORT", url));
  std::string_view rest = url.substr(kScheme.size());
  Endpoint endpoint;
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    std::string_view prefix = rest.substr(slash);
    while (prefix.ends_with('/')) prefix.remove_suffix(1);
    if (prefix.ends_with("/v1")) prefix.remove_suffix(3);
    endpoint.prefix = prefix;
    rest = rest.substr(0, slash);
  }
  const std::size_t bracket = rest.find(']');  // An IPv6 address stands in brackets.
  const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  endpoint.port = colon == std::string_view::npos ? "80" : std::string(rest.substr(colon + 1));
  endpoint.host = rest.substr(0, colon);
  if (endpoint.host.starts_with('[') && endpoint.host.ends_with(']')) {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  const bool digits =
      !endpoint.port.empty() && endpoint.port.size() <= 5 &&
      std::all_of(endpoint.port.begin(), endpoint.port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (digits && (std::stoi(endpoint.port) < 1 || std::stoi(endpoint.port) > 65535))
    return Status::invalid(fmt::format("{}: expected a port from 1 to 65535, found {}", url, endpoint.port));
  if (endpoint.host.empty() || !digits) return Status::invalid(fmt::format("{}: expected http://HOST:PORT", url));
  return endpoint;
}

Result<HttpReply> http_get(const Endpoint& endpoint, std::string_view path, double timeout_s) {
  Connection connection(endpoint);
  LODE_RETURN_IF_ERROR(connection.open(timeout_s));
  LODE_RETURN_IF_ERROR(connection.send(http::verb::get, path, {}, timeout_s));
  LODE_RETURN_IF_ERROR(connection.read_header(timeout_s, {}));
  HttpReply reply{connection.status(), {}};
  while (true) {
    auto piece = connection.read_piece(timeout_s, {});
    if (!piece.ok()) return piece.status();
    if (piece->empty()) return reply;
    reply.body += *piece;
  }
}

std::optional<double> Sample::generation_tokens_per_s() const {
  const std::int64_t tokens = generated_tokens - first_chunk_tokens;
  if (tokens <= 0 || last_s <= ttft_s) return std::nullopt;
  return static_cast<double>(tokens) / (last_s - ttft_s);
}

Status StreamMeter::feed(double now_s, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (end == std::string_view::npos) return Status::success();
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    std::string_view line = line_;
    if (line.starts_with("data:")) {
      line.remove_prefix(5);
      while (line.starts_with(' ')) line.remove_prefix(1);
      LODE_RETURN_IF_ERROR(take_event(now_s, line));
    }
    line_.clear();
  }
  return Status::success();
}

Status StreamMeter::take_event(double now_s, std::string_view data) {
  if (data == "[DONE]") {
    end_ = End::done;
    return Status::success();
  }
  if (on_event_) on_event_(data);
  const Json json = Json::parse(data, nullptr, false);
  if (!json.is_object())
    return Status::corrupt(fmt::format("the stream holds an event that is no JSON object: {}", excerpt(data)));
  if (const auto error = json.find("error"); error != json.end() && !error->is_null()) {
    const std::string message = string_at(*error, "message");
    return Status(Code::unavailable,
                  fmt::format("the server reports in mid-stream: {}", message.empty() ? excerpt(data) : message));
  }
  if (json.contains("prompt_progress")) {
    progress_.processed = integer_at(json, {"prompt_progress", "processed"}, 0);
    progress_.total = integer_at(json, {"prompt_progress", "total"}, 0);
  }
  sample_.prompt_tokens = integer_at(json, {"usage", "prompt_tokens"}, sample_.prompt_tokens);
  sample_.generated_tokens = integer_at(json, {"usage", "completion_tokens"}, sample_.generated_tokens);
  sample_.cached_tokens = integer_at(json, {"usage", "prompt_tokens_details", "cached_tokens"}, sample_.cached_tokens);
  if (const auto cache = json.find("cache"); cache != json.end() && cache->is_object() && cache->contains("by_tier")) {
    sample_.by_tier.clear();
    for (const auto& [tier, tokens] : (*cache)["by_tier"].items()) {
      if (!tokens.is_number() || tokens.get<std::int64_t>() == 0) continue;
      sample_.by_tier += fmt::format("{}{} {}", sample_.by_tier.empty() ? "" : ", ", tokens.get<std::int64_t>(), tier);
    }
  }
  const auto choices = json.find("choices");
  if (choices == json.end() || !choices->is_array() || choices->empty()) return Status::success();
  const Json& choice = choices->front();
  std::string text = string_at(choice, "text");
  if (text.empty() && choice.contains("delta")) text = string_at(choice["delta"], "content");
  if (!string_at(choice, "finish_reason").empty() && end_ == End::open) end_ = End::finish_reason;
  if (text.empty()) return Status::success();
  if (sample_.chunks == 0) {
    sample_.ttft_s = now_s;
    first_chunk_bytes_ = static_cast<std::int64_t>(text.size());
    if (const auto probs = choice.find("logprobs");
        probs != choice.end() && probs->is_object() && probs->contains("tokens")) {
      logprob_tokens_ = static_cast<std::int64_t>((*probs)["tokens"].size());
    }
  }
  ++sample_.chunks;
  sample_.last_s = now_s;
  sample_.text += text;
  return Status::success();
}

Result<Sample> StreamMeter::finish() {
  if (end_ == End::open) return Status(Code::unavailable, "the stream broke off before its end");
  if (sample_.chunks == 0) return Status(Code::unavailable, "the reply is empty");
  if (sample_.generated_tokens <= 0 || sample_.prompt_tokens <= 0) {
    return Status::unsupported("the server sends no usage with a stream: without token counts there is no speed");
  }
  const std::int64_t n = sample_.generated_tokens;
  if (logprob_tokens_ > 0) {
    sample_.first_chunk_tokens = logprob_tokens_;
  } else if (n * 4 <= sample_.chunks * 5) {
    sample_.first_chunk_tokens = 1;  // A token a chunk; up to a quarter more are held back for characters and stops.
  } else {
    // Several tokens a chunk: the first one's share of the text is its share of the tokens.
    const double share = static_cast<double>(first_chunk_bytes_) / static_cast<double>(sample_.text.size());
    sample_.first_chunk_tokens = std::max<std::int64_t>(1, std::llround(share * static_cast<double>(n)));
  }
  sample_.first_chunk_tokens = std::min(sample_.first_chunk_tokens, n);
  return sample_;
}

Result<Sample> stream_completion(const Endpoint& endpoint, const StreamRequest& request) {
  StreamMeter meter(request.on_event);
  const std::function<void()> tick = [&] {
    if (request.tick) request.tick(meter);
  };
  Connection connection(endpoint);
  LODE_RETURN_IF_ERROR(connection.open(30));
  const auto sent = std::chrono::steady_clock::now();
  LODE_RETURN_IF_ERROR(connection.send(http::verb::post, "/v1/completions", request.body, 60));
  LODE_RETURN_IF_ERROR(connection.read_header(request.silence_timeout_s, tick));
  std::string refusal;
  while (true) {
    auto piece = connection.read_piece(request.silence_timeout_s, tick);
    if (!piece.ok()) return piece.status();
    if (piece->empty()) break;
    const double now_s = Seconds(std::chrono::steady_clock::now() - sent).count();
    if (connection.status() != 200) {
      refusal += *piece;
    } else {
      LODE_RETURN_IF_ERROR(meter.feed(now_s, *piece));
    }
  }
  if (connection.status() != 200) {
    const Code code = connection.status() / 100 == 4 ? Code::invalid_argument : Code::unavailable;
    return Status(code, fmt::format("HTTP {}: {}", connection.status(), excerpt(refusal)));
  }
  return meter.finish();
}

}  // namespace lode::cli
