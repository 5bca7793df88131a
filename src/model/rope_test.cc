// Rope scalings against double references that are written another way than rope.cc (by wavelengths and by the
// published formulas' own steps), through the kernel's table where positions matter.
#include "model/rope.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "base/test_data.h"
#include "model/test_edit.h"
#include "model/test_reference.h"
#include "model/test_runner.h"

namespace lode::model {
namespace {

using Kind = RopeScaling::Kind;
using test::Edited;
using test::Runner;

std::vector<double> plain(std::int64_t dims, double base) {
  std::vector<double> f;
  for (std::int64_t i = 0; i < dims / 2; ++i)
    f.push_back(1 / std::pow(base, static_cast<double>(2 * i) / static_cast<double>(dims)));
  return f;
}

// Config keys of a file with these and nothing else.
struct Parsed {
  std::string bytes;
  Result<std::unique_ptr<gguf::File>> file;
  RopeScaling scaling;
  Status status;
  Parsed(gguf::TestWriter w, std::int64_t context)
      : bytes(w.bytes()), file(gguf::File::open_bytes(std::as_bytes(std::span(bytes)), "rope.gguf")) {
    EXPECT_TRUE(file.ok()) << file.status().message();
    ConfigReader r(**file, "llama");
    Config c;
    c.context = context;
    scaling = read_rope_scaling(r, c);
    status = r.status();
  }
};

// The table's (cos, sin) of every pair at a position, from every instruction set.
void expect_table(const Rope& rope, const std::vector<double>& freq, double factor, std::int64_t position) {
  ThreadPool pool(1);
  kernels::Stream stream;
  stream.pool = &pool;
  for (const kernels::Table* table : kernels::available_tables()) {
    std::vector<float> out(freq.size() * 2);
    table->rope_table(stream, &position, 1, rope.inv_freq.data(), rope.pairs(), rope.attn_factor, out.data());
    for (std::size_t i = 0; i < freq.size(); ++i) {
      EXPECT_NEAR(out[2 * i], factor * std::cos(static_cast<double>(position) * freq[i]), 1e-5) << position << " " << i;
      EXPECT_NEAR(out[2 * i + 1], factor * std::sin(static_cast<double>(position) * freq[i]), 1e-5) << position;
    }
  }
}

// YaRN as its authors' code has it: a mask over pairs between the two correction dims.
std::vector<double> yarn(std::int64_t dims, double base, double factor, double original, double fast, double slow) {
  const auto correction = [&](double turns) {
    return static_cast<double>(dims) * std::log(original / (turns * 2 * M_PI)) / (2 * std::log(base));
  };
  const double low = std::max(std::floor(correction(fast)), 0.0);
  double high = std::min(std::ceil(correction(slow)), static_cast<double>(dims - 1));
  if (low == high) high += 0.001;
  std::vector<double> out;
  const auto kept = plain(dims, base);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const double mask = 1 - std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
    out.push_back(kept[i] / factor * (1 - mask) + kept[i] * mask);
  }
  return out;
}

TEST(Rope, H06YarnWithDefaultsAndMultipliers) {
  gguf::TestWriter w;
  w.string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 64);
  w.u32("llama.rope.scaling.original_context_length", 4096);
  const RopeScaling defaults = Parsed(w, 262144).scaling;
  EXPECT_EQ(defaults.original_context, 4096);
  const auto freq = yarn(128, 1e6, 64, 4096, 32, 1);
  const Rope rope = make_rope(128, 1e6, defaults, {}, 0);
  const double magnitude = 0.1 * std::log(64.0) + 1;
  EXPECT_NEAR(rope.attn_factor, magnitude, 1e-5);
  for (std::size_t i = 0; i < freq.size(); ++i) EXPECT_NEAR(rope.inv_freq[i] / freq[i], 1, 1e-5) << i;
  for (const std::int64_t position : {0, 4095, 4096, 65536}) expect_table(rope, freq, magnitude, position);

  w.f32("llama.rope.scaling.attn_factor", 0.5f).f32("llama.rope.scaling.yarn_log_multiplier", 0.25f);
  w.f32("llama.rope.scaling.yarn_beta_fast", 16).f32("llama.rope.scaling.yarn_beta_slow", 2);
  const Rope other = make_rope(128, 1e6, Parsed(w, 262144).scaling, {}, 0);
  const double all = 0.25 * 0.1 * std::log(64.0) + 1;
  EXPECT_NEAR(other.attn_factor, 0.5 * magnitude / all, 1e-5);
  const auto narrow = yarn(128, 1e6, 64, 4096, 16, 2);
  for (const std::int64_t position : {0, 4095, 4096, 65536})
    expect_table(other, narrow, 0.5 * magnitude / all, position);
  EXPECT_NE(describe(rope), describe(other));
}

TEST(Rope, H06YarnWithoutOriginalContextTakesTheTrainedOne) {
  gguf::TestWriter w;
  w.string("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4);
  const Rope rope = make_rope(64, 10000, Parsed(w, 8192).scaling, {}, 0);
  const auto freq = yarn(64, 10000, 4, 8192, 32, 1);
  for (std::size_t i = 0; i < freq.size(); ++i) EXPECT_NEAR(rope.inv_freq[i] / freq[i], 1, 1e-12) << i;
}

// By wavelengths, as Meta's code does it.
TEST(Rope, Llama3FromParametersOrDivisors) {
  gguf::TestWriter w;
  w.string("llama.rope.scaling.type", "llama3").f32("llama.rope.scaling.factor", 8);
  w.u32("llama.rope.scaling.original_context_length", 8192);
  const RopeScaling scaling = Parsed(w, 131072).scaling;
  const Rope rope = make_rope(128, 500000, scaling, {}, 0);
  const auto kept = plain(128, 500000);
  std::vector<float> divisors;
  int smoothed = 0;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const double wave = 2 * M_PI / kept[i];
    double want = kept[i];
    if (wave > 8192.0 / 1) want = kept[i] / 8;
    else if (wave >= 8192.0 / 4) {
      const double smooth = (8192.0 / wave - 1) / (4 - 1);
      want = (1 - smooth) * kept[i] / 8 + smooth * kept[i];
      ++smoothed;
    }
    EXPECT_NEAR(rope.inv_freq[i] / want, 1, 1e-12) << i;
    divisors.push_back(static_cast<float>(kept[i] / want));
  }
  EXPECT_GT(smoothed, 2);
  EXPECT_EQ(rope.attn_factor, 1);
  // A converter's divisors are the same rule: it is not applied twice.
  const Rope divided = make_rope(128, 500000, scaling, {.divisors = divisors.data()}, 0);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_NEAR(divided.inv_freq[i] / rope.inv_freq[i], 1, 1e-6) << i;
}

TEST(Rope, LongropeChoosesByTheConfiguredContext) {
  gguf::TestWriter w;
  w.string("llama.rope.scaling.type", "longrope").u32("llama.rope.scaling.original_context_length", 4096);
  const RopeScaling scaling = Parsed(w, 131072).scaling;
  const std::vector<float> near(32, 1.25f), far(32, 40.0f);
  const RopeFactors factors{.short_context = near.data(), .long_context = far.data()};
  const auto kept = plain(64, 10000);
  for (const auto& [context, factor] : {std::pair{0, 40.0}, {4097, 40.0}, {4096, 1.25}, {100, 1.25}}) {
    const Rope rope = make_rope(64, 10000, scaling, factors, context);
    for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_NEAR(rope.inv_freq[i] * factor / kept[i], 1, 1e-12);
    EXPECT_NEAR(rope.attn_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-5);
  }
  w.f32("llama.rope.scaling.attn_factor", 1.5f);
  EXPECT_EQ(make_rope(64, 10000, Parsed(w, 131072).scaling, factors, 0).attn_factor, 1.5f);
}

TEST(Rope, AFactorWithoutATypeIsLinear) {
  gguf::TestWriter w;
  w.f32("llama.rope.scale_linear", 4);
  const RopeScaling scaling = Parsed(w, 4096).scaling;
  EXPECT_EQ(scaling.kind, Kind::linear);
  EXPECT_NEAR(make_rope(64, 10000, scaling, {}, 0).inv_freq[3], plain(64, 10000)[3] / 4, 1e-12);
  w.string("llama.rope.scaling.type", "none");
  EXPECT_NEAR(make_rope(64, 10000, Parsed(w, 4096).scaling, {}, 0).inv_freq[3], plain(64, 10000)[3], 1e-12);
}

TEST(Rope, UnknownTypesAndAbsurdNumbersAreErrors) {
  gguf::TestWriter w;
  w.string("llama.rope.scaling.type", "spiral");
  const Status status = Parsed(w, 4096).status;
  EXPECT_NE(status.message().find("llama.rope.scaling.type"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("longrope"), std::string::npos) << status.message();
  gguf::TestWriter bad;
  bad.string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", NAN);
  EXPECT_FALSE(Parsed(bad, 4096).status.ok());
}

// H07: each of base, linear factor, divisors and a part of the head changes logits as the reference says.
TEST(Rope, H07ParametersReachTheLogits) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  Edited e(data / "arch" / "llama.gguf");
  std::mt19937 rng(5);
  std::vector<float> divisors;
  for (int i = 0; i < 16; ++i) divisors.push_back(std::uniform_real_distribution<float>(0.5f, 8)(rng));
  e.f32("llama.rope.freq_base", 1e6f).u32("llama.rope.dimension_count", 32);
  e.string("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4);
  e.tensor("rope_freqs.weight", quant::DType::f32, {16}, gguf::f32_bytes(divisors));
  const std::string bytes = e.bytes();
  Runner runner(bytes, {64, 64, 1, 64});
  auto ids = test::read_ids(data / "arch" / "llama.tokens.json");
  ids.resize(64);
  const auto got = runner.run(ids, 64, kernels::KvType::f32);
  test::Reference reference{*runner.file};
  reference.inv_freq = plain(32, 1e6);
  for (std::size_t i = 0; i < 16; ++i) reference.inv_freq[i] /= 4.0 * static_cast<double>(divisors[i]);
  EXPECT_LE(test::nmse(got, reference.logits(ids)), 1e-9);
  for (std::size_t i = 0; i < 16; ++i) reference.inv_freq[i] *= 4.0;
  EXPECT_GE(test::nmse(got, reference.logits(ids)), 1e-4);  // The test can fail.
}

TEST(Rope, FactorsInTensorsAreChecked) {
  const auto data = lode::test::shared_data();
  if (data.empty()) GTEST_SKIP() << "shared test data is absent";
  const auto message = [&](auto change) {
    Edited e(data / "arch" / "llama.gguf");
    change(e);
    const std::string bytes = e.bytes();
    auto file = gguf::File::open_bytes(std::as_bytes(std::span(bytes)), "edited.gguf");
    EXPECT_TRUE(file.ok()) << file.status().message();
    return Model::load(**file).status().message();
  };
  std::vector<float> zeros(32, 0.0f), ones(32, 1.0f);
  EXPECT_NE(message([&](Edited& e) {
              e.tensor("rope_freqs.weight", quant::DType::f32, {32}, gguf::f32_bytes(zeros));
            }).find("rope_freqs.weight'[0]: expected a positive number, found 0"),
            std::string::npos);
  EXPECT_NE(message([&](Edited& e) { e.string("llama.rope.scaling.type", "longrope"); }).find("rope_factors_short"),
            std::string::npos);
  // Longrope's tensors under another type would go unread.
  EXPECT_NE(message([&](Edited& e) {
              e.tensor("rope_factors_long.weight", quant::DType::f32, {32}, gguf::f32_bytes(ones));
            }).find("rope_factors_long"),
            std::string::npos);
}

}  // namespace
}  // namespace lode::model
