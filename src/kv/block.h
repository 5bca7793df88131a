// A logical block: 32 tokens of one chain, with at most one copy of each cache group in RAM. Plain data that
// PrefixIndex links, RamTier fills and Store decides about. Step thread only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/key.h"
#include "kv/shelves.h"

namespace lode::kv {

// Groups a family may declare: Gemma has 2, hybrids with an indexer 4.
inline constexpr std::size_t kGroupsMax = 8;

class Sequence;
struct Block;
struct Load;

enum class CopyState : std::uint8_t {
  none,      // No slot: evicted, only on disk, or never computed.
  in_place,  // Complete and right; immutable from now on.
  reading,   // A Load is filling the slot from disk.
};

// One group's bytes of a block in RAM. Pins count who relies on it: sequences, resume points, the packer and loads. A
// pin may come before the bytes do: a peer that waits for a block pins it while it is still computed.
struct Copy : Ranked {
  Block* block = nullptr;
  GroupId group;
  SlotId slot;  // Valid unless `none`.
  CopyState state = CopyState::none;
  bool keep = false;         // Stays after its last pin, as the unpinned budget allows; else it is freed then.
  bool writing = false;      // The packer holds it, or the disk tier's queue.
  bool bad_on_disk = false;  // A read failed: not read again until it was computed, even if the tier lists it.
  std::uint32_t pins = 0;
  std::int64_t short_extent_end = -1;  // Index of the last block of the short extent it was written in; -1: none.
  Load* load = nullptr;                // While `reading`.
  bool listed = false;                 // Nobody pins it: it may be evicted, and lies on one of RamTier's shelves.
  // Window groups. A resume point is the window before a block's end, which neighbours may share: the copy there has
  // the first block of it, and every copy in it counts the points that hold it.
  std::int64_t point_first = -1;  // -1: it is the end of none.
  std::uint32_t holders = 0;
};

struct Block {
  BlockKey key;
  Block* parent = nullptr;  // nullptr: a root, which stands for a salt and has no tokens.
  std::int64_t index = -1;  // Position of its first token / 32.
  std::array<TokenId, kBlockTokens> ids{};
  std::vector<Copy> copies;       // [groups]; never resized.
  std::int64_t used_seconds = 0;  // Wall clock of the last sequence that let go of it.
  Sequence* owner = nullptr;      // The live sequence that is going to compute it; peers may wait for it.
  std::uint32_t refs = 0;         // Sequences whose path it is on.
  std::uint32_t resident = 0;     // Copies that have a slot,
  std::uint32_t near = 0;         // of them in the device's memory (RAM, where there is no device).
  std::uint32_t resident_children = 0, near_children = 0;  // That have such copies.
  bool published = false;                                  // Its bytes existed at some time.
  bool off_disk = false;  // The disk has, or may get, other tokens under this key: never read or write it there.
  Block *first_child = nullptr, *next_sibling = nullptr, *previous_sibling = nullptr;
  Block* same_key = nullptr;  // The next block with an equal key: another chain, after a hash collision.
  Block *older_stub = nullptr, *newer_stub = nullptr;
  bool stub = false;  // Listed as removable: no copies, no children, on nobody's path.

  bool root() const { return parent == nullptr; }
};

}  // namespace lode::kv
