// Files whose metadata and tensors contradict each other: one clear line each, never a crash or a silent wrong model.
#include <gtest/gtest.h>

#include "base/test_data.h"
#include "model/test_edit.h"
#include "model/test_runner.h"

namespace lode::model {
namespace {

using test::Edited;
using test::Runner;
using test::same_bits;

class Load : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = lode::test::shared_data();
    if (data_.empty()) GTEST_SKIP() << "shared test data is absent";
  }
  Edited edit(std::string_view name) const { return Edited(data_ / "arch" / (std::string(name) + ".gguf")); }
  // Why the file does not load; "" where it does.
  static std::string why_not(const Edited& e) {
    const std::string bytes = e.bytes();
    auto file = gguf::File::open_bytes(std::as_bytes(std::span(bytes)), "edited.gguf");
    return file.ok() ? Model::load(**file).status().message() : file.status().message();
  }
  static void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
    for (const std::string_view part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  std::filesystem::path data_;
};

TEST_F(Load, TheFixtureItselfLoads) {
  for (const char* name : {"llama", "gemma3", "qwen2", "qwen3", "qwen3moe", "qwen35", "qwen35moe"})
    EXPECT_EQ(why_not(edit(name)), "") << name;
}

TEST_F(Load, A07AbsurdCountsAreRefusedBeforeAnythingIsSized) {
  for (const std::uint32_t count : {0u, 513u, 100000u, 0x80000000u, 0xFFFFFFFFu}) {
    for (const char* key : {"qwen35moe.block_count", "qwen35moe.full_attention_interval"})
      expect_parts(why_not(edit("qwen35moe").u32(key, count)), {key, "from 1 to 512", std::to_string(count)});
  }
  for (const std::uint32_t count : {0u, 1025u, 0x80000000u}) {
    for (const char* key : {"llama.attention.head_count", "llama.attention.head_count_kv"})
      expect_parts(why_not(edit("llama").u32(key, count)), {key, "from 1 to 1024", std::to_string(count)});
    for (const char* key : {"qwen35.ssm.time_step_rank", "qwen35.ssm.group_count"})
      expect_parts(why_not(edit("qwen35").u32(key, count)), {key, "from 1 to 1024", std::to_string(count)});
  }
  for (const std::uint32_t size : {0u, 513u, 0x80000000u})
    expect_parts(why_not(edit("qwen35").u32("qwen35.ssm.state_size", size)), {"qwen35.ssm.state_size", "512"});
  for (const std::uint32_t taps : {1u, 17u, 0x80000000u})
    expect_parts(why_not(edit("qwen35").u32("qwen35.ssm.conv_kernel", taps)), {"qwen35.ssm.conv_kernel", "16"});
  // Within bounds, but not in the file: the first missing tensor is named.
  expect_parts(why_not(edit("llama").u32("llama.block_count", 512)), {"'blk.2.attn_norm.weight' is missing"});
}

TEST_F(Load, A07PerLayerArraysHaveOneEntryALayer) {
  for (const char* key : {"llama.attention.head_count_kv", "llama.attention.head_count", "llama.feed_forward_length"}) {
    for (const std::size_t count : {0u, 1u, 3u})
      expect_parts(why_not(edit("llama").u32s(key, std::vector<std::uint32_t>(count, 2))),
                   {key, "expected 2 values, one a layer", "found " + std::to_string(count)});
  }
  expect_parts(why_not(edit("gemma3").u32s("gemma3.attention.sliding_window_pattern", {1})),
               {"sliding_window_pattern", "expected 2 values"});
  EXPECT_EQ(why_not(edit("llama").u32s("llama.attention.head_count_kv", {2, 2})), "");
}

TEST_F(Load, A15Bf16MatricesAndF32NormsEqualTheF32Copy) {
  // The fixture's matrices are exact in BF16, and products with either type have the same order: the same bits.
  for (const char* name : {"llama", "qwen35moe"}) {
    Edited e = edit(name);
    for (const gguf::Tensor& t : e.file().tensors()) {
      if (t.shape.size() < 2) continue;
      const std::string f32 = e.data(t.name);
      std::string bf16;
      for (std::size_t i = 0; i < f32.size(); i += 4) {
        ASSERT_EQ(f32.substr(i, 2), std::string(2, '\0')) << t.name;
        bf16 += f32.substr(i + 2, 2);
      }
      e.tensor(t.name, quant::DType::bf16, {t.shape.begin(), t.shape.end()}, bf16);
    }
    const std::string bytes = e.bytes();
    Runner mixed(bytes, {96, 96, 1, 96});
    EXPECT_NE(mixed.model->facts().type_summary.find("BF16"), std::string::npos) << mixed.model->facts().type_summary;
    Runner plain(data_ / "arch" / (std::string(name) + ".gguf"), kernels::available_tables().front(), 2,
                 {96, 96, 1, 96});
    const auto ids = test::read_ids(data_ / "arch" / (std::string(name) + ".tokens.json"));
    EXPECT_TRUE(same_bits(mixed.run(ids, 96, kernels::KvType::f32), plain.run(ids, 96, kernels::KvType::f32))) << name;
  }
}

TEST_F(Load, A18ExpertKeysMissingOrContradictory) {
  for (const std::string name : {"qwen3moe", "qwen35moe"}) {
    const std::string count = name + ".expert_count", used = name + ".expert_used_count";
    expect_parts(why_not(edit(name).without(count)), {"'" + count + "' is missing"});
    expect_parts(why_not(edit(name).without(used)), {"'" + used + "' is missing"});
    expect_parts(why_not(edit(name).u32(count, 0)), {count, "found 0"});
    expect_parts(why_not(edit(name).u32(used, 0)), {used, "found 0"});
    expect_parts(why_not(edit(name).u32(used, 9)), {used, "9", count, "8 experts"});
    expect_parts(why_not(edit(name).u32(count, 1u << 31)), {count, "from 1 to 4096"});
    expect_parts(why_not(edit(name).u32(name + ".expert_gating_func", 2)), {"expert_gating_func", "softmax"});
    expect_parts(why_not(edit(name).u32(name + ".expert_group_count", 4)), {"expert_group_count", "4"});
    expect_parts(why_not(edit(name).u32(count, 16)), {"blk.0.ffn_gate_inp.weight", "[256, 16]", "[256, 8]"});
  }
  expect_parts(why_not(edit("qwen3moe").drop("blk.1.ffn_up_exps.weight")),
               {"'blk.1.ffn_up_exps.weight' is missing", "[256, 48, 8]"});
  expect_parts(why_not(edit("qwen35moe").drop("blk.0.ffn_gate_up_exps.weight")), {"blk.0.ffn_gate_exps.weight"});
  expect_parts(why_not(edit("qwen35moe").drop("blk.0.ffn_gate_inp_shexp.weight")), {"ffn_gate_inp_shexp"});
  expect_parts(why_not(edit("qwen3moe").u32("qwen3moe.expert_feed_forward_length", 47)),
               {"blk.0.ffn_gate_exps.weight", "[256, 47, 8]", "[256, 48, 8]"});
  // Dense families: experts are never ignored.
  for (const std::string name : {"llama", "qwen2", "qwen3", "qwen35"}) {
    Edited e = edit(name);
    e.tensor("blk.0.ffn_gate_inp.weight", quant::DType::f32, {256, 8}, std::string(256 * 8 * 4, '\0'));
    expect_parts(why_not(e), {"blk.0.ffn_gate_inp.weight", name + ".expert_count"});
    expect_parts(why_not(edit(name).u32(name + ".expert_count", 8)), {name + ".expert_count", "no expert tensor"});
  }
}

TEST_F(Load, A19ShapesAndMissingTensors) {
  expect_parts(why_not(edit("qwen3").u32("qwen3.feed_forward_length", 129)),
               {"blk.0.ffn_gate.weight", "expected shape [256, 129]", "found [256, 128]"});
  expect_parts(why_not(edit("qwen2").rename("token_embd.weight", "embd.weight")), {"'token_embd.weight' is missing"});
  expect_parts(why_not(edit("qwen2").drop("blk.1.attn_k.bias")), {"'blk.1.attn_k.bias' is missing", "[128]"});
  expect_parts(why_not(edit("qwen35").drop("blk.0.ssm_a")), {"'blk.0.ssm_a' is missing"});
  expect_parts(why_not(edit("qwen35").drop("blk.0.ssm_conv1d.weight")), {"ssm_conv1d", "[4, 512]"});
  expect_parts(why_not(edit("qwen35").u32("qwen35.ssm.time_step_rank", 3)), {"ssm.time_step_rank 3"});
  expect_parts(why_not(edit("qwen35").u32("qwen35.ssm.inner_size", 255)), {"ssm.inner_size 255"});
  expect_parts(why_not(edit("qwen35").u32("qwen35.full_attention_interval", 1)), {"blk.0.attn_q.weight"});
}

// A tensor that the family would leave unread changes results silently: a bias, a second scale, another variant's norm.
TEST_F(Load, UnreadTensorsAreNamed) {
  for (const char* name : {"llama", "gemma3", "qwen3", "qwen35"}) {
    Edited e = edit(name);
    e.tensor("blk.1.attn_q.bias", quant::DType::f32, {256}, std::string(1024, '\0'));
    expect_parts(why_not(e), {"blk.1.attn_q.bias", "no use"});
    Edited vision = edit(name);
    vision.tensor("v.blk.0.attn_q.weight", quant::DType::f32, {4, 4}, std::string(64, '\0'));
    EXPECT_EQ(why_not(vision), "") << name;
  }
}

// The layers that predict further tokens follow the trunk's; they are left alone.
TEST_F(Load, TrailingPredictionLayersAreNotPartOfTheTrunk) {
  Edited e = edit("qwen35");
  e.u32("qwen35.block_count", 3).u32("qwen35.nextn_predict_layers", 1);
  e.tensor("blk.2.nextn.eh_proj.weight", quant::DType::f32, {4, 4}, std::string(64, '\0'));
  EXPECT_EQ(why_not(e), "");
  const std::string bytes = e.bytes();
  Runner runner(bytes, {8, 8, 1, 8});
  EXPECT_EQ(runner.model->facts().layers, 2);
}

TEST_F(Load, A19TiedEmbeddingsServeAsTheOutput) {
  for (const char* name : {"llama", "gemma3", "qwen3", "qwen35"}) {
    Edited tied = edit(name), copied = edit(name);
    tied.drop("output.weight");
    copied.tensor("output.weight", quant::DType::f32, {256, 128}, copied.data("token_embd.weight"));
    const std::string a = tied.bytes(), b = copied.bytes();
    Runner left(a, {20, 20, 1, 20}), right(b, {20, 20, 1, 20});
    std::vector<TokenId> ids(20, 7);
    EXPECT_TRUE(same_bits(left.run(ids, 20, kernels::KvType::f32), right.run(ids, 20, kernels::KvType::f32))) << name;
    EXPECT_EQ(left.model->facts().output_bytes, 0u);
  }
}

TEST_F(Load, FactsCountEveryTensorOnce) {
  for (const char* name : {"llama", "qwen3moe", "qwen35moe"}) {
    Edited e = edit(name);
    const std::string bytes = e.bytes();
    Runner runner(bytes, {8, 8, 1, 8});
    const Facts& f = runner.model->facts();
    EXPECT_EQ(f.embedding_bytes + f.output_bytes + f.attention_bytes + f.ffn_bytes + f.other_bytes,
              runner.file->tensor_bytes());
    EXPECT_EQ(f.expert_layers, name == std::string("llama") ? 0 : 2);
    // 8 experts of 3 matrices of 48 x 256 floats in 2 layers.
    EXPECT_EQ(f.expert_bytes, name == std::string("llama") ? 0u : 2u * 8 * 3 * 48 * 256 * 4);
    EXPECT_LE(f.expert_bytes, f.ffn_bytes);
  }
}

}  // namespace
}  // namespace lode::model
