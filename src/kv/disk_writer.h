// The background thread that changes the KV folder: writes extents, removes and sets aside files, appends to the index
// log. Owns the writer's lock, the log, the daily count and the ledger of allocated bytes. Called by DiskTier on the
// step thread; what happened comes back through take_events().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "kv/bytes_io.h"
#include "kv/disk_folder.h"
#include "kv/disk_tier.h"
#include "kv/extent.h"
#include "kv/index_log.h"
#include "kv/staging.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace lode::kv {

// Counts for DiskStats; any thread.
struct DiskCounters {
  std::atomic<std::uint64_t> bytes_written{0}, bytes_read{0}, bytes_written_today{0};
  std::atomic<std::uint64_t> writes_dropped{0}, write_errors{0}, corrupt_slices{0}, files_set_aside{0},
      evicted_extents{0};
  std::atomic<bool> direct{true};  // O_DIRECT was not refused so far.
};

// Room in the folder: what its files take, what queued writes will, what queued removals give back. Any thread.
class DiskLedger {
 public:
  void reset(std::unordered_map<std::string, std::uint64_t> sizes);
  void set(const std::string& path, std::uint64_t bytes);  // 0: it is gone.
  std::uint64_t size_of(const std::string& path) const;
  std::uint64_t used() const;
  std::uint64_t projected() const;  // used + reserved - releasing: once everything queued is done.
  void reserve(std::uint64_t bytes);
  void unreserve(std::uint64_t bytes);
  void promise(std::uint64_t bytes);  // A queued removal will give these back.
  void settle(std::uint64_t bytes);   // It was tried.

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::uint64_t> sizes_;  // By path below DIR.
  std::uint64_t used_ = 0, reserved_ = 0, releasing_ = 0;
};

// A file to remove or set aside.
struct Doomed {
  std::string path;                // Below DIR.
  std::uint64_t bytes = 0;         // As promised to the ledger.
  std::optional<ExtentName> name;  // An extent of this model.
};

struct WriteOrder {
  ExtentMeta meta;
  GroupId group;
  std::vector<const std::byte*> data;  // [blocks] of block_bytes.
  std::vector<Tag> tags;               // [slices, blocks], once it is encrypted.
  std::vector<Doomed> victims;         // Removed first.
  std::uint64_t file_bytes = 0;
  std::uint64_t reserved_bytes = 0;  // In the ledger, given back when the order is done.
  std::uint64_t data_bytes = 0;      // Of the queue.
};
struct RemoveOrder {
  std::vector<Doomed> files;
  enum class When : std::uint8_t {
    at_once,
    after_sync
  } when = When::at_once;  // after_sync: names written so far are durable.
};
struct AsideOrder {
  Doomed file;
};
struct TouchOrder {
  std::vector<ExtentName> names;
};

struct WrittenEvent {
  ExtentMeta meta;
  std::uint64_t allocated_bytes = 0, data_bytes = 0;
  bool ok = false;
};
struct AsideEvent {
  OtherFile file;  // Where it lies now.
};
// The folder was removed from outside and made again; this is what it holds now.
struct VanishedEvent {
  DiskScan scan;
};
using DiskEvent = std::variant<WrittenEvent, AsideEvent, VanishedEvent>;

class DiskWriter {
 public:
  DiskWriter(const DiskConfig& config, platform::FileSystem& fs, platform::Clock& clock, DiskCounters& counters);
  ~DiskWriter();  // Ends the thread or its turns; what is queued is not written.

  // Start-up, before run(): by the caller's thread. Without the lock, what would change the folder does nothing.
  Status take_lock();   // unavailable: another writer.
  void probe_direct();  // Whether O_DIRECT works here; also whether files can be made at all.
  IndexLog& log() { return log_; }
  void remove_now(const Doomed& file);
  // Sets a file aside at once; where it lies then.
  std::optional<OtherFile> set_aside_now(const Doomed& file);
  void append_log(std::span<const std::byte> records, std::uint64_t count);
  Status open_staging();  // With a device.
  void open_sealing();    // With a cipher.
  void run();

  DiskLedger& ledger() { return ledger_; }
  std::uint64_t written_today() const { return counters_.bytes_written_today; }
  // Somebody removed the folder, and another process made it again and writes to it. Any thread.
  bool lost() const { return lost_; }
  // Nothing is worth trying before this time (now_ns) after an error.
  std::int64_t down_until_ns() const { return down_until_ns_; }

  using Order = std::variant<WriteOrder, RemoveOrder, AsideOrder, TouchOrder>;
  void submit(Order order);
  std::vector<DiskEvent> take_events();
  // Waits until the queue is empty and the folder synced; false: not by then.
  bool wait_idle(std::chrono::steady_clock::time_point deadline);

 private:
  enum class Outcome : std::uint8_t { written, dropped, failed };

  void work();
  bool take_turn();
  void handle(WriteOrder& order);
  void handle(RemoveOrder& order);
  void handle(AsideOrder& order);
  void handle(TouchOrder& order);
  Outcome write(WriteOrder& order, std::uint64_t& allocated);
  Status fetch(WriteOrder& order);
  void seal(WriteOrder& order);
  Status write_file(const WriteOrder& order, std::uint64_t& allocated);
  Result<std::unique_ptr<platform::File>> create(const std::filesystem::path& path, platform::OpenOptions::Cache cache);
  Status fill(const WriteOrder& order, const std::string& temporary, bool aligned, std::uint64_t& allocated);
  void finish(WriteOrder& order, Outcome outcome, std::uint64_t allocated);
  void recreate();
  void failed(const Status& status);
  void sync_names();
  void retry_leftovers();
  void keep_leftover(Doomed file);
  void maybe_compact();
  void push(DiskEvent event);

  const DiskConfig config_;
  const DiskPaths paths_;
  platform::FileSystem& fs_;
  platform::Clock& clock_;
  DiskCounters& counters_;
  DiskLedger ledger_;
  std::atomic<std::int64_t> down_until_ns_{0};

  // The writer thread's own, once it runs.
  std::unique_ptr<Staging> staging_;  // With a device: one extent.
  std::byte* staged_ = nullptr;       // Its buffer.
  std::vector<kernels::DeviceCopy> copies_;
  AlignedBytes sealed_;  // With a cipher: an extent's slices, encrypted, as they follow each other in the file.
  std::unique_ptr<platform::FileLock> lock_;
  IndexLog log_;
  DailyCount daily_;
  std::uint64_t temporaries_ = 0;  // Names given out.
  std::uint64_t live_ = 0;         // Extents the log knows.
  std::atomic<bool> lost_ = false;
  bool synced_ = true;        // Tried since the last order.
  bool names_dirty_ = false;  // Renames since the last sync of the folder.
  std::int64_t names_dirty_since_ns_ = 0;
  std::vector<Doomed> leftovers_;  // Could not be removed; tried again.
  std::int64_t backoff_ns_ = 0;
  bool error_reported_ = false;

  std::mutex mutex_;
  std::condition_variable wake_, idle_;
  std::deque<Order> queue_;  // Guarded by mutex_, as the next three.
  std::vector<DiskEvent> events_;
  bool busy_ = false, stop_ = false;
  std::thread thread_;
  std::optional<std::uint64_t> worker_;  // Instead of the thread: its number among config_.turns.
};

}  // namespace lode::kv
