// The index log of one model's folder: which extents there are, and what they hold, in order of use. Owns the file.
// An accelerator only: what it lacks or gets wrong is read from the extents' own headers, so a failed append, a torn
// tail or a missing file costs start-up time and nothing else. One thread at a time. docs/kv-format.md has the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kv/extent.h"
#include "platform/file_system.h"

namespace lode::kv {

struct LoggedExtent {
  ExtentMeta meta;
  std::int64_t used_seconds = 0;  // Wall clock of its last known use.
  std::uint32_t uses = 0;         // As often as touch records name it; not part of its own record.
};

// What the sound records before the first damaged one add up to.
struct LogReplay {
  std::vector<LoggedExtent> extents;  // Least recently used first.
  std::uint64_t sound_bytes = 0;      // 0: not this model's log at all.
  std::uint64_t records = 0;
};
LogReplay replay_log(std::span<const std::byte> bytes, const std::array<std::uint8_t, 32>& fingerprint);

// Records, ready to append.
std::vector<std::byte> begin_record(const std::array<std::uint8_t, 32>& fingerprint);
std::vector<std::byte> add_record(const LoggedExtent& extent);
std::vector<std::byte> remove_record(const ExtentName& name);
std::vector<std::byte> touch_record(std::span<const ExtentName> names, std::int64_t used_seconds);

class IndexLog {
 public:
  static constexpr std::string_view kFileName = "index.log";

  IndexLog(platform::FileSystem& fs, std::filesystem::path folder, const std::array<std::uint8_t, 32>& fingerprint);

  // Reads the log; anything unreadable gives fewer extents. Opens nothing for writing.
  LogReplay load();
  // Appends `count` records after what load() found sound, cutting off the rest.
  Status append(std::span<const std::byte> records, std::uint64_t count);
  // Writes a new log of the live records under a temporary name and puts it in place. Where there is no room for both,
  // the old one goes first: a crash in between costs a start that reads the extents' headers.
  enum class Old : std::uint8_t { keep_until_replaced, remove_first };
  Status compact(Old old);
  // More than half of a log over 1 MiB says what no longer holds.
  static constexpr std::uint64_t kRecordBytesMax = 16 + 104 + 16 * 160;  // Of an extent of 16 blocks.
  bool wants_compaction() const { return bytes_ > (1u << 20) && records_ > 2 * live_ + 64; }
  // What append and compact change; for wants_compaction.
  void count_live(std::uint64_t live) { live_ = live; }
  void forget();  // The folder vanished: the next append starts a new log.
  Status sync();

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t live() const { return live_; }
  std::uint64_t allocated_bytes();  // 0 where it cannot be told.
  const std::filesystem::path& path() const { return path_; }

 private:
  Result<std::vector<std::byte>> read_all();

  platform::FileSystem& fs_;
  const std::filesystem::path folder_, path_;
  const std::array<std::uint8_t, 32> fingerprint_;
  std::unique_ptr<platform::File> file_;
  std::uint64_t bytes_ = 0;  // Sound; appended here.
  std::uint64_t records_ = 0, live_ = 0;
  bool tail_dirty_ = true;  // Bytes after bytes_ may exist.
};

}  // namespace lode::kv
