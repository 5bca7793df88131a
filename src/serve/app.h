// What all requests share: the engine once it is loaded, options, counters. Owned by the Server. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "engine/engine.h"
#include "serve/server.h"
#include "serve/workers.h"
#include "text/grammar/grammar_store.h"

namespace lode::serve {

class App {
 public:
  explicit App(const ServerOptions& options) : options_(options), started_(std::chrono::system_clock::now()) {}

  const ServerOptions& options() const { return options_; }
  HttpCounters& counters() { return counters_; }
  Workers& workers() { return workers_; }

  engine::Engine* engine() const { return engine_.load(std::memory_order_acquire); }  // nullptr: not loaded yet.
  // The first model, or the next one: then nobody may be using the one before (model_host.h).
  void set_engine(engine::Engine& engine, ChatResult chat) {
    chat_ = std::move(chat);
    grammars_ = std::make_unique<text::grammar::GrammarStore>(engine.tokenizer());
    engine_.store(&engine, std::memory_order_release);
  }
  void clear_engine() {
    engine_.store(nullptr, std::memory_order_release);
    grammars_.reset();
    chat_ = Status(Code::unavailable, "no model is loaded");
  }
  // nullptr: there is one model, and it stays.
  ModelHost* models() const { return models_.load(std::memory_order_acquire); }
  void set_models(ModelHost& models) { models_.store(&models, std::memory_order_release); }

  // The chat template, or why there is none. Only once there is an engine.
  const ChatResult& chat() const { return chat_; }

  // What answers have been asked to keep to. Only once there is an engine.
  text::grammar::GrammarStore& grammars() { return *grammars_; }

  std::string stage() const {
    const std::lock_guard lock(mutex_);
    return stage_;
  }
  void set_stage(std::string stage) {
    const std::lock_guard lock(mutex_);
    stage_ = std::move(stage);
  }

  bool stopping() const { return stopping_.load(); }
  void set_stopping() { stopping_.store(true); }

  std::chrono::system_clock::time_point started() const { return started_; }
  std::uint64_t next_request_number() { return request_number_.fetch_add(1); }

 private:
  const ServerOptions options_;
  const std::chrono::system_clock::time_point started_;
  HttpCounters counters_;
  std::atomic<engine::Engine*> engine_{nullptr};
  std::atomic<ModelHost*> models_{nullptr};
  ChatResult chat_{Status(Code::unavailable, "no model is loaded")};  // Set before engine_.
  std::unique_ptr<text::grammar::GrammarStore> grammars_;             // The same.
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> request_number_{1};
  mutable std::mutex mutex_;
  std::string stage_ = "starting";
  Workers workers_{2};  // One client's large body does not keep another's waiting.
};

}  // namespace lode::serve
