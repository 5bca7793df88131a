// K and V in i16: what lies in the blocks, sums at their bounds, and the error beside f16's. That instruction sets,
// chunks, batches and threads agree is in attention_test.cc and avx512/tables_test.cc.
#include "kernels/attention_test.h"
#include "kernels/cpu/generic/kv_i16.h"

namespace lode::kernels {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): its other half.

constexpr KvType kI16 = KvType::i16;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

// Every set of operations this machine has.
std::vector<Ops> all_ops() {
  std::vector<Ops> ops = {kGeneric};
  for (const Table* table : available_tables()) ops.push_back({table->kv_write, table->attention});
  return ops;
}

Case i16_case(std::int32_t heads, std::int32_t k_dim, std::int32_t v_dim) {
  return {.heads = heads, .k_dim = k_dim, .v_dim = v_dim, .k_type = kI16, .v_type = kI16};
}

struct Stored {
  std::vector<std::int16_t> codes;
  float scale;
};
Stored stored(Sequence& s, Side side, std::int64_t t, std::int64_t head) {
  const KvLayer layer = layer_of(s.c);
  std::byte* block = s.blocks[static_cast<std::size_t>(t / 32)].data();
  const I16Side from = side == Side::k ? i16_k(layer, block, head) : i16_v(layer, block, head);
  Stored got{{}, from.scales[t % 32]};
  for (std::int64_t d = 0; d < (side == Side::k ? layer.k_dim : layer.v_dim); ++d)
    got.codes.push_back(from.values[side == Side::k ? i16_k_at(d, t % 32) : i16_v_at(layer.v_dim, t % 32, d)]);
  return got;
}

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// Codes are the nearest to value / scale, norms of K stay under 2^15, the largest |v| is 32,767.
TEST(KvWriteI16, StoresNearestCodes) {
  for (const Ops& ops : all_ops()) {
    Runner runner(ops, 2);
    Sequence s({.heads = 2, .kv_heads = 2, .k_dim = 80, .v_dim = 48, .k_type = kI16, .v_type = kI16}, 75, 6);
    for (std::size_t i = 0; i < 80; ++i) s.k[160 + i] *= 1e-10f, s.k[320 + i] *= 1e17f;
    for (std::int64_t p = 0; p < 75; p += 25) runner.step({{&s, p, 25}});
    for (std::int64_t t = 0; t < 75; ++t) {
      for (const Side side : {Side::k, Side::v}) {
        for (std::int64_t head = 0; head < 2; ++head) {
          const std::vector<double> x = input(s, side, t, head);
          const Stored got = stored(s, side, t, head);
          double top = 0;
          for (const double value : x) top = std::max(top, std::abs(value));
          const double scale = side == Side::k ? norm_of(x) / 32736 : top / 32767;
          ASSERT_NEAR(got.scale / scale, 1, 1e-6) << t;
          std::vector<double> codes(got.codes.begin(), got.codes.end());
          double largest = 0;
          for (const double code : codes) largest = std::max(largest, std::abs(code));
          if (side == Side::k) {
            ASSERT_LT(norm_of(codes), 32768) << t;
          } else {
            ASSERT_EQ(largest, 32767) << t;
          }
          for (std::size_t d = 0; d < x.size(); ++d) ASSERT_NEAR(codes[d], x[d] / scale, 0.5 + 0.01) << t << " " << d;
        }
      }
    }
  }
}

// docs/kv-format.md, "Blocks".
TEST(KvWriteI16, TheWorkedExampleOfTheDocumentation) {
  for (const Ops& ops : all_ops()) {
    Runner runner(ops, 1);
    std::vector<std::byte> block(16384);
    std::byte* const blocks[] = {block.data()};
    const KvRun run{.first_row = 0, .count = 1, .first_position = 5, .blocks = blocks};
    const KvLayer layer{.k_type = kI16, .v_type = kI16, .kv_heads = 2, .k_dim = 64, .v_dim = 48, .v_offset = 8448};
    std::vector<float> k(2 * 64), v(2 * 48);
    k[64 + 41] = -2, v[48 + 39] = 3;
    ops.kv_write(runner.stream, {.k = k.data(), .v = v.data(), .layer = layer, .runs = {&run, 1}});
    std::int16_t k_code, v_code;
    float k_scale, v_scale;
    std::memcpy(&k_code, block.data() + 6678, 2);
    std::memcpy(&k_scale, block.data() + 8340, 4);
    std::memcpy(&v_code, block.data() + 12062, 2);
    std::memcpy(&v_scale, block.data() + 14740, 4);
    EXPECT_EQ(k_code, -32736);
    EXPECT_EQ(k_scale, 2.0f / 32736);
    EXPECT_EQ(v_code, 32767);
    EXPECT_EQ(v_scale, 3.0f / 32767);
  }
}

TEST(KvWriteI16, LeavesOtherTokensAlone) {
  for (const Ops& ops : all_ops()) {
    Runner runner(ops, 1);
    Sequence s(i16_case(1, 48, 96), 32, 6);
    runner.step({{&s, 0, 32}});
    std::vector<Stored> whole[2];
    for (std::int64_t t = 0; t < 32; ++t)
      whole[0].push_back(stored(s, Side::k, t, 0)), whole[1].push_back(stored(s, Side::v, t, 0));
    for (const auto& [first, count] : {std::pair{5, 1}, {3, 8}, {7, 20}, {6, 2}}) {
      s.clear_blocks();
      runner.step({{&s, first, count}});
      for (std::int64_t t = 0; t < 32; ++t) {
        const bool written = t >= first && t < first + count;
        for (const Side side : {Side::k, Side::v}) {
          const Stored got = stored(s, side, t, 0);
          const Stored& wanted = whole[side == Side::k ? 0 : 1][static_cast<std::size_t>(t)];
          if (written) {
            ASSERT_EQ(got.codes, wanted.codes) << t;
            ASSERT_EQ(got.scale, wanted.scale) << t;
          } else {
            ASSERT_EQ(got.codes, std::vector<std::int16_t>(wanted.codes.size(), -1)) << t;
            ASSERT_TRUE(std::isnan(got.scale)) << t;
          }
        }
      }
    }
  }
}

TEST(KvWriteI16, TinyHugeAndNotFinite) {
  for (const Ops& ops : all_ops()) {
    for (const float value : {0.0f, 0x1p-51f, kNaN, -kInfinity, 1e30f}) {
      Runner runner(ops, 1);
      Sequence s(i16_case(1, 32, 32), 9, 6);
      for (std::size_t i = 0; i < 9; ++i) {  // All tokens, so that whole vectors and single ones are passed.
        std::fill_n(s.k.begin() + static_cast<std::ptrdiff_t>(i * 32), 32, 0.0f);
        std::fill_n(s.v.begin() + static_cast<std::ptrdiff_t>(i * 32), 32, 0.0f);
        s.k[i * 32 + 3] = s.v[i * 32 + 3] = value;
      }
      runner.step({{&s, 0, 9}});
      for (std::int64_t t = 0; t < 9; ++t) {
        const Stored k = stored(s, Side::k, t, 0), v = stored(s, Side::v, t, 0);
        EXPECT_EQ(k.codes, std::vector<std::int16_t>(32, 0));  // The square of 1e30 is infinite.
        if (std::abs(value) < 1) {
          EXPECT_EQ(k.scale, 0);
          EXPECT_EQ(v.scale, 0);
        } else {
          EXPECT_TRUE(std::isnan(k.scale)) << value;
          EXPECT_EQ(std::isnan(v.scale), value != 1e30f) << value;
        }
        EXPECT_EQ(v.codes[3], value == 1e30f ? 32767 : 0) << value;
      }
    }
  }
}

// Every product and every sum at its bound: had a kernel fewer bits, summed two blocks before it converts, or
// saturated on the way, outputs would be far off.
TEST(AttentionI16, SumsAtTheirBoundsAreExact) {
  for (const Ops& ops : all_ops()) {
    for (const std::int32_t dim : {16, 64, 80, 256}) {
      for (const float sign : {1.0f, -1.0f}) {
        for (const bool one : {true, false}) {  // All of a head in one element, or all elements equal.
          Runner runner(ops, 1);
          Sequence s(i16_case(3, dim, dim), 300, 6);
          for (std::size_t i = 0; i < s.q.size(); ++i) {
            const bool zero = one && i % static_cast<std::size_t>(dim) != 5;
            s.q[i] = zero ? 0.0f : 8.0f;
          }
          for (std::size_t i = 0; i < s.k.size(); ++i) {
            const bool zero = one && i % static_cast<std::size_t>(dim) != 5;
            s.k[i] = zero ? 0.0f : sign * 8.0f;
            s.v[i] = sign * 3;
          }
          const std::vector<float> out = runner.all(s, 300);
          for (const float x : out) ASSERT_NEAR(x, sign * 3, 3e-5) << dim;
        }
      }
    }
  }
}

// A token that takes all of a block's weight, one of all tokens with equal weight, and one whose V weighs nothing.
TEST(AttentionI16, WeightsAtTheirBounds) {
  for (const Ops& ops : all_ops()) {
    Runner runner(ops, 1);
    Sequence s(i16_case(1, 16, 16), 64, 6);
    std::fill(s.q.begin(), s.q.end(), 8.0f);
    for (std::size_t t = 0; t < 64; ++t)
      std::fill_n(s.k.begin() + static_cast<std::ptrdiff_t>(t * 16), 16, t == 40 ? 8.0f : -8.0f);
    std::vector<float> out = runner.all(s, 64);
    for (std::size_t x = 0; x < 16; ++x) EXPECT_NEAR(out[63 * 16 + x], s.v[40 * 16 + x], 2e-4);
    std::fill(s.k.begin(), s.k.end(), 0.0f);
    out = runner.all(s, 64);
    for (std::size_t x = 0; x < 16; ++x) {
      double mean = 0;
      for (std::size_t t = 0; t < 64; ++t) mean += static_cast<double>(s.v[t * 16 + x]) / 64;
      EXPECT_NEAR(out[63 * 16 + x], mean, 3e-4);
    }
    std::fill(s.v.begin(), s.v.end(), 0.0f);
    for (const float x : runner.all(s, 64)) EXPECT_EQ(x, 0.0f);
    std::fill(s.v.begin(), s.v.end(), 1e-30f);  // Below what is kept: 0, not NaN.
    for (const float x : runner.all(s, 64)) EXPECT_EQ(x, 0.0f);
  }
}

// A token whose K or V is not finite spoils the rows that see it and no others.
TEST(AttentionI16, LaterInfinitiesStayAway) {
  for (const Ops& ops : all_ops()) {
    for (const float bad : {kNaN, kInfinity}) {
      for (const Side side : {Side::k, Side::v}) {
        Runner runner(ops, 1);
        Sequence s(i16_case(1, 16, 16), 40, 2);
        const std::vector<float> expected = runner.all(s, 40);
        (side == Side::k ? s.k : s.v)[39 * 16 + 3] = bad;
        const std::vector<float> got = runner.all(s, 40);
        EXPECT_TRUE(same_bits({expected.begin(), expected.begin() + 39 * 16}, {got.begin(), got.begin() + 39 * 16}));
        for (std::size_t x = 0; x < 16; ++x) EXPECT_TRUE(std::isnan(got[39 * 16 + x]));
      }
    }
    Runner runner(ops, 1);  // A query that is not finite spoils itself.
    Sequence s(i16_case(2, 16, 16), 40, 2);
    const std::vector<float> expected = runner.all(s, 40);
    s.q[(20 * 2 + 1) * 16] = kNaN;
    const std::vector<float> got = runner.all(s, 40);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const bool spoiled = i / 16 == 20 * 2 + 1;
      EXPECT_EQ(std::isnan(got[i]), spoiled) << i;
      EXPECT_TRUE(spoiled || got[i] == expected[i]) << i;
    }
  }
}

// Mean squared error of the last token's outputs against attention over unrounded K and V.
double mean_error(Sequence& s, const std::vector<float>& out) {
  std::vector<std::vector<double>> k, v;
  for (std::int64_t t = 0; t < s.tokens; ++t)
    k.push_back(input(s, Side::k, t, 0)), v.push_back(input(s, Side::v, t, 0));
  double sum = 0;
  for (std::int64_t h = 0; h < s.c.heads; ++h) {
    const Naive exact = naive(s, h, query(s, s.tokens - 1, h), k, v);
    for (std::size_t d = 0; d < exact.out.size(); ++d) {
      const auto at = static_cast<std::size_t>((s.tokens - 1) * s.c.heads + h) * exact.out.size() + d;
      sum += (out[at] - exact.out[d]) * (out[at] - exact.out[d]) / static_cast<double>(exact.out.size()) / s.c.heads;
    }
  }
  return sum;
}

// The reason to choose it: in f16's bytes (and a scale) it is nearer to unrounded K and V.
TEST(AttentionI16, IsMoreAccurateThanF16) {
  for (const Case& c : {Case{.heads = 4}, Case{.heads = 4, .k_dim = 128, .v_dim = 128},
                        Case{.heads = 4, .k_dim = 256, .v_dim = 256}, Case{.heads = 4, .softcap = 4}}) {
    double error[2] = {};
    for (unsigned seed = 0; seed < 8; ++seed) {
      for (const KvType type : {KvType::f16, kI16}) {
        Case typed = c;
        typed.k_type = typed.v_type = type;
        Sequence s(typed, 300, seed);
        Runner runner(has_avx2() ? kAvx2 : kGeneric, 1);
        error[type == kI16 ? 1 : 0] += mean_error(s, runner.all(s, 300)) / 8;
      }
    }
    std::printf("dim %d: mean squared error of f16 %.3g, of i16 %.3g\n", c.k_dim, error[0], error[1]);
    EXPECT_LT(error[1], error[0]) << "dim " << c.k_dim;
  }
}

}  // namespace
}  // namespace lode::kernels
