// Experts in a bounded number of slots; the others are read from the model's file when a step needs them, around the
// page cache. Implements model::ExpertSource. Owns the slots, the open files and the reader. Step thread only, but for
// completions, which the reader's threads hand over under a lock.
//
// A read fills a slot with the bytes that the file has, so that residency changes no result. All that a layer's step
// needs is asked for before its first product; where that is more than there are slots, in turns.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "experts/layout.h"
#include "experts/policy.h"
#include "experts/stats.h"
#include "gguf/gguf.h"
#include "memory/arena.h"
#include "memory/budget.h"
#include "model/expert_source.h"
#include "platform/async_read.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace lode::experts {

struct CacheOptions {
  std::uint64_t bytes_max = 0;  // Of the slots; whole slots of it are used.
  std::uint32_t used = 0;       // Experts that a token uses in a layer.
  // Whose packed rows the slots hold (quant/packed.h), where it has such for the format; nullptr: as the file has them.
  const kernels::Table* table = nullptr;
  enum class Prefetch : std::uint8_t { automatic, off } prefetch = Prefetch::automatic;
  platform::AsyncReadOptions reader;
};

class Cache final : public model::ExpertSource, private platform::ReadSink {
 public:
  // `layers` as for layout_of. exhausted: fewer slots than one token's experts (see slots_least), or no memory.
  static Result<std::unique_ptr<Cache>> open(const gguf::File& file, std::span<const model::ExpertLayer> layers,
                                             const CacheOptions& options, platform::FileSystem& fs,
                                             platform::Clock& clock);
  ~Cache() override;  // Waits for reads in flight.

  void begin(LayerIndex layer, std::span<const model::ExpertUse> uses) override;
  Result<std::span<const model::ExpertWeights>> ready(LayerIndex layer) override;
  void end(LayerIndex layer) override;
  bool wants_guess(LayerIndex next, std::int64_t tokens) const override;
  void guess(LayerIndex next, std::span<const std::int32_t> experts) override;

  // True once after a step that failed for want of an expert.
  bool take_failure() { return std::exchange(failed_, false); }
  CacheStats stats() const;

 private:
  enum class State : std::uint8_t { free, loading, loaded };
  struct Slot {
    State state = State::free;
    ExpertKey key;
    bool transient = false;     // Read for a large step: leaves when that has used it.
    bool prefetched = false;    // Nobody has needed it yet.
    std::uint32_t pending = 0;  // Reads in flight; guarded by mutex_.
    Status status;              // The first error of them; guarded by mutex_.
    std::array<platform::ReadOp, 3> ops;
  };
  Cache(Layout layout, std::vector<model::ExpertWeights> shapes, const CacheOptions& options, platform::Clock& clock,
        std::uint32_t slots);
  Status open_files(const gguf::File& file, platform::FileSystem& fs);
  Status commit();
  void read_done(platform::ReadOp& op, Status status) override;
  void pack(platform::ReadOp& op);
  std::uint32_t ordinal(LayerIndex layer) const;
  std::byte* address(std::uint32_t slot) const { return arena_->data() + slot * layout_.slot_bytes; }

  void release_handed();
  void release(std::uint32_t slot);
  void forget_step();
  std::uint32_t take_slot();
  void read(std::uint32_t slot, ExpertKey key);
  void flush();
  void start_reads();
  void read_ahead();
  bool collect(bool wait);
  void settle(std::uint32_t slot);
  void hand(std::uint32_t slot);
  void judge_prefetch(bool useful);

  const Layout layout_;
  const std::vector<model::ExpertWeights> shapes_;  // [layers, experts] types and sizes; no data.
  const std::uint32_t used_, transients_max_;
  const CacheOptions::Prefetch prefetch_;
  platform::Clock& clock_;
  Policy policy_;
  std::unique_ptr<memory::Budget> budget_;
  std::unique_ptr<memory::Arena> arena_;
  std::vector<std::unique_ptr<platform::File>> direct_, buffered_;  // [parts]; buffered_ where direct_ cannot be.
  std::vector<std::uint64_t> sizes_;                                // [parts] bytes
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> slot_of_;  // [layers, experts]; kNone: not in memory and not on its way.

  // The layer at work.
  std::uint32_t layer_ = 0;
  std::int64_t tokens_ = 0;
  bool fills_ = true;
  std::vector<std::uint8_t> wanted_;       // [layers, experts] asked for by begin and not handed out yet
  std::vector<ExpertKey> list_;            // What begin asked for.
  std::vector<ExpertKey> missing_;         // Of it, what is to be read,
  std::size_t missing_next_ = 0;           // from here on.
  std::vector<std::uint32_t> arrived_;     // Slots to hand out.
  std::vector<std::uint32_t> handed_;      // Slots of the last ready.
  std::vector<std::uint32_t> transients_;  // Slots that are transient.
  std::vector<model::ExpertWeights> room_;
  Status failure_;
  bool failed_ = false;

  std::vector<platform::ReadOp*> ops_;  // To be submitted.
  std::uint32_t in_flight_ = 0;         // Slots that are loading.
  float useful_ = 1;                    // Share of recent prefetches that were of use.
  std::uint32_t rest_ = 0;              // Layers until prefetch is tried again.
  CacheStats stats_;

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::uint32_t> completed_;  // Guarded by mutex_.
  std::vector<std::uint32_t> settling_;
  std::unique_ptr<platform::AsyncReader> reader_;  // Last: its threads end first.
};

}  // namespace lode::experts
