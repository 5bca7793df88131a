// Start-up: what the folder, the index log and the extents' headers say, put together. Owns nothing. Called once, by
// DiskTier::open.
#pragma once

#include <string>
#include <vector>

#include "kv/disk_folder.h"
#include "kv/disk_index.h"
#include "kv/disk_tier.h"
#include "kv/extent.h"
#include "kv/index_log.h"
#include "platform/file_system.h"

namespace lode::kv {

struct FolderContents {
  std::vector<OtherFile> others;         // As of the scan, with this model's extents of other layouts.
  std::vector<std::string> temporaries;  // Paths below DIR.
  std::vector<std::string> damaged;      // Extents of this layout that are not what they should be; paths below DIR.
  std::string damage;                    // What is wrong with the first of them.
  std::vector<std::string> foreign;      // Names in this model's folder that are not ours.
  std::vector<LoggedExtent> unlogged;    // In the index, but missing in the log.
};

// Fills `index`, least recently used first. Reads the headers of extents that the log does not know.
FolderContents read_folder(platform::FileSystem& fs, const DiskConfig& config, DiskScan scan, const LogReplay& replay,
                           DiskIndex& index);

// The header of an extent of at least so many bytes. not_found, resource_exhausted: it could not be looked at; else it
// is damaged.
Result<ExtentHeader> read_extent_header(platform::FileSystem& fs, const std::filesystem::path& path,
                                        std::uint64_t file_bytes);

}  // namespace lode::kv
