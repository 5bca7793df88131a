// Every table of this binary against the generic one, bit for bit, with all buffers ending at pages that fault. One
// more table is always there: the AVX-512 kernels over the plain C++ of emulated.h, so that their own code is tested on
// processors without AVX-512. Tables that this processor can't run are skipped, and say so.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/attention_test.h"
#include "kernels/cpu/avx512/attention.h"
#include "kernels/cpu/avx512/elementwise.h"
#include "kernels/cpu/avx512/emulated.h"
#include "kernels/cpu/avx512/matmul.h"
#include "kernels/cpu/generic/quantize.h"
#include "kernels/cpu/ops.h"
#include "kernels/kernels.h"
#include "platform/virtual_range.h"
#include "quant/packed.h"

namespace lode::kernels {
namespace {

using avx512::Emulated;
using quant::DType;

const Table& emulated_table() {
  static const Table table = [] {
    Table t = generic::kTable;
    t.name = "emulated";
    t.packs = quant::has_packed;
    t.matmul = [](Stream& s, std::span<const MatmulJob> jobs, Acts& x) {
      avx512::matmul<Emulated>(s, jobs, x, {generic::matmul, {generic::quantize_row_g32, generic::quantize_row_g256}});
    };
    t.rms_norm = avx512::rms_norm<Emulated>;
    t.add = avx512::add<Emulated>;
    t.add_bias = avx512::add_bias<Emulated>;
    t.rope = avx512::rope<Emulated>;
    t.glu = [](Stream& s, Activation act, const float* gate, const float* up, float* out, std::int64_t count) {
      avx512::glu<Emulated>(s, act, gate, up, out, count, generic::glu);
    };
    t.attention = [](Stream& s, const AttentionArgs& args) {
      avx512::attention<Emulated>(s, args, generic::attention);
    };
    t.softcap = avx512::softcap<Emulated>;
    return t;
  }();
  return table;
}

// nullptr where this processor can't run the table of this name.
const Table* find_table(std::string_view name) {
  if (name == "emulated") return &emulated_table();
  for (const Table* table : available_tables())
    if (table->name == name) return table;
  return nullptr;
}

// `count` values of T that end where memory ends.
template <typename T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, T fill = {}) : count_(count) {
    const std::uint64_t page = platform::VirtualRange::page_bytes(), bytes = count * sizeof(T);
    const std::uint64_t committed = (bytes + page - 1) / page * page;
    auto range = platform::VirtualRange::reserve(committed + page);
    LODE_CHECK(range.ok() && (committed == 0 || range->commit(0, committed).ok()));
    range_ = std::move(*range);
    data_ = reinterpret_cast<T*>(range_.data() + committed - bytes);
    std::fill(data_, data_ + count, fill);
  }
  explicit Guarded(const std::vector<T>& from) : Guarded(from.size()) { std::copy(from.begin(), from.end(), data_); }
  T* data() const { return data_; }
  std::vector<T> copy() const { return {data_, data_ + count_}; }

 private:
  platform::VirtualRange range_;
  std::size_t count_;
  T* data_;
};

::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes " << a.size() << " and " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
  }
  return ::testing::AssertionSuccess();
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// A stream of a table whose scratch, `bytes` a thread, is full of NaN.
struct Bench {
  ThreadPool pool;
  Guarded<std::byte> scratch;
  Stream stream;
  Bench(const Table& table, int threads, std::size_t bytes)
      : pool(threads), scratch(static_cast<std::size_t>(threads) * bytes, std::byte{0xFF}) {
    stream = {.ops = &table, .pool = &pool, .scratch = scratch.data(), .scratch_bytes_per_thread = bytes};
  }
};

class Tables : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    table_ = find_table(GetParam());
    if (table_ == nullptr)
      GTEST_SKIP() << "this processor can't run " << GetParam()
                   << (std::string_view(GetParam()) == "avx512" ? "; its kernels' code is tested as 'emulated'" : "");
  }
  const Table* table_ = nullptr;
};

// ---- Products ----

std::vector<DType> computable() {
  std::vector<DType> types;
  for (std::uint32_t number = 0; number < 64; ++number)
    if (const quant::TypeInfo* type = quant::find_type(number); type != nullptr && type->computable)
      types.push_back(type->type);
  return types;
}

enum class Fill { normal, raw, ones, zeros, low_ends, high_ends };
constexpr Fill kEnds[] = {Fill::raw, Fill::ones, Fill::zeros, Fill::low_ends, Fill::high_ends};

// Offsets of the binary16 numbers in the blocks of formats that the AVX-512 table has code for; others stay raw.
std::vector<std::size_t> halves(DType type) {
  switch (type) {
    case DType::q4_0:
    case DType::q5_0:
    case DType::q8_0: return {0};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k: return {0, 2};
    case DType::q6_k: return {208};
    default: return {};
  }
}

std::vector<std::byte> weights(DType type, std::int64_t rows, std::int64_t cols, std::uint32_t seed, Fill fill) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows * quant::row_bytes(type, cols)));
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 0.05f);
  if (quant::info(type).act == quant::ActFormat::f32 && fill == Fill::normal) {
    const auto size = static_cast<std::size_t>(quant::info(type).block_bytes);
    for (std::size_t i = 0; i < bytes.size(); i += size) {
      const float f = normal(rng);
      const auto half =
          type == DType::f16 ? quant::f32_to_f16(f) : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(f) >> 16);
      std::memcpy(&bytes[i], size == 4 ? static_cast<const void*>(&f) : &half, size);
    }
    return bytes;
  }
  for (std::byte& b : bytes) {
    const auto random = static_cast<unsigned>(rng());
    b = static_cast<std::byte>(fill == Fill::ones        ? 0xFFu
                               : fill == Fill::zeros     ? 0u
                               : fill == Fill::low_ends  ? (random % 2 != 0 ? 0x80u : 0x00u)
                               : fill == Fill::high_ends ? (random % 2 != 0 ? 0x7Fu : 0xFFu)
                                                         : random);
  }
  if (fill == Fill::raw) return bytes;  // Scales as the bytes fall: infinities and NaN among them.
  const auto block = static_cast<std::size_t>(quant::info(type).block_bytes);
  for (std::size_t at = 0; at < bytes.size(); at += block)
    for (const std::size_t offset : halves(type)) {
      const std::uint16_t half = fill == Fill::normal ? quant::f32_to_f16(normal(rng)) : 0x3c00;
      std::memcpy(&bytes[at + offset], &half, 2);
    }
  return bytes;
}

// Tokens of normal values; with `ends`, all but one in three are of one magnitude, so that they become +-127.
std::vector<float> activations(std::int64_t n, std::int64_t cols, std::uint32_t seed, bool ends) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(static_cast<std::size_t>(n * cols));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(cols);
    x[i] = !ends || row % 3 == 2 ? normal(rng) : row % 3 == 0 || rng() % 2 != 0 ? 1.0f : -1.0f;
  }
  return x;
}

// Products of one call with every matrix; each y has rows columns and ends where memory ends.
std::vector<std::vector<float>> multiply(const Table& table, int threads, const std::vector<Matrix>& matrices,
                                         const std::vector<float>& x, std::int64_t n) {
  const std::int64_t cols = matrices[0].cols;
  Bench bench(table, threads, scratch_bytes_per_thread(cols, 64));
  const Guarded<float> tokens(x);
  const Guarded<std::byte> room(acts_bytes(n, cols), std::byte{0xFF});
  Acts acts;
  acts_bind(acts, tokens.data(), n, cols, room.data());
  std::vector<Guarded<float>> y;
  std::vector<MatmulJob> jobs;
  for (const Matrix& w : matrices) {
    y.emplace_back(static_cast<std::size_t>(n * w.rows), kNaN);
    jobs.push_back({&w, y.back().data(), w.rows});
  }
  table.matmul(bench.stream, jobs, acts);
  std::vector<std::vector<float>> out;
  for (const Guarded<float>& result : y) out.push_back(result.copy());
  return out;
}

struct Shape {
  std::int64_t rows, groups, n;
};

void expect_same_product(const Table& table, DType type, const Shape& shape, Fill fill) {
  const quant::TypeInfo& info = quant::info(type);
  const std::int64_t unit = info.act == quant::ActFormat::g256 ? 256 : info.act == quant::ActFormat::g32 ? 32 : 16;
  const std::int64_t cols =
      (unit > info.block ? unit : info.block) * shape.groups + (info.act == quant::ActFormat::f32 ? 5 : 0);
  const auto seed = static_cast<std::uint32_t>(shape.rows * 1000 + shape.n * 10 + shape.groups);
  const Guarded<std::byte> bytes(weights(type, shape.rows, cols, seed, fill));
  const std::vector<float> x = activations(shape.n, cols, seed + 1, fill != Fill::normal);
  const Matrix w{.type = type, .data = bytes.data(), .rows = shape.rows, .cols = cols};
  const std::vector<float> expected = multiply(generic::kTable, 1, {w}, x, shape.n)[0];
  EXPECT_TRUE(same_bits(multiply(table, 2, {w}, x, shape.n)[0], expected))
      << info.name << ": rows " << shape.rows << ", cols " << cols << ", tokens " << shape.n << ", fill "
      << static_cast<int>(fill);
}

TEST_P(Tables, ProductsAgreeBitForBit) {
  // Rows around 16 and 32, tokens around 4 and tiles of 6, columns within and beyond a panel.
  constexpr Shape kShapes[] = {{1, 1, 1},   {15, 2, 1},  {16, 3, 1},  {33, 1, 2},  {17, 3, 3},  {20, 2, 4},
                               {1, 1, 5},   {16, 3, 6},  {17, 2, 7},  {31, 1, 8},  {32, 2, 12}, {33, 3, 13},
                               {50, 3, 19}, {40, 18, 5}, {18, 33, 9}, {48, 19, 3}, {70, 5, 37}, {35, 3, 71}};
  for (const DType type : computable())
    for (const Shape& shape : kShapes) {
      const bool long_row = quant::info(type).act == quant::ActFormat::g256 && shape.groups > 5;
      if (!long_row) expect_same_product(*table_, type, shape, Fill::normal);
    }
}

TEST_P(Tables, ProductsOfExtremesAgreeBitForBit) {
  for (const DType type : computable())
    for (const Fill fill : kEnds)
      for (const std::int64_t n : {1, 3, 4, 9, 65}) expect_same_product(*table_, type, {34, 2, n}, fill);
}

// Packed rows, behind which memory ends: the emulated table has products of more than 4 tokens with them only.
TEST_P(Tables, ProductsOfPackedRowsAgreeBitForBit) {
  int types = 0;
  for (const DType type : computable()) {
    if (!quant::has_packed(type) || table_->packs == nullptr || !table_->packs(type)) continue;
    ++types;
    for (const Shape& s : {Shape{8, 2, 5}, {16, 3, 6}, {24, 1, 9}, {32, 3, 13}, {40, 18, 7}, {72, 2, 71}})
      for (const Fill fill : {Fill::normal, Fill::raw, Fill::low_ends, Fill::high_ends}) {
        const std::int64_t cols = quant::info(type).block * s.groups, bytes = quant::row_bytes(type, cols);
        const std::vector<std::byte> rows = weights(type, s.rows, cols, static_cast<std::uint32_t>(s.rows), fill);
        std::vector<std::byte> other(rows.size());
        for (std::int64_t r = 0; r < s.rows; r += quant::kPackedRows)
          quant::pack_rows(type, rows.data() + r * bytes, cols, other.data() + r * bytes);
        const Guarded<std::byte> packed(other);
        const std::vector<float> x = activations(s.n, cols, 7, fill != Fill::normal);
        const Matrix w{.type = type, .data = rows.data(), .rows = s.rows, .cols = cols};
        Matrix p = w;
        p.layout = Layout::packed;
        p.data = packed.data();
        EXPECT_TRUE(same_bits(multiply(*table_, 2, {p}, x, s.n)[0], multiply(generic::kTable, 1, {w}, x, s.n)[0]))
            << quant::info(type).name << ": rows " << s.rows << ", cols " << cols << ", tokens " << s.n << ", fill "
            << static_cast<int>(fill);
      }
  }
  EXPECT_EQ(types, 8);
}

// One call with jobs of all formats in turn, of which a table may pass some on to another one.
TEST_P(Tables, FormatsShareACall) {
  const std::int64_t cols = 512, n = 5;
  const std::vector<float> x = activations(n, cols, 3, false);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Matrix> matrices;
  for (const DType type : computable()) bytes.push_back(weights(type, 19, cols, 7, Fill::normal));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    matrices.push_back({.type = computable()[i], .data = bytes[i].data(), .rows = 19, .cols = cols});
  const auto expected = multiply(generic::kTable, 1, matrices, x, n), got = multiply(*table_, 3, matrices, x, n);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    EXPECT_TRUE(same_bits(got[i], expected[i])) << quant::info(matrices[i].type).name;
}

// ---- Attention ----

using Layer = test::Case;

std::int64_t side_bytes(KvType type, std::int64_t kv_heads, std::int64_t dim) {
  if (type == KvType::i16) return kv_i16_scales_offset(kv_heads, dim) + kv_heads * kBlockTokens * 4;
  return kBlockTokens * (type == KvType::f32 ? 4 : 2) * kv_heads * dim;
}

// V right behind K, so that a byte too many shows.
KvLayer kv_layer(const Layer& c) {
  KvLayer layer = test::layer_of(c);
  layer.v_offset = 64 + side_bytes(c.k_type, c.kv_heads, c.k_dim);
  return layer;
}

struct Cuts {
  std::int64_t chunk;  // Tokens a call.
  int threads;
  std::int64_t from = 0;  // Of the first token whose outputs are wanted in these chunks; those before go in one call.
};

// All outputs [tokens, heads, v_dim] of a sequence.
std::vector<float> attend(const Table& table, const Layer& c, std::int64_t tokens, const Cuts& cuts) {
  std::mt19937 rng(static_cast<std::uint32_t>(tokens));
  std::normal_distribution<float> normal(0, 1);
  const auto random = [&](std::int64_t count) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& value : x) value = normal(rng);
    return x;
  };
  const Guarded<float> q(random(tokens * c.heads * c.k_dim)), k(random(tokens * c.kv_heads * c.k_dim)),
      v(random(tokens * c.kv_heads * c.v_dim)), sinks(random(c.heads)),
      out(static_cast<std::size_t>(tokens * c.heads * c.v_dim), kNaN), room(1 << 20, kNaN);
  const KvLayer layer = kv_layer(c);
  const std::int64_t blocks = (tokens + 31) / 32;
  const std::int64_t bytes = layer.v_offset + side_bytes(c.v_type, c.kv_heads, c.v_dim);
  const Guarded<std::byte> kv(static_cast<std::size_t>(blocks * bytes), std::byte{0xFF});
  std::vector<std::byte*> places;
  for (std::int64_t b = 0; b < blocks; ++b) places.push_back(kv.data() + b * bytes);
  Bench bench(table, cuts.threads, generic::attention_scratch_bytes(std::max(c.k_dim, c.v_dim)));
  for (std::int64_t p = 0; p < tokens;) {
    const std::int64_t count = p < cuts.from ? cuts.from : std::min(cuts.chunk, tokens - p);
    const KvRun run{.first_row = 0, .count = count, .first_position = p, .blocks = places.data()};
    table.kv_write(bench.stream, {.k = k.data() + p * c.kv_heads * c.k_dim,
                                  .v = v.data() + p * c.kv_heads * c.v_dim,
                                  .layer = layer,
                                  .runs = {&run, 1}});
    AttentionArgs args;
    args.q = q.data() + p * c.heads * c.k_dim;
    args.out = out.data() + p * c.heads * c.v_dim;
    args.heads = c.heads;
    args.scale = 1.5f / std::sqrt(static_cast<float>(c.k_dim));
    args.window = c.window;
    args.chunk = c.chunk;
    args.softcap = c.softcap;
    args.sinks = c.sinks ? sinks.data() : nullptr;
    args.layer = layer;
    args.runs = {&run, 1};
    args.span_room = room.data();
    args.span_room_floats = 1 << 20;
    table.attention(bench.stream, args);
    p += count;
  }
  return out.copy();
}

TEST_P(Tables, AttentionAgreesBitForBit) {
  const Layer layers[] = {
      {.heads = 9, .kv_heads = 3},
      {.heads = 4, .kv_heads = 1, .k_dim = 256, .v_dim = 256, .window = 32},
      {.heads = 2, .kv_heads = 2, .k_dim = 128, .v_dim = 128, .softcap = 3.0f},
      {.heads = 3, .kv_heads = 1, .k_dim = 80, .v_dim = 80, .sinks = true},
      {.heads = 8, .kv_heads = 1, .k_dim = 24, .v_dim = 20, .k_type = KvType::f32, .v_type = KvType::f32},
      {.heads = 7, .kv_heads = 1, .k_dim = 40, .v_dim = 72, .chunk = 60, .k_type = KvType::f32},
      {.heads = 2, .kv_heads = 1, .k_dim = 64, .v_dim = 32, .window = 7, .sinks = true, .v_type = KvType::f32},
      {.heads = 1, .kv_heads = 1, .k_dim = 16, .v_dim = 48},
      {.heads = 16, .kv_heads = 1, .k_dim = 32, .v_dim = 8, .v_type = KvType::f32},
      {.heads = 9, .kv_heads = 3, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 4, .k_dim = 256, .v_dim = 256, .window = 32, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 2, .kv_heads = 2, .v_dim = 128, .softcap = 3.0f, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 3, .k_dim = 80, .v_dim = 80, .sinks = true, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 13, .k_dim = 33, .v_dim = 48, .chunk = 60, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 2, .k_dim = 16, .v_dim = 20, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 2, .k_dim = 32, .v_dim = 32, .window = 7, .k_type = KvType::i16},
      {.heads = 2, .k_dim = 32, .v_dim = 32, .window = 7, .v_type = KvType::i16},
  };
  for (const Layer& c : layers) {
    const std::vector<float> expected = attend(generic::kTable, c, 101, {.chunk = 101, .threads = 1});
    for (const Cuts& cuts : {Cuts{101, 1}, Cuts{1, 1}, Cuts{3, 2}, Cuts{34, 3}})
      EXPECT_TRUE(same_bits(attend(*table_, c, 101, cuts), expected))
          << "dims " << c.k_dim << ", " << c.v_dim << "; chunk " << cuts.chunk << ", threads " << cuts.threads;
  }
}

// Several spans: whole tiles, and few rows split over threads by span.
TEST_P(Tables, AttentionOverSpansAgreesBitForBit) {
  const Layer layers[] = {
      {.heads = 3, .kv_heads = 1, .k_dim = 32, .v_dim = 48},
      {.heads = 2, .kv_heads = 1, .k_dim = 16, .v_dim = 20, .window = 300, .sinks = true, .v_type = KvType::f32},
      {.heads = 2, .kv_heads = 2, .k_dim = 16, .v_dim = 16, .chunk = 400, .k_type = KvType::f32},
      {.heads = 3, .k_dim = 32, .v_dim = 48, .k_type = KvType::i16, .v_type = KvType::i16},
      {.heads = 2, .k_dim = 16, .v_dim = 64, .window = 300, .k_type = KvType::i16, .v_type = KvType::i16},
  };
  for (const Layer& c : layers) {
    const std::vector<float> expected = attend(generic::kTable, c, 600, {.chunk = 600, .threads = 2});
    for (const Cuts& cuts : {Cuts{600, 1}, Cuts{64, 3, 512}, Cuts{1, 3, 585}, Cuts{5, 2, 585}})
      EXPECT_TRUE(same_bits(attend(*table_, c, 600, cuts), expected))
          << "dims " << c.k_dim << ", " << c.v_dim << "; chunk " << cuts.chunk << ", threads " << cuts.threads;
  }
}

// ---- Rows and elements ----

// Random, denormal, huge and special values.
std::vector<float> awkward(std::int64_t count, std::uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> x(static_cast<std::size_t>(count));
  constexpr float kSpecial[] = {0.0f,   -0.0f, 1e-40f, -1e-42f, 1e30f, -1e30f, 80.0f,
                                -80.0f, 88.7f, -88.9f, 0.625f,  3e38f, kNaN,   INFINITY};
  for (float& value : x) value = rng() % 4 == 0 ? kSpecial[rng() % std::size(kSpecial)] : normal(rng);
  return x;
}

// The bits that fn(table, stream, x) leaves in x, which begins as `from`.
template <typename Fn>
void expect_same(const Table& table, const std::vector<float>& from, const Fn& fn) {
  std::vector<float> expected;
  for (const Table* t : {&generic::kTable, &table})
    for (const int threads : {1, 3}) {
      Bench bench(*t, threads, 64);
      const Guarded<float> x(from);
      fn(*t, bench.stream, x.data());
      if (expected.empty()) {
        expected = x.copy();
      } else {
        EXPECT_TRUE(same_bits(x.copy(), expected)) << t->name << ", size " << from.size() << ", threads " << threads;
      }
    }
}

TEST_P(Tables, ElementsAgreeBitForBit) {
  for (const std::int64_t count : {1, 7, 15, 16, 17, 31, 100, 1031, 20003}) {
    const std::vector<float> x = awkward(count, 1);
    const Guarded<float> y(awkward(count, 2));
    expect_same(*table_, x, [&](const Table& t, Stream& s, float* out) { t.add(s, out, y.data(), count); });
    expect_same(*table_, x, [&](const Table& t, Stream& s, float* out) { t.softcap(s, out, 30.0f, count); });
    for (const Activation act : {Activation::silu, Activation::gelu_tanh, Activation::sigmoid})
      expect_same(*table_, x, [&](const Table& t, Stream& s, float* out) { t.glu(s, act, out, y.data(), out, count); });
    const Guarded<float> bias(awkward(count, 3));
    std::vector<float> rows = x;
    rows.insert(rows.end(), x.begin(), x.end());
    expect_same(*table_, rows,
                [&](const Table& t, Stream& s, float* out) { t.add_bias(s, out, bias.data(), 2, count); });
  }
}

TEST_P(Tables, NormsAgreeBitForBit) {
  for (const std::int64_t width : {1, 5, 15, 16, 17, 31, 64, 641})
    for (const std::int64_t rows : {1, 3, 40}) {
      std::mt19937 rng(5);
      std::normal_distribution<float> normal(0, 3);
      std::vector<float> x(static_cast<std::size_t>(rows * width));
      for (float& value : x) value = normal(rng);
      const Guarded<float> weight(awkward(width, 4));
      for (const float* w : {static_cast<const float*>(weight.data()), static_cast<const float*>(nullptr)})
        expect_same(*table_, x,
                    [&](const Table& t, Stream& s, float* out) { t.rms_norm(s, out, w, 1e-6f, rows, width, out); });
    }
}

TEST_P(Tables, RopeAgreesBitForBit) {
  const std::int64_t n = 5, heads = 3;
  for (const std::int64_t pairs : {1, 7, 8, 9, 16, 20, 24, 40})
    for (const std::int64_t dim : {2 * pairs, std::int64_t{80}}) {
      std::mt19937 rng(6);
      std::normal_distribution<float> normal(0, 1);
      std::vector<float> x(static_cast<std::size_t>(n * heads * dim)), table(static_cast<std::size_t>(n * pairs * 2));
      for (float& value : x) value = normal(rng);
      for (float& value : table) value = rng() % 8 == 0 ? 0.0f : normal(rng);
      const Guarded<float> cos_sin(table);
      for (const RopeStyle style : {RopeStyle::normal, RopeStyle::neox})
        expect_same(*table_, x, [&](const Table& t, Stream& s, float* out) {
          t.rope(s, out, n, heads, dim, pairs, style, cos_sin.data());
        });
    }
}

INSTANTIATE_TEST_SUITE_P(All, Tables, ::testing::Values("avx2", "avx512", "emulated"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace lode::kernels
