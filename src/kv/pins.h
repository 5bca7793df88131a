// DIR/<fingerprint>/pins: the prefixes that stay on the SSD. Owns nothing. Step thread, and start-up.
//
// The file is written whole, under a temporary name, synced and renamed. One that is damaged or absent pins nothing,
// and nothing but eviction's order depends on it. docs/kv-format.md has the bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "kv/catalog.h"
#include "kv/disk_folder.h"
#include "platform/file_system.h"

namespace lode::kv {

class PinFile {
 public:
  static constexpr std::string_view kFileName = "pins";
  static constexpr std::size_t kPinsMax = 1024;      // 280 KiB.
  static constexpr std::size_t kNameBytesMax = 128;  // Longer names are cut.

  PinFile(platform::FileSystem& fs, const std::filesystem::path& folder) : fs_(fs), folder_(folder) {}
  std::vector<Pin> load() const;
  // The folder exists. After an error the old file is there.
  Status store(std::span<const Pin> pins) const;

 private:
  platform::FileSystem& fs_;
  const std::filesystem::path folder_;
};

// Takes out of `others` (disk_folder.h) what the pins of its folders keep: other models', and this one's of other
// layouts. Their allocated bytes. Reads index logs and headers, but of folders with pins alone.
std::uint64_t spare_pinned(platform::FileSystem& fs, const std::filesystem::path& dir, std::vector<OtherFile>& others);

}  // namespace lode::kv
