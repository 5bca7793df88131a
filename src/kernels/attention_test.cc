// Attention and kv_write: against a naive reference in double, and bit for bit between instruction sets, chunkings,
// batches and thread counts.
#include "kernels/attention_test.h"

namespace lode::kernels {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): its other half.

float rounded(KvType type, float x) {
  return type == KvType::f32 ? x : quant::f16_to_f32(quant::f32_to_f16(x));
}

// x times the orthonormal Walsh-Hadamard matrix of docs/numerics.md, entry by entry.
std::vector<double> rotated(const std::vector<double>& x) {
  const auto dim = x.size();
  std::size_t n = 1;
  while (n < 256 && dim % (2 * n) == 0) n *= 2;
  std::vector<double> y(dim);
  for (std::size_t i = 0; i < dim; ++i) {
    for (std::size_t j = i / n * n; j < i / n * n + n; ++j) {
      y[i] += __builtin_parityll(i % n & j % n) ? -x[j] : x[j];
    }
    y[i] /= std::sqrt(static_cast<double>(n));
  }
  return y;
}

struct Stored {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;  // Of each value.
};
Stored stored_q8(const Sequence& s, Side side, std::int64_t t, std::int64_t head) {
  const KvLayer layer = layer_of(s.c);
  const std::int64_t dim = side == Side::k ? layer.k_dim : layer.v_dim, groups = (dim + 31) / 32, in_block = t % 32;
  const std::byte* base = s.blocks[static_cast<std::size_t>(t / 32)].data();
  base += side == Side::k ? layer.k_offset : layer.v_offset;
  const std::byte* scales = base + layer.kv_heads * dim * 32;
  Stored stored;
  for (std::int64_t d = 0; d < dim; ++d) {
    const std::int64_t value = side == Side::k ? (head * dim + d) * 32 + in_block : (head * 32 + in_block) * dim + d;
    const std::int64_t scale =
        side == Side::k ? (head * groups + d / 32) * 32 + in_block : (head * 32 + in_block) * groups + d / 32;
    std::uint16_t half;
    std::memcpy(&half, scales + 2 * scale, 2);
    stored.codes.push_back(static_cast<std::int8_t>(base[value]));
    stored.scales.push_back(quant::f16_to_f32(half));
  }
  return stored;
}

// What attention multiplies: values rounded to their type, of q8_0 as they lie in the blocks, rotated.
std::vector<double> stored(const Sequence& s, Side side, std::int64_t t, std::int64_t head) {
  const KvType type = side == Side::k ? s.c.k_type : s.c.v_type;
  std::vector<double> x = input(s, side, t, head);
  if (type == KvType::q8_0) {
    const Stored q8 = stored_q8(s, side, t, head);
    for (std::size_t d = 0; d < x.size(); ++d) x[d] = static_cast<double>(q8.codes[d]) * q8.scales[d];
  } else {
    for (double& value : x) value = rounded(type, static_cast<float>(value));
  }
  return x;
}

// Largest error against double, in units of the bound that follows from the norms.
double worst_error(const Sequence& s, const std::vector<float>& out) {
  const Case& c = s.c;
  double worst = 0;
  for (std::int64_t kv = 0; kv < c.kv_heads; ++kv) {
    std::vector<std::vector<double>> all_k, all_v;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      all_k.push_back(stored(s, Side::k, t, kv));
      all_v.push_back(stored(s, Side::v, t, kv));
    }
    for (std::int64_t p = 0; p < s.tokens; ++p) {
      const std::int64_t first = naive_first(c, p);
      const std::vector<std::vector<double>> k(all_k.begin() + first, all_k.begin() + p + 1),
          v(all_v.begin() + first, all_v.begin() + p + 1);
      double v_max = 0;
      for (const auto& row : v) {
        for (const double x : row) v_max = std::max(v_max, std::abs(x));
      }
      for (std::int64_t h = kv * (c.heads / c.kv_heads); h < (kv + 1) * (c.heads / c.kv_heads); ++h) {
        const std::vector<double> q = query(s, p, h);
        Naive wanted = naive(s, h, c.k_type == KvType::q8_0 ? rotated(q) : q, k, v);
        if (c.v_type == KvType::q8_0) wanted.out = rotated(wanted.out);
        for (std::int64_t d = 0; d < c.v_dim; ++d) {
          // Random rounding grows with the square root of the terms: of scores (k_dim), of sums (256 and the spans).
          const double unit = 0x1p-24 * v_max * (8 + 4 * wanted.norm + std::sqrt(static_cast<double>(p - first + 1)));
          const double got = out[static_cast<std::size_t>((p * c.heads + h) * c.v_dim + d)];
          const double error = std::abs(got - wanted.out[static_cast<std::size_t>(d)]) / unit;
          if (!(error <= worst)) worst = std::isnan(error) ? 1e30 : error;
        }
      }
    }
  }
  return worst;
}

TEST(Attention, AgreesWithDouble) {
  Runner plain(kGeneric, 1), fast(kAvx2, 1);
  const Case cases[] = {
      {},
      {.window = 32},
      {.chunk = 48},
      {.heads = 3, .softcap = 2.0f},
      {.heads = 3, .sinks = true},
      {.heads = 4, .kv_heads = 2, .k_dim = 80, .v_dim = 80, .window = 32, .sinks = true},
      {.heads = 2, .k_dim = 24, .v_dim = 20, .k_type = KvType::f32, .v_type = KvType::f32},
      {.heads = 2, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 2, .kv_heads = 2, .k_dim = 80, .v_dim = 40, .window = 40, .k_type = KvType::q8_0},
      {.k_dim = 96, .v_dim = 128, .softcap = 4, .sinks = true, .k_type = KvType::f32, .v_type = KvType::q8_0},
  };
  for (const Case& c : cases) {
    for (const std::int64_t tokens : {31, 32, 33, 64, 200}) {
      Sequence s(c, tokens, 7);
      EXPECT_LT(worst_error(s, plain.all(s, tokens)), 1.0) << "tokens " << tokens;
      if (!has_avx2()) continue;
      EXPECT_LT(worst_error(s, fast.all(s, tokens)), 1.0) << "tokens " << tokens;
    }
  }
}

TEST(Attention, AgreesWithDoubleOverSpans) {
  if (!has_avx2()) GTEST_SKIP() << "needs AVX2; the generic kernels are compared on shorter prompts";
  Runner fast(kAvx2, 2);
  for (const Case& c :
       {Case{.heads = 3}, Case{.heads = 2, .window = 300, .sinks = true}, Case{.heads = 1, .chunk = 400},
        Case{.heads = 2, .k_type = KvType::q8_0, .v_type = KvType::q8_0}}) {
    Sequence s(c, 600, 11);
    EXPECT_LT(worst_error(s, fast.all(s, 600)), 1.0);
  }
}

// generic = AVX2, for every shape, mask and storage type.
TEST(Attention, InstructionSetsAgreeBitForBit) {
  if (!has_avx2()) GTEST_SKIP() << "needs AVX2";
  Runner plain(kGeneric, 2), fast(kAvx2, 2);
  const Case cases[] = {
      {.heads = 9, .kv_heads = 3},
      {.heads = 4, .kv_heads = 1, .k_dim = 256, .v_dim = 256, .window = 32},
      {.heads = 2, .kv_heads = 2, .k_dim = 128, .v_dim = 128, .softcap = 3.0f},
      {.heads = 3, .kv_heads = 1, .k_dim = 80, .v_dim = 80, .sinks = true},
      {.heads = 8, .kv_heads = 1, .k_dim = 24, .v_dim = 20, .k_type = KvType::f32, .v_type = KvType::f32},
      {.heads = 7, .kv_heads = 1, .k_dim = 40, .v_dim = 72, .chunk = 60, .k_type = KvType::f32},
      {.heads = 2, .kv_heads = 1, .k_dim = 64, .v_dim = 32, .window = 7, .sinks = true, .v_type = KvType::f32},
      {.heads = 9, .kv_heads = 3, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 4, .k_dim = 256, .v_dim = 256, .window = 32, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 5, .k_dim = 128, .v_dim = 128, .softcap = 3.0f, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 3, .k_dim = 80, .v_dim = 80, .sinks = true, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 1, .k_dim = 96, .v_dim = 96, .chunk = 60, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 13, .k_dim = 40, .v_dim = 20, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 2, .k_dim = 33, .v_dim = 7, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 2, .k_dim = 576, .v_dim = 512, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
      {.heads = 2, .kv_heads = 2, .k_type = KvType::q8_0, .v_type = KvType::f16},
      {.heads = 6, .k_dim = 48, .v_dim = 112, .k_type = KvType::f32, .v_type = KvType::q8_0},
      {.heads = 9, .kv_heads = 3, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 4, .k_dim = 256, .v_dim = 256, .window = 32, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 5, .k_dim = 128, .v_dim = 128, .softcap = 3.0f, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 3, .k_dim = 80, .v_dim = 80, .sinks = true, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 13, .k_dim = 96, .v_dim = 96, .chunk = 60, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 2, .k_dim = 33, .v_dim = 7, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 2, .k_dim = 24, .v_dim = 48, .window = 7, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 2, .k_dim = 576, .v_dim = 512, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 2, .kv_heads = 2, .k_type = KvType::i16, .v_type = KvType::f16},
      {.heads = 3, .kv_heads = 3, .k_type = KvType::q8_0, .v_type = KvType::i16},
  };
  for (const Case& c : cases) {
    Sequence s(c, 130, 3);
    const std::vector<float> expected = plain.all(s, 130);
    EXPECT_TRUE(same_bits(expected, fast.all(s, 130))) << "dim " << c.k_dim;
    EXPECT_TRUE(same_bits(expected, fast.all(s, 1))) << "dim " << c.k_dim;
  }
  for (const KvType type : {KvType::f16, KvType::i16}) {
    Sequence spans({.heads = 3, .window = 270, .k_type = type, .v_type = type}, 560, 4);
    EXPECT_TRUE(same_bits(plain.all(spans, 560), fast.all(spans, 560)));
  }
}

// Prefill in any chunks, and decode, over several spans.
void expect_chunks_agree(Ops ops, const Case& c, std::int64_t tokens) {
  Runner one(ops, 1), three(ops, 3);
  Sequence s(c, tokens, 5);
  const std::vector<float> expected = one.all(s, tokens);
  for (const std::int64_t chunk : {1, 7, 31, 32, 64}) {
    EXPECT_TRUE(same_bits(expected, one.all(s, chunk))) << "chunk " << chunk;
  }
  for (const std::int64_t chunk : {9, 100}) {
    EXPECT_TRUE(same_bits(expected, three.all(s, chunk))) << "chunk " << chunk << ", three threads";
  }
}

TEST(Attention, ChunksAgreeBitForBit) {
  if (has_avx2()) {
    expect_chunks_agree(kAvx2, {.heads = 9, .kv_heads = 3}, 700);
    expect_chunks_agree(kAvx2, {.heads = 4, .kv_heads = 1, .k_dim = 256, .v_dim = 256, .window = 300}, 600);
    expect_chunks_agree(kAvx2, {.heads = 3, .kv_heads = 3, .k_dim = 80, .v_dim = 80, .softcap = 5, .sinks = true}, 540);
    expect_chunks_agree(kAvx2, {.heads = 4, .kv_heads = 2, .k_dim = 128, .v_dim = 120, .chunk = 100}, 530);
    expect_chunks_agree(kAvx2, {.heads = 9, .kv_heads = 3, .k_type = KvType::q8_0, .v_type = KvType::q8_0}, 600);
    expect_chunks_agree(
        kAvx2, {.heads = 3, .k_dim = 256, .v_dim = 80, .window = 300, .sinks = true, .k_type = KvType::q8_0}, 540);
    expect_chunks_agree(
        kAvx2, {.heads = 2, .k_dim = 96, .v_dim = 40, .chunk = 100, .k_type = KvType::f32, .v_type = KvType::q8_0},
        300);
    expect_chunks_agree(kAvx2, {.heads = 9, .kv_heads = 3, .k_type = KvType::i16, .v_type = KvType::i16}, 700);
    expect_chunks_agree(kAvx2,
                        {.heads = 3,
                         .k_dim = 256,
                         .v_dim = 80,
                         .window = 300,
                         .softcap = 5,
                         .sinks = true,
                         .k_type = KvType::i16,
                         .v_type = KvType::i16},
                        540);
    expect_chunks_agree(kAvx2, {.heads = 4, .chunk = 100, .k_type = KvType::f16, .v_type = KvType::i16}, 300);
  }
  expect_chunks_agree(kGeneric, {.heads = 2, .k_dim = 40, .v_dim = 24, .k_type = KvType::i16, .v_type = KvType::i16},
                      290);
  expect_chunks_agree(kGeneric, {.heads = 2, .k_dim = 40, .v_dim = 24, .k_type = KvType::q8_0, .v_type = KvType::q8_0},
                      290);
  expect_chunks_agree(kGeneric, {.heads = 3, .kv_heads = 1, .k_dim = 24, .v_dim = 24, .window = 40, .sinks = true},
                      290);
}

void expect_splits_agree(KvType k_type, KvType v_type) {
  Sequence s({.heads = 6, .kv_heads = 2, .k_type = k_type, .v_type = v_type}, 1100, 9);
  Runner one(kAvx2, 1);
  const std::vector<float> expected = one.all(s, 1100);
  for (const int threads : {2, 3}) {
    Runner many(kAvx2, threads);
    EXPECT_TRUE(same_bits(expected, many.all(s, 1100)));
    // The last tokens again, alone: split by span with room for it, whole tiles without.
    for (const std::size_t room : {many.room.size(), std::size_t{0}}) {
      many.room.resize(room);
      for (const std::int64_t count : {1, 2, 5}) {
        std::fill(s.out.end() - 5 * 6 * 64, s.out.end(), 0.0f);
        for (std::int64_t p = 1095; p < 1100; p += count) many.step({{&s, p, std::min<std::int64_t>(count, 1100 - p)}});
        EXPECT_TRUE(same_bits(expected, s.out)) << threads << " threads, room " << room << ", " << count << " a step";
      }
    }
  }
}

TEST(Attention, ThreadsAndSplitsAgreeBitForBit) {
  if (!has_avx2()) GTEST_SKIP() << "needs AVX2";
  expect_splits_agree(KvType::f16, KvType::f16);
  expect_splits_agree(KvType::q8_0, KvType::q8_0);
  expect_splits_agree(KvType::f16, KvType::q8_0);
  expect_splits_agree(KvType::i16, KvType::i16);
}

void expect_batches_agree(Ops ops, int threads, KvType type = KvType::f16) {
  Runner runner(ops, threads);
  const Case c{.heads = 3, .kv_heads = 1, .k_dim = 32, .v_dim = 48, .window = 290, .k_type = type, .v_type = type};
  Sequence a(c, 300, 21), b(c, 45, 22), d(c, 64, 23);
  const std::vector<float> alone_a = runner.all(a, 64), alone_b = runner.all(b, 64), alone_d = runner.all(d, 64);
  for (Sequence* s : {&a, &b, &d}) s->clear_blocks(), s->out.assign(s->out.size(), 0.0f);
  runner.step({{&a, 0, 280}, {&b, 0, 31}});
  runner.step({{&b, 31, 1}, {&a, 280, 3}, {&d, 0, 64}});
  runner.step({{&a, 283, 1}, {&b, 32, 1}});
  runner.step({{&b, 33, 12}, {&a, 284, 16}});
  EXPECT_TRUE(same_bits(alone_a, a.out));
  EXPECT_TRUE(same_bits(alone_b, b.out));
  EXPECT_TRUE(same_bits(alone_d, d.out));
}

TEST(Attention, BatchedEqualsAlone) {
  expect_batches_agree(kGeneric, 2);
  if (has_avx2()) {
    expect_batches_agree(kAvx2, 1);
    expect_batches_agree(kAvx2, 3);
    expect_batches_agree(kAvx2, 3, KvType::q8_0);
    expect_batches_agree(kAvx2, 3, KvType::i16);
  }
  expect_batches_agree(kGeneric, 2, KvType::q8_0);
  expect_batches_agree(kGeneric, 2, KvType::i16);
}

// A later token whose V overflowed to infinity must not reach the rows before it (0 * inf is NaN).
TEST(Attention, LaterInfinitiesStayAway) {
  for (const Ops& ops : {kGeneric, kAvx2}) {
    if (ops.attention == kAvx2.attention && !has_avx2()) continue;
    Runner runner(ops, 1);
    Sequence s({.heads = 1, .k_dim = 16, .v_dim = 16}, 40, 2);
    const std::vector<float> expected = runner.all(s, 40);
    for (int x = 0; x < 16; ++x) s.v[39 * 16 + static_cast<std::size_t>(x)] = 1e30f;
    const std::vector<float> got = runner.all(s, 40);
    EXPECT_TRUE(same_bits({expected.begin(), expected.begin() + 39 * 16}, {got.begin(), got.begin() + 39 * 16}));
    EXPECT_TRUE(std::isinf(got.back()));
  }
}

// Far lower scores weigh exactly nothing, whole spans of them too.
TEST(Attention, FarLowerScoresWeighNothing) {
  Sequence s({.heads = 1, .k_dim = 16, .v_dim = 16, .k_type = KvType::f32}, 520, 2);
  for (std::size_t i = 0; i < s.k.size(); ++i) s.k[i] = i / 16 == 300 ? 100.0f : -100.0f;
  std::fill(s.q.begin(), s.q.end(), 1.0f);
  for (const Ops& ops : {kGeneric, kAvx2}) {
    if (ops.attention == kAvx2.attention && !has_avx2()) continue;
    Runner runner(ops, 1);
    const std::vector<float> out = runner.all(s, 520);
    for (std::size_t x = 0; x < 16; ++x) EXPECT_EQ(out[519 * 16 + x], rounded(KvType::f16, s.v[300 * 16 + x]));
  }
}

TEST(KvWrite, RoundsToNearestEvenAndLaysOut) {
  for (const Ops& ops : {kGeneric, kAvx2}) {
    if (ops.attention == kAvx2.attention && !has_avx2()) continue;
    Runner runner(ops, 1);
    Sequence s({.heads = 2, .kv_heads = 2, .k_dim = 20, .v_dim = 12}, 75, 6);
    s.k[0] = 1.0f + 0x1p-11f;      // Halfway: to even, 1.
    s.k[1] = 1.0f + 3 * 0x1p-11f;  // Halfway: to even, 1 + 2^-9.
    s.v[0] = 0x1p-25f;             // Halfway to the smallest denormal: 0.
    s.v[1] = 1e-6f;                // A denormal half.
    s.v[2] = 65520.0f;             // Rounds to infinity.
    for (std::int64_t p = 0; p < 75; p += 30) runner.step({{&s, p, std::min<std::int64_t>(30, 75 - p)}});
    const KvLayer layer = layer_of(s.c);
    for (std::int64_t p = 0; p < 75; ++p) {
      const std::byte* block = s.blocks[static_cast<std::size_t>(p / 32)].data();
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 20; ++d) {
          std::uint16_t half;
          std::memcpy(&half, block + layer.k_offset + ((h * 20 + d) * 32 + p % 32) * 2, 2);
          ASSERT_EQ(half, quant::f32_to_f16(s.k[static_cast<std::size_t>((p * 2 + h) * 20 + d)])) << p << " " << d;
        }
        for (std::int64_t d = 0; d < 12; ++d) {
          std::uint16_t half;
          std::memcpy(&half, block + layer.v_offset + ((h * 32 + p % 32) * 12 + d) * 2, 2);
          ASSERT_EQ(half, quant::f32_to_f16(s.v[static_cast<std::size_t>((p * 2 + h) * 12 + d)])) << p << " " << d;
        }
      }
    }
    // Tokens 75..95 of the last block were never written.
    std::uint16_t untouched;
    std::memcpy(&untouched, s.blocks[2].data() + layer.k_offset + 11 * 2, 2);
    EXPECT_EQ(untouched, 0xFFFF);
  }
}

constexpr KvType kQ8 = KvType::q8_0;

// Every group: the least f16 scale that keeps codes within 127, and the nearest codes.
TEST(KvWriteQ8, StoresRotatedGroups) {
  for (const Ops& ops : {kGeneric, kAvx2}) {
    if (ops.attention == kAvx2.attention && !has_avx2()) continue;
    Runner runner(ops, 2);
    Sequence s({.heads = 2, .kv_heads = 2, .k_dim = 80, .v_dim = 40, .k_type = kQ8, .v_type = kQ8}, 75, 6);
    for (std::size_t i = 0; i < 80; ++i) s.k[160 + i] *= 1e-6f;  // Scales that are denormal halfs.
    for (std::int64_t p = 0; p < 75; p += 30) runner.step({{&s, p, std::min<std::int64_t>(30, 75 - p)}});
    for (std::int64_t t = 0; t < 75; ++t) {
      for (const Side side : {Side::k, Side::v}) {
        for (std::int64_t head = 0; head < 2; ++head) {
          const std::vector<double> x = rotated(input(s, side, t, head));
          const Stored got = stored_q8(s, side, t, head);
          for (std::size_t d = 0; d < x.size(); ++d) {
            double amax = 0;
            for (std::size_t i = d / 32 * 32; i < std::min(x.size(), d / 32 * 32 + 32); ++i) {
              amax = std::max(amax, std::abs(x[i]));
            }
            const double scale = got.scales[d];
            ASSERT_GE(scale, amax / 127 * (1 - 1e-6)) << t << " " << d;
            ASSERT_LE(scale, amax / 127 * (1 + 0x1p-10) + 0x1p-24) << t << " " << d;
            ASSERT_LE(std::abs(got.codes[d]), 127);
            ASSERT_NEAR(got.codes[d], x[d] / scale, 0.5 + 1e-3) << t << " " << d;
          }
        }
      }
    }
  }
}

// docs/kv-format.md, "Blocks".
TEST(KvWriteQ8, TheWorkedExampleOfTheDocumentation) {
  for (const Ops& ops : {kGeneric, kAvx2}) {
    if (ops.attention == kAvx2.attention && !has_avx2()) continue;
    Runner runner(ops, 1);
    std::vector<std::byte> block(8192);
    std::byte* const blocks[] = {block.data()};
    const KvRun run{.first_row = 0, .count = 1, .first_position = 5, .blocks = blocks};
    const KvLayer layer{.k_type = kQ8, .v_type = kQ8, .kv_heads = 2, .k_dim = 64, .v_dim = 40, .v_offset = 4352};
    std::vector<float> k(2 * 64), v(2 * 40);
    // Rows of the matrix, so that one code is 127 and all others of its head are 0: 127 * d, d = 1.
    for (std::size_t d = 0; d < 64; ++d) k[64 + d] = __builtin_parityll(d & 40) ? -127.0f / 8 : 127.0f / 8;
    v[40 + 39] = 1;  // Its block is 32 to 39: codes of 127 and -127. 7 and 7 have three bits in common: -127 at 39.
    ops.kv_write(runner.stream, {.k = k.data(), .v = v.data(), .layer = layer, .runs = {&run, 1}});
    std::uint16_t k_scale, v_scale;
    std::memcpy(&k_scale, block.data() + 4298, 2);
    std::memcpy(&v_scale, block.data() + 7062, 2);
    EXPECT_EQ(block[3333], std::byte{127});
    EXPECT_EQ(k_scale, 0x3C00);
    EXPECT_EQ(block[5871], std::byte{0x81});
    EXPECT_NEAR(quant::f16_to_f32(v_scale), 1 / std::sqrt(8.0) / 127, 1e-5);
    EXPECT_EQ(std::count(block.begin(), block.end(), std::byte{0}), 8192 - (1 + 1 + 8 + 2));
  }
}

// A block that is half written holds the tokens of others already: they keep every byte.
TEST(KvWriteQ8, LeavesOtherTokensAlone) {
  for (const Ops& ops : {kGeneric, kAvx2}) {
    if (ops.attention == kAvx2.attention && !has_avx2()) continue;
    Runner runner(ops, 1);
    Sequence s({.heads = 1, .k_dim = 40, .v_dim = 96, .k_type = kQ8, .v_type = kQ8}, 32, 6);
    runner.step({{&s, 0, 32}});
    const std::vector<std::byte> whole = s.blocks[0];
    for (const auto& [first, count] : {std::pair{5, 1}, {3, 8}, {7, 20}}) {
      s.clear_blocks();
      runner.step({{&s, first, count}});
      // Either as in the whole block or untouched; the written tokens' bytes are the whole block's.
      std::size_t written = 0;
      for (std::size_t i = 0; i < whole.size(); ++i) {
        if (s.blocks[0][i] == std::byte{0xFF}) continue;
        ASSERT_EQ(s.blocks[0][i], whole[i]) << "byte " << i;
        ++written;
      }
      for (std::int64_t t = 0; t < 32; ++t) {
        if (t >= first && t < first + count) continue;
        for (const Side side : {Side::k, Side::v}) {
          for (const std::int8_t code : stored_q8(s, side, t, 0).codes) ASSERT_EQ(code, -1) << "token " << t;
          for (const float scale : stored_q8(s, side, t, 0).scales) ASSERT_TRUE(std::isnan(scale)) << "token " << t;
        }
      }
      EXPECT_LE(written, static_cast<std::size_t>(count * (40 + 2 * 2 + 96 + 3 * 2)));
      EXPECT_GE(written, static_cast<std::size_t>(count * (40 + 96) * 9 / 10));  // -1 is a code as well.
    }
  }
}

// Mean squared error of the last tokens' outputs against attention over unrounded K and V, and what the roundings lead
// to expect: to first order each code's error is uniform over one scale, and independent of all others.
struct MeanError {
  double found = 0, expected = 0;
};
MeanError mean_error(const Sequence& s, const std::vector<float>& out) {
  MeanError error;
  std::vector<std::vector<double>> k, v;
  double k_noise = 0, v_noise = 0;  // Mean variance of a stored value.
  for (std::int64_t t = 0; t < s.tokens; ++t) {
    k.push_back(input(s, Side::k, t, 0));
    v.push_back(input(s, Side::v, t, 0));
    for (const float d : stored_q8(s, Side::k, t, 0).scales) k_noise += d * d / 12.0 / s.c.k_dim;
    for (const float d : stored_q8(s, Side::v, t, 0).scales) v_noise += d * d / 12.0 / s.c.v_dim;
  }
  k_noise /= static_cast<double>(s.tokens), v_noise /= static_cast<double>(s.tokens);
  for (std::int64_t h = 0; h < s.c.heads; ++h) {
    const std::vector<double> q = query(s, s.tokens - 1, h);
    const Naive exact = naive(s, h, q, k, v);
    double q_norm = 0;
    for (const double x : q) q_norm += x * x;
    for (std::size_t d = 0; d < exact.out.size(); ++d) {
      const auto at = static_cast<std::size_t>((s.tokens - 1) * s.c.heads + h) * exact.out.size() + d;
      error.found += (out[at] - exact.out[d]) * (out[at] - exact.out[d]);
      for (std::size_t t = 0; t < v.size(); ++t) {
        const double w = exact.weights[t], from_mean = v[t][d] - exact.out[d];
        error.expected += w * w * (q_norm * k_noise * from_mean * from_mean + v_noise);
      }
    }
  }
  return error;
}

TEST(AttentionQ8, ErrorIsThatOfTheRounding) {
  for (const std::int32_t dim : {64, 80, 96, 128, 256}) {
    Runner runner(has_avx2() ? kAvx2 : kGeneric, 1);
    MeanError sum;
    for (unsigned seed = 0; seed < 8; ++seed) {
      Sequence s({.heads = 4, .k_dim = dim, .v_dim = dim, .k_type = kQ8, .v_type = kQ8}, 100, 40 + seed);
      const MeanError error = mean_error(s, runner.all(s, 100));
      sum.found += error.found, sum.expected += error.expected;
    }
    EXPECT_NEAR(sum.found / sum.expected, 1, 0.25) << "dim " << dim;
  }
}

// What the rotation is for: one channel of K and one of V far larger than the others, as many models have them.
TEST(AttentionQ8, RotationSavesTheOthersFromAnOutlier) {
  for (const std::int32_t dim : {64, 80, 128}) {
    Sequence s({.heads = 4, .k_dim = dim, .v_dim = dim, .k_type = kQ8, .v_type = kQ8}, 100, 3);
    const auto width = static_cast<std::size_t>(dim);
    for (std::size_t t = 0; t < 100; ++t) s.k[t * width + 5] += 100, s.v[t * width + 9] += 100;
    Runner runner(has_avx2() ? kAvx2 : kGeneric, 1);
    const std::vector<float> out = runner.all(s, 100);
    // The same rounding without the rotation, in double.
    std::vector<std::vector<double>> k, v, plain_k, plain_v;
    const auto plain = [](std::vector<double> x) {
      for (std::size_t g = 0; g < x.size(); g += 32) {
        double amax = 0;
        const std::size_t end = std::min(x.size(), g + 32);
        for (std::size_t i = g; i < end; ++i) amax = std::max(amax, std::abs(x[i]));
        for (std::size_t i = g; i < end; ++i) x[i] = std::nearbyint(x[i] * 127 / amax) * amax / 127;
      }
      return x;
    };
    for (std::int64_t t = 0; t < 100; ++t) {
      k.push_back(input(s, Side::k, t, 0)), v.push_back(input(s, Side::v, t, 0));
      plain_k.push_back(plain(k.back())), plain_v.push_back(plain(v.back()));
    }
    double with = 0, without = 0;
    for (std::int64_t h = 0; h < 4; ++h) {
      const Naive exact = naive(s, h, query(s, 99, h), k, v);
      const Naive unrotated = naive(s, h, query(s, 99, h), plain_k, plain_v);
      for (std::size_t d = 0; d < width; ++d) {
        const double got = out[(99 * 4 + static_cast<std::size_t>(h)) * width + d];
        with += (got - exact.out[d]) * (got - exact.out[d]);
        without += (unrotated.out[d] - exact.out[d]) * (unrotated.out[d] - exact.out[d]);
      }
    }
    std::printf("dim %d: mean squared error with rotation %.3g, without %.3g\n", dim, with / 4 / dim,
                without / 4 / dim);
    EXPECT_LT(with, without / 4) << "dim " << dim;
  }
}

// A token whose K or V is not finite spoils the rows that see it and no others.
TEST(AttentionQ8, LaterInfinitiesStayAway) {
  for (const Ops& ops : {kGeneric, kAvx2}) {
    if (ops.attention == kAvx2.attention && !has_avx2()) continue;
    Runner runner(ops, 1);
    Sequence s({.heads = 1, .k_dim = 16, .v_dim = 16, .k_type = kQ8, .v_type = kQ8}, 40, 2);
    const std::vector<float> expected = runner.all(s, 40);
    s.k[39 * 16] = std::numeric_limits<float>::quiet_NaN(), s.v[39 * 16 + 3] = 1e30f;
    const std::vector<float> got = runner.all(s, 40);
    EXPECT_TRUE(same_bits({expected.begin(), expected.begin() + 39 * 16}, {got.begin(), got.begin() + 39 * 16}));
    EXPECT_TRUE(std::isnan(got.back()));
  }
}

}  // namespace
}  // namespace lode::kernels
