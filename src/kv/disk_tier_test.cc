#include "kv/disk_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "kv/disk_test_util.h"
#include "kv/extent.h"
#include "kv/index_log.h"

namespace lode::kv {
namespace {

using namespace test;
using platform::FakeFileSystem;
constexpr std::int64_t kSoon = 20'000;  // Milliseconds; a test that waits this long has failed.

TEST(DiskTier, WhatWasWrittenIsReadBackAfterARestart) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(40, 1);
  int done = 0;
  for (const GroupId group : {kFullGroup, kWindowGroup}) {
    EXPECT_EQ(h.write(group, std::span(chain).subspan(0, 16), &done), WriteResult::queued);
    EXPECT_EQ(h.write(group, std::span(chain).subspan(16, 16), &done), WriteResult::queued);
    EXPECT_EQ(h.write(group, std::span(chain).subspan(32, 8), &done), WriteResult::queued);
  }
  EXPECT_FALSE(h.tier->contains(chain[0].key, kFullGroup)) << "not durable yet";
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(done, 6);
  EXPECT_EQ(h.read(kFullGroup, chain), 40u);
  for (int restart = 0; restart < 2; ++restart) {
    ASSERT_TRUE(h.open().ok());
    EXPECT_EQ(h.contained(kFullGroup, chain), 40u);
    EXPECT_EQ(h.contained(kWindowGroup, chain), 40u);
    EXPECT_EQ(h.read(kFullGroup, chain), 40u);
    EXPECT_EQ(h.read(kWindowGroup, chain), 40u);
    EXPECT_EQ(h.tier->stats().extents, 6u);
    EXPECT_EQ(h.tier->stats().blocks, 40u);
    h.expect_tidy();
    // Without the log the extents tell the same.
    if (restart == 0) {
      ASSERT_TRUE(h.fake.unlink(h.own() / "index.log").ok());
    }
  }
}

TEST(DiskTier, AnyBlocksInAnyOrder) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(32, 2);
  h.write(kFullGroup, std::span(chain).first(16));
  h.write(kFullGroup, std::span(chain).subspan(16));
  ASSERT_TRUE(h.tier->flush(kSoon));
  for (std::size_t first = 0; first < 32; first += 3) {
    for (std::size_t count = 1; first + count <= 32; count += 5) {
      EXPECT_EQ(h.read(kFullGroup, std::span(chain).subspan(first, count)), count);
    }
  }
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<DiskBlock> some;
    for (const auto& b : chain) {
      if (random() % 2) some.push_back(b);
    }
    std::shuffle(some.begin(), some.end(), random);
    EXPECT_EQ(h.read(kFullGroup, some), some.size());
  }
}

TEST(DiskTier, AnUnknownBlockFailsAlone) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(4, 4), other = make_chain(1, 5);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  auto mixed = chain;
  mixed.insert(mixed.begin() + 2, other[0]);
  EXPECT_EQ(h.read(kFullGroup, mixed), 4u);
  EXPECT_EQ(h.read(kWindowGroup, chain), 0u);
  EXPECT_EQ(h.read(kFullGroup, {}), 0u);
  EXPECT_EQ(h.tier->find(other[0].key), nullptr);
}

TEST(DiskTier, ALongerExtentReplacesAShorterOne) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 6);
  h.write(kFullGroup, std::span(chain).first(5));
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.write(kFullGroup, std::span(chain).subspan(5, 4));
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.extents().size(), 2u);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.extents().size(), 1u);
  EXPECT_EQ(h.tier->stats().extents, 1u);
  EXPECT_EQ(h.read(kFullGroup, chain), 16u);
  // What one extent holds already is not written again.
  int done = 0;
  EXPECT_EQ(h.write(kFullGroup, std::span(chain).subspan(3, 7), &done), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.tier->poll();
  EXPECT_EQ(done, 1);
  EXPECT_EQ(h.extents().size(), 1u);
  h.expect_tidy();
}

TEST(DiskTier, TheClosestChildIsFoundInsideAndBehindExtents) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(32, 60);
  h.write(kFullGroup, std::span(chain).first(16));
  h.write(kFullGroup, std::span(chain).subspan(16));
  ASSERT_TRUE(h.tier->flush(kSoon));
  ASSERT_TRUE(h.open().ok());
  for (const std::size_t block : {std::size_t{0}, std::size_t{5}, std::size_t{16}, std::size_t{31}}) {
    auto ids = chain[block].ids;
    EXPECT_EQ(h.tier->closest_child(chain[block].parent, ids), 32);
    ids[7] += 1;
    EXPECT_EQ(h.tier->closest_child(chain[block].parent, ids), 7);
  }
  EXPECT_EQ(h.tier->closest_child(chain[31].key, chain[0].ids), -1);
}

// Two chains; a checkpoint on top of the older one's history goes before it, the history's own last extent first.
TEST(DiskTier, WhatLiesOnTopOfAHistoryGoesBeforeIt) {
  Harness h;
  h.config.whole_history = {true, false};
  h.config.quota_bytes = 2 << 20;
  ASSERT_TRUE(h.open().ok());
  const auto old = make_chain(32, 61), recent = make_chain(16, 62);
  h.write(kFullGroup, std::span(old).first(16));
  h.write(kFullGroup, std::span(old).subspan(16));
  h.write(kWindowGroup, std::span(old).subspan(20, 1));
  h.write(kWindowGroup, std::span(old).subspan(3, 1));
  h.write(kFullGroup, recent);
  ASSERT_TRUE(h.tier->flush(kSoon));
  // In this order, though the root of the older chain was used longest ago.
  const std::array<std::pair<BlockKey, GroupId>, 5> order = {{{old[20].key, kWindowGroup},
                                                              {old[16].key, kFullGroup},
                                                              {old[3].key, kWindowGroup},
                                                              {old[0].key, kFullGroup},
                                                              {recent[0].key, kFullGroup}}};
  for (std::uint64_t seed = 70; h.tier->contains(recent[0].key, kFullGroup) && seed < 2000; ++seed) {
    h.write(kFullGroup, make_chain(1, seed));
    ASSERT_TRUE(h.tier->flush(kSoon));
    for (std::size_t i = 1; i < order.size(); ++i)
      EXPECT_LE(h.tier->contains(order[i - 1].first, order[i - 1].second),
                h.tier->contains(order[i].first, order[i].second))
          << i << " went before " << i - 1;
  }
  EXPECT_FALSE(h.tier->contains(recent[0].key, kFullGroup));
}

TEST(DiskTier, TheSameExtentQueuedTwiceIsWrittenOnce) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 7);
  int done = 0;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(h.write(kFullGroup, chain, &done), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.tier->poll();
  EXPECT_EQ(done, 3);
  EXPECT_EQ(h.tier->stats().extents, 1u);
}

TEST(DiskTier, AFullQueueDrops) {
  Harness h;
  const auto block = static_cast<std::uint64_t>(h.config.groups[0].block_bytes);
  h.config.queue_bytes_max = 20 * block;
  ASSERT_TRUE(h.open().ok());
  // Without poll() nothing leaves the queue, so the count is exact.
  EXPECT_EQ(h.write(kFullGroup, make_chain(16, 1)), WriteResult::queued);
  EXPECT_EQ(h.write(kFullGroup, make_chain(4, 2)), WriteResult::queued);
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 3)), WriteResult::dropped_queue_full);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.tier->stats().queue_bytes, 0u);
  EXPECT_EQ(h.tier->stats().writes_dropped, 1u);
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 3)), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  // An extent beyond the bound goes alone.
  h.config.queue_bytes_max = block;
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.write(kFullGroup, make_chain(16, 4)), WriteResult::queued);
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 5)), WriteResult::dropped_queue_full);
}

TEST(DiskTier, TheQuotaHoldsAtEveryMoment) {
  Harness h;
  h.config.quota_bytes = 2u << 20;
  ASSERT_TRUE(h.open().ok());
  h.fake.reset_peak();
  std::vector<std::vector<DiskBlock>> chains;
  for (std::uint64_t i = 0; i < 60; ++i) {
    chains.push_back(make_chain(i % 3 == 0 ? 5 : 16, 100 + i));
    EXPECT_EQ(h.write(i % 2 ? kFullGroup : kWindowGroup, chains.back()), WriteResult::queued);
    if (i % 3 == 0) h.tier->poll();
    // What is queued cannot be evicted: five extents of 200 KiB and their slack are what this quota lets queue.
    if (i % 5 == 4) {
      ASSERT_TRUE(h.tier->flush(kSoon));
    }
  }
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_LE(h.fake.peak_allocated_bytes(), h.config.quota_bytes);
  EXPECT_GT(h.tier->stats().evicted_extents, 30u);
  EXPECT_GT(h.tier->stats().bytes_allocated, h.config.quota_bytes / 2);
  h.expect_tidy();
  // The last ones are there, whole.
  EXPECT_EQ(h.read(kFullGroup, chains.back()), 16u);
  // A smaller quota is met at the next start.
  h.config.quota_bytes = 1u << 20;
  ASSERT_TRUE(h.open().ok());
  h.expect_tidy();
  EXPECT_EQ(h.read(kFullGroup, chains.back()), 16u);
  // An extent that can never fit evicts nothing.
  h.config.quota_bytes = 150u << 10;
  ASSERT_TRUE(h.open().ok());
  const auto before = h.tier->stats().extents;
  EXPECT_EQ(h.write(kFullGroup, make_chain(16, 7)), WriteResult::dropped_quota);
  EXPECT_EQ(h.tier->stats().extents, before);
}

TEST(DiskTier, EvictionTakesTheLeastRecentlyUsedAndChildrenFirst) {
  Harness h;
  const std::uint64_t extent = ExtentShape::of(h.config.groups[0], 16).file_bytes();
  h.config.quota_bytes = 4 * extent + (200u << 10);
  ASSERT_TRUE(h.open().ok());
  const auto a = make_chain(48, 1), b = make_chain(16, 2), c = make_chain(16, 3), d = make_chain(16, 4);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(h.write(kFullGroup, std::span(a).subspan(16 * i, 16)), WriteResult::queued);
    ASSERT_TRUE(h.tier->flush(kSoon));
  }
  ASSERT_EQ(h.write(kFullGroup, b), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  ASSERT_EQ(h.write(kFullGroup, c), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.contained(kFullGroup, a), 32u) << "the chain's end went, not its start";
  EXPECT_TRUE(h.tier->contains(a[31].key, kFullGroup));
  for (const auto& block : a) h.tier->touch(block.key);
  ASSERT_EQ(h.write(kFullGroup, d), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.contained(kFullGroup, a), 32u);
  EXPECT_EQ(h.contained(kFullGroup, b), 0u);
  // The order of use survives a restart: c is now the oldest.
  ASSERT_TRUE(h.open().ok());
  ASSERT_EQ(h.write(kFullGroup, b), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.contained(kFullGroup, c), 0u);
  EXPECT_EQ(h.contained(kFullGroup, a), 32u);
  // A chain longer than the quota keeps its start and does not eat itself.
  const auto long_chain = make_chain(16 * 7, 9);
  int queued = 0;
  for (int i = 0; i < 7; ++i) {
    queued += h.write(kFullGroup, std::span(long_chain).subspan(16 * i, 16)) == WriteResult::queued;
    ASSERT_TRUE(h.tier->flush(kSoon));
  }
  EXPECT_EQ(queued, 4);
  EXPECT_EQ(h.contained(kFullGroup, long_chain), 64u);
  EXPECT_TRUE(h.tier->contains(long_chain[0].key, kFullGroup));
}

TEST(DiskTier, OtherModelsFilesCountAndGoWhenTheyAreOldest) {
  Harness h;
  const std::uint64_t extent = ExtentShape::of(h.config.groups[0], 16).file_bytes();
  h.config.quota_bytes = 3 * extent + (200u << 10);
  h.fake.set_now_seconds(h.clock.wall_seconds());
  ASSERT_TRUE(h.open().ok());
  const auto other = make_chain(16, 1), other2 = make_chain(16, 2);
  h.write(kFullGroup, other);
  h.write(kFullGroup, other2);
  ASSERT_TRUE(h.tier->flush(kSoon));
  const auto first_model = h.config.model_fingerprint;
  h.config.model_fingerprint.fill(0xcd);
  h.clock.advance_seconds(100);
  h.fake.set_now_seconds(h.clock.wall_seconds());
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.tier->stats().extents, 0u);
  EXPECT_GT(h.tier->stats().bytes_allocated, 2 * extent);
  EXPECT_EQ(h.read(kFullGroup, other), 0u);
  const auto own = make_chain(32, 3);
  h.write(kFullGroup, std::span(own).first(16));
  // One at a time: what two waiting writes reserve beside their bytes may cost the other model its second file too.
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.tier->poll();
  h.write(kFullGroup, std::span(own).subspan(16));
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.contained(kFullGroup, own), 32u);
  h.expect_tidy();
  h.config.model_fingerprint = first_model;
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.tier->stats().extents, 1u);
}

TEST(DiskTier, ExtentsOfAnotherLayoutAreAnothersAndStay) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 1);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  const auto groups = h.config.groups;
  h.config.groups[0].slices[0].kv.k_type = kernels::KvType::q8_0;
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.read(kFullGroup, chain), 0u);
  EXPECT_EQ(h.tier->stats().files_set_aside, 0u);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.extents().size(), 2u);
  h.expect_tidy();
  h.config.groups = groups;
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.read(kFullGroup, chain), 16u);
}

TEST(DiskTier, TheFreeSpaceFloorHolds) {
  Harness h;
  h.fake.set_total_bytes(10u << 20);
  h.config.free_floor_bytes = 9u << 20;
  ASSERT_TRUE(h.open().ok());
  int queued = 0;
  for (std::uint64_t i = 0; i < 10; ++i) queued += h.write(kFullGroup, make_chain(16, i)) == WriteResult::queued;
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_GE(queued, 3);
  EXPECT_LE(queued, 5);
  EXPECT_LE(h.fake.allocated_bytes("/"), 1u << 20);
  h.expect_tidy();
}

TEST(DiskTier, TheDailyCapHoldsOverRestartsAndEndsWithTheDay) {
  Harness h;
  const std::uint64_t extent = ExtentShape::of(h.config.groups[0], 16).file_bytes();
  h.config.write_bytes_per_day_max = 2 * extent + 100;
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.write(kFullGroup, make_chain(16, 1)), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.tier->stats().bytes_written_today, extent);
  EXPECT_EQ(h.write(kFullGroup, make_chain(16, 2)), WriteResult::queued);
  EXPECT_EQ(h.write(kFullGroup, make_chain(16, 3)), WriteResult::dropped_daily_cap);
  ASSERT_TRUE(h.tier->flush(kSoon));
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.write(kFullGroup, make_chain(16, 3)), WriteResult::dropped_daily_cap);
  h.clock.advance_seconds(86'400);
  EXPECT_EQ(h.write(kFullGroup, make_chain(16, 3)), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.tier->stats().bytes_written_today, extent);
  h.expect_tidy();
}

TEST(DiskTier, TheSecondOneIsReadOnly) {
  Harness first, second;
  second.fs = &first.fake;
  ASSERT_TRUE(first.open().ok());
  const auto chain = make_chain(16, 1), later = make_chain(16, 2);
  first.write(kFullGroup, chain);
  ASSERT_TRUE(first.tier->flush(kSoon));
  ASSERT_TRUE(second.open().ok());
  EXPECT_EQ(second.tier->stats().mode.substr(0, 9), "read-only");
  EXPECT_EQ(second.read(kFullGroup, chain), 16u);
  EXPECT_EQ(second.write(kFullGroup, later), WriteResult::dropped_read_only);
  EXPECT_TRUE(second.tier->flush(kSoon));
  // What the writer removes meanwhile is a miss here.
  first.tier->drop(chain[3].key);
  ASSERT_TRUE(first.tier->flush(kSoon));
  EXPECT_EQ(first.extents().size(), 0u);
  EXPECT_EQ(second.read(kFullGroup, chain), 0u);
  EXPECT_EQ(second.contained(kFullGroup, chain), 0u);
  first.expect_tidy();
  first.tier.reset();
  ASSERT_TRUE(second.open().ok());
  EXPECT_NE(second.tier->stats().mode.substr(0, 9), "read-only");
}

TEST(DiskTier, AReadOnlyFileSystemIsReadAndAnUnusableOneRefused) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 1);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.tier.reset();
  h.fake.refuse_locks(EROFS);
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.read(kFullGroup, chain), 16u);
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 2)), WriteResult::dropped_read_only);
  h.tier.reset();
  h.fake.fail_at(0, EACCES, ~0ull);
  h.fake.reset_ops();
  h.fake.fail_at(0, EACCES, ~0ull);
  const Status status = h.open();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/cache/kv"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("--kv-disk"), std::string::npos);
}

TEST(DiskTier, AVanishedFolderIsMadeAgain) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 1), next = make_chain(16, 2);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.fake.vanish("/cache");
  EXPECT_EQ(h.read(kFullGroup, chain), 0u);
  EXPECT_EQ(h.contained(kFullGroup, chain), 0u);
  h.write(kFullGroup, next);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.read(kFullGroup, next), 16u);
  h.expect_tidy();
  h.write(kWindowGroup, next);
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.fake.vanish(h.own());
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.contained(kFullGroup, next), 0u);
  h.expect_tidy();
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.read(kFullGroup, chain), 16u);
  h.expect_tidy();
}

TEST(DiskTier, ForeignFilesAreLeftAloneAndTornOnesRemoved) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 1);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.tier.reset();
  h.fake.set_contents(h.own() / "notes.txt", std::vector<std::byte>(100));
  h.fake.set_contents(h.config.dir / "thesis.pdf", std::vector<std::byte>(100));
  h.fake.set_contents(h.own() / "7.tmp", std::vector<std::byte>(100));
  ASSERT_TRUE(h.open().ok());
  EXPECT_TRUE(h.fake.contents(h.own() / "notes.txt").has_value());
  EXPECT_TRUE(h.fake.contents(h.config.dir / "thesis.pdf").has_value());
  EXPECT_FALSE(h.fake.contents(h.own() / "7.tmp").has_value());
  EXPECT_EQ(h.tier->stats().bytes_allocated, h.fake.allocated_bytes(h.config.dir) - 8192)
      << "foreign files do not count";
  EXPECT_EQ(h.read(kFullGroup, chain), 16u);
}

TEST(DiskTier, TheLogIsCompacted) {
  Harness h;
  h.config.groups = {make_layout({4096}, 0, 1)};
  h.config.quota_bytes = 2u << 20;
  ASSERT_TRUE(h.open().ok());
  std::uint64_t largest = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    ASSERT_EQ(h.write(kFullGroup, make_chain(16, i)), WriteResult::queued);
    if (i % 4 != 0) continue;
    ASSERT_TRUE(h.tier->flush(kSoon));
    if (const auto log = h.fake.contents(h.own() / "index.log"))
      largest = std::max<std::uint64_t>(largest, log->size());
  }
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_LT(largest, (1u << 20) + (64u << 10));
  EXPECT_LT(h.fake.contents(h.own() / "index.log")->size(), largest) << "never compacted";
  h.expect_tidy();
  const auto extents = h.tier->stats().extents;
  EXPECT_GT(extents, 5u);
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.tier->stats().extents, extents);
  h.expect_tidy();
}

// 100,000 stored blocks, as they are and encrypted: with a log a start reads no extent.
class ManyBlocks : public ::testing::TestWithParam<bool> {};

TEST_P(ManyBlocks, AHundredThousandOpenInUnderASecond) {
  constexpr std::size_t kBlocks = 100'000;
  const TempDir temp;
  Harness h;
  h.fs = &platform::real_file_system();
  h.config.dir = temp.path;
  h.config.groups = {make_layout({4096}, 0, 1)};
  h.config.quota_bytes = 8ull << 30;
  if (GetParam()) h.config.cipher = std::make_shared<const Cipher>(SecretBytes{1});
  const auto chain = make_chain(kBlocks, 1);
  const ExtentShape shape = ExtentShape::of(h.config.groups[0], 16, sealing(h.config.cipher.get()));
  auto log = begin_record(h.config.model_fingerprint);
  ASSERT_TRUE(h.fs->make_dirs(h.own()).ok());
  const auto create = [&](const std::filesystem::path& path) {
    return h.fs->open(path, {.access = platform::OpenOptions::Access::create}).value();
  };
  const std::uint64_t layout = layout_id(kFullGroup, h.config.groups[0], h.config.cipher.get());
  for (std::size_t i = 0; i + 16 <= chain.size(); i += 16) {
    LoggedExtent e{.meta = {.name = {chain[i + 15].key, layout, 0, 16},
                            .first_index = chain[i].index,
                            .parent = chain[i].parent,
                            .keys = {},
                            .ids = {},
                            .sealed = {}},
                   .used_seconds = 1};
    for (std::size_t b = i; b < i + 16; ++b) e.meta.keys.push_back(chain[b].key), e.meta.ids.push_back(chain[b].ids);
    if (h.config.cipher) seal_ids(*h.config.cipher, h.config.model_fingerprint, e.meta);
    const auto record = add_record(e);
    log.insert(log.end(), record.begin(), record.end());
    ASSERT_TRUE(create(h.own() / e.meta.name.file_name())->truncate(shape.file_bytes()).ok());  // Sparse.
  }
  ASSERT_TRUE(create(h.own() / "index.log")->pwrite(log, 0).ok());
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(h.open().ok());
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  EXPECT_EQ(h.tier->stats().blocks, kBlocks);
  EXPECT_EQ(h.tier->find(chain[77'777].key)->ids, chain[77'777].ids);
  if (!kSanitized) {
    EXPECT_LT(ms, 1000) << "ms";
  }
  std::printf("100,000 blocks in 6,250 extents%s: opened in %.0f ms\n", GetParam() ? ", encrypted" : "", ms);
  h.tier.reset();
}

INSTANTIATE_TEST_SUITE_P(Keys, ManyBlocks, ::testing::Bool());

// The real file system, io_uring and threads, direct and not.
class RealDisk : public ::testing::TestWithParam<DiskConfig::ReadMode> {};

TEST_P(RealDisk, WritesPrivatelyAndReadsBack) {
  const TempDir temp;
  Harness h;
  h.fs = &platform::real_file_system();
  h.config.dir = temp.path / "kv";
  h.config.read_mode = GetParam();
  h.config.groups = {make_layout({16384, 32768, 4096}, 0, 1), make_layout(std::vector<std::int64_t>(15, 32768), 3, 1)};
  const auto chain = make_chain(64, 11);
  ASSERT_TRUE(h.open().ok());
  for (const GroupId group : {kFullGroup, kWindowGroup}) {
    for (std::size_t i = 0; i < 64; i += 16)
      ASSERT_EQ(h.write(group, std::span(chain).subspan(i, 16)), WriteResult::queued);
  }
  ASSERT_TRUE(h.tier->flush(kSoon));
  std::uint64_t allocated = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(temp.path)) {
    using std::filesystem::perms;
    EXPECT_EQ(entry.status().permissions() & (perms::group_all | perms::others_all), perms::none) << entry.path();
    if (!entry.is_regular_file()) continue;
    auto file = platform::real_file_system().open(entry.path(), {});
    ASSERT_TRUE(file.ok()) << file.status().message();
    allocated += file.value()->allocated_bytes().value();
  }
  EXPECT_EQ(h.tier->stats().bytes_allocated, allocated);
  ASSERT_TRUE(h.open().ok());
  EXPECT_EQ(h.read(kFullGroup, chain), 64u) << h.tier->stats().mode;
  EXPECT_EQ(h.read(kWindowGroup, std::span(chain).subspan(5, 50)), 50u);
  EXPECT_EQ(h.tier->stats().corrupt_slices, 0u);
  // A second one in the same process.
  Harness second;
  second.fs = h.fs;
  second.config = h.config;
  ASSERT_TRUE(second.open().ok());
  EXPECT_EQ(second.tier->stats().mode.substr(0, 9), "read-only");
  EXPECT_EQ(second.read(kFullGroup, chain), 64u);
  h.tier.reset();
  second.tier.reset();
}

INSTANTIATE_TEST_SUITE_P(Modes, RealDisk,
                         ::testing::Values(DiskConfig::ReadMode::automatic, DiskConfig::ReadMode::pread_threads),
                         [](const auto& info) {
                           return info.param == DiskConfig::ReadMode::automatic ? "Automatic" : "Threads";
                         });

TEST(DiskTier, WithoutODirectItGoesThroughTheCache) {
  Harness h;
  h.fake.refuse_direct();
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 1);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.read(kFullGroup, chain), 16u);
  EXPECT_NE(h.tier->stats().mode.find("buffered"), std::string::npos);
  h.expect_tidy();
}

}  // namespace
}  // namespace lode::kv
