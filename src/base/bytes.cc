#include "base/bytes.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace lode {

Result<std::uint64_t> parse_size(std::string_view text, std::uint64_t whole) {
  const auto bad = [&](std::string_view why) {
    return Status::invalid(fmt::format(
        "size '{}': {}; expected a number with KiB, MiB, GiB or TiB, a share such as 50%, or 0", text, why));
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return bad("not a number");
  std::string unit;
  for (char c : std::string_view(end, text.data() + text.size() - end))
    if (c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double scale = 0;
  if (unit.empty() || unit == "b") scale = 1;
  else if (unit == "%") scale = static_cast<double>(whole) / 100;
  else if (unit == "kib" || unit == "k") scale = static_cast<double>(kKiB);
  else if (unit == "mib" || unit == "m") scale = static_cast<double>(kMiB);
  else if (unit == "gib" || unit == "g") scale = static_cast<double>(kGiB);
  else if (unit == "tib" || unit == "t") scale = static_cast<double>(kGiB) * 1024;
  else if (unit == "kb") scale = 1e3;
  else if (unit == "mb") scale = 1e6;
  else if (unit == "gb") scale = 1e9;
  else if (unit == "tb") scale = 1e12;
  else return bad(fmt::format("unknown unit '{}'", unit));
  if (unit == "%" && number > 100) return bad("a share above 100%");
  const double bytes = number * scale;
  if (bytes >= 9.2e18) return bad("too large");
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  int u = -1;
  do {
    value /= 1024;
    ++u;
  } while (value >= 999.5 && u < 5);
  return fmt::format("{:.{}f} {}", value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, units[u]);
}

}  // namespace lode
