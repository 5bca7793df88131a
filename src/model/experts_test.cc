// Mixtures of experts: the order in which a source hands experts out, and how tokens are grouped, change no bit; the
// source sees each layer's whole list first; a step allocates nothing.
#include "model/experts.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "base/test_data.h"
#include "model/test_edit.h"
#include "model/test_runner.h"

namespace lode::model {
namespace {

using kernels::KvType;
using test::Edited;
using test::Runner;
using test::same_bits;

// Hands out one expert at a time, last first, from copies of their bytes that it fills with NaN at `end`.
class OneByOne final : public ExpertSource {
 public:
  explicit OneByOne(std::span<const ExpertLayer> layers) : layers_(layers) {}

  void begin(LayerIndex layer, std::span<const ExpertUse> uses) override {
    ++begun;
    left_.assign(uses.begin(), uses.end());
    for (std::size_t i = 0; i < uses.size(); ++i) {
      EXPECT_TRUE(i == 0 || uses[i - 1].expert < uses[i].expert);
      EXPECT_GT(uses[i].tokens, 0);
      tokens[layer.v] += uses[i].tokens;
    }
  }
  Result<std::span<const ExpertWeights>> ready(LayerIndex layer) override {
    if (fail_after-- == 0) return Status::io("expert.bin: 12 bytes are missing");
    for (const ExpertLayer& l : layers_)
      if (l.layer == layer) slot_ = copy(l.weights[left_.back().expert.v]);
    left_.pop_back();
    return std::span<const ExpertWeights>(&slot_, 1);
  }
  void end(LayerIndex) override {
    EXPECT_TRUE(left_.empty());
    ++ended;
    for (auto& bytes : slots_) std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
    slots_.clear();
  }

  int begun = 0, ended = 0, fail_after = -1;
  std::map<std::uint32_t, std::int64_t> tokens;

 private:
  ExpertWeights copy(ExpertWeights w) {
    for (kernels::Matrix* m : {&w.gate, &w.up, &w.down}) {
      const auto bytes = static_cast<std::size_t>(m->rows * quant::row_bytes(m->type, m->cols));
      slots_.emplace_back(m->data, m->data + bytes);
      m->data = slots_.back().data();
    }
    return w;
  }
  std::span<const ExpertLayer> layers_;
  std::vector<ExpertUse> left_;
  std::vector<std::vector<std::byte>> slots_;
  ExpertWeights slot_;
};

class Experts : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = lode::test::shared_data();
    if (data_.empty()) GTEST_SKIP() << "shared test data is absent";
  }
  std::filesystem::path arch(const std::string& name) const { return data_ / "arch" / name; }
  std::filesystem::path data_;
};

TEST_F(Experts, ArrivalOrderAndGroupingChangeNothing) {
  for (const std::string name : {"qwen3moe", "qwen35moe"}) {
    Runner runner(arch(name + ".gguf"), kernels::available_tables().front(), 2, {96, 96, 1, 96});
    const auto ids = test::read_ids(arch(name + ".tokens.json"));
    const auto want = runner.run(ids, 96, KvType::f16);
    for (const std::int64_t chunk : {1, 17, 96}) {
      OneByOne source(runner.model->experts());
      EXPECT_TRUE(same_bits(want, runner.run(ids, chunk, KvType::f16, &source))) << name << " by " << chunk;
      EXPECT_EQ(source.begun, 2 * ((96 + chunk - 1) / chunk));
      EXPECT_EQ(source.begun, source.ended);
      for (const auto& [layer, tokens] : source.tokens) EXPECT_EQ(tokens, 96 * 2) << layer;  // Two experts a token.
    }
  }
}

TEST_F(Experts, AFailedSourceEndsTheStepAndItCanBeRunAgain) {
  Runner runner(arch("qwen35moe.gguf"), kernels::available_tables().front(), 2, {96, 96, 1, 96});
  const auto ids = test::read_ids(arch("qwen35moe.tokens.json"));
  const auto want = runner.run(ids, 96, KvType::f16);
  OneByOne source(runner.model->experts());
  source.fail_after = 9;
  test::SimpleKv kv(runner.model->groups(), KvType::f16, 1);
  std::vector<std::int64_t> positions;
  std::vector<std::int32_t> rows;
  for (std::int32_t i = 0; i < 96; ++i) {
    positions.push_back(i);
    rows.push_back(i);
  }
  std::vector<float> logits(want.size());
  const auto forward = [&] {
    return runner.model->forward(runner.stream, {ids, positions, rows, &source}, kv.prepare({{0, 96}}), runner.limits,
                                 runner.scratch->data(), logits.data());
  };
  const Status failed = forward();
  EXPECT_EQ(failed.code(), Code::io_error);
  EXPECT_EQ(failed.message(), "expert.bin: 12 bytes are missing");
  EXPECT_TRUE(forward().ok());
  EXPECT_TRUE(same_bits(want, logits));
}

// Fused gate and up, three stacks, and one tensor an expert are the same model.
TEST_F(Experts, EveryFormOfTheTensorsIsTheSameModel) {
  Runner plain(arch("qwen3moe.gguf"), kernels::available_tables().front(), 2, {96, 96, 1, 96});
  const auto ids = test::read_ids(arch("qwen3moe.tokens.json"));
  const auto want = plain.run(ids, 96, KvType::f32);
  Edited fused(arch("qwen3moe.gguf")), apart(arch("qwen3moe.gguf"));
  constexpr std::size_t kBytes = 48 * 256 * 4;  // Of one expert's matrix.
  for (const std::string blk : {"blk.0.", "blk.1."}) {
    const std::string gate = fused.data(blk + "ffn_gate_exps.weight"), up = fused.data(blk + "ffn_up_exps.weight");
    std::string both;
    for (std::size_t e = 0; e < 8; ++e) both += gate.substr(e * kBytes, kBytes) + up.substr(e * kBytes, kBytes);
    fused.drop(blk + "ffn_gate_exps.weight").drop(blk + "ffn_up_exps.weight");
    fused.tensor(blk + "ffn_gate_up_exps.weight", quant::DType::f32, {256, 96, 8}, both);
    for (const std::string part : {"ffn_gate", "ffn_up", "ffn_down"}) {
      const std::string all = apart.data(blk + part + "_exps.weight");
      apart.drop(blk + part + "_exps.weight");
      const std::vector<std::uint64_t> shape =
          part == "ffn_down" ? std::vector<std::uint64_t>{48, 256} : std::vector<std::uint64_t>{256, 48};
      for (std::size_t e = 0; e < 8; ++e)
        apart.tensor(blk + part + "." + std::to_string(e) + ".weight", quant::DType::f32, shape,
                     all.substr(e * kBytes, kBytes));
    }
  }
  for (const Edited* e : {&fused, &apart}) {
    const std::string bytes = e->bytes();
    Runner runner(bytes, {96, 96, 1, 96});
    EXPECT_TRUE(same_bits(want, runner.run(ids, 96, KvType::f32)));
  }
}

TEST_F(Experts, AStepAllocatesNothing) {
  for (const char* name : {"llama", "gemma3", "qwen2", "qwen3", "qwen3moe", "qwen35", "qwen35moe"}) {
    Runner runner(arch(std::string(name) + ".gguf"), kernels::available_tables().front(), 2, {33, 33, 1, 64});
    test::SimpleKv kv(runner.model->groups(), KvType::f16, 1);
    for (const std::int64_t n : {33, 1}) {
      std::vector<TokenId> ids(static_cast<std::size_t>(n), 5);
      std::vector<std::int64_t> positions;
      std::vector<std::int32_t> rows;
      for (std::int64_t i = 0; i < n; ++i) {
        positions.push_back(kv.length(0) + i);
        rows.push_back(static_cast<std::int32_t>(i));
      }
      std::vector<float> logits(static_cast<std::size_t>(n * runner.vocab()));
      KvView& view = kv.prepare({{0, n}});
      for (const CacheGroup& g : runner.model->groups())  // The test's view allocates its states when first asked.
        if (g.kind == CacheGroup::Kind::checkpoint) view.states(g.layers[0].layer);
      const std::int64_t before = lode::test::allocations.load();
      const Status done = runner.model->forward(runner.stream, {ids, positions, rows}, view, runner.limits,
                                                runner.scratch->data(), logits.data());
      EXPECT_EQ(lode::test::allocations.load() - before, 0) << name << ", " << n << " tokens";
      EXPECT_TRUE(done.ok());
      kv.advance();
    }
  }
}

// A mixture that was really trained, in the types of a real file.
TEST_F(Experts, TheTrainedMixtureIsFiniteAndInvariant) {
  const auto path = data_ / "models" / "tiny-moe-q4_k_s.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  std::vector<TokenId> ids;
  for (int i = 0; i < 70; ++i) ids.push_back(100 + (i * 7919) % 40000);
  const auto tables = kernels::available_tables();
  Runner runner(path, tables.front(), 2, {70, 70, 1, 70});
  EXPECT_EQ(runner.model->facts().experts, 64);
  const auto want = runner.run(ids, 70, KvType::f16);
  for (const float v : want) ASSERT_TRUE(std::isfinite(v));
  for (const std::int64_t chunk : {1, 32}) EXPECT_TRUE(same_bits(want, runner.run(ids, chunk, KvType::f16))) << chunk;
  Runner one(path, tables.back(), 1, {70, 70, 1, 70});
  const auto few = one.run(std::span(ids).first(6), 4, KvType::f16);
  EXPECT_TRUE(same_bits(few, std::span(want).first(few.size())));
}

}  // namespace
}  // namespace lode::model
