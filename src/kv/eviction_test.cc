// What leaves first, from RAM and from the SSD; what is not written, and what is not read.
#include "kv/eviction.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kv/disk_index.h"
#include "kv/index_log.h"
#include "kv/store_test_util.h"

namespace lode::kv::test {
namespace {

using Disk = RigOptions::Disk;
constexpr std::uint64_t kBlockBytes = 8 << 10;  // Of full_groups().

// As an engine would report steps at several depths.
void computed(Rig& rig, double per_token, double per_depth) {
  for (int i = 0; i < 8; ++i) {
    const double positions = 512.0 * (512.0 * i + 256);
    rig.store->note_computed(
        {.tokens = 512, .positions = positions, .seconds = 512 * per_token + per_depth * positions});
  }
}

TEST(Eviction, ScansDoNotPushOutWhatIsUsed) {
  std::mt19937 rng(1);
  for (const auto& groups : {full_groups(), window_groups(), hybrid_groups()}) {
    Rig rig({.groups = groups, .unpinned_bytes = 60 * 12 * kKiB});
    const Tokens hot = random_tokens(rng, 500);
    for (int i = 0; i < 4; ++i) rig.serve(hot);
    for (int i = 0; i < 6; ++i) rig.serve(random_tokens(rng, 1200));  // Each two thirds of the memory.
    EXPECT_EQ(rig.serve(hot).from_ram, 480);
  }
}

TEST(Eviction, LeavesGoFirst) {
  std::mt19937 rng(2);
  Rig rig({.groups = full_groups(), .unpinned_bytes = 30 * kBlockBytes});
  const Tokens a = random_tokens(rng, 32 * 20 + 1), b = random_tokens(rng, 32 * 20 + 1);
  rig.serve(a);
  rig.serve(b);
  EXPECT_EQ(rig.store->stats().unpinned_bytes, 30 * kBlockBytes);
  const std::int64_t of_a = rig.serve(a).tokens_reused;
  EXPECT_GT(of_a, 0) << "its beginning";
  EXPECT_LT(of_a, 640) << "not its end";
}

// Equally old, equally often used: what is computed at depth takes longer.
TEST(Eviction, WhatTookLongerStays) {
  std::mt19937 rng(3);
  Rig rig({.groups = full_groups(), .unpinned_bytes = 100 * kBlockBytes, .context = 8000});
  computed(rig, 1e-4, 1e-5);  // 2,000 tokens of depth: 200 times as long.
  const Tokens document = random_tokens(rng, 32 * 90 + 1);
  rig.serve(document);
  for (int i = 0; i < 5; ++i) rig.serve(random_tokens(rng, 32 * 20 + 1));
  EXPECT_GE(rig.serve(document).from_ram, 32 * 75) << "the short prompts gave way to each other";
}

TEST(Eviction, WhatTheSsdHasTooGoesBeforeWhatOnlyRamHas) {
  std::mt19937 rng(4);
  Rig rig({.groups = full_groups(), .unpinned_bytes = 30 * kBlockBytes, .disk = Disk::fake});
  const Tokens alone = random_tokens(rng, 32 * 15 + 1), both = random_tokens(rng, 32 * 15 + 1);
  rig.knobs->refuse = WriteResult::dropped_quota;
  rig.serve(alone);
  rig.knobs->refuse = WriteResult::queued;
  rig.serve(both);
  rig.serve(random_tokens(rng, 32 * 12 + 1));
  rig.store->poll();
  EXPECT_EQ(rig.serve(alone).from_ram, 480) << "longest unused, but to be computed again";
  const Reuse r = rig.serve(both);
  EXPECT_EQ(r.tokens_reused, 480);
  EXPECT_GT(r.from_disk, 0);
}

TEST(Admission, ReadingThatIsSlowerThanComputingIsNotDone) {
  std::mt19937 rng(5);
  Rig rig({.groups = full_groups(), .arena_bytes = 64 << 20, .unpinned_bytes = 0, .context = 8000, .disk = Disk::fake});
  rig.knobs->bytes_per_second = 1e6;
  const Tokens document = random_tokens(rng, 6000);
  rig.serve(document);
  ASSERT_TRUE(rig.store->flush(1000));
  computed(rig, 1e-5, 0);  // 60 ms for all of it; reading 1.5 MB takes 1.5 s.
  EXPECT_EQ(rig.serve(document).from_disk, 5984) << "nothing is known of the disk before the first restore";
  Reuse r = rig.serve(document);
  EXPECT_EQ(r.tokens_reused, 0);
  EXPECT_EQ(r.reason, "reading is slower than computing here");
  const auto why = rig.store->explain(document, "");
  ASSERT_TRUE(why.ok());
  EXPECT_EQ(why->stop, Stop::slow_read);
  EXPECT_EQ(why->reuse.reason, r.reason);
  EXPECT_EQ(why->reuse.tokens_reused, 0);
  // An hour later the disk is given another chance.
  rig.knobs->bytes_per_second = 1e9;
  rig.clock.advance_seconds(3601);
  EXPECT_EQ(rig.serve(document).from_disk, 5984);
  EXPECT_EQ(rig.serve(document).from_disk, 5984);
}

TEST(Admission, WhatWouldNotBeReadIsNotWritten) {
  std::mt19937 rng(6);
  Rig rig({.groups = full_groups(), .arena_bytes = 64 << 20, .unpinned_bytes = 0, .context = 8000, .disk = Disk::fake});
  rig.knobs->bytes_per_second = 1e6;  // A block takes 8.2 ms.
  const Tokens document = random_tokens(rng, 6000);
  rig.serve(document);
  ASSERT_TRUE(rig.store->flush(1000));
  computed(rig, 2e-4, 1e-7);  // A block takes 6.4 ms, and as long as reading it at a depth of 560 tokens.
  rig.serve(document);        // Measures the disk.
  rig.disk->extent_sizes.clear();
  const Tokens shorter = random_tokens(rng, 600), longer = random_tokens(rng, 2000);
  rig.serve(shorter);
  rig.store->flush(1000);
  EXPECT_TRUE(rig.disk->extent_sizes.empty());
  rig.serve(longer);  // Pays from about 1,120 tokens on: then it is written from its beginning.
  rig.store->flush(1000);
  // Its 62 blocks, and up to 15 once more: the extent in which it began to pay is rewritten whole.
  const auto& sizes = rig.disk->extent_sizes;
  const std::size_t written = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  EXPECT_GE(written, 62u);
  EXPECT_LE(written, 62u + 15);
  rig.restart();
  EXPECT_EQ(rig.serve(longer).from_disk, 1984);
}

TEST(Admission, NearTheDailyCapOnlyWhatIsUsedAgainIsWritten) {
  std::mt19937 rng(7);
  Rig rig({.groups = full_groups(), .disk = Disk::fake});
  rig.knobs->near_cap = true;
  const Tokens once = random_tokens(rng, 500), twice = random_tokens(rng, 500);
  rig.serve(once);
  rig.serve(twice);
  rig.store->flush(1000);
  EXPECT_TRUE(rig.stored->blocks.empty());
  EXPECT_EQ(rig.serve(twice).from_ram, 480);
  rig.clock.advance_seconds(2);
  rig.store->poll();
  rig.store->flush(1000);
  rig.restart();
  EXPECT_EQ(rig.serve(twice).from_disk, 480);
  EXPECT_EQ(rig.serve(once).tokens_reused, 0);
}

ExtentMeta extent(std::uint8_t chain, std::int64_t first_index, std::uint32_t blocks = 16, std::uint32_t group = 0) {
  const auto key = [&](std::int64_t index) {
    BlockKey k;
    if (index < 0) return k;
    k.bytes[0] = chain;
    k.bytes[1] = static_cast<std::uint8_t>(index);
    k.bytes[2] = 1;
    return k;
  };
  ExtentMeta m;
  m.first_index = first_index;
  m.parent = key(first_index - 1);
  for (std::uint32_t i = 0; i < blocks; ++i) {
    m.keys.push_back(key(first_index + i));
    m.ids.emplace_back();
  }
  m.name = {.last = m.keys.back(), .layout = 1, .group = group, .blocks = blocks};
  return m;
}

TEST(DiskEviction, UsesAndDepthCount) {
  DiskIndex index;
  index.set_compute_cost(ComputeCost(1e-3, 1e-4));
  const ExtentMeta used = extent(1, 0), once = extent(2, 0), start = extent(3, 0), deep = extent(3, 16);
  for (const ExtentMeta& m : {used, once, start, deep}) index.add(m, 1 << 20, 100);
  for (int i = 0; i < 3; ++i)
    for (const BlockKey& key : used.keys) index.touch(key, 101);
  EXPECT_EQ((*index.find(used.name))->uses, 3u) << "not each block's";
  std::vector<ExtentName> order;
  for (int i = 0; i < 4; ++i) {
    const auto victim = index.victim(BlockKey{});
    ASSERT_TRUE(victim);
    order.push_back((*victim)->name);
    index.remove(*victim);
  }
  // `start` is worth as little as `once`, but what stands on it would be worth nothing: that goes first.
  EXPECT_EQ(order, (std::vector<ExtentName>{once.name, deep.name, start.name, used.name}));
  EXPECT_FALSE(index.victim(BlockKey{}));
}

TEST(DiskEviction, AncestorsAreSpared) {
  DiskIndex index;
  const ExtentMeta a = extent(1, 0), b = extent(1, 16), c = extent(2, 0);
  for (const ExtentMeta& m : {a, b, c}) index.add(m, 1 << 20, 100);
  for (int i = 0; i < 5; ++i) index.touch(c.keys[0], 101);
  EXPECT_EQ((*index.victim(b.keys.back()))->name, c.name) << "however often it was used";
  EXPECT_EQ((*index.victim(BlockKey{}))->name, b.name) << "the others are back on their shelves";
}

TEST(DiskEviction, PinnedExtentsStay) {
  DiskIndex index;
  index.set_whole_history({true, false});
  const ExtentMeta a = extent(1, 0), b = extent(1, 16), c = extent(2, 0), on_c = extent(2, 0, 16, 1),
                   late = extent(3, 0);
  for (const BlockKey& key : late.keys) index.pin(key, GroupId{0});  // Before it comes.
  for (const ExtentMeta& m : {a, b, c, on_c, late}) index.add(m, 1 << 20, 100);
  for (const BlockKey& key : a.keys) index.pin(key, GroupId{0});
  for (const BlockKey& key : on_c.keys) index.pin(key, GroupId{1});
  index.touch(a.keys[0], 101);  // A use puts it on no shelf.
  std::vector<ExtentName> order;
  while (const auto victim = index.victim(BlockKey{})) {
    order.push_back((*victim)->name);
    index.evict(*victim);
  }
  std::sort(order.begin(), order.end());
  std::vector<ExtentName> free = {b.name, c.name};
  std::sort(free.begin(), free.end());
  EXPECT_EQ(order, free) << "a chain's unpinned end too, and what a pinned window stands on";
  index.unpin_all();
  EXPECT_TRUE(index.victim(BlockKey{}));
}

TEST(DiskEviction, UsesSurviveARestart) {
  DiskIndex index;
  const ExtentMeta a = extent(1, 0), b = extent(2, 0);
  for (const ExtentMeta& m : {a, b}) index.add(m, 1 << 20, 100);
  for (int i = 0; i < 3; ++i) index.touch(a.keys[0], 101);
  index.touch(b.keys[0], 101);
  const auto touched = index.take_touched();
  EXPECT_EQ(touched, (std::vector<ExtentName>{a.name, a.name, a.name, b.name}));
  EXPECT_TRUE(index.take_touched().empty());
  std::vector<std::byte> log = begin_record({});
  for (const auto& part : {add_record({a, 100}), add_record({b, 100}), touch_record(touched, 101)})
    log.insert(log.end(), part.begin(), part.end());
  const LogReplay replay = replay_log(log, {});
  ASSERT_EQ(replay.extents.size(), 2u);
  EXPECT_EQ(replay.extents[0].uses, 3u);
  EXPECT_EQ(replay.extents[1].uses, 1u);
}

}  // namespace
}  // namespace lode::kv::test
