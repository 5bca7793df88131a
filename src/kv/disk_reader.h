// Restores: many slices of many extents, read at once, lower layers first, each checked before it is published. Owns
// the reader threads; a ticket owns its open files. start() on the step thread; tickets as ReadTicket says.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kv/bytes_io.h"
#include "kv/disk_tier.h"
#include "kv/disk_writer.h"
#include "kv/extent.h"
#include "kv/staging.h"
#include "platform/async_read.h"
#include "platform/file_system.h"

namespace lode::kv {

// Consecutive wanted blocks of one extent.
struct ReadRun {
  std::uint32_t first = 0;         // Number of the first block inside the extent.
  std::vector<std::size_t> items;  // Indices into start_read's items.
  std::vector<std::byte*> dst;     // [items]
};

struct ReadExtent {
  ExtentName name;
  std::vector<BlockKey> keys;  // What the index says it holds: the file must agree.
  std::vector<ReadRun> runs;
};

struct ReadPlan {
  std::vector<ReadExtent> extents;   // In the order in which they are wanted.
  std::vector<GroupId> item_groups;  // [items]
  std::vector<std::size_t> missing;  // Items that no extent holds.
};

struct ReadProblem {
  ExtentName name;
  enum class Kind : std::uint8_t {
    gone,     // The file is not there.
    damaged,  // Wrong or unreadable bytes.
    later,    // No descriptors or memory just now; the file is fine.
  } kind = Kind::gone;
  std::string what;
};

class DiskReader {
 public:
  DiskReader(const DiskConfig& config, platform::FileSystem& fs, DiskCounters& counters);
  Status open_staging();  // With a device: before the first start().

  class Ticket : public ReadTicket {
   public:
    virtual std::vector<ReadProblem> take_problems() = 0;  // New ones, one an extent.
  };
  // Opens the files and starts reading.
  std::unique_ptr<Ticket> start(ReadPlan plan);
  std::string_view mode() const { return reader_->name(); }

 private:
  class TicketImpl;
  // A read for a device that waits for a buffer.
  struct Waiting {
    TicketImpl* ticket = nullptr;
    std::size_t tag = 0;
  };
  void stage(std::span<const Waiting> reads);
  void unstage(std::byte* buffer);

  const DiskConfig config_;
  const DiskPaths paths_;
  platform::FileSystem& fs_;
  DiskCounters& counters_;
  std::unique_ptr<Staging> staging_;
  std::mutex waiting_mutex_;
  std::deque<Waiting> waiting_;  // Guarded by waiting_mutex_; in the order in which they are wanted.
  std::unique_ptr<platform::AsyncReader> reader_;
};

}  // namespace lode::kv
