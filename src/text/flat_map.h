// Two flat open-addressing tables: token text -> id, and (left id, right id) -> merge. Built once at load, then
// constant: any thread may look up. src/text only.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

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

// Slots of 16 bytes at no more than half load: a probe of Gemma's 262k tokens costs about two cache misses.
// Texts live outside (Vocab's arena) and must outlive the table without moving.
class TextMap {
 public:
  void reserve(std::size_t count) {
    slots_.assign(std::bit_ceil(count * 2 + 2), {});
    texts_ = nullptr;
  }
  void bind(const char* texts) { texts_ = texts; }

  // Adds the text at [offset, offset + size) of the bound arena. False where it is there already: the first id stays.
  bool insert(std::uint32_t offset, std::uint32_t size, Merge merge) {
    const std::string_view text(texts_ + offset, size);
    const std::uint64_t hash = hash_text(text);
    for (std::size_t i = hash & mask();; i = (i + 1) & mask()) {
      Slot& slot = slots_[i];
      if (slot.id < 0) {
        slot = {tag(hash, size), offset, merge.priority, merge.id};
        return true;
      }
      if (matches(slot, tag(hash, size), text)) return false;
    }
  }

  Merge find(std::string_view text) const {
    const std::uint64_t hash = hash_text(text);
    const std::uint32_t wanted = tag(hash, text.size());
    for (std::size_t i = hash & mask();; i = (i + 1) & mask()) {
      const Slot& slot = slots_[i];
      if (slot.id < 0) return {};
      if (matches(slot, wanted, text)) return {slot.priority, slot.id};
    }
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;  // 16 bits of the size over 16 bits of the hash: nearly always decides without the text.
    std::uint32_t offset = 0;
    std::uint32_t priority = 0;
    TokenId id = -1;  // -1: empty.
  };
  std::size_t mask() const { return slots_.size() - 1; }
  static std::uint32_t tag(std::uint64_t hash, std::size_t size) {
    return static_cast<std::uint32_t>(size) << 16 | static_cast<std::uint32_t>(hash >> 48);
  }
  // Token texts are at most 65,535 bytes (Vocab refuses longer ones), so an equal tag means an equal size for them; a
  // longer query text could alias, hence the check.
  bool matches(const Slot& slot, std::uint32_t wanted, std::string_view text) const {
    return slot.tag == wanted && text.size() <= 0xFFFF &&
           std::memcmp(texts_ + slot.offset, text.data(), text.size()) == 0;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(2);
  const char* texts_ = nullptr;
};

class PairMap {
 public:
  void reserve(std::size_t count) { slots_.assign(std::bit_ceil(count * 2 + 2), {}); }

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
