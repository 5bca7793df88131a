// Blocks on their way from disk to RAM. A load pins its copies until the tier is done with their memory, whatever
// becomes of the sequence that asked. Owns the loads. Step thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/disk_tier.h"
#include "kv/prefix_index.h"
#include "kv/ram_tier.h"

namespace lode::kv {

struct Load {
  ReadTicket* ticket = nullptr;
  std::vector<Copy*> copies;
  std::int64_t ended_ns = 0;  // When a step first saw that it had ended; 0: not yet.
};

class Restorer {
 public:
  Restorer(std::span<const model::BlockLayout> layouts, DiskTier& disk, RamTier& ram, PrefixIndex& index)
      : layouts_(layouts), disk_(disk), ram_(ram), index_(index) {}
  ~Restorer();
  Restorer(const Restorer&) = delete;
  Restorer& operator=(const Restorer&) = delete;

  // Starts reading into one new slot per copy; the copies have none and are on disk.
  void start(std::span<Copy* const> copies, std::span<const SlotId> slots);
  // A load that has ended, or nullptr.
  Load* ended() const;
  // Ends a load, waiting for it if need be: its sound copies are in place, damaged ones have lost their slots and are
  // added to `damaged`. The load is gone after.
  void finish(Load* load, std::vector<Copy*>& damaged);
  bool idle() const { return loads_.empty(); }
  std::uint64_t corrupt_blocks() const { return corrupt_; }

 private:
  void wait(const Load& load) const;

  const std::span<const model::BlockLayout> layouts_;  // [groups]; the store's.
  DiskTier& disk_;
  RamTier& ram_;
  PrefixIndex& index_;
  std::vector<std::unique_ptr<Load>> loads_;
  std::uint64_t corrupt_ = 0;  // Copies that could not be read.
};

}  // namespace lode::kv
