// Placer: asked once for every tensor that kernels read, obeyed, never asked for rope factors; refused where a family
// has no device kernels.
#include "model/placer.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "base/test_data.h"
#include "model/model.h"

namespace lode::model {
namespace {

TEST(Placer, IsAskedOnceForEveryTensorThatKernelsRead) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  const auto file = gguf::File::open(data / "arch" / "llama.gguf", {});
  ASSERT_TRUE(file.ok()) << file.status().message();
  std::map<std::string, int> asked;
  const auto model = Model::load(**file, {.place = [&](const gguf::Tensor& t) -> Result<Placed> {
    ++asked[std::string(t.name)];
    return Placed{t.data};
  }});
  ASSERT_TRUE(model.ok()) << model.status().message();
  for (const gguf::Tensor& t : (*file)->tensors())
    EXPECT_EQ(asked[std::string(t.name)], t.name == "rope_freqs.weight" ? 0 : 1) << t.name;
}

TEST(Placer, ItsErrorIsTheLoadersAndOtherFamiliesRefuseIt) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  const LoadOptions full{
      .place = [](const gguf::Tensor&) -> Result<Placed> { return Status::exhausted("the card is full"); }};
  for (const auto& [name, message] :
       {std::pair{"qwen3.gguf", "the card is full"}, {"qwen3moe.gguf", "run on the CPU only"}}) {
    const auto file = gguf::File::open(data / "arch" / name, {});
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto model = Model::load(**file, full);
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_NE(model.status().message().find(message), std::string::npos) << model.status().message();
  }
}

}  // namespace
}  // namespace lode::model
