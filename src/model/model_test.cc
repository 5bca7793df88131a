// Forward pages against goldens of an independent reference, and the numbers contract on whole models.
#include "model/model.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/npy.h"
#include "base/test_data.h"
#include "model/simple_kv.h"

namespace lode::model {
namespace {

using test::SimpleKv;

// A loaded model with everything a step needs.
struct Runner {
  std::unique_ptr<gguf::File> file;
  std::unique_ptr<Model> model;
  ThreadPool pool;
  std::unique_ptr<Workspace> thread_scratch, scratch;
  kernels::Stream stream;
  StepLimits limits;

  Runner(const std::filesystem::path& path, const kernels::Table* table, int threads, StepLimits limits_)
      : pool(threads), limits(limits_) {
    auto opened = gguf::File::open(path, {});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    file = std::move(opened).value();
    auto loaded = Model::load(*file);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model = std::move(loaded).value();
    const std::size_t per_thread =
        align_up(kernels::scratch_bytes_per_thread(model->facts().cols_max, model->facts().head_dim_max), 64);
    thread_scratch = std::make_unique<Workspace>(per_thread * static_cast<std::size_t>(threads));
    scratch = std::make_unique<Workspace>(model->scratch_bytes(limits));
    stream = {table, &pool, thread_scratch->data(), per_thread, nullptr};
  }
  std::int64_t vocab() const { return model->facts().vocab; }

  // Runs `ids` as one sequence in chunks; all logits.
  std::vector<float> run(std::span<const TokenId> ids, std::int64_t chunk, kernels::KvType kv_type) {
    SimpleKv kv(model->groups(), kv_type, 1);
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(vocab()));
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(ids.size()); at += chunk) {
      const std::int64_t n = std::min(chunk, static_cast<std::int64_t>(ids.size()) - at);
      std::vector<std::int64_t> positions;
      std::vector<std::int32_t> rows;
      for (std::int64_t i = 0; i < n; ++i) {
        positions.push_back(at + i);
        rows.push_back(static_cast<std::int32_t>(i));
      }
      const Status done = model->forward(
          stream, {ids.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n)), positions, rows},
          kv.prepare({{0, n}}), limits, scratch->data(), logits.data() + at * vocab());
      EXPECT_TRUE(done.ok()) << done.message();
      kv.advance();
    }
    return logits;
  }
};

std::vector<TokenId> read_ids(const std::filesystem::path& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in).get<std::vector<TokenId>>();
}

double nmse(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    power += static_cast<double>(b[i]) * b[i];
  }
  return error / power;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Golden : public ::testing::TestWithParam<std::pair<const char*, double>> {};

// Tolerances from the data's README: the reference's own GELU goes through an F16 table, hence gemma's 1e-4.
TEST_P(Golden, MatchesTheReference) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  const auto [name, tolerance] = GetParam();
  const auto ids = read_ids(data / "arch" / (std::string(name) + ".tokens.json"));
  const auto want = read_npy(data / "arch" / (std::string(name) + ".logits.npy"));
  ASSERT_TRUE(want.ok()) << want.status().message();
  std::vector<float> first;
  for (const kernels::Table* table : kernels::available_tables()) {
    Runner runner(data / "arch" / (std::string(name) + ".gguf"), table, 2, {96, 96, 1, 96});
    const auto got = runner.run(ids, 96, kernels::KvType::f32);
    ASSERT_EQ(got.size(), want->data.size());
    const double error = nmse(got, want->data);
    EXPECT_LE(error, tolerance) << table->name;
    std::printf("%s %.*s: NMSE %.3g\n", name, static_cast<int>(table->name.size()), table->name.data(), error);
    if (first.empty()) first = got;
    EXPECT_TRUE(same_bits(first, got)) << table->name;
    for (std::int64_t chunk : {1, 31, 32, 33, 64}) {
      EXPECT_TRUE(same_bits(got, runner.run(ids, chunk, kernels::KvType::f32))) << "chunk " << chunk;
    }
    EXPECT_LE(nmse(runner.run(ids, 96, kernels::KvType::f16), want->data), 1e-4) << "f16 KV";
  }
}
INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         ::testing::Values(std::pair{"llama", 1e-6}, std::pair{"gemma3", 1e-4},
                                           std::pair{"qwen2", 1e-6}, std::pair{"qwen3", 1e-6},
                                           std::pair{"qwen3moe", 1e-6}, std::pair{"qwen35", 1e-6},
                                           std::pair{"qwen35moe", 1e-6}),
                         [](const auto& info) { return info.param.first; });

class RealModel : public ::testing::TestWithParam<const char*> {};

// Alone = batched, threads 1 = 2, chunks alike, generic = AVX2: bit for bit, on real weights.
TEST_P(RealModel, BatchThreadsChunksAndIsaChangeNothing) {
  const auto path = lode::test::models() / GetParam();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent; scripts/setup.sh fetches it";
  std::vector<TokenId> ids;
  for (int i = 0; i < 70; ++i) ids.push_back(100 + (i * 7919) % 40000);
  const auto tables = kernels::available_tables();
  Runner best(path, tables.front(), 2, {128, 128, 3, 128});
  const auto want = best.run(ids, 70, kernels::KvType::f16);
  for (std::int64_t chunk : {1, 31, 32})
    EXPECT_TRUE(same_bits(want, best.run(ids, chunk, kernels::KvType::f16))) << chunk;
  Runner one_thread(path, tables.front(), 1, {128, 128, 1, 128});
  EXPECT_TRUE(same_bits(want, one_thread.run(ids, 64, kernels::KvType::f16)));
  for (const kernels::Table* table : tables) {
    if (table == tables.front()) continue;
    Runner other(path, table, 2, {128, 128, 1, 128});
    const std::span<const TokenId> few(ids.data(), 12);  // The generic table is slow.
    const auto got = other.run(few, 5, kernels::KvType::f16);
    EXPECT_TRUE(
        same_bits(got, std::vector<float>(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(got.size()))))
        << table->name;
  }
  // Three sequences in one batch, at different depths; the first is `ids`.
  SimpleKv kv(best.model->groups(), kernels::KvType::f16, 3);
  const auto step = [&](std::vector<SimpleKv::Part> parts) {
    std::vector<TokenId> batch;
    std::vector<std::int64_t> positions;
    std::vector<std::int32_t> rows;
    for (const auto& p : parts)
      for (std::int64_t i = 0; i < p.count; ++i) {
        const auto at = static_cast<std::size_t>(kv.length(p.sequence) + i);
        batch.push_back(p.sequence == 0 ? ids[at] : ids[(at * 13 + p.sequence) % ids.size()]);
        positions.push_back(static_cast<std::int64_t>(at));
        rows.push_back(static_cast<std::int32_t>(rows.size()));
      }
    std::vector<float> logits(batch.size() * static_cast<std::size_t>(best.vocab()));
    EXPECT_TRUE(best.model
                    ->forward(best.stream, {batch, positions, rows}, kv.prepare(parts), best.limits,
                              best.scratch->data(), logits.data())
                    .ok());
    kv.advance();
    return logits;
  };
  step({{1, 40}});
  const auto a = step({{1, 1}, {0, 60}, {2, 33}});
  const auto b = step({{2, 1}, {1, 1}, {0, 10}});
  const auto v = static_cast<std::ptrdiff_t>(best.vocab());
  EXPECT_EQ(std::memcmp(a.data() + v, want.data(), static_cast<std::size_t>(60 * v) * 4), 0);
  EXPECT_EQ(std::memcmp(b.data() + 2 * v, want.data() + 60 * v, static_cast<std::size_t>(10 * v) * 4), 0);
}
INSTANTIATE_TEST_SUITE_P(Models, RealModel,
                         ::testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"),
                         [](const auto& info) { return std::string(info.param).substr(0, 5); });

}  // namespace
}  // namespace lode::model
