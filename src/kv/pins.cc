#include "kv/pins.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "kv/block.h"
#include "kv/bytes_io.h"
#include "kv/disk_scan.h"
#include "kv/extent.h"
#include "kv/index_log.h"

namespace lode::kv {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'O', 'D', 'E', 'P', 'I', 'N', '1'};
constexpr std::size_t kRecordBytes = 32 + 32 + 8 + 8 + 4 + 4 + 8 * kGroupsMax + PinFile::kNameBytesMax;
constexpr std::int64_t kBlocksMax = std::int64_t{1} << 31;  // Of a prefix: what a file says is not believed beyond.

bool parse_record(ByteReader& r, Pin& pin) {
  pin.key = r.get<BlockKey>();
  pin.root = r.get<BlockKey>();
  pin.blocks = r.get<std::int64_t>();
  pin.wall_seconds = r.get<std::int64_t>();
  const auto groups = r.get<std::uint32_t>();
  const auto name_bytes = r.get<std::uint32_t>();
  const auto first = r.get<std::array<std::int64_t, kGroupsMax>>();
  const auto name = r.get<std::array<char, PinFile::kNameBytesMax>>();
  if (pin.blocks <= 0 || pin.blocks > kBlocksMax || groups > kGroupsMax || name_bytes > name.size()) return false;
  pin.first.assign(first.begin(), first.begin() + groups);
  pin.name.assign(name.data(), name_bytes);
  return std::all_of(pin.first.begin(), pin.first.end(), [&](std::int64_t f) { return f >= 0 && f <= pin.blocks; });
}

// Which blocks of one folder its pins need, by group.
class FolderPins {
 public:
  FolderPins(platform::FileSystem& fs, const std::filesystem::path& folder,
             const std::array<std::uint8_t, 32>& fingerprint)
      : fs_(fs), folder_(folder), pins_(PinFile(fs, folder).load()) {
    if (pins_.empty()) return;
    for (auto& logged : IndexLog(fs, folder, fingerprint).load().extents) metas_.emplace(logged.meta.name, logged.meta);
  }
  bool empty() const { return pins_.empty(); }

  // Reads the header of an extent that the log lacks.
  void learn(const ExtentName& name, std::uint64_t file_bytes) {
    if (metas_.contains(name)) return;
    auto header = read_extent_header(fs_, folder_ / name.file_name(), file_bytes);
    if (header.ok()) metas_.emplace(name, std::move(header->meta));
  }
  void mark() {
    std::unordered_map<BlockKey, BlockKey, BlockKeyHash> parents;
    for (const auto& [name, meta] : metas_)
      for (std::size_t i = 0; i < meta.keys.size(); ++i)
        parents[meta.keys[i]] = i == 0 ? meta.parent : meta.keys[i - 1];
    for (const Pin& pin : pins_) {
      BlockKey key = pin.key;
      for (std::int64_t at = pin.blocks - 1; at >= 0; --at) {
        for (std::size_t g = 0; g < pin.first.size(); ++g)
          if (at >= pin.first[g]) needed_[key] |= 1u << g;
        const auto parent = parents.find(key);
        if (parent == parents.end()) break;
        key = parent->second;
      }
    }
  }
  bool needs(const ExtentName& name) const {
    const auto meta = metas_.find(name);
    if (meta == metas_.end()) return false;
    return std::any_of(meta->second.keys.begin(), meta->second.keys.end(), [&](const BlockKey& key) {
      const auto groups = needed_.find(key);
      return groups != needed_.end() && name.group < kGroupsMax && (groups->second >> name.group & 1) != 0;
    });
  }

 private:
  platform::FileSystem& fs_;
  const std::filesystem::path folder_;
  const std::vector<Pin> pins_;
  std::map<ExtentName, ExtentMeta> metas_;
  std::unordered_map<BlockKey, std::uint32_t, BlockKeyHash> needed_;  // Bit g: group g.
};

}  // namespace

std::vector<Pin> PinFile::load() const {
  auto file = fs_.open(folder_ / kFileName, {});
  if (!file.ok()) return {};
  const auto size = (*file)->size();
  if (!size.ok() || *size < 16 || *size > 16 + kPinsMax * kRecordBytes || (*size - 16) % kRecordBytes != 0) return {};
  std::vector<std::byte> bytes(*size);
  if (!platform::read_fully(**file, bytes, 0).ok()) return {};
  ByteReader sum(std::span<const std::byte>(bytes).last(8));
  if (sum.get<std::uint64_t>() != checksum(std::span(bytes).first(bytes.size() - 8))) return {};
  ByteReader r(bytes);
  if (r.get<std::array<char, 8>>() != kMagic) return {};
  std::vector<Pin> pins((bytes.size() - 16) / kRecordBytes);
  for (Pin& pin : pins)
    if (!parse_record(r, pin)) return {};
  return pins;
}

Status PinFile::store(std::span<const Pin> pins) const {
  LODE_CHECK(pins.size() <= kPinsMax);
  ByteWriter w;
  w.put(kMagic);
  for (const Pin& pin : pins) {
    LODE_CHECK(pin.first.size() <= kGroupsMax);
    std::array<std::int64_t, kGroupsMax> first{};
    std::copy(pin.first.begin(), pin.first.end(), first.begin());
    std::array<char, kNameBytesMax> name{};
    const std::size_t name_bytes = std::min(pin.name.size(), name.size());
    std::copy_n(pin.name.begin(), name_bytes, name.begin());
    w.put(pin.key);
    w.put(pin.root);
    w.put(pin.blocks);
    w.put(pin.wall_seconds);
    w.put(static_cast<std::uint32_t>(pin.first.size()));
    w.put(static_cast<std::uint32_t>(name_bytes));
    w.put(first);
    w.put(name);
  }
  w.put(checksum(w.bytes()));
  LODE_RETURN_IF_ERROR(platform::replace_file(fs_, folder_ / kFileName, w.bytes()));
  return fs_.sync_dir(folder_);
}

std::uint64_t spare_pinned(platform::FileSystem& fs, const std::filesystem::path& dir, std::vector<OtherFile>& others) {
  std::map<std::string, FolderPins> folders;
  const auto split = [](const OtherFile& file) {
    const std::size_t slash = file.path.find('/');
    return std::pair(file.path.substr(0, slash), ExtentName::parse(file.path.substr(slash + 1)));
  };
  for (const OtherFile& file : others) {
    const auto [folder, name] = split(file);
    const auto fingerprint = parse_fingerprint(folder);
    if (!fingerprint || !name) continue;
    auto at = folders.find(folder);
    if (at == folders.end()) at = folders.try_emplace(folder, fs, dir / folder, *fingerprint).first;
    if (!at->second.empty()) at->second.learn(*name, file.allocated_bytes);
  }
  std::erase_if(folders, [](const auto& entry) { return entry.second.empty(); });
  for (auto& [name, folder] : folders) folder.mark();
  std::uint64_t bytes = 0;
  std::erase_if(others, [&](const OtherFile& file) {
    const auto [folder, name] = split(file);
    const auto at = folders.find(folder);
    if (at == folders.end() || !name || !at->second.needs(*name)) return false;
    bytes += file.allocated_bytes;
    return true;
  });
  return bytes;
}

}  // namespace lode::kv
