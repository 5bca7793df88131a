// Strong index types: an index that crosses a room's door is never a bare int. Any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>

namespace lode {

// A 32-bit index that only compares and converts explicitly; `none()` is "no such thing".
template <typename Tag>
struct Id {
  std::uint32_t v = std::numeric_limits<std::uint32_t>::max();

  static constexpr Id none() { return {}; }
  constexpr bool valid() const { return v != std::numeric_limits<std::uint32_t>::max(); }
  constexpr auto operator<=>(const Id&) const = default;
};

using TokenId = std::int32_t;            // As in every GGUF vocabulary; -1 is "none".
using LayerIndex = Id<struct LayerTag>;  // 0-based transformer layer.
using GroupId = Id<struct GroupTag>;     // Index of a CacheGroup in its model's list.
using BlockId = Id<struct BlockTag>;     // A logical block of kv::Store: 32 tokens of one chain, all groups.
using SlotId = Id<struct SlotTag>;       // A place for one block of one group inside a KV arena.
using ExpertId = Id<struct ExpertTag>;
using SequenceId = Id<struct SequenceTag>;

}  // namespace lode

template <typename Tag>
struct std::hash<lode::Id<Tag>> {
  std::size_t operator()(lode::Id<Tag> id) const noexcept { return std::hash<std::uint32_t>{}(id.v); }
};
