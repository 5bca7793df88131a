// Fuzz target: extent headers, extent names and index logs from arbitrary bytes. The first byte picks the parser and
// whether the checksums are made right first, so that what lies behind them is reached.
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "kv/extent.h"
#include "kv/index_log.h"

namespace {

using namespace lode;
using namespace lode::kv;

constexpr std::array<std::uint8_t, 32> kFingerprint{};

void mend_header(std::vector<std::byte>& bytes) {
  if (bytes.size() < 24) return;
  bytes.resize(align_up(bytes.size(), 4096));
  const auto length = static_cast<std::uint32_t>(bytes.size());
  std::memcpy(bytes.data(), "LODEKVX", 8);
  std::memcpy(bytes.data() + 8, &kFormatVersion, 4);
  std::memcpy(bytes.data() + 12, &length, 4);
  std::memset(bytes.data() + 16, 0, 8);
  const std::uint64_t sum = checksum(bytes);
  std::memcpy(bytes.data() + 16, &sum, 8);
}

void fuzz_header(std::vector<std::byte> bytes, bool mend) {
  if (mend) mend_header(bytes);
  const auto header = parse_header(bytes);
  if (!header.ok()) return;
  // What parses is what was written, and its slices lie inside the file.
  const auto again = encode_header(*header);
  LODE_CHECK(again.size() <= bytes.size());
  const auto reparsed = parse_header(again);
  LODE_CHECK(reparsed.ok() && reparsed->meta.keys == header->meta.keys && reparsed->checksums == header->checksums);
  const ExtentShape shape = header->shape();
  const std::size_t last = header->slice_bytes.size() - 1;
  LODE_CHECK(shape.slice_offset(last, header->meta.name.blocks - 1) + header->slice_bytes[last] == shape.file_bytes());
}

// Treats the bytes as a row of records: length, type, payload; with sound checksums.
std::vector<std::byte> mend_log(std::span<const std::byte> bytes) {
  std::vector<std::byte> log = begin_record(kFingerprint);
  while (bytes.size() >= 3) {
    const std::uint32_t type = std::to_integer<std::uint32_t>(bytes[0]) % 6;
    const std::size_t want =
        std::to_integer<std::size_t>(bytes[1]) + 256 * (std::to_integer<std::size_t>(bytes[2]) % 16);
    bytes = bytes.subspan(3);
    const auto payload = bytes.first(std::min(want, bytes.size()));
    bytes = bytes.subspan(payload.size());
    const auto length = static_cast<std::uint32_t>(payload.size());
    const std::uint64_t sum = checksum(payload) ^ (type * 0x9e3779b97f4a7c15ull);
    const std::size_t at = log.size();
    log.resize(at + 16);
    std::memcpy(log.data() + at, &length, 4);
    std::memcpy(log.data() + at + 4, &type, 4);
    std::memcpy(log.data() + at + 8, &sum, 8);
    log.insert(log.end(), payload.begin(), payload.end());
  }
  return log;
}

void fuzz_log(std::span<const std::byte> bytes) {
  const auto replay = replay_log(bytes, kFingerprint);
  LODE_CHECK(replay.sound_bytes <= bytes.size());
  // The sound part alone says the same.
  const auto again = replay_log(bytes.first(replay.sound_bytes), kFingerprint);
  LODE_CHECK(again.records == replay.records && again.extents.size() == replay.extents.size());
  for (const auto& extent : replay.extents) {
    LODE_CHECK(extent.meta.keys.size() == extent.meta.name.blocks && extent.meta.ids.size() == extent.meta.keys.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0: fuzz_header({bytes.begin(), bytes.end()}, false); break;
    case 1: fuzz_header({bytes.begin(), bytes.end()}, true); break;
    case 2: fuzz_log(bytes); break;
    case 3: fuzz_log(mend_log(bytes)); break;
    default: {
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      if (const auto name = ExtentName::parse(text)) LODE_CHECK(name->file_name() == text);
    }
  }
  return 0;
}
