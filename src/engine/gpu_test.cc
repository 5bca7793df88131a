// The engine over a device that is made of host memory and the CPU's kernels: what it answers is what the CPU answers,
// bit for bit, wherever its blocks lie; its memory stays within --vram; and what cannot be had is said.
#include "engine/gpu.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/test_data.h"
#include "engine/engine.h"
#include "engine/test_collector.h"
#include "kernels/fake_device.h"

namespace lode::engine {
namespace {

namespace fs = std::filesystem;

// What the next device will be, and the last one that was opened: a function without state opens it.
kernels::test::FakeDeviceOptions g_card;
kernels::test::FakeDevice* g_device = nullptr;
Result<std::unique_ptr<kernels::Device>> open_fake(const kernels::DeviceOptions&) {
  auto device = std::make_unique<kernels::test::FakeDevice>(g_card);
  g_device = device.get();
  return std::unique_ptr<kernels::Device>(std::move(device));
}
Result<std::unique_ptr<kernels::Device>> open_none(const kernels::DeviceOptions&) {
  return Status(Code::unavailable, "no card here");
}

using test::Collector, test::expect_same, test::prompt, test::request;

class GpuTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto data = lode::test::shared_data();
    if (data.empty()) GTEST_SKIP() << "shared test data is absent";
    options.model = data / "arch" / GetParam();
    options.kv_disk = "off";
    options.threads = 2;
    options.slots = 3;
    options.chunk = 64;
    options.ctx = 1024;
    options.open_device = &open_fake;
    g_card = {};
    disk = fs::temp_directory_path() / ("lode_gpu_test_" + std::to_string(::getpid()) + "_" + GetParam());
    fs::remove_all(disk);
  }
  void TearDown() override { fs::remove_all(disk); }

  // A card on which `bytes` are left for KV.
  void leave_for_kv(std::uint64_t bytes) {
    EngineOptions roomy = options;
    auto engine = Engine::create(roomy);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    const kv::StoreStats kv = engine.value()->stats().kv;
    // The driver takes with its first step what was planned for it.
    g_card.first_step_bytes = 160 * kMiB;
    const std::uint64_t others = kv.vram_committed_bytes + g_card.first_step_bytes;
    options.vram = std::to_string(others + bytes);
  }
  std::unique_ptr<Engine> make() {
    auto engine = Engine::create(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(engine).value();
  }
  std::unique_ptr<Engine> make_cpu() {
    EngineOptions cpu = options;
    cpu.vram = "0";
    auto engine = Engine::create(cpu);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(engine).value();
  }
  static void submit(Engine& engine, std::vector<TokenId> ids, Collector& out) {
    const auto id = engine.submit(request(std::move(ids)), out.sink());
    ASSERT_TRUE(id.ok()) << id.status().message();
  }
  static void wait(Collector& out) {
    out.wait();
    ASSERT_EQ(out.last.kind, Event::Kind::finished) << out.last.error.message();
  }
  static void run(Engine& engine, std::vector<TokenId> ids, Collector& out) {
    submit(engine, std::move(ids), out);
    wait(out);
  }

  EngineOptions options;
  fs::path disk;
};

TEST_P(GpuTest, ColdWarmAndBatchedEqualTheCpu) {
  auto cpu = make_cpu();
  auto gpu = make();
  EXPECT_EQ(gpu->info().isa, "fake");
  EXPECT_EQ(gpu->info().numerics_id, "fake-device");
  for (const int n : {1, 33, 200}) {
    Collector want, cold, warm;
    run(*cpu, prompt(n), want);
    run(*gpu, prompt(n), cold);
    run(*gpu, prompt(n), warm);
    expect_same(want, cold);
    expect_same(want, warm);
    EXPECT_EQ(warm.last.reuse.tokens_reused, (n - 1) / 32 * 32);
  }
  Collector want[3], got[3];
  for (int i = 0; i < 3; ++i) run(*cpu, prompt(150 + i, i, 70), want[i]);
  for (int i = 0; i < 3; ++i) submit(*gpu, prompt(150 + i, i, 70), got[i]);
  for (int i = 0; i < 3; ++i) wait(got[i]);
  for (int i = 0; i < 3; ++i) expect_same(want[i], got[i]);
  EXPECT_GT(g_device->replays, 0);
  EXPECT_GT(gpu->stats().kv.vram_kv_bytes, 0u);
}

TEST_P(GpuTest, RestoredEqualsCold) {
  options.kv_disk = disk.string();
  Collector cold, restored;
  {
    auto engine = make();
    run(*engine, prompt(400), cold);
  }
  auto engine = make();
  const std::uint64_t before = g_device->copied_in;
  run(*engine, prompt(400), restored);
  expect_same(cold, restored);
  EXPECT_EQ(restored.last.reuse.from_disk, 384);
  EXPECT_GT(g_device->copied_in, before) << "blocks went to the card";
}

// More KV than the card has room for: blocks lie in RAM, are used there, and the bound holds.
TEST_P(GpuTest, OverflowsIntoRamWithinTheBudget) {
  options.ctx = 3000;
  options.k_type = options.v_type = kernels::KvType::f32;
  auto cpu = make_cpu();
  leave_for_kv(4 * kMiB);
  auto gpu = make();
  const std::uint64_t bound = std::stoull(options.vram);
  Collector want[3], got[3];
  for (int i = 0; i < 3; ++i) run(*cpu, prompt(1500 + i, i, 40), want[i]);
  for (int i = 0; i < 3; ++i) submit(*gpu, prompt(1500 + i, i, 40), got[i]);
  for (int i = 0; i < 3; ++i) wait(got[i]);
  for (int i = 0; i < 3; ++i) expect_same(want[i], got[i]);
  EXPECT_LE(g_device->peak_bytes(), bound);
  // Those that have moved to RAM come back.
  Collector again;
  run(*gpu, prompt(1500), again);
  expect_same(want[0], again);
  gpu->stop(0);  // Its last figures.
  const kv::StoreStats kv = gpu->stats().kv;
  EXPECT_LE(kv.vram_peak_bytes, bound);
  EXPECT_LE(kv.vram_kv_bytes, 4 * kMiB);
  EXPECT_GT(kv.committed_bytes, 0u) << "nothing lies in RAM";
}

// The driver takes more than was planned: KV gets less, not the driver's memory.
TEST_P(GpuTest, TheDriversShareIsMeasured) {
  g_card.first_step_bytes = 100 * kMiB;
  g_card.memory_bytes = 2 * kGiB;
  options.vram = "700MiB";
  {
    auto engine = make();
    const kv::StoreStats kv = engine->stats().kv;
    EXPECT_GE(kv.vram_committed_bytes, 108 * kMiB);
    EXPECT_LT(kv.vram_committed_bytes, 108 * kMiB + plan::kVramMargin + 24 * kMiB);
  }
  g_card.first_step_bytes = 800 * kMiB;
  const auto engine = Engine::create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("the driver takes"), std::string::npos) << engine.status().message();
}

// The driver's share grows while the engine runs: KV that nobody pins makes room, in pieces of 2 MiB. (What a
// request pins may lie in any of them: with a short one most pieces are free.)
TEST_P(GpuTest, KvYieldsToTheDriver) {
  options.k_type = options.v_type = kernels::KvType::f32;
  leave_for_kv(24 * kMiB);
  auto gpu = make();
  const std::uint64_t bound = std::stoull(options.vram);
  Collector cold, warm;
  for (int seed = 1; seed < 27; ++seed) {
    Collector other;
    run(*gpu, prompt(900, seed), other);
  }
  run(*gpu, prompt(100), cold);
  const std::uint64_t before = gpu->stats().kv.vram_kv_bytes;
  g_device->grow_driver(8 * kMiB);
  std::this_thread::sleep_for(std::chrono::milliseconds(40));  // It is counted at most every 20 ms.
  run(*gpu, prompt(100), warm);
  EXPECT_LE(g_device->used_bytes(), bound);
  expect_same(cold, warm);
  gpu->stop(0);  // Its last figures.
  EXPECT_LT(gpu->stats().kv.vram_kv_bytes, before);
}

// Damage that a staged read finds is computed again.
TEST_P(GpuTest, DamageIsComputedAgain) {
  options.kv_disk = disk.string();
  Collector cold, restored;
  {
    auto engine = make();
    run(*engine, prompt(600), cold);
  }
  for (const auto& entry : fs::recursive_directory_iterator(disk)) {
    if (entry.path().extension() != ".kvx") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(entry.path()) - 5000));
    file.put('x');
  }
  auto engine = make();
  run(*engine, prompt(600), restored);
  expect_same(cold, restored);
  engine->stop(0);  // Its last figures.
  EXPECT_GT(engine->stats().kv.corrupt_blocks, 0u);
}

TEST_P(GpuTest, WithoutACardTheCpuComputesUnlessOneWasAskedFor) {
  options.open_device = &open_none;
  EXPECT_NE(make()->info().numerics_id, "fake-device");
  options.vram = "1GiB";
  const auto engine = Engine::create(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("no card here"), std::string::npos);
}

TEST_P(GpuTest, ACardThatIsTooSmall) {
  options.vram = "40MiB";
  const auto asked = Engine::create(options);
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.status().code(), Code::resource_exhausted);
  EXPECT_NE(asked.status().message().find("does not fit the card"), std::string::npos) << asked.status().message();
  EXPECT_NE(asked.status().message().find("--vram"), std::string::npos);
  // Nobody asked for the card: the CPU computes, and the notes say why.
  options.vram.clear();
  g_card.memory_bytes = 40 * kMiB;
  auto engine = make();
  EXPECT_NE(engine->info().numerics_id, "fake-device");
  std::string notes;
  for (const auto& note : engine->info().notes) notes += note + "\n";
  EXPECT_NE(notes.find("computing on the CPU: the model does not fit the card"), std::string::npos) << notes;
}

INSTANTIATE_TEST_SUITE_P(Tiny, GpuTest, ::testing::Values("llama.gguf", "gemma3.gguf", "qwen3.gguf"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('.'));
                         });

}  // namespace
}  // namespace lode::engine
