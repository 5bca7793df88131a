// Products at the shapes of the two small models that every machine can test. items_per_second: multiply-adds;
// bytes_per_second: weight bytes. Arguments: rows, cols, tokens, threads.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "table_main.h"

namespace lode::kernels {
namespace {

std::byte* aligned(std::vector<std::byte>& room) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(room.data()) + 63) / 64 * 64);
}

void product(benchmark::State& state, quant::DType type) {
  const std::int64_t rows = state.range(0), cols = state.range(1), n = state.range(2);
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows * quant::row_bytes(type, cols)));
  std::mt19937 rng(1);
  for (std::size_t i = 0; i < bytes.size(); i += 2) bytes[i] = static_cast<std::byte>(rng() & 0x3f);
  const Matrix w{.type = type, .data = bytes.data(), .rows = rows, .cols = cols};
  std::vector<float> x(n * cols), y(n * rows);
  for (float& v : x) v = static_cast<float>(rng() % 1000) / 500 - 1;
  ThreadPool pool(static_cast<int>(state.range(3)));
  const std::size_t scratch = scratch_bytes_per_thread(cols, 256);
  std::vector<std::byte> room(acts_bytes(n, cols) + 64), scratch_room(scratch * pool.size() + 64);
  const Table* table = &bench_table();
  Stream stream{.ops = table, .pool = &pool, .scratch = aligned(scratch_room), .scratch_bytes_per_thread = scratch};
  const MatmulJob job{&w, y.data(), rows};
  Acts acts;
  for (auto _ : state) {
    acts_bind(acts, x.data(), n, cols, aligned(room));
    table->matmul(stream, {&job, 1}, acts);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * rows * cols * n);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}

void quantize(benchmark::State& state, quant::DType type) {
  const std::int64_t cols = state.range(0), n = state.range(1);
  std::vector<std::byte> bytes(static_cast<std::size_t>(quant::row_bytes(type, cols)));
  const Matrix w{.type = type, .data = bytes.data(), .rows = 0, .cols = cols};
  std::vector<float> x(n * cols, 0.5f);
  ThreadPool pool(1);
  std::vector<std::byte> room(acts_bytes(n, cols) + 64), scratch(1 << 20);
  const Table* table = &bench_table();
  Stream stream{.ops = table, .pool = &pool, .scratch = scratch.data(), .scratch_bytes_per_thread = scratch.size()};
  const MatmulJob job{&w, nullptr, 0};
  Acts acts;
  for (auto _ : state) {
    acts_bind(acts, x.data(), n, cols, aligned(room));
    table->matmul(stream, {&job, 1}, acts);
  }
  state.SetItemsProcessed(state.iterations() * n * cols);
}

// How fast one pass over memory can be: the ceiling of decoding.
void read_memory(benchmark::State& state) {
  std::vector<std::uint64_t> data(std::size_t{180} << 17, 1);
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    pool.run(64, [&](std::int64_t part, int) {
      const std::uint64_t* p = data.data() + part * (data.size() / 64);
      std::uint64_t sum[16] = {};
      for (std::size_t i = 0; i < data.size() / 64; i += 16)
        for (int j = 0; j < 16; ++j) sum[j] += p[i + j];
      for (auto s : sum) benchmark::DoNotOptimize(s);
    });
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(data.size() * 8));
}

using quant::DType;
#define LODE_PRODUCT(name, type, ...) \
  BENCHMARK_CAPTURE(product, name, DType::type)->Args({__VA_ARGS__})->UseRealTime()->Unit(benchmark::kMicrosecond)

BENCHMARK(read_memory)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(quantize, g32, DType::q5_0)->Args({640, 1})->Args({640, 512});
BENCHMARK_CAPTURE(quantize, g256, DType::q4_k)->Args({1024, 1})->Args({2048, 512});

// Gemma 3 270M, prefill.
LODE_PRODUCT(gemma_up, q5_0, 2048, 640, 512, 2);
LODE_PRODUCT(gemma_up, q5_0, 2048, 640, 512, 1);
LODE_PRODUCT(gemma_up, q5_0, 2048, 640, 32, 2);
LODE_PRODUCT(gemma_up, q5_0, 2048, 640, 8, 1);
LODE_PRODUCT(gemma_up, q5_0, 2048, 640, 5, 1);
LODE_PRODUCT(gemma_up, q5_0, 2048, 640, 4, 1);
LODE_PRODUCT(gemma_q, q5_0, 1024, 640, 512, 2);
LODE_PRODUCT(gemma_k, q5_0, 256, 640, 512, 2);
LODE_PRODUCT(gemma_v, q8_0, 256, 640, 512, 2);
LODE_PRODUCT(gemma_attn_out, q4_k, 640, 1024, 512, 2);
LODE_PRODUCT(gemma_down, q4_k, 640, 2048, 512, 2);
LODE_PRODUCT(gemma_down, q6_k, 640, 2048, 512, 2);
// SmolLM2 135M, prefill.
LODE_PRODUCT(smol_q, q4_1, 576, 576, 512, 2);
LODE_PRODUCT(smol_up, q4_1, 1536, 576, 512, 2);
LODE_PRODUCT(smol_down, q4_1, 576, 1536, 512, 2);
// Other formats.
LODE_PRODUCT(other, q4_0, 2048, 1024, 512, 2);
LODE_PRODUCT(other, q5_1, 2048, 1024, 512, 2);
LODE_PRODUCT(other, q5_k, 2048, 1024, 512, 2);
LODE_PRODUCT(other, f16, 2048, 1024, 512, 2);
LODE_PRODUCT(other, f32, 2048, 1024, 512, 2);
// Decoding.
LODE_PRODUCT(gemma_output, q8_0, 262144, 640, 1, 2);
LODE_PRODUCT(gemma_output, q8_0, 262144, 640, 1, 1);
LODE_PRODUCT(gemma_output, q8_0, 262144, 640, 4, 2);
LODE_PRODUCT(big, q5_0, 131072, 2048, 1, 2);
LODE_PRODUCT(big, q4_1, 131072, 2048, 1, 2);
LODE_PRODUCT(big, q4_k, 131072, 2048, 1, 2);
LODE_PRODUCT(big, q6_k, 131072, 2048, 1, 2);
LODE_PRODUCT(big, f16, 65536, 2048, 1, 2);
LODE_PRODUCT(gemma_up, q5_0, 2048, 640, 1, 2);
LODE_PRODUCT(gemma_down, q4_k, 640, 2048, 1, 2);

}  // namespace
}  // namespace lode::kernels

LODE_BENCH_MAIN()
