#include "kv/disk_folder.h"

#include <algorithm>

#include "kv/bytes_io.h"
#include "kv/extent.h"
#include "kv/index_log.h"
#include "kv/known_models.h"
#include "kv/pins.h"

namespace lode::kv {
namespace {

using platform::DirEntry;

constexpr std::array<char, 8> kDailyMagic = {'L', 'O', 'D', 'E', 'D', 'A', 'Y', '1'};
constexpr std::size_t kDailyBytes = 40;  // Magic, sequence, day, bytes, checksum.
constexpr std::int64_t kDaySeconds = 86'400;

bool is_fingerprint(std::string_view name) {
  return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Whether a file in a fingerprint's folder was made by this program.
bool is_ours(std::string_view name) {
  return ExtentName::parse(name).has_value() || name == IndexLog::kFileName || name == PinFile::kFileName ||
         name.ends_with(".tmp");
}

}  // namespace

std::optional<std::array<std::uint8_t, 32>> parse_fingerprint(std::string_view hex_digits) {
  std::array<std::uint8_t, 32> out{};
  if (hex_digits.size() != 2 * out.size()) return std::nullopt;
  const auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int high = value(hex_digits[2 * i]), low = value(hex_digits[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return out;
}

DiskPaths::DiskPaths(const DiskConfig& config)
    : dir(config.dir), own_name(hex(BlockKey{config.model_fingerprint})), own(dir / own_name) {}

Result<DiskScan> scan_folder(platform::FileSystem& fs, const DiskPaths& paths) {
  DiskScan scan;
  auto top = fs.list(paths.dir);
  if (!top.ok()) return top.status();
  for (const auto& entry : *top) {
    if (entry.kind == DirEntry::Kind::file) {
      if (entry.name == "lock" || entry.name == DiskPaths::kDailyName || entry.name == KnownModels::kFileName)
        scan.sizes[entry.name] = entry.allocated_bytes;
      continue;
    }
    const bool damaged = entry.name == DiskPaths::kDamagedName;
    if (entry.kind != DirEntry::Kind::folder || (!damaged && !is_fingerprint(entry.name))) continue;
    auto inner = fs.list(paths.dir / entry.name);
    if (!inner.ok()) {
      if (inner.status().code() == Code::not_found) continue;
      return inner.status();
    }
    for (auto& file : *inner) {
      if (file.kind != DirEntry::Kind::file) continue;
      const bool own = entry.name == paths.own_name;
      if (damaged || is_ours(file.name)) {
        std::string path = entry.name + "/" + file.name;
        scan.sizes[path] = file.allocated_bytes;
        if (!own && file.name != PinFile::kFileName)
          scan.others.push_back({std::move(path), file.allocated_bytes, damaged ? 0 : file.modified_seconds});
      }
      if (own) scan.own.push_back(std::move(file));
    }
  }
  return scan;
}

DailyCount::DailyCount(platform::FileSystem& fs, platform::Clock& clock, std::filesystem::path path)
    : fs_(fs), clock_(clock), path_(std::move(path)) {}

void DailyCount::load() {
  auto file = fs_.open(path_, {});
  if (!file.ok()) return;
  for (const std::uint64_t place : {0, 1}) {
    std::array<std::byte, kDailyBytes> bytes{};
    if (!platform::read_fully(**file, bytes, place * kDailyBytes).ok()) break;
    ByteReader r(bytes);
    const bool magic = r.get<std::array<char, 8>>() == kDailyMagic;
    const auto sequence = r.get<std::uint64_t>();
    const auto day = r.get<std::int64_t>();
    const auto count = r.get<std::uint64_t>();
    if (!magic || r.get<std::uint64_t>() != checksum(std::span(bytes).first(kDailyBytes - 8)) || sequence < sequence_)
      continue;
    sequence_ = sequence, day_ = day, bytes_ = count;
  }
}

std::uint64_t DailyCount::today() const {
  return clock_.wall_seconds() / kDaySeconds == day_ ? bytes_ : 0;
}

void DailyCount::add(std::uint64_t bytes) {
  bytes_ = today() + bytes;
  day_ = clock_.wall_seconds() / kDaySeconds;
}

Status DailyCount::store() {
  ++sequence_;
  ByteWriter w;
  w.put(kDailyMagic);
  w.put(sequence_);
  w.put(day_);
  w.put(bytes_);
  w.put(checksum(w.bytes()));
  auto file = fs_.open(path_, {.access = platform::OpenOptions::Access::update});
  if (!file.ok()) return file.status();
  const std::span<const std::byte> part = w.bytes();
  return platform::write_fully(**file, {&part, 1}, sequence_ % 2 * kDailyBytes);
}

}  // namespace lode::kv
