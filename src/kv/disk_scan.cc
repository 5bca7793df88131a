#include "kv/disk_scan.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "kv/extent.h"
#include "kv/pins.h"

namespace lode::kv {
namespace {

// Headers of usual models fit into one read.
constexpr std::size_t kFirstRead = 16u << 10;

class FolderReader {
 public:
  FolderReader(platform::FileSystem& fs, const DiskConfig& config, DiskIndex& index)
      : fs_(fs), config_(config), paths_(config), index_(index) {
    for (std::uint32_t g = 0; g < config.groups.size(); ++g)
      layouts_.push_back(layout_id(GroupId{g}, config.groups[g]));
  }

  FolderContents read(DiskScan scan, const LogReplay& replay) {
    contents_.others = std::move(scan.others);
    for (auto& entry : scan.own) sort_out(entry);
    for (auto& logged : replay.extents) {
      const auto found = extents_.find(logged.meta.name);
      if (found == extents_.end()) continue;
      index_.add(logged.meta, found->second.allocated_bytes, logged.used_seconds, logged.uses);
      extents_.erase(found);
    }
    read_unlogged();
    return std::move(contents_);
  }

 private:
  std::string below_dir(const std::string& name) const { return paths_.own_name + "/" + name; }

  void sort_out(const platform::DirEntry& entry) {
    const auto name = ExtentName::parse(entry.name);
    if (!name) {
      if (entry.name.ends_with(".tmp")) contents_.temporaries.push_back(below_dir(entry.name));
      else if (entry.name != IndexLog::kFileName && entry.name != PinFile::kFileName)
        contents_.foreign.push_back(entry.name);
      return;
    }
    if (name->group >= layouts_.size() || name->layout != layouts_[name->group]) {
      // Other KV types, say: sound, of no use here, and in nobody's index while this model runs.
      contents_.others.push_back({below_dir(entry.name), entry.allocated_bytes, entry.modified_seconds});
      return;
    }
    const std::uint64_t expected = ExtentShape::of(config_.groups[name->group], name->blocks).file_bytes();
    if (entry.size != expected) {
      damaged(entry.name, fmt::format("{} bytes, expected {}", entry.size, expected));
      return;
    }
    extents_.emplace(*name, entry);
  }

  // Whatever the log lacks: all of it after a lost log, the last few after a crash.
  void read_unlogged() {
    std::vector<std::pair<ExtentName, platform::DirEntry>> left(extents_.begin(), extents_.end());
    std::sort(left.begin(), left.end(), [](const auto& a, const auto& b) {
      return a.second.modified_seconds != b.second.modified_seconds
                 ? a.second.modified_seconds < b.second.modified_seconds
                 : a.first < b.first;
    });
    for (auto& [name, entry] : left) {
      auto header = read_extent_header(fs_, paths_.own / entry.name, entry.size);
      if (header.status().code() == Code::resource_exhausted || header.status().code() == Code::not_found) {
        // Sound for all we know; it may go when room is needed.
        contents_.others.push_back({below_dir(entry.name), entry.allocated_bytes, entry.modified_seconds});
      } else if (!header.ok()) {
        damaged(entry.name, header.status().message());
      } else if (header->meta.name != name || header->model_fingerprint != config_.model_fingerprint) {
        damaged(entry.name, "its header belongs to another extent");
      } else {
        index_.add(header->meta, entry.allocated_bytes, entry.modified_seconds);
        contents_.unlogged.push_back({std::move(header->meta), entry.modified_seconds});
      }
    }
  }

  void damaged(const std::string& name, std::string what) {
    if (contents_.damaged.empty()) contents_.damage = name + ": " + std::move(what);
    contents_.damaged.push_back(below_dir(name));
  }

  platform::FileSystem& fs_;
  const DiskConfig& config_;
  const DiskPaths paths_;
  DiskIndex& index_;
  std::vector<std::uint64_t> layouts_;
  std::unordered_map<ExtentName, platform::DirEntry, ExtentNameHash> extents_;  // Not yet in the index.
  FolderContents contents_;
};

}  // namespace

Result<ExtentHeader> read_extent_header(platform::FileSystem& fs, const std::filesystem::path& path,
                                        std::uint64_t file_bytes) {
  auto file = fs.open(path, {});
  if (!file.ok()) return file.status();
  std::vector<std::byte> bytes(std::min<std::uint64_t>(kFirstRead, file_bytes));
  LODE_RETURN_IF_ERROR(platform::read_fully(**file, bytes, 0));
  const auto length = header_length(bytes);
  if (!length.ok()) return length.status();
  if (*length > file_bytes) return Status::corrupt("the header is longer than the file");
  if (*length > bytes.size()) {
    bytes.resize(*length);
    LODE_RETURN_IF_ERROR(platform::read_fully(**file, bytes, 0));
  }
  return parse_header(bytes);
}

FolderContents read_folder(platform::FileSystem& fs, const DiskConfig& config, DiskScan scan, const LogReplay& replay,
                           DiskIndex& index) {
  return FolderReader(fs, config, index).read(std::move(scan), replay);
}

}  // namespace lode::kv
