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
#include "kv/store.h"

namespace lode::kv {

// Blocks [first, end) of a chain.
struct BlockRange {
  std::int64_t first = 0, end = 0;
};

// Where a reused block came from, best last: it counts as the slowest of its copies.
enum class Source : std::uint8_t { ram, disk, in_flight };

class Sequence {
 public:
  // Resume points beyond the ring that a live sequence keeps: the prompt's end, and a branch or a turn before it.
  static constexpr std::size_t kMarksMax = 2;

  struct Group {
    std::vector<std::byte*> table;  // [blocks_max] slot of each block that a query may see; else nullptr.
    std::vector<SlotId> own;        // [blocks_max] slots that belong to no copy: blocks being computed, duplicates.
    std::int64_t first = 0;         // Copies of blocks [first, held) are pinned.
    std::int64_t slots_end = 0;     // Blocks [held, slots_end) have own slots.
    std::array<BlockRange, kMarksMax> marks{};  // Pinned once more, as resume points; the newest first.
    ExtentPacker::Run run;                      // Published blocks that are not yet queued for the disk.
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
  bool broken = false;        // A block it relies on was damaged: repair() before anything else.
  std::int64_t attached = 0;  // While waiting: blocks before it are known to be in place.
  std::vector<Load*> loads;   // Reads that its blocks depend on and that have not ended.

  Reuse reuse;
  std::vector<Source> source;      // [blocks_max]
  std::int64_t matched = 0;        // Leading blocks of the prompt that the index or the disk knew at open.
  std::int64_t differs_at = -1;    // First token that differs from the closest stored continuation; -1: unknown.
  std::int64_t branch_block = -1;  // A boundary where this prompt leaves a stored chain that could not be used.
  std::int64_t opened_ns = 0;

  // Back to a fresh state; keeps capacity.
  void reset();
};

}  // namespace lode::kv
