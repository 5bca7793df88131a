// The KV store: blocks of 32 tokens in a prefix tree over the tiers. Owns blocks, pins, residency and the tiers; a
// sequence's handle is owned here too. Step thread only: I/O threads hand it completions through poll().
//
// The store may miss, it never lies: what it hands out is bit for bit what computing those tokens would give.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/catalog.h"
#include "kv/disk_tier.h"
#include "kv/key.h"
#include "memory/budget.h"
#include "model/kv_view.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace lode::kv {

struct StoreConfig {
  std::vector<model::CacheGroup> groups;
  kernels::KvType k_type = kernels::KvType::f16, v_type = kernels::KvType::f16;
  RootInputs root;                       // Its salt is replaced per sequence.
  std::uint64_t arena_bytes_max = 0;     // Hard bound on committed KV memory, pinned and unpinned.
  std::uint64_t unpinned_bytes_max = 0;  // --kv-ram: KV that no live sequence pins. 0: none is kept.
  std::int64_t chunk_tokens = 512;       // Most tokens of one sequence in a step: the ring is window + chunk.
  std::int64_t context_max = 0;          // Longest sequence; sizes block tables.
  int sequences_max = 1;
  // A device that computes: blocks live in its memory as long as its budget, which weights and others draw on too, has
  // pieces. The bounds above then are of the page-locked RAM behind it: what finds no room on the device is read and
  // written there in place. Both outlive the store.
  kernels::Device* device = nullptr;
  memory::Budget* device_budget = nullptr;
  // Models with recurrent layers: a state is kept at every so many tokens (rounded up to whole blocks), beside those at
  // prompts' and turns' ends and where prompts part. 0: checkpoint_interval().
  std::int64_t checkpoint_tokens = 0;
  std::optional<DiskConfig> disk;  // Layouts, groups' kinds and fingerprint are filled in by Store::open.
};

// The default distance of checkpoints in tokens: 1024, or the next power of two up to 4096 at which one of them takes
// no more bytes than the KV of the tokens between two. What such a checkpoint saves is, on average, half that distance
// for a prompt that leaves a stored one somewhere in the middle; 512 tokens of Qwen3.5 0.8B are about 5 s on two cores,
// for 19 MiB, and those of a state read from an SSD about 20 ms. Most prompts resume at a prompt's or a turn's end
// instead, which is why these may not outweigh the KV itself.
std::int64_t checkpoint_interval(std::span<const model::CacheGroup> groups,
                                 std::span<const model::BlockLayout> layouts);

class Sequence;  // Opaque: one live sequence's block tables and pins.

enum class SeqState : std::uint8_t {
  ready,         // Positions [0, length) are in place or being read layer by layer: may be stepped.
  waiting_peer,  // Another sequence is computing blocks it will share: poll again after the next step.
};

struct StoreStats {
  std::uint64_t pinned_bytes = 0, unpinned_bytes = 0;
  std::uint64_t committed_bytes = 0, arena_bytes_max = 0, peak_committed_bytes = 0;  // Of RAM.
  // Of the device's memory, KV alone, and the whole of its budget; 0: no device. pinned and unpinned count both kinds.
  std::uint64_t vram_kv_bytes = 0, vram_committed_bytes = 0, vram_bytes_max = 0, vram_peak_bytes = 0;
  std::uint64_t blocks = 0, hits_ram_tokens = 0, hits_disk_tokens = 0, hits_in_flight_tokens = 0, computed_tokens = 0;
  std::uint64_t evicted_blocks = 0, corrupt_blocks = 0;
  DiskStats disk;
  std::string disk_note;  // Why there is no disk tier, if so.
};

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(const StoreConfig& config, platform::FileSystem& fs,
                                             platform::Clock& clock);
  virtual ~Store() = default;

  // Finds the longest resume point for `prompt` (at most prompt.size() - 1 tokens), pins it, starts reading what is on
  // disk, and registers the rest of the prompt's blocks as in flight for peers. Errors: exhausted (no room even after
  // eviction: queue the request), invalid (longer than context_max). `salt` isolates users. `marks` are prompt lengths
  // in tokens, each rounded down to whole blocks, after which other prompts are expected to go on differently: resume
  // points are kept there. (The prompt's end is one without being named.) Those outside the prompt are ignored.
  virtual Result<Sequence*> open_sequence(std::span<const TokenId> prompt, std::string_view salt,
                                          std::span<const std::int64_t> marks) = 0;
  Result<Sequence*> open_sequence(std::span<const TokenId> prompt, std::string_view salt) {
    return open_sequence(prompt, salt, {});
  }
  virtual SeqState state(Sequence& seq) = 0;
  virtual std::int64_t length(const Sequence& seq) const = 0;  // Positions that need no computing. Final once ready.
  virtual const Reuse& reuse(const Sequence& seq) const = 0;

  // How many of `wanted` (>= 1) tokens the next step should take: a recurrent state exists at a step's end alone, so a
  // step ends where a checkpoint is to be kept. Cutting a step changes no result, and a longer one costs the checkpoint
  // only. Models without recurrent layers: `wanted`.
  virtual std::int64_t step_limit(const Sequence& seq, std::int64_t wanted) const = 0;
  // Commits memory for `tokens` more positions (at most chunk_tokens) after length(). `exhausted`: preempt somebody.
  virtual Status grow(Sequence& seq, std::int64_t tokens) = 0;

  // The view for one step: run i is `count` tokens of seqs[i] from length() on, at batch row first_row. The reference
  // lives until the next call. No allocation.
  struct RunSpec {
    Sequence* seq = nullptr;
    std::int64_t first_row = 0, count = 0;
  };
  virtual model::KvView& view(std::span<const RunSpec> runs) = 0;

  // After a step that succeeded: `ids` are the tokens whose KV was written at length()...; full blocks are hashed and
  // published, window slots no query can see any more are freed (or kept as a resume point), extents are queued.
  virtual void commit(Sequence& seq, std::span<const TokenId> ids) = 0;
  // A resume point worth keeping (prompt end): window groups keep the W-1 tokens before its last block boundary,
  // checkpoint groups the state there, if a step ended there.
  virtual void mark_resume_point(Sequence& seq) = 0;
  // After KvView::wait failed: damaged blocks are dropped, length() falls back to what is sound (recompute from there).
  virtual void repair(Sequence& seq) = 0;
  // What the step just committed took: what blocks are worth is measured by it. `positions`: the sum of its tokens'.
  struct ComputedStep {
    std::int64_t tokens = 0;
    double positions = 0, seconds = 0;
  };
  virtual void note_computed(const ComputedStep&) {}
  // Unpins everything; published blocks stay as the budget allows; pending extents are sealed (a turn's end).
  virtual void close(Sequence* seq) = 0;

  // Moves what nobody pins off the device until its budget has so many bytes left, as far as that goes: others need
  // them.
  virtual void yield_device(std::uint64_t bytes) = 0;

  virtual void poll() = 0;  // Each step, and at least ten times a second while idle.
  // Seals and writes all published blocks; at shutdown. False: the deadline passed first.
  virtual bool flush(std::int64_t timeout_ms) = 0;
  // ---- Questions and orders about what is stored, under one salt each (catalog.h). Nothing here computes, reads
  // blocks or changes what a request would get, but for purge, pin and unpin. Prompts longer than the context are
  // `invalid`.

  // What a request with this prompt would reuse, and what stops it there.
  virtual Result<Explanation> explain(std::span<const TokenId> prompt, std::string_view salt) = 0;
  virtual PrefixPage list(std::string_view salt, std::int64_t offset, std::int64_t limit) = 0;
  // Tokens of the stored chain that ends with this block; not_found where there is none under this salt.
  virtual Result<std::vector<TokenId>> tokens_of(const BlockKey& key, std::string_view salt) = 0;
  // Drops what is stored, or of one prefix (its last block's key) what no other stored prefix needs. Blocks that
  // somebody uses stay, and so do pinned ones. Extents that hold other blocks as well stay on the SSD.
  virtual Purged purge(std::string_view salt, const std::optional<BlockKey>& key) = 0;
  // The blocks of these tokens and how far they are stored. `write`: what is not yet on the SSD is queued for it.
  enum class Write : std::uint8_t { no, now };
  virtual Result<ChainState> chain(std::span<const TokenId> tokens, std::string_view salt, Write write) = 0;
  // Keeps the longest resume point among these tokens' full blocks. Errors: not_found (nothing of it is stored),
  // unavailable (it is being written to the SSD: ask again), exhausted (pins would take more than their share; the
  // message has the figures), unsupported (the SSD tier is read-only here).
  virtual Result<Pinned> pin(std::span<const TokenId> tokens, std::string_view salt, const std::string& name) = 0;
  // not_found: no such pin under this salt.
  virtual Status unpin(const BlockKey& key, std::string_view salt) = 0;
  virtual std::vector<Pin> pins(std::string_view salt) const = 0;
  // Everything that a root key hashes, with this salt in it.
  virtual RootInputs root_inputs(std::string_view salt) const = 0;

  // Drops all unpinned RAM blocks (tests, and the audit's restart arms).
  virtual void drop_ram() = 0;
  virtual StoreStats stats() const = 0;
};

}  // namespace lode::kv
