// One live sequence: its chain of blocks, what it pins of them, its own slots and its block tables. Owned by the store,
// which alone changes it. Step thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/block.h"
#include "kv/extent_packer.h"
#include "kv/resume_plan.h"
#include "kv/store.h"

namespace lode::kv {

// Blocks [first, end) of a chain.
struct BlockRange {
  std::int64_t first = 0, end = 0;
};

// Where a reused block came from, best last: it counts as the slowest of its copies.
enum class Source : std::uint8_t { ram, disk, in_flight };

// A checkpoint group's running state (docs/kv-format.md, "States"). A step reads one place and writes another, so that
// it can be run again; nothing is ever copied.
struct RunningState {
  SlotId now, next;               // Own slots: the state after `length` tokens, and where the next step writes.
  SlotId spare;                   // One more, for the step after that: 19 MiB need not be faulted in anew.
  const std::byte* in = nullptr;  // The state after `length` tokens: in `now`, or in the copy of block held - 1 (then
                                  // `now` is none). nullptr: no token yet.
  std::byte* out = nullptr;       // `next`'s place.
};

class Sequence {
 public:
  // Resume points beyond the ring that a live sequence keeps: the prompt's end, and a branch or a turn before it.
  static constexpr std::size_t kMarksMax = 2;

  struct Group {
    std::vector<std::byte*> table;  // [blocks_max] slot of each block that a query may see; else nullptr.
    std::vector<SlotId> own;        // [blocks_max] slots that belong to no copy: blocks being computed, duplicates.
    // Copies of blocks [first, held) are pinned. Checkpoint groups: held - 1 where the last boundary's state was
    // published, else held.
    std::int64_t first = 0;
    std::int64_t slots_end = 0;                 // Blocks [held, slots_end) have own slots; not in checkpoint groups.
    std::array<BlockRange, kMarksMax> marks{};  // Pinned once more, as resume points; the newest first.
    ExtentPacker::Run run;                      // Published blocks that are not yet queued for the disk.
    RunningState state;                         // Checkpoint groups; their tables and own slots stay empty.
  };

  // Sizes every table once: nothing below allocates between open and close, but `path` beyond the prompt's blocks.
  Sequence(std::size_t groups, std::int64_t blocks_max);

  Block* root = nullptr;
  std::vector<Block*> path;  // Every full block of the prompt, then of what was generated.
  std::vector<Group> groups;
  std::int64_t held = 0;                     // Blocks in place (or, while waiting, to be waited for).
  std::int64_t length = 0;                   // Positions in place: 32 * held + tail_count once ready.
  std::array<TokenId, kBlockTokens> tail{};  // Ids of the block that is not full yet.
  std::int64_t tail_count = 0;
  bool live = false, waiting = false;
  bool counted = false;       // As a use of what it shares.
  bool slow_read = false;     // More is stored, but computing it takes less time than reading it.
  bool broken = false;        // A block it relies on was damaged: repair() before anything else.
  std::int64_t attached = 0;  // While waiting: blocks before it are known to be in place.
  std::vector<Load*> loads;   // Reads that its blocks depend on and that have not ended.

  Reuse reuse;
  std::vector<Source> source;  // [blocks_max]
  std::int64_t matched = 0;    // Leading blocks of the prompt that the index or the disk knew at open.
  std::int64_t opened_ns = 0;

  ResumePlan plan;            // Boundaries that are worth resuming at.
  std::int64_t kept_end = 0;  // Block boundary of its last checkpoint that stays; 0: none.

  // Back to a fresh state; keeps capacity.
  void reset();
};

}  // namespace lode::kv
