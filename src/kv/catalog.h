// What the store can be asked about what it holds, and told to do with it: why a prompt misses, which prefixes are
// stored, pins, purges. Plain data, and the bounded memory of what was removed. Owns nothing else. Step thread only.
//
// Every question is asked inside one namespace (a salt): what lies under another is not looked at, so that it can show
// neither in an answer nor in the time that it takes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kv/key.h"
#include "platform/clock.h"

namespace lode::kv {

// What a reply's `cache` object says.
struct Reuse {
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens_reused = 0;
  std::int64_t from_ram = 0, from_disk = 0, from_in_flight = 0;  // Sum: tokens_reused. (in flight: computed for a peer)
  std::string resume = "none";   // "none", "block", or "checkpoint" (models with recurrent layers).
  std::string reason;            // What stopped the reuse there: "whole prompt but its last tokens", "nothing
                                 // stored for this prefix", "token 9584 differs", "window state not stored",
                                 // "no checkpoint nearer than token 9216", "evicted", "damaged block",
                                 // "reading is slower than computing here", ...
  double load_ms = 0;            // Time until the last restored byte was in place.
  std::int64_t differs_at = -1;  // First token that differs from the closest stored prompt; -1: none does.
  TokenId asked_token = -1, stored_token = -1;  // The two there; -1: unknown.
};

// Why a reuse went no further, as Reuse::reason says it in words.
enum class Stop : std::uint8_t {
  whole,          // Everything but the last tokens, one of which is always computed.
  short_prompt,   // Less than a block.
  no_checkpoint,  // The state of recurrent layers is not stored there.
  no_window,      // The windows of sliding-window layers are not stored there.
  evicted,        // It was stored once.
  slow_read,      // More is on the SSD, but computing it takes less time than reading it.
  computing,      // Another request is computing it.
  differs,        // What is stored goes on with another token.
  ends,           // What is stored ends there.
  nothing,        // Nothing is stored for this beginning.
};
std::string_view stop_name(Stop stop);

// Where a prompt leaves the closest stored continuation.
struct Difference {
  static constexpr std::int64_t kNeighbours = 8;
  std::int64_t at = -1;                // Position of the first token that differs.
  std::vector<TokenId> before;         // The common tokens before it, kNeighbours at most.
  std::vector<TokenId> asked, stored;  // From it on, kNeighbours at most; `stored` may end with its block.
};

enum class RemovedWhy : std::uint8_t {
  memory,    // RAM had no room for what nobody used.
  quota,     // The SSD tier's quota.
  purged,    // Somebody asked for it.
  damaged,   // Its bytes were not what was written.
  vanished,  // Its file went without us.
};
std::string_view removed_why(RemovedWhy why);  // "to keep RAM inside --kv-ram", ...

struct Removal {
  BlockKey key;
  GroupId group;
  RemovedWhy why = RemovedWhy::memory;
  std::int64_t wall_seconds = 0;
};

// The last removals of a tier. Bounded; allocated once.
class RemovalLog {
 public:
  static constexpr std::size_t kMost = 8192;  // 512 chains of 16 blocks; 448 KiB.

  explicit RemovalLog(platform::Clock& clock) : clock_(clock) { ring_.reserve(kMost); }
  void note(const BlockKey& key, GroupId group, RemovedWhy why) {
    const Removal removal{key, group, why, clock_.wall_seconds()};
    if (ring_.size() < kMost) ring_.push_back(removal);
    else ring_[next_] = removal;
    next_ = (next_ + 1) % kMost;
  }
  // The newest one of that block and group; nullptr: none that is remembered. Looks at all: some 10 us.
  const Removal* last(const BlockKey& key, GroupId group) const {
    for (std::size_t i = 0; i < ring_.size(); ++i) {
      const Removal& r = ring_[(next_ + ring_.size() - 1 - i) % ring_.size()];
      if (r.key == key && r.group == group) return &r;
    }
    return nullptr;
  }

 private:
  platform::Clock& clock_;
  std::vector<Removal> ring_;
  std::size_t next_ = 0;
};

struct Explanation {
  Reuse reuse;  // As a request would get it now; load_ms is 0.
  Stop stop = Stop::nothing;
  std::int64_t tokens_known = 0;  // Leading tokens that are stored, or were: at least what is reused.
  std::optional<Difference> difference;
  std::optional<Removal> from_ram, from_disk;  // How the first block that is missing went, where that is remembered.
  bool disk = false;                           // Whether there is an SSD tier.
};

// A chain of stored blocks, named by the key of its last one. Chains share blocks: each counts them whole.
struct StoredPrefix {
  BlockKey key;
  std::int64_t tokens = 0;
  std::uint64_t ram_bytes = 0, vram_bytes = 0, disk_bytes = 0;
  std::int64_t used_seconds = 0;  // Wall clock of the last use that is known.
  bool pinned = false;
  std::vector<TokenId> first, last;  // Tokens of its first two blocks, and of its last one where that is another.
};
struct PrefixPage {
  std::vector<StoredPrefix> prefixes;  // The most recently used first.
  std::int64_t total = 0;              // Of the namespace.
  bool truncated = false;              // There are more blocks than are looked at: `total` and the order miss some.
};

struct Purged {
  std::int64_t blocks = 0;  // That lost copies.
  std::uint64_t ram_bytes = 0, disk_bytes = 0;
  std::int64_t kept_pinned = 0;  // Blocks that stay because of a pin,
  std::int64_t kept_in_use = 0;  // or because a request uses them, or they are being written: ask again.
};

// A prefix that stays: its blocks are not evicted from the SSD, or without one not from RAM.
struct Pin {
  BlockKey key, root;               // Of its last block, and of its chain's root: the namespace.
  std::int64_t blocks = 0;          // Of the prefix; 32 tokens each.
  std::int64_t wall_seconds = 0;    // When it was pinned.
  std::vector<std::int64_t> first;  // [groups] first block that is needed of each, to resume at its end.
  std::string name;                 // What the client calls it; a slot file's is "slot:" and its name.
};
struct Pinned {
  BlockKey key;
  std::int64_t tokens = 0;
  std::uint64_t bytes = 0;  // Of this prefix, those shared with other pins included.
};

// The blocks of a prompt, for a slot file.
struct ChainState {
  std::vector<BlockKey> keys;  // Of its full blocks, stored or not.
  std::int64_t stored = 0;     // Blocks after which it could be resumed,
  std::int64_t durable = 0;    // and with what is on the SSD alone.
};

}  // namespace lode::kv
