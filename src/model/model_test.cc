// Forward pages against goldens of an independent reference, and the numbers contract on whole models.
#include "model/model.h"

#include <gtest/gtest.h>

#include "base/npy.h"
#include "base/test_data.h"
#include "model/test_runner.h"

namespace lode::model {
namespace {

using kernels::KvType;
using test::nmse;
using test::Runner;
using test::same_bits;
using test::SimpleKv;

class Golden : public ::testing::TestWithParam<std::pair<const char*, double>> {};

// Tolerances from the data's README: the reference's own GELU goes through an F16 table, hence gemma's 1e-4. No token
// of the mixtures lies so close to another routing that rounding would change it: all positions meet the tolerance.
TEST_P(Golden, MatchesTheReferenceInAnyChunksOnAnyInstructionSet) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  const auto [name, tolerance] = GetParam();
  const auto ids = test::read_ids(data / "arch" / (std::string(name) + ".tokens.json"));
  const auto want = read_npy(data / "arch" / (std::string(name) + ".logits.npy"));
  ASSERT_TRUE(want.ok()) << want.status().message();
  std::vector<float> first;
  for (const kernels::Table* table : kernels::available_tables()) {
    Runner runner(data / "arch" / (std::string(name) + ".gguf"), table, 2, {96, 96, 1, 96});
    const auto got = runner.run(ids, 96, KvType::f32);
    EXPECT_LE(nmse(got, want->data), tolerance) << table->name;
    if (first.empty()) {
      std::printf("%s: NMSE %.3g\n", name, nmse(got, want->data));
      EXPECT_LE(nmse(runner.run(ids, 96, KvType::f16), want->data), 1e-4) << "f16 KV";
      for (const std::int64_t chunk : {1, 31, 32, 33, 64})
        EXPECT_TRUE(same_bits(got, runner.run(ids, chunk, KvType::f32))) << "chunk " << chunk;
      first = got;
    }
    EXPECT_TRUE(same_bits(first, got)) << table->name;
  }
}

// Three sequences at different depths in one batch, on one thread and on two: the bits of each alone.
TEST_P(Golden, AloneEqualsBatchedOnAnyThreads) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  const std::string name = GetParam().first;
  const auto ids = test::read_ids(data / "arch" / (name + ".tokens.json"));
  std::vector<float> want;
  for (const int threads : {1, 2}) {
    Runner runner(data / "arch" / (name + ".gguf"), kernels::available_tables().front(), threads, {128, 128, 3, 128});
    if (want.empty()) want = runner.run(ids, 70, KvType::f16);
    SimpleKv kv(runner.model->groups(), KvType::f16, 3);
    const auto step = [&](std::vector<SimpleKv::Part> parts) {
      return runner.step(kv, parts, [&](std::size_t sequence, std::int64_t p) {
        const auto at = static_cast<std::size_t>(p);
        return sequence == 0 ? ids[at] : ids[(at * 13 + sequence) % ids.size()];
      });
    };
    step({{1, 40}});
    const auto a = step({{1, 1}, {0, 60}, {2, 33}});
    const auto b = step({{2, 1}, {1, 1}, {0, 10}});
    const auto v = static_cast<std::size_t>(runner.vocab());
    EXPECT_TRUE(same_bits(std::span(a).subspan(v, 60 * v), std::span(want).first(60 * v))) << threads;
    EXPECT_TRUE(same_bits(std::span(b).subspan(2 * v, 10 * v), std::span(want).subspan(60 * v, 10 * v))) << threads;
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
  const auto want = best.run(ids, 70, KvType::f16);
  for (std::int64_t chunk : {1, 31, 32}) EXPECT_TRUE(same_bits(want, best.run(ids, chunk, KvType::f16))) << chunk;
  Runner one_thread(path, tables.front(), 1, {128, 128, 1, 128});
  EXPECT_TRUE(same_bits(want, one_thread.run(ids, 64, KvType::f16)));
  for (const kernels::Table* table : tables) {
    if (table == tables.front()) continue;
    Runner other(path, table, 2, {128, 128, 1, 128});
    const std::span<const TokenId> few(ids.data(), 12);  // The generic table is slow.
    const auto got = other.run(few, 5, KvType::f16);
    EXPECT_TRUE(same_bits(got, std::span(want).first(got.size()))) << table->name;
  }
  // Three sequences in one batch, at different depths; the first is `ids`.
  SimpleKv kv(best.model->groups(), KvType::f16, 3);
  const auto step = [&](std::vector<SimpleKv::Part> parts) {
    return best.step(kv, parts, [&](std::size_t sequence, std::int64_t p) {
      const auto at = static_cast<std::size_t>(p);
      return sequence == 0 ? ids[at] : ids[(at * 13 + sequence) % ids.size()];
    });
  };
  step({{1, 40}});
  const auto a = step({{1, 1}, {0, 60}, {2, 33}});
  const auto b = step({{2, 1}, {1, 1}, {0, 10}});
  const auto v = static_cast<std::size_t>(best.vocab());
  EXPECT_TRUE(same_bits(std::span(a).subspan(v, 60 * v), std::span(want).first(60 * v)));
  EXPECT_TRUE(same_bits(std::span(b).subspan(2 * v, 10 * v), std::span(want).subspan(60 * v, 10 * v)));
}
INSTANTIATE_TEST_SUITE_P(Models, RealModel,
                         ::testing::Values("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"),
                         [](const auto& info) { return std::string(info.param).substr(0, 5); });

}  // namespace
}  // namespace lode::model
