// The SSD tier: blocks of cache groups in immutable extent files under DIR/<fingerprint>/, an index of them, a bounded
// background writer and asynchronous reads. Owns the files, the index log, the directory lock and its I/O threads.
// Called by kv::Store on the step thread only, except where a function says otherwise. docs/kv-format.md has the bytes.
//
// Everything here is best effort towards the caller: a block may be missing at any time, it is never wrong. Damage,
// short files, foreign files and failed I/O become misses, are counted, reported once and set aside.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/device.h"
#include "kv/catalog.h"
#include "kv/key.h"
#include "kv/value.h"
#include "model/kv_view.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace lode::kv {

struct DiskConfig {
  std::filesystem::path dir;  // The KV folder that --kv-disk names; created 0700.
  std::array<std::uint8_t, 32> model_fingerprint{};
  std::vector<model::BlockLayout> groups;  // Layout of a block per GroupId.
  // Per GroupId: whether resuming after a block needs it of every earlier block too (full attention), so that what the
  // other groups hold after it is worth nothing without it. Empty: all groups.
  std::vector<bool> whole_history;
  std::uint64_t quota_bytes = 0;                // Allocated bytes of all extents under `dir`; a hard bound.
  std::uint64_t free_floor_bytes = 1ull << 30;  // Never write when the file system has less free than this.
  std::uint64_t write_bytes_per_day_max = 100ull << 30;
  std::uint64_t queue_bytes_max = 64ull << 20;  // Bytes waiting to be written; beyond it a write is dropped.
  // Blocks may lie in this device's memory: they pass through page-locked RAM (staging.h). Outlives the tier.
  kernels::Device* device = nullptr;
  enum class ReadMode {
    automatic,
    pread_threads
  } read_mode = ReadMode::automatic;  // automatic: io_uring, else threads.
};

struct DiskBlock {
  BlockKey key, parent;
  std::int64_t index = 0;  // Position of its first token / 32.
  std::array<TokenId, kBlockTokens> ids{};
};

enum class WriteResult : std::uint8_t {
  queued,
  dropped_queue_full,
  dropped_quota,
  dropped_daily_cap,
  dropped_free_floor,  // The file system would have less free than free_floor_bytes.
  dropped_read_only,
  dropped_disk_error
};

// One restore in flight: many blocks of several groups, read layer by layer. Owned by the DiskTier; the caller ends it
// with release(). Layer states may be read by any thread.
class ReadTicket {
 public:
  virtual ~ReadTicket() = default;
  // Blocks until every slice of `layer` in this ticket is in place or has failed. True: all in place and verified.
  virtual bool wait_layer(LayerIndex layer) = 0;
  virtual bool done() const = 0;  // No slice is pending any more.
  // Items (indices into the span given to start_read) with at least one failed slice; complete once done().
  virtual std::vector<std::size_t> failed() const = 0;
  virtual std::uint64_t bytes() const = 0;      // Bytes read for it.
  virtual double seconds() const { return 0; }  // From the start to the last slice, once done(); 0: not measured.
};

struct DiskStats {
  std::uint64_t extents = 0, blocks = 0, bytes_allocated = 0, quota_bytes = 0;
  std::uint64_t bytes_written = 0, bytes_read = 0, bytes_written_today = 0, queue_bytes = 0;
  std::uint64_t writes_dropped = 0, write_errors = 0, corrupt_slices = 0, files_set_aside = 0, evicted_extents = 0;
  std::string mode;  // "io_uring O_DIRECT", "pread threads, buffered", "read-only", "off: <why>"
};

class DiskTier {
 public:
  // Opens or creates the folder, takes its lock (another writer: read-only), loads the index log or rebuilds it from
  // the extents. A folder that cannot be used is an error saying why; the server then runs without this tier.
  static Result<std::unique_ptr<DiskTier>> open(const DiskConfig& config, platform::FileSystem& fs,
                                                platform::Clock& clock);
  virtual ~DiskTier() = default;

  // Whether this block of this group can be read (as far as the index knows).
  virtual bool contains(const BlockKey& key, GroupId group) const = 0;
  // Metadata of a stored block whose ids the caller compares; nullptr: unknown. Valid until the next call.
  virtual const DiskBlock* find(const BlockKey& key) const = 0;
  // The longest common run of `ids` with any stored block that follows `parent`; -1: none is stored.
  virtual std::int64_t closest_child(const BlockKey& parent, std::span<const TokenId> ids) const = 0;

  // Keys of the stored blocks that follow `parent`, each once; at most `most`.
  virtual std::vector<BlockKey> children(const BlockKey& parent, std::size_t most) const = 0;
  // Wall clock of the last use that is known of a stored block; 0: none.
  virtual std::int64_t used_seconds(const BlockKey& key) const = 0;
  // How a block of this group went, if that is remembered; nullptr: it is not. Valid until the next call.
  virtual const Removal* removed(const BlockKey& key, GroupId group) const = 0;

  // Removes every extent all of whose blocks are among `keys`, but no pinned one. Returns their allocated bytes.
  virtual std::uint64_t purge(std::span<const BlockKey> keys) = 0;
  // Extents that hold a block in [pin.first[group], pin.blocks) of this chain stay until unpin(), also over restarts
  // and while other models run. All of them are stored. Errors: exhausted (more than pin_bytes_max() pinned; nothing
  // changes), io_error and the like (the pins' file cannot be written; nothing changes), unsupported (read-only).
  virtual Status pin(const Pin& pin) = 0;
  virtual Status unpin(const BlockKey& key) = 0;  // not_found: it was not pinned.
  virtual const std::vector<Pin>& pins() const = 0;
  virtual bool pinned(const BlockKey& key, GroupId group) const = 0;
  virtual std::uint64_t pinned_bytes() const = 0;  // Allocated, of all models' pinned extents.
  virtual std::uint64_t pin_bytes_max() const = 0;

  // Queues one extent: 1 to 16 consecutive blocks of one chain and one group; data[i] has the group's block_bytes and
  // must stay unchanged until `done` is called (on the step thread, from poll) - also when it is dropped later. The
  // blocks become visible to contains() once durable. An extent that replaces a shorter one of the same chain start
  // unlinks it. Anything but `queued`: `done` is never called.
  virtual WriteResult write(GroupId group, std::span<const DiskBlock> blocks, std::span<const std::byte* const> data,
                            std::function<void(bool ok)> done) = 0;

  struct ReadItem {
    BlockKey key;
    GroupId group;
    std::byte* dst = nullptr;  // block_bytes of the group, 4 KiB aligned; written by I/O threads. May be on the device.
  };
  // Starts reading all items, lower layers first. The destinations must stay until done().
  virtual ReadTicket* start_read(std::span<const ReadItem> items) = 0;
  virtual void release(ReadTicket* ticket) = 0;  // Waits for done().

  virtual void touch(const BlockKey& key) = 0;  // Recently used: eviction takes others first.
  // The same of one group's.
  virtual void touch_group(const BlockKey& key, GroupId) { touch(key); }
  // What computing takes on this machine: eviction weighs blocks by it.
  virtual void set_compute_cost(const ComputeCost&) {}
  // Whether nine tenths of what a day may take are written: the rest is for what has been used again.
  virtual bool near_daily_cap() { return false; }
  // Removes a block's extents of all groups (a mismatch was seen above this tier).
  virtual void drop(const BlockKey& key) = 0;
  // Delivers completions; call each step and at least ten times a second while idle.
  virtual void poll() = 0;
  // Writes everything queued, makes it durable, and returns; used at shutdown. False: the deadline passed first.
  virtual bool flush(std::int64_t timeout_ms) = 0;
  virtual DiskStats stats() const = 0;
};

}  // namespace lode::kv
