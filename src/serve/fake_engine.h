// An Engine without a model, for tests of the HTTP side: a byte is a token, the reply is scripted, one thread steps.
// Tests only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "serve/json.h"

namespace lode::serve {

// Ids 0-255 are bytes, 256 is BOS "<s>", 257 is EOS "</s>".
class ByteTokenizer : public text::Tokenizer {
 public:
  static constexpr TokenId kBos = 256, kEos = 257;

  std::vector<TokenId> encode(std::string_view text, const text::EncodeOptions& options) const override {
    ++encodings;
    std::this_thread::sleep_for(delay);
    std::vector<TokenId> ids;
    const bool parse = options.special == text::EncodeOptions::Special::parse;
    if (options.bos != text::EncodeOptions::Bos::none && !(parse && text.starts_with("<s>"))) ids.push_back(kBos);
    const auto plain = [&](std::size_t begin, std::size_t end) {
      return std::any_of(options.plain.begin(), options.plain.end(),
                         [&](const text::ByteRange& r) { return r.begin < end && begin < r.end; });
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (parse && text.substr(i, 4) == "</s>" && !plain(i, i + 4)) {
        ids.push_back(kEos);
        i += 3;
      } else if (parse && text.substr(i, 3) == "<s>" && !plain(i, i + 3)) {
        ids.push_back(kBos);
        i += 2;
      } else {
        ids.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    return ids;
  }
  std::string token_bytes(TokenId id, Control control) const override {
    if (id >= 0 && id < 256) return std::string(1, static_cast<char>(id));
    if (control == Control::hide) return {};
    return id == kBos ? "<s>" : id == kEos ? "</s>" : "";
  }
  std::string decode(std::span<const TokenId> ids, Control control) const override {
    std::string bytes;
    for (const TokenId id : ids) bytes += token_bytes(id, control);
    return valid_utf8(bytes);
  }
  std::size_t text_bytes_max() const override { return 4; }
  std::int32_t vocab_size() const override { return 258; }
  text::TokenKind kind(TokenId id) const override {
    return id < 256 ? text::TokenKind::byte : text::TokenKind::control;
  }
  TokenId bos() const override { return kBos; }
  TokenId eos() const override { return kEos; }
  bool is_end_of_generation(TokenId id) const override { return id == kEos; }
  bool adds_space_prefix() const override { return false; }
  const std::vector<std::string>& warnings() const override { return warnings_; }

  mutable std::atomic<int> encodings{0};  // Begun.
  std::chrono::milliseconds delay{0};     // Of each.

 private:
  std::vector<std::string> warnings_;
};

class FakeEngine : public engine::Engine {
 public:
  struct Script {
    std::string reply = "Hello, world.";                            // Then EOS.
    enum class Text { fixed, seeded, endless } text = Text::fixed;  // seeded: 8 letters drawn from (seed, choice).
    int slots = 4;
    int prefill_steps = 1;
    int fail_at = -1;  // The request fails before this token; -1: never.
    std::chrono::microseconds step{200};
    Status refuse;                // Not ok: what submit returns from `refuse_from` on.
    std::size_t refuse_from = 0;  // Submissions that go well before.
    std::size_t throw_from = std::numeric_limits<std::size_t>::max();  // submit throws from here on.
    std::int64_t context = 1000;
    std::chrono::milliseconds encode_delay{0};
    std::string chat_template =
        "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}";
    float logprob = -0.5f;
    std::string name = "fake";
  };

  explicit FakeEngine(Script script) : script_(std::move(script)) {
    tokenizer_.delay = script_.encode_delay;
    info_.model_name = script_.name;
    info_.chat_template = script_.chat_template;
    info_.architecture = "fake";
    info_.context_max = script_.context;
    info_.context_trained = 2 * script_.context;
    info_.vocab = tokenizer_.vocab_size();
    info_.slots = script_.slots;
    info_.parameters = 42;
    info_.file_bytes = 4242;
    thread_ = std::thread([this] { run(); });
  }
  ~FakeEngine() override { stop(0); }

  const engine::EngineInfo& info() const override { return info_; }
  const text::Tokenizer& tokenizer() const override { return tokenizer_; }

  Result<engine::RequestId> submit(engine::Request request, engine::EventSink sink) override {
    const std::lock_guard lock(mutex_);
    if (submitted_.size() >= script_.throw_from) throw std::bad_alloc();
    if (!script_.refuse.ok() && submitted_.size() >= script_.refuse_from) return script_.refuse;
    if (stopping_) return Status(Code::unavailable, "stopping");
    if (request.prompt.empty()) return Status::invalid("the prompt is empty");
    if (static_cast<std::int64_t>(request.prompt.size()) >= script_.context) {
      return Status::invalid("the prompt has " + std::to_string(request.prompt.size()) + " tokens, the context " +
                             std::to_string(script_.context));
    }
    submitted_.push_back(request);
    live_.push_back(
        Live{.id = next_id_, .request = std::move(request), .sink = std::move(sink), .prefill = script_.prefill_steps});
    live_.back().plan = plan(live_.back().request);
    ++stats_.requests;
    wake_.notify_all();
    return next_id_++;
  }
  void cancel(engine::RequestId id) override {
    const std::lock_guard lock(mutex_);
    for (Live& live : live_) live.cancelled |= live.id == id;
    wake_.notify_all();
  }
  engine::EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void stop(std::int64_t drain_ms) override {
    {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      wake_.wait_for(lock, std::chrono::milliseconds(drain_ms), [this] { return live_.empty(); });
      for (Live& live : live_) live.cancelled = true;
      wake_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  // What tests look at.
  std::vector<engine::Request> submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }
  int encodings() const { return tokenizer_.encodings; }
  std::size_t live() const {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }
  std::int64_t started() const {  // Requests that ever got a slot.
    const std::lock_guard lock(mutex_);
    return started_;
  }

 private:
  struct Plan {
    std::string bytes;  // One token each.
    engine::FinishReason finish = engine::FinishReason::stop;
    std::string stop_string;
  };
  struct Live {
    engine::RequestId id = 0;
    engine::Request request;
    engine::EventSink sink;
    int prefill = 0;
    bool started = false, cancelled = false, ended = false;
    Plan plan;
    std::size_t next = 0;  // Token of plan.bytes.
    std::string held;      // Bytes of a character that is not whole yet.
  };

  Plan plan(const engine::Request& request) const {
    Plan out{.bytes = script_.reply};
    if (script_.text == Script::Text::seeded) {
      std::uint64_t x = request.sampling.seed * 2 + request.choice;
      out.bytes.clear();
      for (int i = 0; i < 8; ++i) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        out.bytes += static_cast<char>('a' + (x >> 33) % 26);
      }
    } else if (script_.text == Script::Text::endless) {
      while (out.bytes.size() < 100'000) out.bytes += script_.reply;
    }
    for (const auto& stop : request.stop) {
      if (const auto at = out.bytes.find(stop); at != std::string::npos) {
        out.bytes.resize(at);
        out.stop_string = stop;
      }
    }
    const auto most =
        request.max_tokens < 0 ? std::numeric_limits<std::size_t>::max() : static_cast<std::size_t>(request.max_tokens);
    if (out.bytes.size() > most) {
      out = {.bytes = out.bytes.substr(0, most), .finish = engine::FinishReason::length};
    }
    return out;
  }

  engine::Event last_event(const Live& live, engine::Event::Kind kind) const {
    engine::Event event{.kind = kind};
    const auto prompt = static_cast<std::int64_t>(live.request.prompt.size());
    event.reuse = {.prompt_tokens = prompt,
                   .tokens_reused = prompt / 2,
                   .from_ram = prompt / 2,
                   .resume = "block",
                   .reason = "test",
                   .load_ms = 0.5};
    event.timings = {
        .prompt_n = prompt - prompt / 2, .cache_n = prompt / 2, .predicted_n = static_cast<std::int64_t>(live.next)};
    return event;
  }

  engine::Event next_token(Live& live) {
    engine::Event event{.kind = engine::Event::Kind::delta};
    const char byte = live.plan.bytes[live.next++];
    live.held += byte;
    if (is_valid_utf8(live.held) || live.held.size() >= 4) event.text = valid_utf8(std::exchange(live.held, {}));
    const auto id = static_cast<TokenId>(static_cast<unsigned char>(byte));
    engine::TokenInfo token{.id = id, .bytes = std::string(1, byte), .logprob = script_.logprob};
    for (int i = 0; i < live.request.top_logprobs; ++i)
      token.top.emplace_back((id + i) % 256, script_.logprob - static_cast<float>(i));
    event.tokens.push_back(std::move(token));
    return event;
  }

  // One thing that happens to a request with a slot.
  engine::Event advance(Live& live) {
    using Kind = engine::Event::Kind;
    if (live.cancelled) {
      live.ended = true;
      ++stats_.requests_cancelled;
      auto event = last_event(live, Kind::finished);
      event.finish = engine::FinishReason::cancelled;
      return event;
    }
    if (live.prefill > 0) {
      --live.prefill;
      auto event = last_event(live, Kind::progress);
      event.total = static_cast<std::int64_t>(live.request.prompt.size());
      event.processed = event.total * (script_.prefill_steps - live.prefill) / script_.prefill_steps;
      return event;
    }
    if (script_.fail_at >= 0 && live.next >= static_cast<std::size_t>(script_.fail_at)) {
      live.ended = true;
      auto event = last_event(live, Kind::failed);
      event.error = Status(Code::internal, "a fault for the test, with bytes \xF0\x28 that are no text");
      return event;
    }
    if (live.next == live.plan.bytes.size()) {
      live.ended = true;
      auto event = last_event(live, Kind::finished);
      event.text = valid_utf8(live.held);
      event.finish = live.plan.finish;
      event.stop_string = live.plan.stop_string;
      return event;
    }
    ++stats_.tokens_generated;
    return next_token(live);
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return stopping_ || !live_.empty(); });
      if (live_.empty() && stopping_) return;
      ++stats_.steps;
      int slots = script_.slots;
      std::vector<std::pair<engine::EventSink, engine::Event>> events;
      for (Live& live : live_) {
        if (slots == 0 && !live.cancelled) continue;
        if (!live.started && !live.cancelled) live.started = true, ++started_;
        slots -= live.started ? 1 : 0;
        events.emplace_back(live.sink, advance(live));
      }
      std::erase_if(live_, [](const Live& live) { return live.ended; });
      wake_.notify_all();
      lock.unlock();
      for (auto& [sink, event] : events) sink(std::move(event));
      events.clear();
      std::this_thread::sleep_for(script_.step);
      lock.lock();
    }
  }

  const Script script_;
  ByteTokenizer tokenizer_;
  engine::EngineInfo info_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Live> live_;  // In order of submission; the first `slots` run.
  std::vector<engine::Request> submitted_;
  engine::EngineStats stats_;
  engine::RequestId next_id_ = 1;
  std::int64_t started_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace lode::serve
