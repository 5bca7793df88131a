#include "text/grammar/decimal.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace lode::text::grammar {
namespace {

Decimal from_text(std::string_view text) {
  Decimal out;
  if (text.starts_with('-')) out.negative = true, text.remove_prefix(1);
  int exponent = 0;
  if (const std::size_t e = text.find('e'); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);
    std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    text = text.substr(0, e);
  }
  const std::size_t dot = text.find('.');
  std::string whole(text.substr(0, dot)), fraction(dot == std::string_view::npos ? "" : text.substr(dot + 1));
  for (; exponent > 0; --exponent) {  // At most 308.
    whole += fraction.empty() ? '0' : fraction[0];
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(fraction.begin(), whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  while (fraction.ends_with('0')) fraction.pop_back();
  out.whole = std::move(whole);
  out.fraction = std::move(fraction);
  if (out.zero()) out.negative = false;
  return out;
}

}  // namespace

std::optional<Decimal> Decimal::of(const nlohmann::ordered_json& number) {
  if (number.is_number_unsigned()) return from_text(fmt::format("{}", number.get<std::uint64_t>()));
  if (number.is_number_integer()) return from_text(fmt::format("{}", number.get<std::int64_t>()));
  if (!number.is_number_float()) return std::nullopt;
  const double x = number.get<double>();
  if (!std::isfinite(x)) return std::nullopt;
  // Above 2^53 a double is an integer, whose digits are exact; below, the shortest text that reads as this double is
  // what the schema's author wrote.
  if (std::abs(x) >= 9007199254740992.0) return from_text(fmt::format("{:.0f}", x));
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific).ptr;
  return from_text({buffer, static_cast<std::size_t>(end - buffer)});
}

std::string Decimal::text() const {
  return (negative ? "-" : "") + (whole.empty() ? "0" : whole) + (fraction.empty() ? "" : "." + fraction);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int sign = a.negative ? -1 : 1;
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -sign : sign;
  int order = a.whole.compare(b.whole);
  if (order == 0) order = a.fraction.compare(b.fraction);
  return order == 0 ? 0 : order < 0 ? -sign : sign;
}

}  // namespace lode::text::grammar
