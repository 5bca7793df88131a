#include "kv/known_models.h"

#include <openssl/sha.h>

#include <utility>

#include "kv/bytes_io.h"
#include "kv/extent.h"

namespace lode::kv {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'O', 'D', 'E', 'M', 'O', 'D', '1'};
constexpr std::size_t kRecordBytes = 64;

Hash sha256(std::span<const std::byte> bytes) {
  Hash hash;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), hash.data());
  return hash;
}

}  // namespace

KnownModels::KnownModels(platform::FileSystem& fs, const std::filesystem::path& folder)
    : fs_(fs), path_(folder / kFileName) {}

Hash KnownModels::key_of(std::span<const platform::FileStamp> stamps) {
  ByteWriter w;
  for (const platform::FileStamp& s : stamps) {
    w.put(s.device);
    w.put(s.inode);
    w.put(s.size);
    w.put(s.modified_ns);
    w.put(s.changed_ns);
  }
  return sha256(w.bytes());
}

// Magic, records, a checksum over both. Anything else knows nothing.
std::vector<KnownModels::Record> KnownModels::load() const {
  std::vector<Record> records;
  auto file = fs_.open(path_, {});
  if (!file.ok()) return records;
  const auto size = (*file)->size();
  if (!size.ok() || *size < 16 || *size > 16 + kRecordsMax * kRecordBytes || (*size - 16) % kRecordBytes != 0)
    return records;
  std::vector<std::byte> bytes(*size);
  if (!platform::read_fully(**file, bytes, 0).ok()) return records;
  ByteReader r(bytes);
  if (r.get<std::array<char, 8>>() != kMagic) return records;
  for (std::size_t i = 0; i < (*size - 16) / kRecordBytes; ++i) {
    auto& record = records.emplace_back();
    record.stamps = r.get<Hash>();
    record.content = r.get<Hash>();
  }
  if (r.get<std::uint64_t>() != checksum(std::span(bytes).first(bytes.size() - 8))) records.clear();
  return records;
}

std::optional<Hash> KnownModels::find(std::span<const platform::FileStamp> stamps) const {
  if (stamps.empty()) return std::nullopt;
  const Hash key = key_of(stamps);
  for (const Record& record : load())
    if (record.stamps == key) return record.content;
  return std::nullopt;
}

Status KnownModels::remember(std::span<const platform::FileStamp> stamps, const Hash& content) {
  LODE_CHECK(!stamps.empty());
  const Hash key = key_of(stamps);
  std::vector<Record> records = load();
  std::erase_if(records, [&](const Record& record) { return record.stamps == key; });
  if (records.size() >= kRecordsMax) records.erase(records.begin());
  records.push_back({key, content});
  ByteWriter w;
  w.put(kMagic);
  for (const Record& record : records) {
    w.put(record.stamps);
    w.put(record.content);
  }
  w.put(checksum(w.bytes()));
  LODE_RETURN_IF_ERROR(fs_.make_dirs(path_.parent_path()));
  // Two processes at it at once may lose both records, or leave a torn file, which knows nothing.
  return platform::replace_file(fs_, path_, w.bytes());
}

Hash model_name(const Hash& fingerprint, const Hash& content) {
  ByteWriter w;
  w.put(fingerprint);
  w.put(content);
  return sha256(w.bytes());
}

}  // namespace lode::kv
