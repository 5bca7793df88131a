#include "kv/slot_file.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "kv/bytes_io.h"
#include "kv/extent.h"

namespace lode::kv {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'O', 'D', 'E', 'S', 'L', 'T', '1'};
constexpr std::size_t kTextBytesMax = 4096;
// Magic, version, fingerprint, five texts, counts, checksum: the least and the most that a file may have.
constexpr std::size_t kLeast = 8 + 4 + 32 + 5 * 4 + 8 + 8 + 8;
constexpr std::size_t kMost = kLeast + 5 * kTextBytesMax + SlotFile::kTokensMax * (sizeof(TokenId) + 1);

std::string RootInputs::* const kTexts[] = {&RootInputs::k_type, &RootInputs::v_type, &RootInputs::numerics_id,
                                            &RootInputs::placement, &RootInputs::rope};

bool get_text(ByteReader& r, std::string& out) {
  const auto bytes = r.get<std::uint32_t>();
  if (bytes > kTextBytesMax || bytes > r.left()) return false;
  for (std::uint32_t i = 0; i < bytes; ++i) out += r.get<char>();
  return !r.failed();
}

}  // namespace

Result<std::size_t> write_slot_file(platform::FileSystem& fs, const std::filesystem::path& path, const SlotFile& slot) {
  ByteWriter w;
  w.put(kMagic);
  w.put(kFormatVersion);
  w.put(slot.root.model_fingerprint);
  for (const auto text : kTexts) {
    const std::string& value = slot.root.*text;
    LODE_CHECK(value.size() <= kTextBytesMax);
    w.put(static_cast<std::uint32_t>(value.size()));
    w.put_bytes(std::as_bytes(std::span(value)));
  }
  w.put(static_cast<std::uint64_t>(slot.tokens.size()));
  w.put_bytes(std::as_bytes(std::span(slot.tokens)));
  w.put(static_cast<std::uint64_t>(slot.keys.size()));
  w.put_bytes(std::as_bytes(std::span(slot.keys)));
  w.put(checksum(w.bytes()));
  LODE_RETURN_IF_ERROR(platform::replace_file(fs, path, w.bytes()));
  LODE_RETURN_IF_ERROR(fs.sync_dir(path.parent_path()));
  return w.bytes().size();
}

Result<SlotFile> parse_slot_file(std::span<const std::byte> bytes) {
  const auto bad = [](std::string_view what) {
    return Status::corrupt(fmt::format("the slot file is damaged or none of Lode's: {}", what));
  };
  if (bytes.size() < kLeast || bytes.size() > kMost) return bad(fmt::format("it has {} bytes", bytes.size()));
  ByteReader r(bytes);
  if (r.get<std::array<char, 8>>() != kMagic) return bad("it does not begin with LODESLT1");
  if (const auto version = r.get<std::uint32_t>(); version != kFormatVersion)
    return Status::unsupported(
        fmt::format("the slot file was saved in KV format {}, this version has {}: send its prompt again", version,
                    kFormatVersion));
  ByteReader sum(bytes.last(8));
  if (sum.get<std::uint64_t>() != checksum(bytes.first(bytes.size() - 8))) return bad("its checksum does not agree");
  SlotFile slot;
  slot.root.model_fingerprint = r.get<std::array<std::uint8_t, 32>>();
  for (const auto text : kTexts)
    if (!get_text(r, slot.root.*text)) return bad("a text is longer than the file");
  const auto tokens = r.get<std::uint64_t>();
  if (tokens > SlotFile::kTokensMax || tokens * sizeof(TokenId) > r.left()) return bad("more tokens than bytes");
  slot.tokens.resize(tokens);
  for (TokenId& id : slot.tokens) id = r.get<TokenId>();
  const auto keys = r.get<std::uint64_t>();
  if (r.failed() || keys != tokens / kBlockTokens || r.left() != keys * sizeof(BlockKey) + 8)
    return bad("its keys are not those of its tokens");
  slot.keys.resize(keys);
  for (BlockKey& key : slot.keys) key = r.get<BlockKey>();
  return slot;
}

Result<SlotFileRead> read_slot_file(platform::FileSystem& fs, const std::filesystem::path& path) {
  auto file = fs.open(path, {});
  if (!file.ok()) return file.status();
  const auto size = (*file)->size();
  if (!size.ok()) return size.status();
  if (*size > kMost) return Status::corrupt(fmt::format("the slot file has {} bytes, more than any", *size));
  std::vector<std::byte> bytes(*size);
  LODE_RETURN_IF_ERROR(platform::read_fully(**file, bytes, 0));
  auto slot = parse_slot_file(bytes);
  if (!slot.ok()) return slot.status();
  return SlotFileRead{std::move(*slot), bytes.size()};
}

Status same_root(const RootInputs& file, const RootInputs& here) {
  if (file.model_fingerprint != here.model_fingerprint)
    return Status::invalid("the slot file was saved with another model (or other weights under the same name)");
  constexpr std::string_view kNames[] = {"K cache type", "V cache type", "numerics", "placement", "rope factors"};
  for (std::size_t i = 0; i < std::size(kTexts); ++i)
    if (file.*kTexts[i] != here.*kTexts[i])
      return Status::invalid(fmt::format("the slot file was saved with {} '{}', this server has '{}'", kNames[i],
                                         file.*kTexts[i], here.*kTexts[i]));
  return Status::success();
}

}  // namespace lode::kv
