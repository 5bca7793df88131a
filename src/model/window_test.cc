// Field reports H03 and H04: the mask of sliding-window layers, against a naive full-mask reference in double.
#include <gtest/gtest.h>

#include "base/test_data.h"
#include "model/test_edit.h"
#include "model/test_reference.h"
#include "model/test_runner.h"

namespace lode::model {
namespace {

using test::Edited;
using test::nmse;
using test::Reference;
using test::Runner;
using test::same_bits;

constexpr std::int64_t kVocab = 128;

std::vector<TokenId> some_ids(std::size_t count) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>((i * i * 31 + i * 17 + 5) % kVocab));
  return ids;
}

Reference gemma_reference(const gguf::File& file, std::int64_t window) {
  Reference r{file};
  r.gemma = true;
  r.window = window;
  r.is_local = [](std::int64_t layer) { return layer == 0; };
  for (int i = 0; i < 32; ++i) {
    r.inv_freq.push_back(std::pow(1e6, -i / 32.0));
    r.inv_freq_local.push_back(std::pow(1e4, -i / 32.0));
  }
  return r;
}

TEST(SlidingWindow, H03EveryPromptLengthAndChunkingEqualsTheNaiveMask) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  Runner runner(data / "arch" / "gemma3.gguf", kernels::available_tables().front(), 2, {200, 200, 1, 200});
  const auto ids = some_ids(200);
  const auto want = gemma_reference(*runner.file, 32).logits(ids);
  // A window of one token more or less is another model: the tolerance tells them apart.
  EXPECT_GE(nmse(gemma_reference(*runner.file, 31).logits(ids), want), 1e-5);
  EXPECT_GE(nmse(gemma_reference(*runner.file, 33).logits(ids), want), 1e-5);
  for (const std::size_t length : {31u, 32u, 33u, 64u, 200u}) {
    const std::span<const TokenId> prompt = std::span(ids).first(length);
    const auto got = runner.run(prompt, 200, kernels::KvType::f32);
    EXPECT_LE(nmse(got, std::vector<double>(want.begin(), want.begin() + static_cast<std::ptrdiff_t>(length) * kVocab)),
              1e-9)
        << length;
    for (const std::int64_t chunk : {1, 16, 32, 48})
      EXPECT_TRUE(same_bits(got, runner.run(prompt, chunk, kernels::KvType::f32))) << length << " by " << chunk;
  }
}

// Missing, 0, and larger than any sequence: local layers see everything and keep their own rope base.
TEST(SlidingWindow, H04WithoutAWindowLocalLayersSeeEverything) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  const auto ids = some_ids(80);
  std::vector<float> first;
  for (const int window : {-1, 0, 100000}) {
    Edited e(data / "arch" / "gemma3.gguf");
    if (window < 0) e.without("gemma3.attention.sliding_window");
    else e.u32("gemma3.attention.sliding_window", static_cast<std::uint32_t>(window));
    const std::string bytes = e.bytes();
    Runner runner(bytes, {80, 80, 1, 80});
    EXPECT_EQ(runner.model->groups().size(), window > 0 ? 2u : 1u) << window;
    const auto got = runner.run(ids, 48, kernels::KvType::f32);
    if (first.empty()) {
      first = got;
      EXPECT_LE(nmse(got, gemma_reference(*runner.file, 0).logits(ids)), 1e-9);
    }
    EXPECT_TRUE(same_bits(first, got)) << window;
  }
}

}  // namespace
}  // namespace lode::model
