// Names for what a reply must be able to tell apart: ids of replies, messages and calls. Any thread.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <string_view>

namespace lode::serve {

inline std::string random_of(std::string_view letters, std::size_t count) {
  std::random_device random;
  std::string out;
  for (std::size_t i = 0; i < count; ++i) out += letters[random() % letters.size()];
  return out;
}
inline std::string random_hex(std::size_t count) {
  return random_of("0123456789abcdef", count);
}
// Letters and digits alone: Mistral's templates insist on nine of them.
inline std::string random_letters(std::size_t count) {
  return random_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", count);
}

}  // namespace lode::serve
