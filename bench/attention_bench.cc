// Speed of attention at the shapes of Gemma 3 270M and SmolLM2 135M: multiply-adds/s of prefill and KV bytes/s of
// decode at a depth of 4,096 tokens, for f16 and q8_0. One layer.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "table_main.h"

namespace {

using namespace lode;
using namespace lode::kernels;

struct Shape {
  std::int32_t heads, kv_heads, dim;
  std::int64_t window;
  KvType type = KvType::f16;
};
constexpr Shape kGemmaFull{4, 1, 256, 0};
constexpr Shape kGemmaWindow{4, 1, 256, 512};
constexpr Shape kSmol{9, 3, 64, 0};
constexpr Shape kQwen{32, 8, 128, 0};
constexpr Shape kGemmaFullQ8{4, 1, 256, 0, KvType::q8_0};
constexpr Shape kSmolQ8{9, 3, 64, 0, KvType::q8_0};
constexpr Shape kQwenQ8{32, 8, 128, 0, KvType::q8_0};

constexpr std::int64_t kDepth = 4096;

// K or V of a block.
std::int64_t side_bytes(const Shape& shape) {
  const std::int64_t values = kBlockTokens * shape.kv_heads * shape.dim;
  return shape.type == KvType::f16 ? 2 * values : values + 2 * kBlockTokens * shape.kv_heads * kv_groups(shape.dim);
}

// Random K and V of `kDepth` + n tokens of `layers` layers, so that decode reads memory and not a cache.
struct Setup {
  Shape shape;
  std::int64_t n;
  ThreadPool pool;
  KvLayer layer;
  std::vector<std::byte> scratch, kv;
  std::vector<std::vector<std::byte*>> tables;
  std::vector<float> q, k, v, out, room;
  Stream stream;

  Setup(Shape with, std::int64_t rows, int threads, std::int64_t layers) : shape(with), n(rows), pool(threads) {
    layer.kv_heads = shape.kv_heads;
    layer.k_dim = layer.v_dim = shape.dim;
    layer.k_type = layer.v_type = shape.type;
    layer.v_offset = side_bytes(shape);
    const std::int64_t blocks = (kDepth + n + kBlockTokens - 1) / kBlockTokens, bytes = 2 * layer.v_offset;
    kv.resize(static_cast<std::size_t>(layers * blocks * bytes + 64));
    std::mt19937 rng(1);
    for (std::size_t i = 0; i + 2 <= kv.size();
         i += 2) {  // Halfs between 1/16 and 1, either sign; codes from their bytes.
      kv[i] = static_cast<std::byte>(rng());
      kv[i + 1] = static_cast<std::byte>(0x2C + rng() % 16 + (rng() % 2) * 128);
    }
    auto* base = reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(kv.data()) + 63) / 64 * 64);
    for (std::int64_t l = 0; l < layers; ++l) {
      for (std::int64_t b = 0; b < blocks; ++b) {
        if (b == 0) tables.emplace_back();
        tables.back().push_back(base + (l * blocks + b) * bytes);
      }
    }
    const std::size_t per_thread = scratch_bytes_per_thread(4096, shape.dim);
    scratch.resize(per_thread * static_cast<std::size_t>(threads) + 64);
    stream.pool = &pool;
    void* at = scratch.data();
    std::size_t space = scratch.size();
    stream.scratch = static_cast<std::byte*>(std::align(64, per_thread, at, space));
    stream.scratch_bytes_per_thread = per_thread;
    q.resize(static_cast<std::size_t>(n * shape.heads * shape.dim));
    for (float& x : q) x = static_cast<float>(rng() % 2000) / 1000.0f - 1.0f;
    out.resize(q.size());
    k.assign(static_cast<std::size_t>(n * shape.kv_heads * shape.dim), 0.5f);
    v = k;
    room.resize(attention_span_room(1, shape.heads, shape.dim, kDepth + 1));
  }

  void attend(const Table& table, std::size_t which) {
    const KvRun run{.first_row = 0, .count = n, .first_position = kDepth, .blocks = tables[which].data()};
    AttentionArgs args;
    args.q = q.data();
    args.out = out.data();
    args.heads = shape.heads;
    args.scale = 0.1f;
    args.window = shape.window;
    args.layer = layer;
    args.runs = {&run, 1};
    args.span_room = room.data();
    args.span_room_floats = room.size();
    table.attention(stream, args);
    benchmark::DoNotOptimize(out.data());
  }

  double visible_pairs() const {  // (query, key) pairs of one head.
    double pairs = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t p = kDepth + i;
      pairs += static_cast<double>(shape.window > 0 ? std::min(shape.window, p + 1) : p + 1);
    }
    return pairs;
  }
};

void prefill(benchmark::State& state, Shape shape) {
  Setup setup(shape, state.range(0), static_cast<int>(state.range(1)), 1);
  const Table& table = bench_table();
  for (auto _ : state) setup.attend(table, 0);
  const double macs = setup.visible_pairs() * shape.heads * shape.dim * 2;
  state.counters["GMAC/s"] =
      benchmark::Counter(macs * 1e-9, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void decode(benchmark::State& state, Shape shape) {
  constexpr std::int64_t kLayers = 16;  // 64 MiB and more of KV: beyond the last cache.
  Setup setup(shape, 1, static_cast<int>(state.range(0)), kLayers);
  const Table& table = bench_table();
  std::size_t which = 0;
  for (auto _ : state) {
    setup.attend(table, which);
    which = (which + 1) % kLayers;
  }
  const double bytes = setup.visible_pairs() / kBlockTokens * static_cast<double>(2 * side_bytes(shape));
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}

void kv_writes(benchmark::State& state, Shape shape) {
  Setup setup(shape, state.range(0), 1, 1);
  const Table& table = bench_table();
  const KvRun run{.first_row = 0, .count = setup.n, .first_position = kDepth, .blocks = setup.tables[0].data()};
  for (auto _ : state) {
    table.kv_write(setup.stream, {.k = setup.k.data(), .v = setup.v.data(), .layer = setup.layer, .runs = {&run, 1}});
  }
}

// Arguments: tokens, threads.
BENCHMARK_CAPTURE(prefill, gemma_full, kGemmaFull)->Args({512, 1})->Args({512, 2})->Args({32, 2})->UseRealTime();
BENCHMARK_CAPTURE(prefill, gemma_window, kGemmaWindow)->Args({512, 2})->UseRealTime();
BENCHMARK_CAPTURE(prefill, smollm2, kSmol)->Args({512, 1})->Args({512, 2})->Args({32, 2})->UseRealTime();
BENCHMARK_CAPTURE(prefill, qwen3, kQwen)->Args({128, 2})->UseRealTime();
BENCHMARK_CAPTURE(prefill, gemma_full_q8, kGemmaFullQ8)->Args({512, 1})->Args({512, 2})->Args({32, 2})->UseRealTime();
BENCHMARK_CAPTURE(prefill, smollm2_q8, kSmolQ8)->Args({512, 1})->Args({512, 2})->Args({32, 2})->UseRealTime();
BENCHMARK_CAPTURE(prefill, qwen3_q8, kQwenQ8)->Args({128, 2})->UseRealTime();
// Argument: threads.
BENCHMARK_CAPTURE(decode, gemma_full, kGemmaFull)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(decode, gemma_window, kGemmaWindow)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(decode, smollm2, kSmol)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(decode, qwen3, kQwen)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(decode, gemma_full_q8, kGemmaFullQ8)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(decode, smollm2_q8, kSmolQ8)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(decode, qwen3_q8, kQwenQ8)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK_CAPTURE(kv_writes, gemma, kGemmaFull)->Arg(1)->Arg(512);
BENCHMARK_CAPTURE(kv_writes, gemma_q8, kGemmaFullQ8)->Arg(1)->Arg(512);

}  // namespace

LODE_BENCH_MAIN()
