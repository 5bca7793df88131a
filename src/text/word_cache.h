// Remembers what short pieces of text became, one bounded table a thread (1 MiB, allocated at a thread's first use).
// Entries carry the serial number of their tokenizer, so that several tokenizers may share the table. src/text only.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/flat_map.h"

namespace lode::text {

class WordCache {
 public:
  static constexpr std::size_t kTextMax = 26;  // Longer pieces repeat too seldom to be worth a second cache line.
  static constexpr std::size_t kIdsMax = 8;

  static WordCache& of_this_thread() {
    static thread_local WordCache cache;
    return cache;
  }
  // Never repeats within a process until 2^32 vocabularies were loaded. 0 is none.
  static std::uint32_t next_serial();

  struct Entry {
    std::uint32_t serial = 0;
    std::uint8_t text_size = 0;
    std::uint8_t ids_size = 0;
    char text[kTextMax] = {};
    TokenId ids[kIdsMax] = {};

    bool holds(std::uint32_t wanted_serial, std::string_view wanted) const {
      return serial == wanted_serial && text_size == wanted.size() &&
             std::memcmp(text, wanted.data(), wanted.size()) == 0;
    }
    void set(std::uint32_t new_serial, std::string_view new_text, std::span<const TokenId> new_ids) {
      if (new_ids.size() > kIdsMax) return;
      serial = new_serial;
      text_size = static_cast<std::uint8_t>(new_text.size());
      ids_size = static_cast<std::uint8_t>(new_ids.size());
      std::memcpy(text, new_text.data(), new_text.size());
      std::memcpy(ids, new_ids.data(), new_ids.size() * sizeof(TokenId));
    }
  };
  static_assert(sizeof(Entry) == 64, "an entry is one cache line");

  // The one place where this text (at most kTextMax bytes) may be; direct-mapped, newer text replaces older.
  Entry& entry(std::string_view text) { return entries_[hash_text(text) & (entries_.size() - 1)]; }

 private:
  WordCache() : entries_(16384) {}
  std::vector<Entry> entries_;
};

}  // namespace lode::text
