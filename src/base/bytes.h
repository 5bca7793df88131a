// Byte sizes: constants, checked arithmetic, parsing and printing. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace lode {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// Product and sum, or nullopt where 64 bits cannot hold them. For sizes that a file claims.
inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}
inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// The smallest multiple of `align` (a power of two) that is >= n.
constexpr std::uint64_t align_up(std::uint64_t n, std::uint64_t align) {
  return (n + align - 1) & ~(align - 1);
}

// "512 MiB", "1.5GiB", "50%" (of `whole`), "0", or a plain number of bytes. Units: KiB MiB GiB TiB (KB MB GB TB: powers
// of 1000). Errors name the text and the accepted forms.
Result<std::uint64_t> parse_size(std::string_view text, std::uint64_t whole);

// "0 B", "640 B", "96.0 KiB", "1.53 GiB": three significant digits, binary units.
std::string format_size(std::uint64_t bytes);

}  // namespace lode
