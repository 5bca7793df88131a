#include "quant/packed.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace lode::quant {
namespace {

class PackedRows : public ::testing::TestWithParam<DType> {};

TEST_P(PackedRows, RowsComeBackAndNoByteIsLost) {
  const std::int64_t cols = 3 * info(GetParam()).block, bytes = row_bytes(GetParam(), cols);
  std::mt19937 rng(7);
  std::vector<std::byte> rows(static_cast<std::size_t>(8 * bytes)), packed(rows.size()),
      row(static_cast<std::size_t>(bytes));
  for (std::byte& b : rows) b = static_cast<std::byte>(rng());
  pack_rows(GetParam(), rows.data(), cols, packed.data());
  EXPECT_NE(rows, packed);
  for (int r = 0; r < 8; ++r) {
    unpack_row(GetParam(), packed.data(), cols, r, row.data());
    EXPECT_EQ(std::memcmp(row.data(), rows.data() + r * bytes, row.size()), 0) << "row " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedRows,
                         ::testing::Values(DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q8_0, DType::q4_k,
                                           DType::q5_k, DType::q6_k),
                         [](const auto& p) { return std::string(quant::info(p.param).name); });

// The order that the header promises, by value: what the kernels rely on.
TEST(PackedLayout, Q5_0HasFourColumnsOfEightRowsARegister) {
  std::vector<BlockQ5_0> rows(8);
  for (int r = 0; r < 8; ++r) {
    std::memset(&rows[r], 0, sizeof(BlockQ5_0));
    rows[r].d = static_cast<std::uint16_t>(100 + r);
    for (int i = 0; i < 16; ++i) rows[r].qs[i] = static_cast<std::uint8_t>(16 * r + i);
  }
  rows[3].qh[2] = 1 << 5;  // Code 21 of row 3: step 5, byte 1.
  PackedQ5_0 packed;
  pack_rows(DType::q5_0, reinterpret_cast<const std::byte*>(rows.data()), 32, reinterpret_cast<std::byte*>(&packed));
  EXPECT_EQ(packed.d[6], 106);
  EXPECT_EQ(packed.qs[2][7][1], 16 * 7 + 9);
  for (int r = 0; r < 8; ++r)
    for (int b = 0; b < 4; ++b) EXPECT_EQ(packed.qh[r][b], r == 3 && b == 1 ? 1 << 5 : 0);
}

TEST(PackedLayout, OthersHaveNone) {
  for (const DType type : {DType::f32, DType::f16, DType::iq4_xs, DType::q2_k}) EXPECT_FALSE(has_packed(type));
  EXPECT_TRUE(has_packed(DType::q4_k));
}

}  // namespace
}  // namespace lode::quant
