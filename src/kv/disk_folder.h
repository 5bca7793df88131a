// What lies in the KV folder: paths, a scan with sizes, and the bytes written today. Owns no open files. Any thread,
// one at a time.
//
//   DIR/lock                    flock of the writer
//   DIR/written-today           the daily cap's count
//   DIR/known-models            hashes of model files that were read whole before (known_models.h)
//   DIR/<64 hex>/index.log      one folder a model fingerprint
//   DIR/<64 hex>/<name>.kvx     extents
//   DIR/<64 hex>/pins           prefixes that stay (pins.h)
//   DIR/<64 hex>/*.tmp          being written; removed at start-up
//   DIR/damaged/                set aside: kept for a look, first to go when room is needed
//
// Anything else is not ours: neither counted nor touched.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "kv/disk_tier.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace lode::kv {

// The model whose folder has this name; nothing: it is none of a model.
std::optional<std::array<std::uint8_t, 32>> parse_fingerprint(std::string_view name);

struct DiskPaths {
  explicit DiskPaths(const DiskConfig& config);
  std::filesystem::path dir;  // DIR
  std::string own_name;       // "<64 hex>"
  std::filesystem::path own;  // DIR/<64 hex>
  std::filesystem::path lock() const { return dir / "lock"; }
  std::filesystem::path daily() const { return dir / kDailyName; }
  static constexpr std::string_view kDailyName = "written-today";
  static constexpr std::string_view kDamagedName = "damaged";
};

// A file that may be removed to make room, but is no extent of this model and layout.
struct OtherFile {
  std::string path;  // Below DIR.
  std::uint64_t allocated_bytes = 0;
  std::int64_t used_seconds = 0;  // Its modification time; 0 for damaged ones, which go first.
};

struct DiskScan {
  std::vector<platform::DirEntry> own;  // Files of this model's folder.
  std::vector<OtherFile> others;        // Of the other models' folders and DIR/damaged.
  // Allocated bytes of every file that is ours, by path below DIR.
  std::unordered_map<std::string, std::uint64_t> sizes;
};
// An absent folder of this model is an empty one; an absent DIR is not_found.
Result<DiskScan> scan_folder(platform::FileSystem& fs, const DiskPaths& paths);

// Bytes written on the current day (UTC), kept over restarts. Two checksummed places are written in turn, so that a
// torn one loses the last step only.
class DailyCount {
 public:
  DailyCount(platform::FileSystem& fs, platform::Clock& clock, std::filesystem::path path);
  void load();  // Unreadable: nothing was written today.
  std::uint64_t today() const;
  void add(std::uint64_t bytes);
  Status store();

 private:
  platform::FileSystem& fs_;
  platform::Clock& clock_;
  const std::filesystem::path path_;
  std::uint64_t sequence_ = 0, bytes_ = 0;
  std::int64_t day_ = 0;
};

}  // namespace lode::kv
