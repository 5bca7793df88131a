// The step: admit, prefill a chunk, decode, sample, emit. Owns the queue and the live sequences. Step thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "engine/live.h"
#include "engine/runtime.h"
#include "engine/sampler.h"
#include "platform/clock.h"

namespace lode::engine {

struct StepCounters {
  std::int64_t steps = 0, tokens_prefilled = 0, tokens_generated = 0, requests = 0, failed = 0, cancelled = 0,
               preemptions = 0;
};

class Stepper {
 public:
  Stepper(Runtime& rt, platform::Clock& clock);

  void enqueue(std::unique_ptr<Live> request);
  // Ends a queued or running request with FinishReason::cancelled; unknown ids are ignored.
  void cancel(RequestId id);
  void cancel_all();

  // One step over everything that can run. False: nothing could (all idle, or waiting for a peer or the disk).
  bool step();
  bool idle() const { return queue_.empty() && running_.empty(); }
  // Any thread; true also while a step runs.
  std::int64_t queued() const { return queued_; }
  std::int64_t running() const { return slots_; }
  Slots& slots() { return board_; }
  const StepCounters& counters() const { return counters_; }

 private:
  struct Part {  // One sequence's share of this step.
    Live* live = nullptr;
    std::int64_t count = 0;
    std::int32_t output = -1;  // Its row in logits; -1: none.
  };
  void admit();
  void say_difference(kv::Reuse& reuse) const;
  void plan_batch();
  bool grow(Live& live, std::int64_t count);
  Live* youngest_other(const Live& live);
  void preempt(Live& live);
  void add_part(Live& live, std::int64_t count);
  Status forward();
  void note_computed(std::int64_t ns);
  void repair();
  void fail_parts(const Status& error);
  void recount_card();
  void finish_parts();
  void take_token(Live& live, std::span<const float> logits);
  TokenId draw(Live& live, std::span<const float> logits);
  std::string append(Live& live, TokenId token, std::span<const float> logits);
  bool at_end(Live& live);
  void take_forced(Live& live);
  std::int64_t tokens_left(const Live& live) const;
  void send(Live& live, std::string text);
  void finish(Live& live, FinishReason reason);
  void fail(Live& live, Status error);
  void end(Live& live, Event&& event);
  void remove_ended();
  void count();
  Timings timings(const Live& live) const;

  Runtime& rt_;
  platform::Clock& clock_;
  Slots board_;
  Sampler sampler_;
  std::vector<TokenId> end_tokens_;             // All that end a generation.
  std::vector<std::uint32_t> mask_;             // [vocab / 32] Of the constraint at hand.
  std::vector<TokenId> forced_;                 // Of the constraint at hand.
  std::deque<std::unique_ptr<Live>> queue_;     // Waiting for a slot, oldest first.
  std::vector<std::unique_ptr<Live>> running_;  // Admission order: the youngest is last. Ended ones have a null sink.
  std::atomic<std::int64_t> queued_{0}, slots_{0};  // Their sizes, for other threads.
  StepCounters counters_;
  std::int64_t recounted_ns_ = 0;
  // This step's batch; capacity is reserved once.
  std::vector<Live*> order_;
  std::vector<Part> parts_;
  std::vector<TokenId> ids_;
  std::vector<std::int64_t> positions_;
  std::vector<std::int32_t> output_rows_;
  std::vector<kv::Store::RunSpec> specs_;
};

}  // namespace lode::engine
