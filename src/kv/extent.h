// The bytes of an extent file: header, geometry and name. Owns nothing. Any thread. docs/kv-format.md describes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kv/bytes_io.h"
#include "kv/cipher.h"
#include "kv/disk_tier.h"
#include "kv/key.h"
#include "model/kv_view.h"

namespace lode::kv {

// XXH3-64. Guards against damage, not against an attacker: whoever can write into the folder owns it.
std::uint64_t checksum(std::span<const std::byte> bytes);

// Tells layouts of one group apart (KV types, layers, head sizes), and the secrets that they are encrypted with:
// extents of several may lie in one folder. `cipher`: nullptr where they are not encrypted.
std::uint64_t layout_id(GroupId group, const model::BlockLayout& layout, const Cipher* cipher = nullptr);

// An extent's content follows from these, so they are its name: the last key is a hash of all tokens before its end.
struct ExtentName {
  BlockKey last;             // Key of the last block.
  std::uint64_t layout = 0;  // layout_id of its group.
  std::uint32_t group = 0;
  std::uint32_t blocks = 0;  // 1 to kExtentBlocks.
  auto operator<=>(const ExtentName&) const = default;

  std::string file_name() const;  // "<64 hex>-<16 hex>-<group>-<blocks>.kvx"
  static std::optional<ExtentName> parse(std::string_view file_name);
};
struct ExtentNameHash {
  std::size_t operator()(const ExtentName& name) const noexcept {
    return BlockKeyHash{}(name.last) ^ (name.layout * 31 + name.group * 17 + name.blocks);
  }
};

enum class Sealing : std::uint32_t { none = 0, aes_256_gcm = 1 };
inline Sealing sealing(const Cipher* cipher) {
  return cipher ? Sealing::aes_256_gcm : Sealing::none;
}

// Where things lie in an extent of `blocks` blocks.
class ExtentShape {
 public:
  ExtentShape(std::vector<std::uint64_t> slice_bytes, std::uint32_t blocks, Sealing sealing = Sealing::none);
  static ExtentShape of(const model::BlockLayout& layout, std::uint32_t blocks, Sealing sealing = Sealing::none);

  std::uint64_t header_bytes() const { return header_bytes_; }  // A multiple of 4096.
  std::uint64_t file_bytes() const { return file_bytes_; }
  // Offset of a block's slice of layer `slice` (its place in the group's order) in the file.
  std::uint64_t slice_offset(std::size_t slice, std::uint32_t block) const {
    return offsets_[slice] + block * slice_bytes_[slice];
  }
  std::span<const std::uint64_t> slice_bytes() const { return slice_bytes_; }
  std::uint32_t blocks() const { return blocks_; }

 private:
  std::vector<std::uint64_t> slice_bytes_, offsets_;  // [slices]
  std::uint32_t blocks_;
  std::uint64_t header_bytes_ = 0, file_bytes_ = 0;
};

// The token ids of an encrypted extent, as they are stored. The tag covers the rest of ExtentMeta and the model too.
struct SealedIds {
  std::uint64_t key_id = 0;      // Cipher::id
  Salt salt{};                   // Of the extent's key.
  std::vector<std::byte> bytes;  // [blocks, 128]
  Tag tag{};
};

// What is known of an extent without its payload; also a record of the index log.
struct ExtentMeta {
  ExtentName name;
  std::int64_t first_index = 0;                        // Position of its first token / 32.
  BlockKey parent;                                     // Of its first block.
  std::vector<BlockKey> keys;                          // [blocks]
  std::vector<std::array<TokenId, kBlockTokens>> ids;  // [blocks]; empty: encrypted, and not opened.
  std::optional<SealedIds> sealed;                     // Encrypted extents.
};
// Makes meta.sealed, with a new key.
void seal_ids(const Cipher& cipher, const std::array<std::uint8_t, 32>& fingerprint, ExtentMeta& meta);
// Fills meta.ids. False: it is encrypted with another key, or nothing that this key's holder has written.
bool open_ids(const Cipher& cipher, const std::array<std::uint8_t, 32>& fingerprint, ExtentMeta& meta);
// The number of a slice's message under its extent's key (ExtentCipher).
inline std::uint64_t slice_message(std::size_t slice, std::uint32_t blocks, std::uint32_t block) {
  return ExtentCipher::kHeader + 1 + slice * blocks + block;
}

struct ExtentHeader {
  ExtentMeta meta;
  std::array<std::uint8_t, 32> model_fingerprint{};
  std::vector<std::uint64_t> slice_bytes;  // [slices]
  std::vector<std::uint64_t> checksums;    // [slices, blocks], of the bytes as they are stored.
  std::vector<Tag> tags;                   // [slices, blocks] of encrypted extents; else empty.

  ExtentShape shape() const {
    return {slice_bytes, meta.name.blocks, meta.sealed ? Sealing::aes_256_gcm : Sealing::none};
  }
};

// As headers and records of the index log have them.
void put_sealed(ByteWriter& w, const SealedIds& sealed);
SealedIds get_sealed(ByteReader& r, std::uint32_t blocks);

// header_bytes() of the shape; the rest of the last page is zero.
std::vector<std::byte> encode_header(const ExtentHeader& header);
// Checks everything that the bytes claim before it is used. `bytes` holds at least the header; more is ignored.
Result<ExtentHeader> parse_header(std::span<const std::byte> bytes);
// The length a header claims (a multiple of 4096, at most kHeaderBytesMax), from its first 4 KiB; `corrupt` otherwise.
Result<std::uint64_t> header_length(std::span<const std::byte> first_page);

inline constexpr std::uint64_t kHeaderBytesMax = 4ull << 20;  // 16 blocks of 30,000 layers: no model comes near.
inline constexpr std::uint64_t kSliceBytesMax = 1ull << 30;

}  // namespace lode::kv
