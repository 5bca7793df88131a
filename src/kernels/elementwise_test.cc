// Own exp, tanh, sin, cos within their error bounds, and norms, rope, activations, softcap: against double, and bit
// for bit between instruction sets and thread counts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/generic/math.h"
#include "kernels/cpu/ops.h"
#include "kernels/kernels.h"

namespace lode::kernels {
namespace {

using generic::Lane;
constexpr float kInf = std::numeric_limits<float>::infinity();

bool has_avx2() {
  return available_tables().front()->name != "generic";
}

double ulps(float got, double truth) {
  const float near = static_cast<float>(truth);
  int exponent;
  std::frexp(near, &exponent);
  return std::abs(static_cast<double>(got) - truth) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// The worst error of fn over `count` floats evenly spaced in [low, high].
template <typename Fn, typename Truth>
double worst(float low, float high, int count, Fn fn, Truth truth) {
  double worst = 0;
  for (int i = 0; i <= count; ++i) {
    const float x = low + (high - low) * static_cast<float>(i) / static_cast<float>(count);
    worst = std::max(worst, ulps(fn(x), truth(static_cast<double>(x))));
  }
  return worst;
}

TEST(Math, ExpIsWithinItsBound) {
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LT(worst(-80.0f, 0.0f, 1000000, exp_nonpositive<Lane>, exact), 1.0);
  EXPECT_LT(worst(-80.0f, 88.7f, 1000000, exp<Lane>, exact), 1.0);
  EXPECT_LT(worst(-1e-3f, 1e-3f, 100000, exp<Lane>, exact), 1.0);
  EXPECT_EQ(exp<Lane>(0.0f), 1.0f);
  EXPECT_EQ(exp_nonpositive<Lane>(-0.0f), 1.0f);
  for (const float x : {-80.0001f, -100.0f, -1e30f, -kInf}) {
    EXPECT_EQ(exp<Lane>(x), 0.0f);
    EXPECT_EQ(exp_nonpositive<Lane>(x), 0.0f);
  }
  EXPECT_GT(exp_nonpositive<Lane>(-80.0f), 0.0f);
  for (const float x : {88.73f, 89.0f, 100.0f, 1e30f, kInf}) EXPECT_EQ(exp<Lane>(x), kInf);
  EXPECT_TRUE(std::isnan(exp<Lane>(NAN)));
  EXPECT_TRUE(std::isnan(exp_nonpositive<Lane>(NAN)));
}

TEST(Math, TanhIsWithinItsBound) {
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LT(worst(-10.0f, 10.0f, 1000000, tanh<Lane>, exact), 1.5);
  EXPECT_LT(worst(-0.7f, 0.7f, 1000000, tanh<Lane>, exact), 1.5);
  EXPECT_LT(worst(-1e-6f, 1e-6f, 10000, tanh<Lane>, exact), 1.0);
  EXPECT_EQ(tanh<Lane>(kInf), 1.0f);
  EXPECT_EQ(tanh<Lane>(-kInf), -1.0f);
  EXPECT_EQ(tanh<Lane>(1e-40f), 1e-40f);
  EXPECT_TRUE(std::isnan(tanh<Lane>(NAN)));
}

TEST(Math, ActivationsAreWithinTheirBounds) {
  const auto silu_exact = [](double x) { return x / (1 + std::exp(-x)); };
  const auto gelu_exact = [](double x) {
    return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  };
  EXPECT_LT(worst(-70.0f, 70.0f, 1000000, silu<Lane>, silu_exact), 3.0);
  // exp's argument carries a few roundings, each worth |argument| units of the result.
  EXPECT_LT(worst(-4.0f, 20.0f, 1000000, gelu_tanh<Lane>, gelu_exact), 50.0);
  EXPECT_LT(worst(-0.5f, 20.0f, 1000000, gelu_tanh<Lane>, gelu_exact), 4.0);
  EXPECT_EQ(gelu_tanh<Lane>(-1e30f), -0.0f);  // x^3 overflows on the way.
  EXPECT_EQ(silu<Lane>(100.0f), 100.0f);
  EXPECT_EQ(gelu_tanh<Lane>(100.0f), 100.0f);
  EXPECT_EQ(gelu_tanh<Lane>(-100.0f), -0.0f);
}

TEST(Math, SinCosAreExactToDouble) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> small(0, 10), large(0, 0x1p30);
  for (int i = 0; i < 200000; ++i) {
    for (const double x : {small(rng), large(rng), static_cast<double>(i) * (M_PI / 4)}) {
      const SinCos sc = sin_cos<generic::DoubleLane>(x);
      ASSERT_NEAR(sc.sin, std::sin(x), 1e-15) << x;
      ASSERT_NEAR(sc.cos, std::cos(x), 1e-15) << x;
    }
  }
}

// Random, denormal, huge and special values.
std::vector<float> awkward(std::size_t count, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> x(count);
  const float special[] = {0.0f, -0.0f, 1e-40f, -1e-42f, 1e30f, -1e30f, 80.0f, -80.0f, 88.7f, -88.9f, 0.625f, 3e38f};
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = rng() % 4 == 0 ? special[rng() % std::size(special)] : normal(rng);
  }
  return x;
}

// Runs fn(table namespace index, stream) for generic and AVX2 on 1 and 3 threads and expects the same bits of all.
template <typename Fn>
void expect_same(Fn fn) {
  std::vector<float> expected;
  for (const int threads : {1, 3}) {
    for (const int isa : {0, 1}) {
      if (isa == 1 && !has_avx2()) continue;
      ThreadPool pool(threads);
      Stream stream;
      stream.pool = &pool;
      const std::vector<float> got = fn(isa, stream);
      if (expected.empty()) expected = got;
      ASSERT_EQ(expected.size(), got.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(expected[i]) && std::isnan(got[i])) continue;
        ASSERT_EQ(std::memcmp(&expected[i], &got[i], 4), 0)
            << "value " << i << ": " << expected[i] << ", " << got[i] << "; isa " << isa << ", threads " << threads;
      }
    }
  }
}

constexpr std::int64_t kCounts[] = {1, 7, 8, 15, 16, 17, 100, 1031, 50003};

TEST(Elementwise, InstructionSetsAgreeBitForBit) {
  for (const std::int64_t count : kCounts) {
    const std::vector<float> x = awkward(static_cast<std::size_t>(count), 1), y = awkward(x.size(), 2);
    expect_same([&](int isa, Stream& s) {
      std::vector<float> out = y;
      (isa == 0 ? generic::add : avx2::add)(s, out.data(), x.data(), count);
      return out;
    });
    expect_same([&](int isa, Stream& s) {
      std::vector<float> out = x;
      (isa == 0 ? generic::softcap : avx2::softcap)(s, out.data(), 30.0f, count);
      return out;
    });
    for (const Activation act : {Activation::silu, Activation::gelu_tanh, Activation::sigmoid}) {
      expect_same([&](int isa, Stream& s) {
        std::vector<float> out(x.size());
        (isa == 0 ? generic::glu : avx2::glu)(s, act, x.data(), y.data(), out.data(), count);
        return out;
      });
    }
  }
}

TEST(Elementwise, BiasAndGather) {
  const std::int64_t n = 700, width = 37;
  const std::vector<float> x = awkward(n * width, 3), bias = awkward(width, 4);
  const std::vector<std::int32_t> rows = {699, 0, 5, 5, 123};
  expect_same([&](int isa, Stream& s) {
    std::vector<float> out = x;
    (isa == 0 ? generic::add_bias : avx2::add_bias)(s, out.data(), bias.data(), n, width);
    EXPECT_EQ(out[500 * 37 + 3], x[500 * 37 + 3] + bias[3]);
    return out;
  });
  expect_same([&](int isa, Stream& s) {
    std::vector<float> out(rows.size() * width);
    (isa == 0 ? generic::gather_rows : avx2::gather_rows)(s, x.data(), rows.data(), 5, width, out.data());
    for (std::size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(std::memcmp(&out[r * width], &x[static_cast<std::size_t>(rows[r]) * width], width * 4), 0);
    }
    return out;
  });
}

TEST(RmsNorm, AgreesWithDoubleAndBitForBit) {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal(0, 3);
  for (const std::int64_t width : {1, 5, 8, 9, 16, 31, 64, 640, 2048, 2051}) {
    for (const std::int64_t rows : {1, 3, 70}) {
      std::vector<float> x(static_cast<std::size_t>(rows * width)), weight(static_cast<std::size_t>(width));
      for (float& v : x) v = normal(rng);
      for (float& v : weight) v = normal(rng);
      for (const float* w : {static_cast<const float*>(weight.data()), static_cast<const float*>(nullptr)}) {
        expect_same([&](int isa, Stream& s) {
          std::vector<float> out = x;  // In place.
          (isa == 0 ? generic::rms_norm : avx2::rms_norm)(s, out.data(), w, 1e-6f, rows, width, out.data());
          for (std::int64_t r = 0; r < rows; ++r) {
            double sum = 0;
            for (std::int64_t i = 0; i < width; ++i) sum += std::pow(x[static_cast<std::size_t>(r * width + i)], 2.0);
            const double root = std::sqrt(sum / static_cast<double>(width) + 1e-6);
            for (std::int64_t i = 0; i < width; ++i) {
              const double truth = x[static_cast<std::size_t>(r * width + i)] / root * (w != nullptr ? w[i] : 1.0f);
              EXPECT_NEAR(out[static_cast<std::size_t>(r * width + i)], truth, std::abs(truth) * 2e-6);
            }
          }
          return out;
        });
      }
    }
  }
}

TEST(Rope, TableAgreesWithDoubleAndBitForBit) {
  const std::vector<std::int64_t> positions = {0, 1, 31, 4095, 131071, 1 << 20, (1 << 21) + 3};
  const std::int64_t n = static_cast<std::int64_t>(positions.size()), pairs = 33;
  std::vector<double> inv_freq;
  for (std::int64_t i = 0; i < pairs; ++i) inv_freq.push_back(std::pow(10000.0, -static_cast<double>(i) / 33));
  expect_same([&](int isa, Stream& s) {
    std::vector<float> out(static_cast<std::size_t>(n * pairs * 2));
    (isa == 0 ? generic::rope_table : avx2::rope_table)(s, positions.data(), n, inv_freq.data(), pairs, 1.25f,
                                                        out.data());
    for (std::int64_t r = 0; r < n; ++r) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle =
            static_cast<double>(positions[static_cast<std::size_t>(r)]) * inv_freq[static_cast<std::size_t>(i)];
        const std::size_t at = static_cast<std::size_t>((r * pairs + i) * 2);
        EXPECT_NEAR(out[at], 1.25 * std::cos(angle), 1e-7);
        EXPECT_NEAR(out[at + 1], 1.25 * std::sin(angle), 1e-7);
      }
    }
    return out;
  });
}

TEST(Rope, RotatesBothStylesAndLeavesTheRest) {
  const std::int64_t n = 40, heads = 3, dim = 80;
  for (const std::int64_t pairs : {4, 11, 32, 40}) {
    std::vector<std::int64_t> positions;
    for (std::int64_t i = 0; i < n; ++i) positions.push_back(i * 37);
    std::vector<double> inv_freq;
    for (std::int64_t i = 0; i < pairs; ++i) inv_freq.push_back(std::pow(10000.0, -static_cast<double>(i) / 40));
    ThreadPool pool(1);
    Stream plain;
    plain.pool = &pool;
    std::vector<float> table(static_cast<std::size_t>(n * pairs * 2));
    generic::rope_table(plain, positions.data(), n, inv_freq.data(), pairs, 1.0f, table.data());
    std::mt19937 rng(6);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> x(static_cast<std::size_t>(n * heads * dim));
    for (float& v : x) v = normal(rng);
    for (const RopeStyle style : {RopeStyle::normal, RopeStyle::neox}) {
      expect_same([&](int isa, Stream& s) {
        std::vector<float> out = x;
        (isa == 0 ? generic::rope : avx2::rope)(s, out.data(), n, heads, dim, pairs, style, table.data());
        for (std::int64_t row = 0; row < n * heads; ++row) {
          const float* in = x.data() + row * dim;
          const float* to = out.data() + row * dim;
          const double position = static_cast<double>(positions[static_cast<std::size_t>(row / heads)]);
          for (std::int64_t i = 0; i < pairs; ++i) {
            const std::int64_t a = style == RopeStyle::normal ? 2 * i : i,
                               b = style == RopeStyle::normal ? a + 1 : i + pairs;
            const double c = std::cos(position * inv_freq[static_cast<std::size_t>(i)]);
            const double sn = std::sin(position * inv_freq[static_cast<std::size_t>(i)]);
            EXPECT_NEAR(to[a], in[a] * c - in[b] * sn, 1e-6);
            EXPECT_NEAR(to[b], in[a] * sn + in[b] * c, 1e-6);
          }
          for (std::int64_t i = 2 * pairs; i < dim; ++i) EXPECT_EQ(to[i], in[i]);
        }
        return out;
      });
    }
  }
}

}  // namespace
}  // namespace lode::kernels
