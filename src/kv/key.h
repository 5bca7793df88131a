// Block keys: SHA-256 chains over token ids. Owns nothing. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace lode::kv {

inline constexpr std::int64_t kBlockTokens = 32;    // 32 tokens: see docs/kv-format.md.
inline constexpr int kExtentBlocks = 16;            // Consecutive blocks of one chain and group in one extent file.
inline constexpr std::uint32_t kFormatVersion = 1;  // Of keys, blocks and extents together.

struct BlockKey {
  std::array<std::uint8_t, 32> bytes{};
  auto operator<=>(const BlockKey&) const = default;
};

// What the root of every chain hashes, each field tagged and length-prefixed, so that no two fields can be confused.
struct RootInputs {
  std::array<std::uint8_t, 32> model_fingerprint{};
  std::string k_type, v_type;  // kernels::kv_format_name: "f16", "q8_0+wht", "i16"
  std::string numerics_id;     // kernels::Table::numerics_id
  std::string placement;       // "cpu"
  std::string rope;            // The resolved rope factors, as the model prints them.
  std::string salt;            // Per request or API key; empty: the common namespace.
};
BlockKey root_key(const RootInputs& inputs);
// SHA-256 over (parent, the 32 ids as little-endian int32).
BlockKey child_key(const BlockKey& parent, std::span<const TokenId, kBlockTokens> ids);
std::string hex(const BlockKey& key);

struct BlockKeyHash {
  std::size_t operator()(const BlockKey& key) const noexcept {
    std::size_t h;
    __builtin_memcpy(&h, key.bytes.data(), sizeof h);
    return h;
  }
};

}  // namespace lode::kv
