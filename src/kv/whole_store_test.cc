// The store with its real disk tier and its threads, over a file system in memory.
#include <gtest/gtest.h>

#include "kv/store_sessions.h"
#include "platform/fake_file_system.h"

namespace lode::kv::test {
namespace {

struct Shape {
  const char* name;
  std::vector<model::CacheGroup> groups;
};
void PrintTo(const Shape& s, std::ostream* out) {
  *out << s.name;
}

class WholeStore : public ::testing::TestWithParam<Shape> {
 protected:
  RigOptions options(std::uint64_t quota = 1 << 30) {
    RigOptions o;
    o.groups = GetParam().groups;
    o.checkpoint_tokens = 64;
    o.context = 1000;
    o.sequences = 6;
    o.make_disk = [this, quota](const std::vector<model::BlockLayout>& layouts) {
      DiskConfig c;
      c.dir = kDir;
      c.groups = layouts;
      for (const auto& g : GetParam().groups) c.whole_history.push_back(g.kind == model::CacheGroup::Kind::full);
      c.quota_bytes = quota;
      c.free_floor_bytes = 0;
      auto tier = DiskTier::open(c, fs_, platform::system_clock());
      EXPECT_TRUE(tier.ok()) << tier.status().message();
      return tier.ok() ? std::move(tier).value() : nullptr;
    };
    return o;
  }
  // Flips bytes of, cuts or removes some files, under the store's feet.
  void hurt(std::mt19937& rng) {
    for (const auto& path : fs_.files(kDir)) {
      auto bytes = fs_.contents(path);
      if (!bytes || bytes->size() < 4096) continue;
      const unsigned what = rng() % 20;
      if (what < 4) (*bytes)[rng() % bytes->size()] ^= static_cast<std::byte>(1 << rng() % 8);
      else if (what == 4) bytes->resize(rng() % bytes->size());
      if (what < 5) fs_.set_contents(path, std::move(*bytes));
      else if (what == 5) (void)fs_.unlink(path);
    }
  }

  static constexpr const char* kDir = "/kv";
  platform::FakeFileSystem fs_;
};

TEST_P(WholeStore, RestoresAfterARestart) {
  std::mt19937 rng(51);
  Rig rig(options());
  const Tokens document = random_tokens(rng, 900);
  rig.serve(document);
  ASSERT_TRUE(rig.store->flush(60'000));
  rig.restart();
  // The last boundary of the common part; with recurrent layers, the last regular checkpoint.
  const std::int64_t common = GetParam().name == std::string("Windows") ? 672 : 640;
  const Reuse r = rig.serve(concat(head(document, 700), random_tokens(rng, 30)));
  EXPECT_EQ(r.tokens_reused, common);
  EXPECT_EQ(r.from_disk, common);
  rig.restart();
  EXPECT_EQ(rig.serve(document).tokens_reused, 896);
  EXPECT_GT(rig.store->stats().disk.bytes_read, 0u);
}

TEST_P(WholeStore, NeverLiesOverDamagedFiles) {
  std::int64_t reused = 0, repairs = 0;
  for (std::uint32_t seed = 0; seed < 4 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RigOptions o = options();
    o.unpinned_bytes = 100 << 10;
    Sessions s(seed, o);
    s.hurt = [this](std::mt19937& r) { hurt(r); };
    s.run(500);
    reused += s.reused;
    repairs += s.repairs;
  }
  EXPECT_GT(reused, 0);
  EXPECT_GT(repairs, 0);
}

TEST_P(WholeStore, NeverLiesWithinASmallQuota) {
  for (std::uint32_t seed = 10; seed < 13 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RigOptions o = options(1500 << 10);
    o.arena_bytes = 640 << 10;
    o.unpinned_bytes = 200 << 10;
    Sessions s(seed, o);
    s.run(500);
    EXPECT_GT(s.reused, 0);
  }
}

TEST_P(WholeStore, OpensThroughItsFrontDoor) {
  StoreConfig c;
  c.groups = GetParam().groups;
  c.arena_bytes_max = 8 << 20;
  c.context_max = 500;
  c.disk = DiskConfig{};
  c.disk->dir = kDir;
  c.disk->quota_bytes = 1 << 30;
  c.disk->free_floor_bytes = 0;
  auto store = Store::open(c, fs_, platform::system_clock());
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ((*store)->stats().disk_note, "");
  EXPECT_FALSE((*store)->stats().disk.mode.empty());
  fs_.reset_ops();
  fs_.crash_at(0, 1);  // Nothing works from here on.
  auto without = Store::open(c, fs_, platform::system_clock());
  ASSERT_TRUE(without.ok()) << "a folder that cannot be used costs the tier, not the store";
  EXPECT_NE((*without)->stats().disk_note, "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, WholeStore,
                         ::testing::Values(Shape{"Windows", window_groups()}, Shape{"Hybrid", hybrid_groups()},
                                           Shape{"ThreeGroups", three_groups()},
                                           Shape{"RecurrentAlone", {state_group()}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lode::kv::test
