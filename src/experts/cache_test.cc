// The cache against all experts in memory: the same bits at every size, nothing allocated in a step, never more memory
// than was said, and a file that goes bad fails the step that needed it and no other.
#include "experts/cache.h"

#include <fstream>
#include <random>

#include <gtest/gtest.h>

#include "base/count_allocations.h"
#include "base/test_data.h"
#include "model/test_runner.h"

namespace lode::experts {
namespace {

namespace fs = std::filesystem;
using kernels::KvType;
using model::test::Runner;
using model::test::same_bits;

std::unique_ptr<Cache> open_cache(const Runner& r, std::uint64_t slots,
                                  CacheOptions::Prefetch prefetch = CacheOptions::Prefetch::automatic) {
  const auto layout = layout_of(*r.file, r.model->experts());
  EXPECT_TRUE(layout.ok()) << layout.status().message();
  auto cache = Cache::open(*r.file, r.model->experts(),
                           {.bytes_max = slots * layout->slot_bytes,
                            .used = static_cast<std::uint32_t>(r.model->facts().experts_used),
                            .table = r.stream.ops,
                            .prefetch = prefetch},
                           platform::real_file_system(), platform::system_clock());
  EXPECT_TRUE(cache.ok()) << cache.status().message();
  return cache.ok() ? std::move(cache).value() : nullptr;
}

std::vector<TokenId> some_ids(std::size_t n, std::int64_t vocab) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < n; ++i)
    ids.push_back(static_cast<TokenId>((i * 7919 + i * i * 31 + 17) % static_cast<std::size_t>(vocab)));
  return ids;
}

// Folder of a test's own, gone with it.
struct Folder {
  fs::path path = fs::path("/var/tmp") / ("lode-experts-" + std::to_string(std::random_device{}()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

class TrainedMoe : public ::testing::Test {
 protected:
  void SetUp() override {
    path = test::shared_data() / "models" / "tiny-moe-q4_k_s.gguf";
    if (!fs::exists(path)) GTEST_SKIP() << "needs ../shared/data/models/tiny-moe-q4_k_s.gguf";
  }
  fs::path path;
  const kernels::Table* table = kernels::available_tables().front();
};

TEST_F(TrainedMoe, TheSameBitsAtEverySize) {
  Runner r(path, table, 2, {.rows = 96, .outputs = 96, .runs = 1, .context = 96});
  const auto ids = some_ids(96, r.vocab());
  const auto whole = r.run(ids, 96, KvType::f16);
  for (const std::uint64_t slots : {512u, 256u, 128u, 32u}) {
    for (const std::int64_t chunk : {96, 31, 1}) {
      const auto cache = open_cache(r, slots);
      ASSERT_TRUE(cache);
      EXPECT_TRUE(same_bits(r.run(ids, chunk, KvType::f16, cache.get()), whole)) << slots << " slots, chunk " << chunk;
      const CacheStats s = cache->stats();
      EXPECT_LE(s.resident, slots);
      EXPECT_GT(s.misses, 0u);
      EXPECT_EQ(s.read_errors, 0u);
      if (slots == 512u) {
        EXPECT_LE(s.bytes_read, s.experts * s.slot_bytes) << "each is read once";
      }
    }
  }
}

TEST_F(TrainedMoe, ReadsWhatMissedAndNoMore) {
  Runner r(path, table, 2, {.rows = 1, .outputs = 1, .runs = 1, .context = 120});
  const auto ids = some_ids(120, r.vocab());
  const auto cache = open_cache(r, 256, CacheOptions::Prefetch::off);
  static_cast<void>(r.run(ids, 1, KvType::f16, cache.get()));
  const CacheStats s = cache->stats();
  EXPECT_EQ(s.hits + s.misses, 120u * 8 * 4);
  EXPECT_GT(s.hits, s.misses);
  EXPECT_LE(s.bytes_read, s.misses * s.slot_bytes);
  EXPECT_EQ(s.prefetched, 0u);
}

TEST_F(TrainedMoe, PrefetchIsOftenRightAndCountsItsWaste) {
  Runner r(path, table, 2, {.rows = 1, .outputs = 1, .runs = 1, .context = 120});
  const auto ids = some_ids(120, r.vocab());
  const auto cache = open_cache(r, 128);
  static_cast<void>(r.run(ids, 1, KvType::f16, cache.get()));
  const CacheStats s = cache->stats();
  EXPECT_GT(s.prefetched, 50u);
  EXPECT_GE(s.prefetched, s.prefetch_used + s.prefetch_wasted);
  EXPECT_GT(s.prefetch_used, s.prefetch_wasted);
  const auto without = open_cache(r, 128, CacheOptions::Prefetch::off);
  static_cast<void>(r.run(ids, 1, KvType::f16, without.get()));
  EXPECT_LT(s.misses, without->stats().misses);
}

TEST_F(TrainedMoe, AStepAllocatesNothing) {
  Runner r(path, table, 1, {.rows = 64, .outputs = 64, .runs = 1, .context = 120});
  const auto cache = open_cache(r, 64);
  model::test::SimpleKv kv(r.model->groups(), KvType::f16, 1);
  const auto id = [](std::size_t, std::int64_t p) { return static_cast<TokenId>(p * 37 % 1000); };
  static_cast<void>(r.step(kv, {{0, 64}}, id, cache.get()));
  const model::ExpertUse uses[] = {{ExpertId{3}, 1}, {ExpertId{9}, 1}, {ExpertId{40}, 1}, {ExpertId{63}, 1}};
  std::int64_t before = 0;
  for (int round = 0; round < 50; ++round) {
    if (round == 2) before = lode::test::allocations.load();  // The reader's queues have grown by then.
    for (std::uint32_t layer = 0; layer < 8; ++layer) {
      cache->begin(LayerIndex{layer}, uses);
      for (std::size_t done = 0; done < 4;) {
        const auto got = cache->ready(LayerIndex{layer});
        ASSERT_TRUE(got.ok());
        done += got.value().size();
      }
      cache->end(LayerIndex{layer});
    }
  }
  EXPECT_LE(lode::test::allocations.load() - before, 0);
}

TEST_F(TrainedMoe, LessThanOneTokensWorthIsRefusedWithNumbers) {
  Runner r(path, table, 1, {.rows = 1, .outputs = 1, .runs = 1, .context = 8});
  const auto layout = layout_of(*r.file, r.model->experts());
  const auto cache = Cache::open(*r.file, r.model->experts(), {.bytes_max = 31 * layout->slot_bytes, .used = 4},
                                 platform::real_file_system(), platform::system_clock());
  ASSERT_FALSE(cache.ok());
  EXPECT_EQ(cache.status().code(), Code::resource_exhausted);
  EXPECT_NE(cache.status().message().find("hold 31 experts"), std::string::npos) << cache.status().message();
  EXPECT_NE(cache.status().message().find("fewer than the 32"), std::string::npos);
}

// A file that shortens fails the step that needs what is gone, and works again when it is whole again; one that is
// unlinked meanwhile goes on, since it is open.
TEST_F(TrainedMoe, AFileThatShortensFailsTheStepAndRecovers) {
  Folder folder;
  const fs::path copy = folder.path / "model.gguf";
  fs::copy_file(path, copy, fs::copy_options::overwrite_existing);
  fs::permissions(copy, fs::perms::owner_all);
  Runner r(path, table, 1, {.rows = 1, .outputs = 1, .runs = 1, .context = 8});  // Weights of the whole file.
  Runner cut(copy, table, 1, {.rows = 1, .outputs = 1, .runs = 1, .context = 8});
  const auto cache = open_cache(cut, 64);
  const auto layout = layout_of(*cut.file, cut.model->experts());
  const std::uint64_t last = layout->places.back().extents[1].offset;
  const model::ExpertUse uses[] = {{ExpertId{1}, 1}, {ExpertId{63}, 1}};
  const auto step = [&]() -> Status {
    cache->begin(LayerIndex{7}, uses);
    for (std::size_t done = 0; done < 2;) {
      const auto got = cache->ready(LayerIndex{7});
      if (!got.ok()) return got.status();
      done += got.value().size();
    }
    cache->end(LayerIndex{7});
    return Status::success();
  };
  fs::resize_file(copy, last / 4096 * 4096);
  const Status failed = step();
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.message().find("expert"), std::string::npos);
  EXPECT_NE(failed.message().find("of layer 7 could not be read"), std::string::npos) << failed.message();
  EXPECT_NE(failed.message().find(copy.string()), std::string::npos);
  EXPECT_TRUE(cache->take_failure());
  EXPECT_FALSE(cache->take_failure());
  fs::copy_file(path, folder.path / "again.gguf");
  {
    std::ifstream from(path, std::ios::binary);
    std::ofstream to(copy, std::ios::binary | std::ios::in);
    to << from.rdbuf();
  }
  EXPECT_TRUE(step().ok());
  fs::remove(copy);
  EXPECT_TRUE(step().ok());
}

// G12: nothing outside the bytes that were read counts. Slots are filled with NaN patterns between steps here, by
// reading others into them; a width that is no multiple of a kernel's tile is in the arch files.
TEST(ExpertCache, G12_EveryArchitectureGivesTheSameBits) {
  if (test::shared_data().empty()) GTEST_SKIP() << "needs ../shared/data/arch";
  for (const char* name : {"qwen3moe", "qwen35moe"}) {
    const fs::path file = test::shared_data() / "arch" / (std::string(name) + ".gguf");
    if (!fs::exists(file)) continue;
    Runner r(file, kernels::available_tables().front(), 2, {.rows = 48, .outputs = 48, .runs = 1, .context = 48});
    const auto ids = some_ids(48, r.vocab());
    const auto whole = r.run(ids, 48, KvType::f32);
    const auto least = static_cast<std::uint64_t>(r.model->facts().expert_layers * r.model->facts().experts_used);
    for (const std::int64_t chunk : {48, 5, 1}) {
      const auto cache = open_cache(r, least);
      ASSERT_TRUE(cache);
      EXPECT_TRUE(same_bits(r.run(ids, chunk, KvType::f32, cache.get()), whole)) << name << ", chunk " << chunk;
    }
  }
}

}  // namespace
}  // namespace lode::experts
