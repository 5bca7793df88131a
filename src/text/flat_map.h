// Two flat open-addressing tables: token text -> id, and (left id, right id) -> merge. Built once at load, then
// constant: any thread may look up. src/text only.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace lode::text {

inline std::uint64_t hash_text(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

// What a merge of two neighbours gives. Lower priority numbers merge first.
struct Merge {
  static constexpr std::uint32_t kNever = 0xFFFFFFFF;
  std::uint32_t priority = kNever;
  TokenId id = -1;
};

// Most look-ups while merging find nothing, and those read only the array of 16-bit tags (1 MiB for Gemma's 262k
// tokens, so it stays in a core's cache). Texts of up to 8 bytes are compared inside their slot; longer ones lie in
// Vocab's arena, which must outlive the table without moving.
class TextMap {
 public:
  // Where a token's text lies in the arena.
  struct Place {
    std::uint32_t offset = 0;
    std::uint16_t size = 0;
  };

  // Room for `count` texts, at no more than three quarters full. Slots take 18 bytes each.
  void reserve(std::size_t count) {
    const std::size_t slots = std::bit_ceil(count + count / 3 + 2);
    tags_.assign(slots, kFree);
    slots_.assign(slots, {});
    places_.reserve(count);
  }
  void bind(const char* arena) { arena_ = arena; }

  // Ids ascend from 0 without a gap. `findable` false: the text is only kept. Returns false where another id has the
  // text already, and keeps that.
  bool add(Place place, bool findable, std::uint32_t priority) {
    const auto id = static_cast<TokenId>(places_.size());
    places_.push_back(place);
    if (!findable) return true;
    const std::string_view text(arena_ + place.offset, place.size);
    const std::uint64_t hash = hash_text(text);
    const std::uint16_t tag = tag_of(hash);
    std::size_t i = hash & mask();
    for (; tags_[i] != kFree; i = (i + 1) & mask()) {
      if (tags_[i] == tag && holds(slots_[i], text)) return false;
    }
    tags_[i] = tag;
    slots_[i] = {head_of(text), priority, static_cast<std::uint32_t>(id) | size_class(text) << 28};
    return true;
  }

  std::string_view text(TokenId id) const { return {arena_ + places_[id].offset, places_[id].size}; }

  Merge find(std::string_view text) const {
    const std::uint64_t hash = hash_text(text);
    const std::uint16_t tag = tag_of(hash);
    for (std::size_t i = hash & mask(); tags_[i] != kFree; i = (i + 1) & mask()) {
      if (tags_[i] == tag && holds(slots_[i], text)) return {slots_[i].priority, slots_[i].id()};
    }
    return {};
  }

 private:
  static constexpr std::uint16_t kFree = 0;
  struct Slot {
    std::uint64_t head = 0;  // The first 8 bytes, zeros behind shorter texts.
    std::uint32_t priority = 0;
    std::uint32_t id_and_size = 0;  // 28 bits of id (Vocab allows no more tokens), then the size class.
    TokenId id() const { return static_cast<TokenId>(id_and_size & 0x0FFFFFFF); }
  };
  static std::uint32_t size_class(std::string_view text) {
    return static_cast<std::uint32_t>(std::min<std::size_t>(text.size(), 9));  // 9: longer than the head.
  }
  std::size_t mask() const { return tags_.size() - 1; }
  static std::uint16_t tag_of(std::uint64_t hash) { return static_cast<std::uint16_t>(hash >> 48 | 1); }
  static std::uint64_t head_of(std::string_view text) {
    std::uint64_t head = 0;
    std::memcpy(&head, text.data(), std::min<std::size_t>(text.size(), 8));
    return head;
  }
  bool holds(const Slot& slot, std::string_view wanted) const {
    if (slot.head != head_of(wanted) || slot.id_and_size >> 28 != size_class(wanted)) return false;
    return wanted.size() <= 8 || text(slot.id()) == wanted;
  }

  std::vector<std::uint16_t> tags_ = std::vector<std::uint16_t>(2, kFree);
  std::vector<Slot> slots_ = std::vector<Slot>(2);
  std::vector<Place> places_;  // By id.
  const char* arena_ = nullptr;
};

class PairMap {
 public:
  void reserve(std::size_t count) { slots_.assign(std::bit_ceil(count + count / 2 + 2), {}); }

  // The first merge of a pair stays: it has the better rank.
  void insert(TokenId left, TokenId right, Merge merge) {
    const std::uint64_t k = key(left, right);
    for (std::size_t i = place(k);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == k) return;
      if (slots_[i].key == kEmpty) {
        slots_[i] = {k, merge};
        return;
      }
    }
  }

  Merge find(TokenId left, TokenId right) const {
    const std::uint64_t k = key(left, right);
    for (std::size_t i = place(k);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == k) return slots_[i].merge;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // Both ids -1, which no merge has.
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static std::uint64_t key(TokenId left, TokenId right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t place(std::uint64_t k) const {
    const std::uint64_t h = (k ^ (k >> 29)) * 0x9E3779B97F4A7C15u;
    return (h ^ (h >> 32)) & (slots_.size() - 1);
  }
  std::vector<Slot> slots_ = std::vector<Slot>(2);
};

}  // namespace lode::text
