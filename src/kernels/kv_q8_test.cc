// The rotation and the rounding of q8_0 K and V: against their definition, and bit for bit between instruction sets.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/avx2/kv_q8.h"
#include "kernels/kernels.h"

namespace lode::kernels {
namespace {

bool has_avx2() {
  return available_tables().front()->name != "generic";
}

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(rng);
  return x;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

constexpr std::int64_t kDims[] = {1, 2, 6, 7, 12, 20, 24, 40, 64, 80, 96, 112, 128, 192, 256, 320, 512, 576};

TEST(Rotation, BlocksAreTheLargestPowersOfTwo) {
  EXPECT_EQ(rotation_block(64), 64);
  EXPECT_EQ(rotation_block(80), 16);
  EXPECT_EQ(rotation_block(96), 32);
  EXPECT_EQ(rotation_block(40), 8);
  EXPECT_EQ(rotation_block(7), 1);
  EXPECT_EQ(rotation_block(512), 256);
  for (std::int64_t n = 1; n <= 256; n *= 2) {
    EXPECT_EQ(rotation_scale(n), static_cast<float>(1 / std::sqrt(static_cast<double>(n)))) << n;
  }
}

// Each unit vector becomes a row of the matrix: signs by the parity of the common bits, all of one size.
TEST(Rotation, IsTheHadamardMatrix) {
  for (const std::int64_t dim : kDims) {
    const std::int64_t n = rotation_block(dim);
    const std::int64_t at = dim * 2 / 3, block = at / n * n;
    std::vector<float> x(static_cast<std::size_t>(dim));
    x[static_cast<std::size_t>(at)] = 1;
    generic::rotate(x.data(), dim);
    for (std::int64_t i = 0; i < dim; ++i) {
      const bool minus = __builtin_parityll(static_cast<unsigned long long>((i - block) & (at - block)));
      const float size = i >= block && i < block + n ? rotation_scale(n) : 0.0f;
      ASSERT_EQ(x[static_cast<std::size_t>(i)], minus ? -size : size) << "dim " << dim << ", " << i;
    }
  }
}

TEST(Rotation, IsItsOwnInverse) {
  for (const std::int64_t dim : kDims) {
    const std::vector<float> x = random_values(dim, 1);
    std::vector<float> y = x;
    generic::rotate(y.data(), dim);
    double before = 0, after = 0;
    for (std::size_t i = 0; i < x.size(); ++i) before += x[i] * x[i], after += y[i] * y[i];
    EXPECT_NEAR(after / before, 1, 1e-6) << "dim " << dim;
    generic::rotate(y.data(), dim);
    for (std::size_t i = 0; i < x.size(); ++i) {
      // 16 stages, each rounding values of the size of the block's norm over sqrt(n).
      ASSERT_NEAR(y[i], x[i], 16 * 0x1p-24 * 4) << "dim " << dim;
    }
  }
}

TEST(Rotation, InstructionSetsAgreeBitForBit) {
  if (!has_avx2()) GTEST_SKIP() << "needs AVX2";
  for (const std::int64_t dim : kDims) {
    std::vector<float> a = random_values(dim, 2), b = a;
    generic::rotate(a.data(), dim);
    avx2::rotate(b.data(), dim);
    EXPECT_TRUE(same_bits(a, b)) << "dim " << dim;
  }
}

struct Group {
  std::uint16_t scale;
  std::vector<std::int8_t> codes;
  bool operator==(const Group&) const = default;
};
// Both instruction sets; they must agree.
Group quantized(const std::vector<float>& x) {
  const auto count = static_cast<std::int64_t>(x.size());
  Group plain{0, std::vector<std::int8_t>(x.size(), 99)}, fast = plain;
  plain.scale = generic::quantize_kv_group(x.data(), count, plain.codes.data());
  if (has_avx2()) {
    fast.scale = avx2::quantize_kv_group(x.data(), count, fast.codes.data());
    EXPECT_EQ(plain, fast);
  }
  return plain;
}

TEST(KvGroup, ScaleAndCodes) {
  std::vector<float> x(32, 0.0f);
  EXPECT_EQ(quantized(x), (Group{0, std::vector<std::int8_t>(32, 0)}));
  x[3] = 127, x[4] = -127, x[5] = 0.5f, x[6] = 1.5f, x[7] = -2.5f;  // d = 1: ties go to the even code.
  const Group g = quantized(x);
  EXPECT_EQ(g.scale, 0x3C00);
  EXPECT_EQ(std::vector<std::int8_t>(g.codes.begin() + 3, g.codes.begin() + 8),
            (std::vector<std::int8_t>{127, -127, 0, 2, -2}));
  x[3] = std::nextafter(127.0f, 200.0f);  // The scale goes up, never down.
  EXPECT_EQ(quantized(x).scale, 0x3C01);
}

TEST(KvGroup, TinyHugeAndNotFinite) {
  const Group zeros{0, std::vector<std::int8_t>(32, 0)}, nan{0x7E00, std::vector<std::int8_t>(32, 0)};
  const auto with = [](float value) {
    std::vector<float> x(32, 0.0f);
    x[17] = value;
    return quantized(x);
  };
  EXPECT_EQ(with(1e-42f), zeros);
  EXPECT_EQ(with(std::nextafter(0x1p-25f, 0.0f)), zeros);
  EXPECT_EQ(with(0x1p-24f).scale, 1);
  EXPECT_EQ(with(0x1p-24f).codes[17], 1);
  EXPECT_EQ(with(-65504.0f * 127).scale, 0x7BFF);
  EXPECT_EQ(with(-65504.0f * 127).codes[17], -127);
  EXPECT_EQ(with(65505.0f * 127), nan);
  EXPECT_EQ(with(std::numeric_limits<float>::max()), nan);
  EXPECT_EQ(with(-std::numeric_limits<float>::infinity()), nan);
  EXPECT_EQ(with(std::numeric_limits<float>::quiet_NaN()), nan);
}

// Every size of value and group, of scales that are denormal halfs too: codes within 127 and half a scale away.
TEST(KvGroup, CodesAreNearestAndWithin127) {
  std::mt19937 rng(4);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int exponent = -26; exponent <= 22; ++exponent) {
    for (int i = 0; i < 200; ++i) {
      std::vector<float> x(i % 5 == 0 ? 1 + rng() % 31 : 32);
      for (float& value : x) value = std::ldexp(uniform(rng), exponent);
      if (i % 2 == 0) x[rng() % x.size()] = std::ldexp(1.0f, exponent);
      const Group g = quantized(x);
      const double d = quant::f16_to_f32(g.scale);
      for (std::size_t j = 0; j < x.size(); ++j) {
        ASSERT_LE(std::abs(g.codes[j]), 127);
        ASSERT_LE(std::abs(g.codes[j] * d - static_cast<double>(x[j])), d * (0.5 + 1e-4) + 0x1p-25) << x[j];
      }
    }
  }
}

}  // namespace
}  // namespace lode::kernels
