#include "engine/slots.h"

#include <algorithm>

#include "base/status.h"

namespace lode::engine {

int Slots::take(std::int32_t wanted, std::span<const TokenId> prompt, std::string_view salt) {
  int found = -1, alike = -1;
  std::size_t most = 0;
  for (int i = 0; i < static_cast<int>(slots_.size()); ++i) {
    const Slot& s = slots_[static_cast<std::size_t>(i)];
    if (s.busy) continue;
    if (i == wanted) {
      found = i;
      break;
    }
    if (found < 0 || s.used_ns < slots_[static_cast<std::size_t>(found)].used_ns) found = i;
    if (s.salt != salt) continue;
    const auto common = static_cast<std::size_t>(
        std::mismatch(prompt.begin(), prompt.end(), s.tokens.begin(), s.tokens.end()).first - prompt.begin());
    if (common > most && 2 * common >= std::min(s.tokens.size(), prompt.size())) alike = i, most = common;
  }
  LODE_CHECK(found >= 0);  // There are as many as sequences.
  if (found != wanted && alike >= 0) found = alike;
  Slot& slot = slots_[static_cast<std::size_t>(found)];
  slot.busy = true;
  slot.tokens.assign(prompt.begin(), prompt.end());
  slot.salt = salt;
  return found;
}

void Slots::give(int slot, std::span<const TokenId> tokens, std::string_view salt, std::int64_t now_ns) {
  Slot& s = slots_[static_cast<std::size_t>(slot)];
  LODE_CHECK(s.busy);
  s.busy = false;
  s.tokens.assign(tokens.begin(), tokens.end());
  s.salt = salt;
  s.used_ns = now_ns;
}

}  // namespace lode::engine
