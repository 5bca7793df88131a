#include "base/bytes.h"

#include <gtest/gtest.h>

namespace lode {
namespace {

TEST(ParseSize, AcceptsUnitsSharesAndZero) {
  EXPECT_EQ(*parse_size("0", 0), 0u);
  EXPECT_EQ(*parse_size("640", 0), 640u);
  EXPECT_EQ(*parse_size("1.5GiB", 0), 1610612736u);
  EXPECT_EQ(*parse_size("2 MiB", 0), 2097152u);
  EXPECT_EQ(*parse_size("8g", 0), 8 * kGiB);
  EXPECT_EQ(*parse_size("3GB", 0), 3000000000u);
  EXPECT_EQ(*parse_size("50%", 1000), 500u);
}

TEST(ParseSize, NamesWhatIsWrong) {
  for (const char* text : {"", "x", "-1", "5 parsecs", "150%", "1e30GiB", "nan", "inf"}) {
    auto r = parse_size(text, 1000);
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_NE(r.status().message().find("expected a number"), std::string::npos) << r.status().message();
  }
}

TEST(FormatSize, ThreeDigits) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(96 * kKiB), "96.0 KiB");
  EXPECT_EQ(format_size(253113024), "241 MiB");
  EXPECT_EQ(format_size(kGiB + kGiB / 2), "1.50 GiB");
}

TEST(Checked, OverflowIsNullopt) {
  EXPECT_FALSE(checked_mul(1ull << 40, 1ull << 40));
  EXPECT_FALSE(checked_add(~0ull, 1));
  EXPECT_EQ(*checked_mul(3, 4), 12u);
}

}  // namespace
}  // namespace lode
