#include "kv/extent.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "base/bytes.h"
#include "kv/bytes_io.h"

namespace lode::kv {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'O', 'D', 'E', 'K', 'V', 'X', '\0'};
constexpr std::size_t kFixedBytes = 128;     // Of the header, before the slice sizes.
constexpr std::size_t kChecksumOffset = 16;  // Of the header's own checksum.
constexpr std::uint32_t kSlicesMax = 4096;
constexpr std::uint64_t kPage = model::kSliceAlign;

constexpr std::size_t kIdsBytes = kBlockTokens * sizeof(TokenId);  // Of a block.

std::uint64_t unpadded_header_bytes(std::uint64_t slices, std::uint64_t blocks, Sealing sealing) {
  const std::uint64_t plain = kFixedBytes + 8 * slices + blocks * (sizeof(BlockKey) + kIdsBytes) + 8 * slices * blocks;
  if (sealing == Sealing::none) return plain;
  return plain + sizeof(SealedIds::key_id) + sizeof(Salt) + sizeof(Tag) + sizeof(Tag) * slices * blocks;
}

// The header with its own checksum field as zero.
std::uint64_t header_checksum(std::span<const std::byte> header) {
  std::vector<std::byte> copy(header.begin(), header.end());
  std::memset(copy.data() + kChecksumOffset, 0, 8);
  return checksum(copy);
}

template <typename T>
bool parse_number(std::string_view text, T& value, int base) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  return XXH3_64bits_dispatch(bytes.data(), bytes.size());
#else
  return XXH3_64bits(bytes.data(), bytes.size());
#endif
}

std::uint64_t layout_id(GroupId group, const model::BlockLayout& layout, const Cipher* cipher) {
  ByteWriter w;
  w.put<std::uint32_t>(kFormatVersion);
  w.put<std::uint32_t>(group.v);
  for (const auto& s : layout.slices) {
    w.put<std::uint32_t>(s.layer.v);
    w.put<std::int64_t>(s.bytes);
    w.put<std::uint32_t>(static_cast<std::uint32_t>(s.kv.k_type));
    w.put<std::uint32_t>(static_cast<std::uint32_t>(s.kv.v_type));
    w.put<std::int32_t>(s.kv.kv_heads);
    w.put<std::int32_t>(s.kv.k_dim);
    w.put<std::int32_t>(s.kv.v_dim);
    w.put<std::int64_t>(s.kv.k_offset - s.offset);
    w.put<std::int64_t>(s.kv.v_offset - s.offset);
  }
  if (cipher) w.put<std::uint64_t>(cipher->id());
  return checksum(w.bytes());
}

std::string ExtentName::file_name() const {
  return fmt::format("{}-{:016x}-{}-{}.kvx", hex(last), layout, group, blocks);
}

std::optional<ExtentName> ExtentName::parse(std::string_view text) {
  constexpr std::size_t kHex = 64, kLayout = 16;
  if (!text.ends_with(".kvx") || text.size() < kHex + kLayout + 9) return std::nullopt;
  const std::string_view whole = text;
  text.remove_suffix(4);
  ExtentName name;
  for (std::size_t i = 0; i < name.last.bytes.size(); ++i) {
    if (!parse_number(text.substr(2 * i, 2), name.last.bytes[i], 16)) return std::nullopt;
  }
  if (!parse_number(text.substr(kHex + 1, kLayout), name.layout, 16)) return std::nullopt;
  text.remove_prefix(kHex + kLayout + 2);
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos || !parse_number(text.substr(0, dash), name.group, 10) ||
      !parse_number(text.substr(dash + 1), name.blocks, 10)) {
    return std::nullopt;
  }
  if (name.blocks < 1 || name.blocks > kExtentBlocks || name.file_name() != whole) return std::nullopt;
  return name;
}

ExtentShape::ExtentShape(std::vector<std::uint64_t> slice_bytes, std::uint32_t blocks, Sealing sealing)
    : slice_bytes_(std::move(slice_bytes)), blocks_(blocks) {
  header_bytes_ = align_up(unpadded_header_bytes(slice_bytes_.size(), blocks, sealing), kPage);
  file_bytes_ = header_bytes_;
  for (const std::uint64_t bytes : slice_bytes_) {
    offsets_.push_back(file_bytes_);
    file_bytes_ += bytes * blocks;
  }
}

ExtentShape ExtentShape::of(const model::BlockLayout& layout, std::uint32_t blocks, Sealing sealing) {
  std::vector<std::uint64_t> slice_bytes;
  slice_bytes.reserve(layout.slices.size());
  for (const auto& s : layout.slices) slice_bytes.push_back(static_cast<std::uint64_t>(s.bytes));
  return {std::move(slice_bytes), blocks, sealing};
}

namespace {

// What the tag over the ids covers beside them: all that tells what the blocks are.
std::vector<std::byte> authenticated(const std::array<std::uint8_t, 32>& fingerprint, const ExtentMeta& meta) {
  ByteWriter w;
  w.put(kMagic);
  w.put(kFormatVersion);
  w.put(fingerprint);
  w.put(meta.name.layout);
  w.put(meta.name.group);
  w.put(meta.name.blocks);
  w.put(meta.first_index);
  w.put(meta.parent.bytes);
  for (const auto& key : meta.keys) w.put(key.bytes);
  return w.take();
}

}  // namespace

void seal_ids(const Cipher& cipher, const std::array<std::uint8_t, 32>& fingerprint, ExtentMeta& meta) {
  SealedIds sealed{.key_id = cipher.id(), .salt = Cipher::random_salt(), .bytes = {}, .tag = {}};
  const auto ids = std::as_bytes(std::span(meta.ids));
  sealed.bytes.resize(ids.size());
  sealed.tag = cipher.extent(sealed.salt)
                   .seal(ExtentCipher::kHeader, authenticated(fingerprint, meta), ids, sealed.bytes.data());
  meta.sealed = std::move(sealed);
}

bool open_ids(const Cipher& cipher, const std::array<std::uint8_t, 32>& fingerprint, ExtentMeta& meta) {
  if (!meta.sealed || meta.sealed->key_id != cipher.id()) return false;
  std::vector<std::byte> bytes = meta.sealed->bytes;
  if (bytes.size() != meta.keys.size() * kIdsBytes ||
      !cipher.extent(meta.sealed->salt)
           .open(ExtentCipher::kHeader, authenticated(fingerprint, meta), bytes, meta.sealed->tag))
    return false;
  meta.ids.resize(meta.keys.size());
  std::memcpy(meta.ids.data(), bytes.data(), bytes.size());
  return true;
}

void put_sealed(ByteWriter& w, const SealedIds& sealed) {
  w.put(sealed.key_id);
  w.put(sealed.salt);
  w.put_bytes(sealed.bytes);
  w.put(sealed.tag);
}

SealedIds get_sealed(ByteReader& r, std::uint32_t blocks) {
  SealedIds sealed{.key_id = r.get<std::uint64_t>(), .salt = r.get<Salt>(), .bytes = {}, .tag = {}};
  for (std::size_t i = 0; i < blocks * kIdsBytes; ++i) sealed.bytes.push_back(r.get<std::byte>());
  sealed.tag = r.get<Tag>();
  return sealed;
}

std::vector<std::byte> encode_header(const ExtentHeader& header) {
  const auto& meta = header.meta;
  const ExtentShape shape = header.shape();
  ByteWriter w;
  w.put(kMagic);
  w.put<std::uint32_t>(kFormatVersion);
  w.put<std::uint32_t>(static_cast<std::uint32_t>(shape.header_bytes()));
  w.put<std::uint64_t>(0);  // Checksum, below.
  w.put<std::uint64_t>(meta.name.layout);
  w.put(header.model_fingerprint);
  w.put(meta.parent.bytes);
  w.put<std::int64_t>(meta.first_index);
  w.put<std::uint32_t>(meta.name.group);
  w.put<std::uint32_t>(meta.name.blocks);
  w.put<std::uint32_t>(static_cast<std::uint32_t>(header.slice_bytes.size()));
  w.put(meta.sealed ? Sealing::aes_256_gcm : Sealing::none);
  w.put<std::uint64_t>(shape.file_bytes());
  LODE_CHECK(w.bytes().size() == kFixedBytes);
  for (const std::uint64_t bytes : header.slice_bytes) w.put(bytes);
  for (const auto& key : meta.keys) w.put(key.bytes);
  if (meta.sealed) {
    put_sealed(w, *meta.sealed);
  } else {
    for (const auto& ids : meta.ids) w.put(ids);
  }
  for (const std::uint64_t sum : header.checksums) w.put(sum);
  for (const Tag& tag : header.tags) w.put(tag);
  auto bytes = w.take();
  bytes.resize(shape.header_bytes());
  const std::uint64_t sum = checksum(bytes);
  std::memcpy(bytes.data() + kChecksumOffset, &sum, sizeof sum);
  return bytes;
}

Result<std::uint64_t> header_length(std::span<const std::byte> first_page) {
  ByteReader r(first_page);
  if (r.get<std::array<char, 8>>() != kMagic || r.failed()) return Status::corrupt("not an extent file: wrong magic");
  const auto version = r.get<std::uint32_t>();
  if (version != kFormatVersion) {
    return Status::unsupported(fmt::format("extent format {}, this build reads {}", version, kFormatVersion));
  }
  const std::uint64_t length = r.get<std::uint32_t>();
  if (r.failed() || length == 0 || length % kPage != 0 || length > kHeaderBytesMax) {
    return Status::corrupt(fmt::format("extent header of {} bytes", length));
  }
  return length;
}

Result<ExtentHeader> parse_header(std::span<const std::byte> bytes) {
  const auto length = header_length(bytes);
  if (!length.ok()) return length.status();
  if (*length > bytes.size()) {
    return Status::corrupt(fmt::format("extent header of {} bytes in {}", *length, bytes.size()));
  }
  bytes = bytes.first(*length);
  ByteReader r(bytes.subspan(kChecksumOffset));
  if (r.get<std::uint64_t>() != header_checksum(bytes)) return Status::corrupt("extent header: checksum differs");
  ExtentHeader h;
  h.meta.name.layout = r.get<std::uint64_t>();
  h.model_fingerprint = r.get<std::array<std::uint8_t, 32>>();
  h.meta.parent.bytes = r.get<std::array<std::uint8_t, 32>>();
  h.meta.first_index = r.get<std::int64_t>();
  h.meta.name.group = r.get<std::uint32_t>();
  const auto blocks = h.meta.name.blocks = r.get<std::uint32_t>();
  const auto slices = r.get<std::uint32_t>();
  const auto sealing = r.get<Sealing>();
  const auto file_bytes = r.get<std::uint64_t>();
  if (r.failed() || blocks < 1 || blocks > kExtentBlocks || slices < 1 || slices > kSlicesMax ||
      h.meta.first_index < 0 || h.meta.first_index > (std::int64_t{1} << 40) ||
      (sealing != Sealing::none && sealing != Sealing::aes_256_gcm) ||
      align_up(unpadded_header_bytes(slices, blocks, sealing), kPage) != *length) {
    return Status::corrupt(fmt::format("extent header: {} blocks of {} slices in {} bytes", blocks, slices, *length));
  }
  for (std::uint32_t i = 0; i < slices; ++i) {
    const auto size = h.slice_bytes.emplace_back(r.get<std::uint64_t>());
    if (size == 0 || size % kPage != 0 || size > kSliceBytesMax) {
      return Status::corrupt(fmt::format("extent header: slice {} of {} bytes", i, size));
    }
  }
  for (std::uint32_t i = 0; i < blocks; ++i) h.meta.keys.push_back({r.get<std::array<std::uint8_t, 32>>()});
  if (sealing == Sealing::none) {
    for (std::uint32_t i = 0; i < blocks; ++i) h.meta.ids.push_back(r.get<std::array<TokenId, kBlockTokens>>());
  } else {
    h.meta.sealed = get_sealed(r, blocks);
  }
  for (std::uint32_t i = 0; i < slices * blocks; ++i) h.checksums.push_back(r.get<std::uint64_t>());
  if (h.meta.sealed)
    for (std::uint32_t i = 0; i < slices * blocks; ++i) h.tags.push_back(r.get<Tag>());
  h.meta.name.last = h.meta.keys.back();
  if (r.failed() || h.shape().file_bytes() != file_bytes) {
    return Status::corrupt(fmt::format("extent header: a file of {} bytes does not fit its slices", file_bytes));
  }
  return h;
}

}  // namespace lode::kv
