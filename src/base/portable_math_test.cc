#include "base/portable_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

namespace lode {
namespace {

// The C library's long double functions are the reference: 11 bits more than a double has.
TEST(PortableMath, ExpIsWithinTwoUnitsOfTheLastPlace) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> any(-700, 700), small(-1, 1);
  for (int i = 0; i < 200'000; ++i) {
    const double x = i % 2 ? any(rng) : small(rng);
    const long double truth = std::exp(static_cast<long double>(x));
    EXPECT_LE(std::abs((portable::exp(x) - truth) / truth), 2 * 0x1p-52) << x;
  }
  EXPECT_EQ(portable::exp(0), 1);
  EXPECT_EQ(portable::exp(-1000), 0);
  EXPECT_EQ(portable::exp(-HUGE_VAL), 0);
  EXPECT_EQ(portable::exp(1000), HUGE_VAL);
  EXPECT_NEAR(portable::exp(709.7) / 1.6549840276802644e308, 1, 1e-13);
  EXPECT_TRUE(std::isnan(portable::exp(NAN)));
}

TEST(PortableMath, LogIsWithinTwoUnitsOfTheLastPlace) {
  std::mt19937_64 rng(2);
  std::uniform_real_distribution<double> exponent(-700, 700), near(0.5, 2);
  for (int i = 0; i < 200'000; ++i) {
    const double x = i % 2 ? std::exp(exponent(rng)) : near(rng);
    const long double truth = std::log(static_cast<long double>(x));
    EXPECT_LE(std::abs(portable::log(x) - truth), std::max<long double>(2 * 0x1p-52 * std::abs(truth), 1.2e-16)) << x;
  }
  EXPECT_EQ(portable::log(1), 0);
  EXPECT_EQ(portable::log(0), -HUGE_VAL);
  EXPECT_EQ(portable::log(HUGE_VAL), HUGE_VAL);
  EXPECT_TRUE(std::isnan(portable::log(-1)));
}

TEST(PortableMath, PowOfRopeBases) {
  for (const double base : {10'000.0, 1e6, 500'000.0, 1e7})
    for (int i = 0; i < 128; ++i)
      EXPECT_NEAR(portable::pow(base, -i / 128.0) / std::pow(base, -i / 128.0), 1, 1e-14) << base << ' ' << i;
}

// The bits themselves, so that another compiler or machine cannot differ unseen.
TEST(PortableMath, BitsAreFixed) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(portable::exp(-1.25)), 0x3fd25618372a584fu);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(portable::log(3.7)), 0x3ff4eeee650ae550u);
}

}  // namespace
}  // namespace lode
