#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/avx2/quantize.h"
#include "kernels/cpu/generic/quantize.h"
#include "kernels/cpu/ops.h"
#include "quant/blocks.h"
#include "quant/packed.h"

namespace lode::kernels {
namespace {

using quant::DType;

constexpr DType kAll[] = {DType::f32,    DType::f16,   DType::bf16,   DType::q4_0,  DType::q4_1,    DType::q5_0,
                          DType::q5_1,   DType::q8_0,  DType::iq4_nl, DType::mxfp4, DType::nvfp4,   DType::q1_0,
                          DType::q2_0,   DType::q2_k,  DType::q3_k,   DType::q4_k,  DType::q5_k,    DType::q6_k,
                          DType::tq1_0,  DType::tq2_0, DType::iq4_xs, DType::iq3_s, DType::iq3_xxs, DType::iq2_xxs,
                          DType::iq2_xs, DType::iq2_s, DType::iq1_s,  DType::iq1_m};

const Table* fast_table() {
  const Table* best = available_tables().front();
  return best == &generic::kTable ? nullptr : best;
}

// `raw` and `raw_ones` leave the scales as the bytes fall: infinities and NaNs among them.
enum class Fill { random, ones, zeros, alternating, raw, raw_ones };

std::uint16_t half_scale(std::mt19937& rng, Fill fill) {
  // Extremes that are finite: the largest half, the smallest subnormal, both signs.
  static constexpr std::uint16_t kExtreme[] = {0x7bff, 0xfbff, 0x0001, 0x8001, 0x0000, 0x8000, 0x03ff, 0x3c00};
  if (fill != Fill::random) return kExtreme[rng() % 8];
  return quant::f32_to_f16(std::uniform_real_distribution<float>(-0.02f, 0.02f)(rng));
}

// Gives a block's scales (and minimums) the value of a binary16 number, or what comes near where they are not binary16.
void set_scales(DType type, std::byte* block, std::uint16_t half) {
  const auto put = [&](std::size_t at) { std::memcpy(block + at, &half, 2); };
  switch (type) {
    case DType::q2_k: return put(80), put(82);
    case DType::q3_k: return put(108);
    case DType::q6_k: return put(208);
    case DType::tq1_0: return put(52);
    case DType::tq2_0: return put(64);
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k: return put(0), put(2);
    case DType::iq1_m:
      for (int i = 0; i < 4; ++i) {
        auto& top = block[49 + 2 * i];
        top = (top & std::byte{15}) | static_cast<std::byte>(((half >> (4 * i)) & 15) << 4);
      }
      return;
    case DType::mxfp4:
      // The exponent of the number, but the ends of the byte for the ends of binary16.
      *block = static_cast<std::byte>((half & 0x7fff) == 0x7bff  ? 255
                                      : (half & 0x7fff) < 0x0400 ? half & 1
                                                                 : ((half >> 10) & 31) + 113);
      return;
    case DType::nvfp4: return;  // No byte is infinite.
    default: return put(0);
  }
}

struct Weights {
  Matrix matrix;
  std::vector<std::byte> bytes;
  Weights(DType type, std::int64_t rows, std::int64_t cols, std::uint32_t seed, Fill fill = Fill::random)
      : bytes(static_cast<std::size_t>(rows * quant::row_bytes(type, cols))) {
    std::mt19937 rng(seed);
    const quant::TypeInfo& info = quant::info(type);
    if (info.act == quant::ActFormat::f32) {
      std::normal_distribution<float> normal(0, 0.05f);
      for (std::size_t i = 0; i < bytes.size(); i += info.block_bytes) {
        const float f = fill == Fill::zeros ? 0.0f : fill == Fill::ones ? 1e4f : normal(rng);
        const std::uint16_t h = type == DType::f16 ? quant::f32_to_f16(f)
                                                   : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(f) >> 16);
        if (type == DType::f32) std::memcpy(&bytes[i], &f, 4);
        else std::memcpy(&bytes[i], &h, 2);
      }
    } else {
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool ones = fill == Fill::ones || fill == Fill::raw_ones;
        const unsigned v = fill == Fill::random || fill == Fill::raw ? rng()
                           : ones                                    ? 0xff
                           : fill == Fill::zeros                     ? 0
                           : i % 2                                   ? 0x80
                                                                     : 0x7f;
        bytes[i] = static_cast<std::byte>(v);
      }
      if (fill != Fill::raw && fill != Fill::raw_ones)
        for (std::size_t block = 0; block < bytes.size(); block += info.block_bytes)
          set_scales(type, &bytes[block], half_scale(rng, fill));
    }
    matrix = {.type = type, .data = bytes.data(), .rows = rows, .cols = cols};
  }
};

std::vector<float> activations(std::int64_t n, std::int64_t cols, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(static_cast<std::size_t>(n * cols));
  for (float& v : x) v = normal(rng);
  // Extremes inside the first rows: all groups at +-127, a zero group, subnormals, one huge value.
  for (std::int64_t i = 0; i < std::min<std::int64_t>(32, cols); ++i) x[i] = i % 3 == 0 ? -1.0f : 1.0f;
  if (n > 1)
    for (std::int64_t i = 0; i < cols; ++i) x[cols + i] = i < cols / 2 ? -2.0f : 0.0f;
  if (n > 2)
    for (std::int64_t i = 0; i < cols; ++i) x[2 * cols + i] = i % 2 ? 1e-40f : -3e-38f;
  if (n > 3) x[3 * cols + cols / 3] = 1e30f;
  return x;
}

// Owns what a Stream points at.
struct Bench {
  ThreadPool pool;
  std::size_t scratch = scratch_bytes_per_thread(4096, 64);
  std::vector<std::byte> room;
  Stream stream;
  Bench(const Table* table, int threads) : pool(threads), room(scratch * threads + 64) {
    stream = {.ops = table, .pool = &pool, .scratch = aligned(room.data()), .scratch_bytes_per_thread = scratch};
  }
  static std::byte* aligned(std::byte* p) {
    return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(p) + 63) / 64 * 64);
  }
};

constexpr float kUntouched = 12345.0f;

// Products of every matrix with x in one call, each into its own [n, rows + 3] buffer; the last 3 must stay untouched.
std::vector<std::vector<float>> multiply(Bench& bench, const std::vector<const Weights*>& weights, const float* x,
                                         std::int64_t n, std::int64_t cols) {
  std::vector<std::byte> room(acts_bytes(n, cols) + 64);
  Acts acts;
  acts_bind(acts, x, n, cols, Bench::aligned(room.data()));
  std::vector<std::vector<float>> y(weights.size());
  std::vector<MatmulJob> jobs;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::int64_t stride = weights[i]->matrix.rows + 3;
    y[i].assign(static_cast<std::size_t>(n * stride), kUntouched);
    jobs.push_back({&weights[i]->matrix, y[i].data(), stride});
  }
  bench.stream.ops->matmul(bench.stream, jobs, acts);
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (std::int64_t t = 0; t < n; ++t)
      for (int pad = 0; pad < 3; ++pad) EXPECT_EQ(y[i][(t + 1) * (weights[i]->matrix.rows + 3) - 1 - pad], kUntouched);
  return y;
}

std::vector<float> multiply(Bench& bench, const Weights& w, const std::vector<float>& x, std::int64_t n) {
  return multiply(bench, {&w}, x.data(), n, w.matrix.cols)[0];
}

::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes " << a.size() << " and " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

std::int64_t cols_for(DType type, std::int64_t groups) {
  switch (quant::info(type).act) {
    case quant::ActFormat::f32: return 16 * groups + 5;
    case quant::ActFormat::g32: return quant::info(type).block * groups;
    default: return 256 * groups;
  }
}

class Matmul : public ::testing::TestWithParam<DType> {};
class MatmulQuantized : public Matmul {};

// The reference stays within what rounding the activations allows: half a step (amax / 254) in every product, plus the
// f32 rounding of the accumulation.
TEST_P(Matmul, GenericIsCloseToDoubles) {
  const std::int64_t rows = 9, n = 8, cols = cols_for(GetParam(), 5);
  const Weights w(GetParam(), rows, cols, 1);
  std::mt19937 rng(2);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(n * cols);
  for (float& v : x) v = normal(rng);
  Bench bench(&generic::kTable, 1);
  const std::vector<float> y = multiply(bench, w, x, n);
  const quant::ActFormat act = quant::info(GetParam()).act;
  const std::int64_t group = act == quant::ActFormat::g256 ? 256 : 32;
  std::vector<float> values(cols);
  for (std::int64_t r = 0; r < rows; ++r) {
    quant::dequantize_row(GetParam(), w.bytes.data() + r * quant::row_bytes(GetParam(), cols), values.data(), cols);
    for (std::int64_t t = 0; t < n; ++t) {
      double exact = 0, size = 0, step = 0;
      for (std::int64_t k = 0; k < cols; ++k) {
        const double product = static_cast<double>(values[k]) * x[t * cols + k];
        exact += product;
        size += std::abs(product);
        double amax = 0;
        for (std::int64_t i = k / group * group; i < std::min(cols, k / group * group + group); ++i)
          amax = std::max(amax, std::abs(static_cast<double>(x[t * cols + i])));
        if (act != quant::ActFormat::f32) step += std::abs(values[k]) * amax / 254;
      }
      const double bound = step * 1.001 + size * 1e-5;
      EXPECT_NEAR(y[t * (rows + 3) + r], exact, bound) << "row " << r << " token " << t;
      EXPECT_GT(size, bound);
    }
  }
}

TEST_P(Matmul, TablesAgreeOnEveryShape) {
  if (fast_table() == nullptr) GTEST_SKIP() << "this processor runs the generic table only";
  Bench slow(&generic::kTable, 1), fast(fast_table(), 2);
  for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 64}) {
    const std::int64_t rows = n <= 8 ? 17 : 11, cols = cols_for(GetParam(), n % 3 + 1);
    const Weights w(GetParam(), rows, cols, static_cast<std::uint32_t>(n));
    const std::vector<float> x = activations(n, cols, static_cast<std::uint32_t>(n + 100));
    EXPECT_TRUE(same_bits(multiply(fast, w, x, n), multiply(slow, w, x, n))) << "n " << n;
  }
  for (std::int64_t rows = 1; rows <= 17; ++rows)
    for (const std::int64_t n : {1, 3, 6}) {
      const std::int64_t cols = cols_for(GetParam(), 1);
      const Weights w(GetParam(), rows, cols, static_cast<std::uint32_t>(rows));
      const std::vector<float> x = activations(n, cols, 7);
      EXPECT_TRUE(same_bits(multiply(fast, w, x, n), multiply(slow, w, x, n))) << "rows " << rows << " n " << n;
    }
}

// More columns than a panel holds (1024), and not a multiple of it.
TEST_P(Matmul, TablesAgreeOnLongRows) {
  if (fast_table() == nullptr) GTEST_SKIP() << "this processor runs the generic table only";
  Bench slow(&generic::kTable, 1), fast(fast_table(), 2);
  const std::int64_t cols = 2304, rows = 18;
  const Weights w(GetParam(), rows, cols, 5);
  for (const std::int64_t n : {2, 9}) {
    const std::vector<float> x = activations(n, cols, 6);
    EXPECT_TRUE(same_bits(multiply(fast, w, x, n), multiply(slow, w, x, n))) << "n " << n;
  }
}

// Every byte a file can hold: all codes at either end, -128, scales at the ends of binary16.
TEST_P(Matmul, TablesAgreeOnExtremeBlocks) {
  if (fast_table() == nullptr) GTEST_SKIP() << "this processor runs the generic table only";
  Bench slow(&generic::kTable, 1), fast(fast_table(), 1);
  for (const Fill fill : {Fill::ones, Fill::zeros, Fill::alternating})
    for (const std::int64_t n : {1, 4, 7}) {
      const std::int64_t cols = cols_for(GetParam(), 2);
      const Weights w(GetParam(), 17, cols, 3, fill);
      std::vector<float> x(static_cast<std::size_t>(n * cols));
      // Rows of all +127, all -127, and mixtures.
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t row = i / cols;
        x[i] = row == 0 ? 1.0f : row == 1 ? -1.0f : (i * 2654435761u >> (7 + row)) % 2 ? 1.0f : -1.0f;
      }
      EXPECT_TRUE(same_bits(multiply(fast, w, x, n), multiply(slow, w, x, n)))
          << "fill " << static_cast<int>(fill) << " n " << n;
    }
}

// A stranger's file: any bytes at all, scales that are infinite or no numbers among them.
TEST_P(Matmul, TablesAgreeOnAnyBytes) {
  if (fast_table() == nullptr) GTEST_SKIP() << "this processor runs the generic table only";
  Bench slow(&generic::kTable, 1), fast(fast_table(), 1);
  for (const Fill fill : {Fill::raw, Fill::raw_ones})
    for (const std::int64_t n : {1, 2, 3, 4, 5, 31, 33}) {
      const std::int64_t cols = cols_for(GetParam(), n % 3 + 1);
      const Weights w(GetParam(), 37, cols, static_cast<std::uint32_t>(40 + n), fill);
      const std::vector<float> x = activations(n, cols, static_cast<std::uint32_t>(50 + n));
      EXPECT_TRUE(same_bits(multiply(fast, w, x, n), multiply(slow, w, x, n)))
          << "fill " << static_cast<int>(fill) << " n " << n;
    }
}

// The same rows, packed.
Weights packed(const Weights& w) {
  Weights out = w;
  const Matrix& m = w.matrix;
  const std::int64_t bytes = quant::kPackedRows * quant::row_bytes(m.type, m.cols);
  for (std::int64_t at = 0; at < static_cast<std::int64_t>(w.bytes.size()); at += bytes)
    quant::pack_rows(m.type, w.bytes.data() + at, m.cols, out.bytes.data() + at);
  out.matrix.data = out.bytes.data();
  out.matrix.layout = Layout::packed;
  return out;
}

// Every table that packs a type gives the bits of the generic table's rows: all shapes, lengths and bytes.
TEST_P(Matmul, PackedRowsChangeNothing) {
  if (!quant::has_packed(GetParam())) GTEST_SKIP() << "a type that is never packed";
  Bench slow(&generic::kTable, 1);
  int tables = 0;
  for (const Table* table : available_tables()) {
    if (table->packs == nullptr || !table->packs(GetParam())) continue;
    ++tables;
    Bench fast(table, 2);
    for (const Fill fill : {Fill::random, Fill::ones, Fill::alternating, Fill::raw, Fill::raw_ones})
      for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 33})
        for (const std::int64_t rows : {8, 16, 40}) {
          const std::int64_t cols = n == 7 ? 2304 : cols_for(GetParam(), n % 3 + 1);
          const Weights w(GetParam(), rows, cols, static_cast<std::uint32_t>(60 + n), fill);
          const std::vector<float> x = activations(n, cols, static_cast<std::uint32_t>(70 + n));
          EXPECT_TRUE(same_bits(multiply(fast, packed(w), x, n), multiply(slow, w, x, n)))
              << table->name << " fill " << static_cast<int>(fill) << " n " << n << " rows " << rows;
        }
  }
  if (tables == 0) GTEST_SKIP() << "no table of this processor packs it";
}

// Codes and activations at their ends in every combination of bytes must not saturate: scale 1, random ends.
TEST_P(MatmulQuantized, NothingSaturates) {
  const std::int64_t cols = cols_for(GetParam(), 1), rows = 32, n = 9;
  Weights w(GetParam(), rows, cols, 4);
  const std::int64_t block_bytes = quant::info(GetParam()).block_bytes;
  std::mt19937 rng(9);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < block_bytes; ++i) {
      static constexpr unsigned kEnds[] = {0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0};
      const unsigned v = r < 6 ? kEnds[r] : kEnds[rng() % 6];
      w.bytes[r * block_bytes + i] = static_cast<std::byte>(v);
    }
    set_scales(GetParam(), &w.bytes[r * block_bytes], 0x3c00);
  }
  std::vector<float> x(n * cols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i < 256 || rng() % 2 ? 127.0f : -127.0f;
  std::vector<float> values(cols);
  const auto check = [&](const Table* table, const Weights& in) {
    for (const std::int64_t tokens : {1, 2, 9}) {
      Bench bench(table, 1);
      const std::vector<float> y = multiply(bench, in, x, tokens);
      for (std::int64_t r = 0; r < rows; ++r) {
        quant::dequantize_row(GetParam(), w.bytes.data() + r * block_bytes, values.data(), cols);
        for (std::int64_t t = 0; t < tokens; ++t) {
          double exact = 0;
          for (std::int64_t k = 0; k < cols; ++k) exact += static_cast<double>(values[k]) * x[t * cols + k];
          EXPECT_NEAR(y[t * (rows + 3) + r], exact, std::abs(exact) * 1e-6 + 0.5) << table->name << " row " << r;
        }
      }
    }
  };
  for (const Table* table : available_tables()) {
    check(table, w);
    if (table->packs != nullptr && table->packs(GetParam())) check(table, packed(w));
  }
}

TEST_P(Matmul, BatchingThreadsAndGroupingChangeNothing) {
  const std::int64_t n = 37, rows = 50, cols = cols_for(GetParam(), 3);
  const Weights w(GetParam(), rows, cols, 11), other(GetParam(), 7, cols, 12);
  const std::vector<float> x = activations(n, cols, 13);
  for (const Table* table : available_tables()) {
    Bench one(table, 1);
    const std::vector<float> whole = multiply(one, w, x, n);
    for (const int threads : {2, 3}) {
      Bench many(table, threads);
      EXPECT_TRUE(same_bits(multiply(many, w, x, n), whole)) << table->name << " threads " << threads;
      const auto grouped = multiply(many, {&other, &w, &other}, x.data(), n, cols);
      EXPECT_TRUE(same_bits(grouped[1], whole));
      EXPECT_TRUE(same_bits(grouped[0], grouped[2]));
    }
    for (const std::int64_t chunk : {1, 2, 5, 16}) {
      std::vector<float> parts;
      for (std::int64_t t = 0; t < n; t += chunk) {
        const std::int64_t m = std::min(chunk, n - t);
        const std::vector<float> y = multiply(one, {&w}, x.data() + t * cols, m, cols)[0];
        parts.insert(parts.end(), y.begin(), y.end());
      }
      EXPECT_TRUE(same_bits(parts, whole)) << table->name << " chunk " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Matmul, ::testing::ValuesIn(kAll),
                         [](const auto& p) { return std::string(quant::info(p.param).name); });

INSTANTIATE_TEST_SUITE_P(Formats, MatmulQuantized, ::testing::ValuesIn(kAll + 3, std::end(kAll)),
                         [](const auto& p) { return std::string(quant::info(p.param).name); });

// Jobs of different activation formats share one call.
TEST(MatmulMixed, FormatsShareACall) {
  const std::int64_t n = 6, cols = 512;
  const Weights a(DType::q5_0, 33, cols, 1), b(DType::q4_k, 20, cols, 2), c(DType::f16, 5, cols, 3);
  const std::vector<float> x = activations(n, cols, 4);
  for (const Table* table : available_tables()) {
    Bench bench(table, 2);
    const auto y = multiply(bench, {&a, &b, &c}, x.data(), n, cols);
    EXPECT_TRUE(same_bits(y[0], multiply(bench, a, x, n)));
    EXPECT_TRUE(same_bits(y[1], multiply(bench, b, x, n)));
    EXPECT_TRUE(same_bits(y[2], multiply(bench, c, x, n)));
  }
}

struct QuantizedRow {
  std::vector<std::int8_t> q = std::vector<std::int8_t>(512), q2 = q;
  std::vector<float> d = std::vector<float>(16), t = d, d2 = std::vector<float>(2);
  std::vector<std::int32_t> s = std::vector<std::int32_t>(16);
  std::vector<std::int16_t> p = std::vector<std::int16_t>(32), s2 = p, u2 = std::vector<std::int16_t>(16),
                            p2 = std::vector<std::int16_t>(64);
  RowG32 g32() { return {q.data(), d.data(), s.data(), p.data(), t.data()}; }
  RowG256 g256() { return {q2.data(), d2.data(), s2.data(), u2.data(), p2.data()}; }
};

TEST(Quantize, TablesAgreeAndSumsHold) {
  std::mt19937 rng(21);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> x(512);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float v = std::bit_cast<float>(static_cast<std::uint32_t>(rng()));
      x[i] = round % 3 == 0 ? std::ldexp(static_cast<float>(static_cast<int>(rng() % 509) - 254), -2)
             : round % 3 == 1 && std::abs(v) < 1e30f ? v
                                                     : static_cast<float>(i % 7) * 1e-38f;
    }
    if (round % 5 == 0) x[rng() % 512] = INFINITY;
    if (round % 7 == 0) x[rng() % 512] = NAN;
    QuantizedRow a, b;
    generic::quantize_row_g32(x.data(), 512, a.g32());
    generic::quantize_row_g256(x.data(), 512, a.g256());
    for (int g = 0; g < 16; ++g) {
      int sum = 0;
      for (int i = 0; i < 32; ++i) sum += a.q[32 * g + i];
      ASSERT_EQ(a.s[g], sum);
      ASSERT_EQ(a.p[2 * g] + a.p[2 * g + 1], sum);
      ASSERT_EQ(a.s2[2 * g] + a.s2[2 * g + 1], a.u2[g]);
    }
    if (fast_table() == nullptr) continue;
    avx2::quantize_row_g32(x.data(), 512, b.g32());
    avx2::quantize_row_g256(x.data(), 512, b.g256());
    ASSERT_EQ(a.q, b.q);
    ASSERT_EQ(a.q2, b.q2);
    ASSERT_EQ(a.s, b.s);
    ASSERT_EQ(a.p, b.p);
    ASSERT_EQ(a.s2, b.s2);
    ASSERT_EQ(a.u2, b.u2);
    ASSERT_EQ(a.p2, b.p2);
    ASSERT_TRUE(same_bits(a.d, b.d));
    ASSERT_TRUE(same_bits(a.t, b.t));
    ASSERT_TRUE(same_bits(a.d2, b.d2));
  }
}

TEST(Quantize, RoundsHalfToEvenAndKeepsTheLargest) {
  std::vector<float> x(512, 0.0f);
  x[0] = -127.0f;
  x[1] = 0.5f;
  x[2] = 1.5f;
  x[3] = -2.5f;
  x[4] = 126.6f;
  QuantizedRow row;
  generic::quantize_row_g32(x.data(), 512, row.g32());
  EXPECT_EQ(row.d[0], 1.0f);
  EXPECT_EQ(row.q[0], -127);
  EXPECT_EQ(row.q[1], 0);
  EXPECT_EQ(row.q[2], 2);
  EXPECT_EQ(row.q[3], -2);
  EXPECT_EQ(row.q[4], 127);
  EXPECT_EQ(row.d[1], 0.0f);
}

TEST(Embed, TakesPackedRows) {
  for (const DType type : {DType::q8_0, DType::q6_k, DType::q5_0}) {
    const Weights table(type, 40, 512, 33);
    const Weights other = packed(table);
    const TokenId ids[] = {39, 0, 7, 8};
    std::vector<float> want(4 * 512), out(want.size());
    Bench bench(&generic::kTable, 2);
    generic::kTable.embed(bench.stream, table.matrix, ids, 4, 3.0f, want.data());
    generic::kTable.embed(bench.stream, other.matrix, ids, 4, 3.0f, out.data());
    EXPECT_TRUE(same_bits(out, want)) << quant::info(type).name;
  }
}

TEST(Embed, GathersAndScalesRows) {
  const Weights table(DType::q8_0, 40, 64, 31);
  const TokenId ids[] = {39, 0, 7, 7};
  std::vector<float> want(64), out(4 * 64);
  for (const Table* t : available_tables()) {
    Bench bench(t, 2);
    t->embed(bench.stream, table.matrix, ids, 4, 25.298f, out.data());
    for (int i = 0; i < 4; ++i) {
      quant::dequantize_row(DType::q8_0, table.bytes.data() + ids[i] * 68, want.data(), 64);
      for (int k = 0; k < 64; ++k) ASSERT_EQ(out[64 * i + k], want[k] * 25.298f);
    }
  }
}

TEST(Tables, SelectByName) {
  EXPECT_EQ(available_tables().back(), &generic::kTable);
  EXPECT_EQ(*select_table(""), available_tables().front());
  EXPECT_EQ(*select_table("generic"), &generic::kTable);
  const auto unknown = select_table("avx9000");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("generic"), std::string::npos);
  for (const Table* t : available_tables()) EXPECT_EQ(t->numerics_id, generic::kTable.numerics_id);
}

}  // namespace
}  // namespace lode::kernels
