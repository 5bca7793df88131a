#include "text/grammar/number_range.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace lode::text::grammar {
namespace {

Decimal decimal(double x) {
  return *Decimal::of(nlohmann::ordered_json(x));
}
Decimal decimal(std::int64_t x) {
  return *Decimal::of(nlohmann::ordered_json(x));
}

TEST(Decimal, ReadsNumbersAsWritten) {
  const auto text = [](const char* json) { return Decimal::of(nlohmann::ordered_json::parse(json))->text(); };
  EXPECT_EQ(text("0.1"), "0.1");
  EXPECT_EQ(text("-0.0"), "0");
  EXPECT_EQ(text("1e3"), "1000");
  EXPECT_EQ(text("-2.5e-3"), "-0.0025");
  EXPECT_EQ(text("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(text("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(text("1e20"), "100000000000000000000");
  EXPECT_FALSE(Decimal::of(nlohmann::ordered_json("5")));
}

TEST(Decimal, Compares) {
  std::mt19937 rng(1);
  for (int i = 0; i < 2000; ++i) {
    const auto a = static_cast<std::int64_t>(rng() % 2001) - 1000, b = static_cast<std::int64_t>(rng() % 2001) - 1000;
    const Decimal x = decimal(static_cast<double>(a) / 8), y = decimal(static_cast<double>(b) / 8);
    EXPECT_EQ(compare(x, y), a < b ? -1 : a > b ? 1 : 0) << a << " " << b;
  }
}

// Every integer near the bounds is accepted exactly where arithmetic says so, in its canonical digits alone.
TEST(NumberRange, IntegersAgreeWithArithmetic) {
  std::mt19937 rng(2);
  for (int round = 0; round < 120; ++round) {
    const auto pick = [&rng] { return static_cast<std::int64_t>(rng() % 600) - 300; };
    std::int64_t low = pick(), high = pick();
    if (low > high) std::swap(low, high);
    NumberRange range{.integer = true};
    const bool open_low = rng() % 3 == 0, open_high = rng() % 3 == 0, has_low = rng() % 5 != 0,
               has_high = rng() % 5 != 0;
    if (has_low) range.at_least(decimal(low), open_low);
    if (has_high) range.at_most(decimal(high), open_high);
    const std::int64_t step = rng() % 2 == 0 ? 1 : 2 + static_cast<std::int64_t>(rng() % 30);
    if (step > 1) range.multiples.push_back(decimal(step));
    Work work;
    const auto fsa = number_automaton(range, work);
    ASSERT_TRUE(fsa.ok()) << fsa.status().message();
    for (std::int64_t x = -1300; x <= 1300; ++x) {
      const bool want = (!has_low || (open_low ? x > low : x >= low)) &&
                        (!has_high || (open_high ? x < high : x <= high)) && x % step == 0;
      ASSERT_EQ(accepts(*fsa, std::to_string(x)), want) << x << " in " << low << ".." << high << " step " << step;
      if (x > 0) ASSERT_FALSE(accepts(*fsa, "0" + std::to_string(x)));
    }
    for (const char* wrong : {"-0", "+1", "1.0", "", "-", "1e2", "00"}) ASSERT_FALSE(accepts(*fsa, wrong)) << wrong;
  }
}

TEST(NumberRange, DecimalsAgreeWithArithmetic) {
  std::mt19937 rng(3);
  for (int round = 0; round < 120; ++round) {
    const auto pick = [&rng] { return static_cast<std::int64_t>(rng() % 4000) - 2000; };
    std::int64_t low = pick(), high = pick();  // In hundredths.
    if (low > high) std::swap(low, high);
    NumberRange range;
    const bool open_low = rng() % 3 == 0, open_high = rng() % 3 == 0, has_low = rng() % 5 != 0,
               has_high = rng() % 5 != 0;
    const auto hundredths = [](std::int64_t x) {
      return *Decimal::of(nlohmann::ordered_json::parse(fmt::format("{}e-2", x)));
    };
    if (has_low) range.at_least(hundredths(low), open_low);
    if (has_high) range.at_most(hundredths(high), open_high);
    Work work;
    const auto fsa = number_automaton(range, work);
    ASSERT_TRUE(fsa.ok());
    for (std::int64_t x = -30000; x <= 30000; x += 1 + static_cast<std::int64_t>(rng() % 7)) {  // In thousandths.
      const bool want = (!has_low || (open_low ? x > 10 * low : x >= 10 * low)) &&
                        (!has_high || (open_high ? x < 10 * high : x <= 10 * high));
      const std::string text = fmt::format("{}{}.{:03}", x < 0 ? "-" : "", std::abs(x) / 1000, std::abs(x) % 1000);
      ASSERT_EQ(accepts(*fsa, text), want && text != "-0.000") << text << " in " << low << ".." << high;
      if (x % 1000 == 0) ASSERT_EQ(accepts(*fsa, std::to_string(x / 1000)), want) << x;
    }
  }
}

TEST(NumberRange, MultiplesOfDecimals) {
  NumberRange range;
  range.multiples.push_back(decimal(0.25));
  Work work;
  const auto fsa = number_automaton(range, work);
  ASSERT_TRUE(fsa.ok());
  for (const char* right : {"0", "1", "-1.5", "0.25", "12.75", "3.50"}) EXPECT_TRUE(accepts(*fsa, right)) << right;
  for (const char* wrong : {"0.1", "1.3", "2.125", "-0.26"}) EXPECT_FALSE(accepts(*fsa, wrong)) << wrong;
  range.multiples[0] = *Decimal::of(nlohmann::ordered_json(123457));
  EXPECT_FALSE(number_automaton(range, work).ok());
}

}  // namespace
}  // namespace lode::text::grammar
