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
#include "kv/disk_tier.h"
#include "kv/key.h"
#include "model/kv_view.h"

namespace lode::kv {

// XXH3-64. Guards against damage, not against an attacker: whoever can write into the folder owns it.
std::uint64_t checksum(std::span<const std::byte> bytes);

// Tells layouts of one group apart (KV types, layers, head sizes): extents of several may lie in one folder.
std::uint64_t layout_id(GroupId group, const model::BlockLayout& layout);

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

// Where things lie in an extent of `blocks` blocks.
class ExtentShape {
 public:
  ExtentShape(std::vector<std::uint64_t> slice_bytes, std::uint32_t blocks);
  static ExtentShape of(const model::BlockLayout& layout, std::uint32_t blocks);

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

// What is known of an extent without its payload; also a record of the index log.
struct ExtentMeta {
  ExtentName name;
  std::int64_t first_index = 0;                        // Position of its first token / 32.
  BlockKey parent;                                     // Of its first block.
  std::vector<BlockKey> keys;                          // [blocks]
  std::vector<std::array<TokenId, kBlockTokens>> ids;  // [blocks]
};

struct ExtentHeader {
  ExtentMeta meta;
  std::array<std::uint8_t, 32> model_fingerprint{};
  std::vector<std::uint64_t> slice_bytes;  // [slices]
  std::vector<std::uint64_t> checksums;    // [slices, blocks]
};

// header_bytes() of the shape; the rest of the last page is zero.
std::vector<std::byte> encode_header(const ExtentHeader& header);
// Checks everything that the bytes claim before it is used. `bytes` holds at least the header; more is ignored.
Result<ExtentHeader> parse_header(std::span<const std::byte> bytes);
// The length a header claims (a multiple of 4096, at most kHeaderBytesMax), from its first 4 KiB; `corrupt` otherwise.
Result<std::uint64_t> header_length(std::span<const std::byte> first_page);

inline constexpr std::uint64_t kHeaderBytesMax = 4ull << 20;  // 16 blocks of 30,000 layers: no model comes near.
inline constexpr std::uint64_t kSliceBytesMax = 1ull << 30;

}  // namespace lode::kv
