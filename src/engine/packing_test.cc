// Packed weights: the same logits bit for bit, memory held once, and only what may be packed.
#include "engine/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "base/test_data.h"
#include "model/test_runner.h"

namespace lode::engine {
namespace {

namespace fs = std::filesystem;
using model::test::Runner;

constexpr model::StepLimits kLimits{.rows = 40, .outputs = 40, .runs = 1, .context = 64};

const kernels::Table* packing_table() {
  for (const kernels::Table* table : kernels::available_tables())
    if (table->packs) return table;
  return nullptr;
}

std::uint64_t file_pages_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssFile:")) return std::stoull(line.substr(8));
  return 0;
}

class Packing : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto data = lode::test::shared_data();
    if (data.empty()) GTEST_SKIP() << "shared test data is absent";
    path = data / GetParam();
    table = packing_table();
    if (table == nullptr) GTEST_SKIP() << "no table of this processor packs rows";
  }
  // Reads the runner's model again, over packed weights.
  std::unique_ptr<PackedWeights> pack(Runner& runner) {
    auto packed = PackedWeights::make(*runner.file, *table, runner.pool);
    EXPECT_TRUE(packed.ok()) << packed.status().message();
    auto model = model::Model::load(*runner.file,
                                    {.place = packed.value()->placer(), .where = model::LoadOptions::Where::memory});
    EXPECT_TRUE(model.ok()) << model.status().message();
    runner.model = std::move(model).value();
    return std::move(packed).value();
  }
  fs::path path;
  const kernels::Table* table = nullptr;
};

TEST_P(Packing, ChangesNoLogit) {
  std::vector<TokenId> ids;
  for (int i = 0; i < 40; ++i) ids.push_back(3 + i * 7 % 50);
  Runner rows(path, &*kernels::available_tables().back(), 2, kLimits), other(path, table, 2, kLimits);
  EXPECT_GT(PackedWeights::bytes(*other.file, *table), other.file->tensor_bytes() / 4);
  const auto packed = pack(other);
  const std::vector<float> want = rows.run(ids, 40, kernels::KvType::f16);
  for (const std::int64_t chunk : {1, 3, 31, 40}) {
    const std::vector<float> got = other.run(ids, chunk, kernels::KvType::f16);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin())) << "chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Packing,
                         ::testing::Values("quant/Q4_0.gguf", "quant/Q4_1.gguf", "quant/Q5_0.gguf", "quant/Q5_1.gguf",
                                           "quant/Q8_0.gguf", "quant/Q4_K.gguf", "quant/Q5_K.gguf", "quant/Q6_K.gguf",
                                           "models/tiny-moe-q4_k_s.gguf"),
                         [](const auto& p) {
                           std::string name = fs::path(p.param).stem().string();
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

using PackingMemory = Packing;

// The file's pages go as its tensors are copied, and again when somebody has looked at them.
TEST_P(PackingMemory, HoldsWeightsOnce) {
  Runner runner(path, table, 2, kLimits);
  const std::uint64_t before = file_pages_kib();
  const auto packed = pack(runner);
  EXPECT_LT(file_pages_kib(), before + 16 * 1024);
  std::uint64_t sum = 0;
  for (const gguf::Tensor& t : runner.file->tensors())
    for (std::uint64_t i = 0; i < t.bytes; i += 4096) sum += static_cast<std::uint64_t>(t.data[i]);
  EXPECT_GT(sum, 0u);
  EXPECT_GT(file_pages_kib(), before + 64 * 1024);
  packed->release_file(*runner.file);
  EXPECT_LT(file_pages_kib(), before + 16 * 1024);
}

INSTANTIATE_TEST_SUITE_P(Files, PackingMemory, ::testing::Values("models/tiny-moe-q4_k_s.gguf"),
                         [](const auto&) { return std::string("TinyMoe"); });

TEST(PackingChoice, LeavesWhatIsOnlyLookedUpAndOddRows) {
  const auto data = lode::test::shared_data();
  const kernels::Table* table = packing_table();
  if (data.empty() || table == nullptr) GTEST_SKIP() << "no shared test data, or no table that packs";
  const auto file = gguf::File::open(data / "quant" / "Q4_K.gguf", {});
  ASSERT_TRUE(file.ok());
  std::uint64_t quantized = 0;
  for (const gguf::Tensor& t : file.value()->tensors())
    if (t.type == quant::DType::q4_k && !only_looked_up(t, *file.value())) quantized += t.bytes;
  EXPECT_EQ(PackedWeights::bytes(*file.value(), *table), quantized);
  EXPECT_TRUE(only_looked_up(*file.value()->tensor("token_embd.weight"), *file.value()));
  EXPECT_EQ(PackedWeights::bytes(*file.value(), *kernels::available_tables().back()), 0u);
}

}  // namespace
}  // namespace lode::engine
