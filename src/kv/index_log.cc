#include "kv/index_log.h"

#include <list>
#include <unordered_map>

#include <fmt/format.h>

#include "kv/bytes_io.h"

namespace lode::kv {
namespace {

enum class RecordType : std::uint32_t { begin = 1, add = 2, remove = 3, touch = 4 };

// The most uses of an extent that survive a compaction: more make no difference to what it is worth.
constexpr std::uint32_t kUsesKept = 17;
constexpr std::array<char, 8> kMagic = {'L', 'O', 'D', 'E', 'K', 'V', 'L', '\0'};
constexpr std::size_t kRecordHead = 16;             // Payload bytes (4), type (4), checksum (8).
constexpr std::size_t kNameBytes = 48;              // last (32), layout (8), group (4), blocks (4).
constexpr std::uint64_t kLogBytesMax = 4ull << 30;  // 20 million blocks; a longer file is not ours.
constexpr std::size_t kTouchNamesMax = 1024;

// The checksum covers type and payload, so that no record can be taken for another kind.
std::uint64_t record_checksum(std::uint32_t type, std::span<const std::byte> payload) {
  return checksum(payload) ^ (type * 0x9e3779b97f4a7c15ull);
}

std::vector<std::byte> record(RecordType type, std::span<const std::byte> payload) {
  ByteWriter w;
  w.put(static_cast<std::uint32_t>(payload.size()));
  w.put(type);
  w.put(record_checksum(static_cast<std::uint32_t>(type), payload));
  w.put_bytes(payload);
  return w.take();
}

void put_name(ByteWriter& w, const ExtentName& name) {
  w.put(name.last.bytes);
  w.put(name.layout);
  w.put(name.group);
  w.put(name.blocks);
}

ExtentName get_name(ByteReader& r) {
  ExtentName name;
  name.last.bytes = r.get<std::array<std::uint8_t, 32>>();
  name.layout = r.get<std::uint64_t>();
  name.group = r.get<std::uint32_t>();
  name.blocks = r.get<std::uint32_t>();
  return name;
}

// Nothing where the payload contradicts itself.
std::optional<LoggedExtent> get_extent(ByteReader& r) {
  LoggedExtent e;
  e.meta.name = get_name(r);
  e.used_seconds = r.get<std::int64_t>();
  e.meta.first_index = r.get<std::int64_t>();
  e.meta.parent.bytes = r.get<std::array<std::uint8_t, 32>>();
  const std::uint32_t blocks = e.meta.name.blocks;
  if (r.failed() || blocks < 1 || blocks > kExtentBlocks || e.meta.first_index < 0) return std::nullopt;
  e.meta.keys.resize(blocks);
  e.meta.ids.resize(blocks);
  for (auto& key : e.meta.keys) key.bytes = r.get<std::array<std::uint8_t, 32>>();
  for (auto& ids : e.meta.ids) ids = r.get<std::array<TokenId, kBlockTokens>>();
  if (r.failed() || r.left() != 0 || e.meta.keys.back() != e.meta.name.last) return std::nullopt;
  return e;
}

// Replays records in order; each returns false where its payload makes no sense.
class Replay {
 public:
  bool add(ByteReader r) {
    auto extent = get_extent(r);
    if (!extent) return false;
    const ExtentName name = extent->meta.name;
    erase(name);
    where_[name] = order_.insert(order_.end(), std::move(*extent));
    return true;
  }
  bool remove(ByteReader r) {
    const ExtentName name = get_name(r);
    if (r.failed()) return false;
    erase(name);
    return true;
  }
  bool touch(ByteReader r) {
    const auto seconds = r.get<std::int64_t>();
    while (r.left() >= kNameBytes) {
      const auto found = where_.find(get_name(r));
      if (found == where_.end()) continue;
      found->second->used_seconds = seconds;
      ++found->second->uses;
      order_.splice(order_.end(), order_, found->second);
    }
    return !r.failed() && r.left() == 0;
  }
  std::vector<LoggedExtent> take() {
    return {std::make_move_iterator(order_.begin()), std::make_move_iterator(order_.end())};
  }

 private:
  void erase(const ExtentName& name) {
    const auto found = where_.find(name);
    if (found == where_.end()) return;
    order_.erase(found->second);
    where_.erase(found);
  }

  std::list<LoggedExtent> order_;  // Least recently used first.
  std::unordered_map<ExtentName, std::list<LoggedExtent>::iterator, ExtentNameHash> where_;
};

bool is_begin(ByteReader r, const std::array<std::uint8_t, 32>& fingerprint) {
  return r.get<std::array<char, 8>>() == kMagic && r.get<std::uint32_t>() == kFormatVersion &&
         r.get<std::array<std::uint8_t, 32>>() == fingerprint && !r.failed() && r.left() == 0;
}

}  // namespace

std::vector<std::byte> begin_record(const std::array<std::uint8_t, 32>& fingerprint) {
  ByteWriter w;
  w.put(kMagic);
  w.put(kFormatVersion);
  w.put(fingerprint);
  return record(RecordType::begin, w.bytes());
}

std::vector<std::byte> add_record(const LoggedExtent& extent) {
  ByteWriter w;
  put_name(w, extent.meta.name);
  w.put(extent.used_seconds);
  w.put(extent.meta.first_index);
  w.put(extent.meta.parent.bytes);
  for (const auto& key : extent.meta.keys) w.put(key.bytes);
  for (const auto& ids : extent.meta.ids) w.put(ids);
  return record(RecordType::add, w.bytes());
}

std::vector<std::byte> remove_record(const ExtentName& name) {
  ByteWriter w;
  put_name(w, name);
  return record(RecordType::remove, w.bytes());
}

std::vector<std::byte> touch_record(std::span<const ExtentName> names, std::int64_t used_seconds) {
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < names.size(); i += kTouchNamesMax) {
    ByteWriter w;
    w.put(used_seconds);
    for (const auto& name : names.subspan(i, std::min(kTouchNamesMax, names.size() - i))) put_name(w, name);
    const auto one = record(RecordType::touch, w.bytes());
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

LogReplay replay_log(std::span<const std::byte> bytes, const std::array<std::uint8_t, 32>& fingerprint) {
  LogReplay result;
  Replay replay;
  while (bytes.size() >= kRecordHead) {
    ByteReader head(bytes);
    const std::uint64_t payload_bytes = head.get<std::uint32_t>();
    const auto type = head.get<std::uint32_t>();
    const auto sum = head.get<std::uint64_t>();
    if (payload_bytes > bytes.size() - kRecordHead) break;
    const auto payload = bytes.subspan(kRecordHead, payload_bytes);
    if (record_checksum(type, payload) != sum) break;
    bool sound = false;
    switch (static_cast<RecordType>(type)) {
      case RecordType::begin: sound = result.records == 0 && is_begin(ByteReader(payload), fingerprint); break;
      case RecordType::add: sound = result.records > 0 && replay.add(ByteReader(payload)); break;
      case RecordType::remove: sound = result.records > 0 && replay.remove(ByteReader(payload)); break;
      case RecordType::touch: sound = result.records > 0 && replay.touch(ByteReader(payload)); break;
    }
    if (!sound) break;
    ++result.records;
    result.sound_bytes += kRecordHead + payload_bytes;
    bytes = bytes.subspan(kRecordHead + payload_bytes);
  }
  result.extents = replay.take();
  return result;
}

IndexLog::IndexLog(platform::FileSystem& fs, std::filesystem::path folder,
                   const std::array<std::uint8_t, 32>& fingerprint)
    : fs_(fs), folder_(std::move(folder)), path_(folder_ / kFileName), fingerprint_(fingerprint) {}

Result<std::vector<std::byte>> IndexLog::read_all() {
  auto file = fs_.open(path_, {});
  if (!file.ok()) return file.status();
  auto size = (*file)->size();
  if (!size.ok()) return size.status();
  if (*size > kLogBytesMax) return Status::corrupt(fmt::format("{} has {} bytes", path_.string(), *size));
  std::vector<std::byte> bytes(*size);
  LODE_RETURN_IF_ERROR(platform::read_fully(**file, bytes, 0));
  return bytes;
}

LogReplay IndexLog::load() {
  LogReplay replay;
  if (auto bytes = read_all(); bytes.ok()) {
    replay = replay_log(*bytes, fingerprint_);
    tail_dirty_ = replay.sound_bytes != bytes->size();
  }
  file_.reset();
  bytes_ = replay.sound_bytes;
  records_ = replay.records;
  live_ = replay.extents.size();
  return replay;
}

Status IndexLog::append(std::span<const std::byte> records, std::uint64_t count) {
  if (!file_) {
    auto file = fs_.open(path_, {.access = platform::OpenOptions::Access::update});
    if (!file.ok()) return file.status();
    file_ = std::move(file).value();
  }
  // Records behind a torn one would never be found again: the tail is cut off before anything is added.
  if (tail_dirty_) {
    LODE_RETURN_IF_ERROR(file_->truncate(bytes_));
    tail_dirty_ = false;
  }
  const auto begin = bytes_ == 0 ? begin_record(fingerprint_) : std::vector<std::byte>();
  tail_dirty_ = true;
  const std::span<const std::byte> parts[] = {begin, records};
  LODE_RETURN_IF_ERROR(platform::write_fully(*file_, parts, bytes_));
  tail_dirty_ = false;
  bytes_ += begin.size() + records.size();
  records_ += count + (begin.empty() ? 0 : 1);
  return {};
}

Status IndexLog::compact(Old old) {
  auto bytes = read_all();
  if (!bytes.ok()) return bytes.status();
  const LogReplay replay = replay_log(*bytes, fingerprint_);
  auto fresh = begin_record(fingerprint_);
  std::uint64_t touches = 0;
  for (const auto& extent : replay.extents) {
    const auto record = add_record(extent);
    fresh.insert(fresh.end(), record.begin(), record.end());
    if (extent.uses == 0) continue;
    const std::vector<ExtentName> uses(std::min<std::uint32_t>(extent.uses, kUsesKept), extent.meta.name);
    const auto touched = touch_record(uses, extent.used_seconds);
    fresh.insert(fresh.end(), touched.begin(), touched.end());
    ++touches;
  }
  LODE_RETURN_IF_ERROR(platform::replace_file(fs_, path_, fresh));
  file_.reset();
  bytes_ = fresh.size();
  records_ = replay.extents.size() + touches + 1;
  live_ = replay.extents.size();
  tail_dirty_ = false;
  return {};
}

void IndexLog::forget() {
  file_.reset();
  bytes_ = records_ = live_ = 0;
  tail_dirty_ = true;
}

Status IndexLog::sync() {
  return file_ ? file_->fdatasync() : Status();
}

std::uint64_t IndexLog::allocated_bytes() {
  if (!file_) return 0;
  auto bytes = file_->allocated_bytes();
  return bytes.ok() ? *bytes : 0;
}

}  // namespace lode::kv
