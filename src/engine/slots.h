// llama-server's slots: which of them run, and what each computed last. A slot is a name for a sequence's tokens, no
// memory of its own: blocks belong to the store. Owns the tokens. Step thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace lode::engine {

struct Slot {
  bool busy = false;
  std::vector<TokenId> tokens;  // Of its last sequence whose KV was computed; while busy: that one's prompt.
  std::string salt;             // Its namespace: nobody else is shown what it holds.
  std::int64_t used_ns = 0;     // When it became free; 0: never used.
};

class Slots {
 public:
  explicit Slots(std::int64_t count) : slots_(static_cast<std::size_t>(count)) {}

  // The slot for a sequence that is admitted, busy from now on: `wanted`, where it is free; else a free one whose
  // tokens begin alike in at least half of what it or the prompt has; else the one that was used longest ago.
  int take(std::int32_t wanted, std::span<const TokenId> prompt, std::string_view salt);
  void give(int slot, std::span<const TokenId> tokens, std::string_view salt, std::int64_t now_ns);
  std::span<Slot> all() { return slots_; }

 private:
  std::vector<Slot> slots_;
};

}  // namespace lode::engine
