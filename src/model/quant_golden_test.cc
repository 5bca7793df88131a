// One file per block format against llama.cpp: the error that quantized activations cost, and the numbers contract on
// each format. The truth is llama.cpp on the same weights in F32; its own native logits say what error is usual.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/npy.h"
#include "base/test_data.h"
#include "model/model.h"
#include "model/simple_kv.h"

namespace lode::model {
namespace {

constexpr StepLimits kLimits = {48, 48, 1, 48};

// A model of one format with the room of a step.
class Subject {
 public:
  Subject(const gguf::File& file, const kernels::Table* table) : pool_(2) {
    auto loaded = Model::load(file);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    model_ = std::move(loaded).value();
    const std::size_t per_thread =
        align_up(kernels::scratch_bytes_per_thread(model_->facts().cols_max, model_->facts().head_dim_max), 64);
    thread_scratch_ = std::make_unique<Workspace>(per_thread * 2);
    scratch_ = std::make_unique<Workspace>(model_->scratch_bytes(kLimits));
    stream_ = {table, &pool_, thread_scratch_->data(), per_thread, nullptr};
  }

  // All logits of `ids`, computed in chunks.
  std::vector<float> logits(std::span<const TokenId> ids, std::size_t chunk) {
    test::SimpleKv kv(model_->groups(), kernels::KvType::f32, 1);
    std::vector<float> out;
    for (std::size_t at = 0; at < ids.size(); at += chunk) {
      const auto part = ids.subspan(at, std::min(chunk, ids.size() - at));
      std::vector<std::int64_t> positions;
      std::vector<std::int32_t> rows;
      for (std::size_t i = 0; i < part.size(); ++i) {
        positions.push_back(static_cast<std::int64_t>(at + i));
        rows.push_back(static_cast<std::int32_t>(i));
      }
      std::vector<float> chunk_logits(part.size() * static_cast<std::size_t>(model_->facts().vocab));
      const Status done =
          model_->forward(stream_, {part, positions, rows}, kv.prepare({{0, static_cast<std::int64_t>(part.size())}}),
                          kLimits, scratch_->data(), chunk_logits.data());
      EXPECT_TRUE(done.ok()) << done.message();
      kv.advance();
      out.insert(out.end(), chunk_logits.begin(), chunk_logits.end());
    }
    return out;
  }

 private:
  std::unique_ptr<Model> model_;
  ThreadPool pool_;
  std::unique_ptr<Workspace> thread_scratch_, scratch_;
  kernels::Stream stream_;
};

double nmse(const std::vector<float>& a, const std::vector<float>& truth) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    error += (static_cast<double>(a[i]) - truth[i]) * (static_cast<double>(a[i]) - truth[i]);
    power += static_cast<double>(truth[i]) * truth[i];
  }
  return error / power;
}

class QuantGolden : public ::testing::TestWithParam<const char*> {};

// llama.cpp rounds the activations of 16-bit weights too and is exact for F32, hence the floor of 1e-6.
TEST_P(QuantGolden, ErrorIsNoMoreThanUsualAndChunksChangeNothing) {
  const auto folder = lode::test::shared_data() / "quant";
  const std::string name = GetParam();
  if (lode::test::shared_data().empty() || !std::filesystem::exists(folder / (name + ".gguf")))
    GTEST_SKIP() << "no golden file quant/" << name << ".gguf in the shared data folder";
  std::ifstream in(folder / "tokens.json");
  const auto ids = nlohmann::json::parse(in).get<std::vector<TokenId>>();
  const auto truth = read_npy(folder / (name + ".logits_f32w.npy")), native = read_npy(folder / (name + ".logits.npy"));
  ASSERT_TRUE(truth.ok()) << truth.status().message();
  ASSERT_TRUE(native.ok()) << native.status().message();
  const double usual = nmse(native->data, truth->data);
  const auto file = gguf::File::open(folder / (name + ".gguf"), {});
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::vector<float> first;
  for (const kernels::Table* table : kernels::available_tables()) {
    Subject subject(**file, table);
    const std::vector<float> got = subject.logits(ids, 48);
    ASSERT_EQ(got.size(), truth->data.size());
    const double error = nmse(got, truth->data);
    if (first.empty()) {
      std::printf("%s: NMSE %.3g, llama.cpp %.3g, ratio %.2f\n", name.c_str(), error, usual, error / usual);
      EXPECT_LE(error, std::max(1.5 * usual, 1e-6));
      first = got;
    }
    EXPECT_EQ(std::memcmp(first.data(), got.data(), got.size() * sizeof(float)), 0) << table->name;
    // The best table has a kernel for few tokens and one for many; the generic one goes token by token and is slow.
    const bool best = table == kernels::available_tables().front();
    for (const std::size_t chunk : best ? std::vector<std::size_t>{1, 31, 32} : std::vector<std::size_t>{31})
      EXPECT_EQ(std::memcmp(first.data(), subject.logits(ids, chunk).data(), first.size() * sizeof(float)), 0)
          << table->name << " chunk " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantGolden,
                         ::testing::Values("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K",
                                           "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_S", "IQ3_XXS", "IQ2_XXS",
                                           "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "MXFP4", "NVFP4", "Q1_0", "Q2_0",
                                           "TQ1_0", "TQ2_0"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace lode::model
