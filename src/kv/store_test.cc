// The store's promises, one at a time.
#include "kv/store.h"

#include <gtest/gtest.h>

#include "kv/store_test_util.h"

namespace lode::kv::test {
namespace {

using Disk = RigOptions::Disk;

TEST(Store, APromptIsComputedOnceAndThenReusedToTheBlock) {
  std::mt19937 rng(1);
  for (const auto& groups : {full_groups(), window_groups()}) {
    Rig rig({.groups = groups});
    const Tokens prompt = random_tokens(rng, 500);
    Reuse r = rig.serve(prompt);
    EXPECT_EQ(r.tokens_reused, 0);
    EXPECT_EQ(r.resume, "none");
    EXPECT_EQ(r.reason, "nothing stored for this prefix");
    r = rig.serve(prompt);
    EXPECT_EQ(r.tokens_reused, 480);  // 15 whole blocks of 499 tokens.
    EXPECT_EQ(r.from_ram, 480);
    EXPECT_EQ(r.resume, "block");
    EXPECT_EQ(r.reason, "whole prompt but its last tokens");
    EXPECT_EQ(rig.computed, 500 + 20);
  }
}

TEST(Store, AtLeastOneTokenIsComputed) {
  std::mt19937 rng(2);
  Rig rig;
  const Tokens prompt = random_tokens(rng, 96);
  rig.serve(prompt);
  EXPECT_EQ(rig.serve(prompt).tokens_reused, 64);
  EXPECT_EQ(rig.serve(concat(prompt, {7})).tokens_reused, 96);
  EXPECT_EQ(rig.serve({1, 2, 3}).reason, "prompt shorter than a block of 32 tokens");
}

TEST(Store, AnotherQuestionAfterTheSameDocumentResumesFromRam) {
  std::mt19937 rng(3);
  Rig rig;
  const Tokens document = random_tokens(rng, 600);
  rig.serve(concat(document, random_tokens(rng, 60)));
  const Reuse r = rig.serve(concat(document, random_tokens(rng, 40)));
  EXPECT_EQ(r.tokens_reused, 576);  // The last boundary inside the document.
  EXPECT_EQ(r.reason.substr(0, 6), "token ");
}

TEST(Store, TheReasonNamesTheFirstDifferingToken) {
  std::mt19937 rng(4);
  Rig rig({.groups = full_groups()});
  Tokens prompt = random_tokens(rng, 400);
  rig.serve(prompt);
  Tokens other = prompt;
  other[207] += 1;
  Reuse r = rig.serve(other);
  EXPECT_EQ(r.tokens_reused, 192);
  EXPECT_EQ(r.reason, "token 207 differs");
  r = rig.serve(concat(prompt, random_tokens(rng, 100)));
  EXPECT_EQ(r.tokens_reused, 384);
  EXPECT_EQ(r.reason, "stored only up to token 384");
  other = prompt;
  other[3] += 1;
  r = rig.serve(other);
  EXPECT_EQ(r.tokens_reused, 0);
  EXPECT_EQ(r.reason, "token 3 differs");
}

TEST(Store, WithoutADiskAFarEarlierBoundaryHasNoWindowOnceThenItHas) {
  std::mt19937 rng(5);
  Rig rig;
  const Tokens document = random_tokens(rng, 320);
  rig.serve(concat(document, random_tokens(rng, 640)));
  Reuse r = rig.serve(concat(document, random_tokens(rng, 640)));
  EXPECT_EQ(r.tokens_reused, 0);
  EXPECT_EQ(r.reason, "window state not stored");
  r = rig.serve(concat(document, random_tokens(rng, 640)));  // The branch point is kept from the second time on.
  EXPECT_EQ(r.tokens_reused, 320);
}

TEST(Store, WithADiskEveryBoundaryResumes) {
  std::mt19937 rng(6);
  Rig rig({.disk = Disk::fake});
  const Tokens document = random_tokens(rng, 900);
  rig.serve(document);
  ASSERT_TRUE(rig.store->flush(1000));
  for (std::int64_t n : {100, 333, 512, 700}) {
    const Reuse r = rig.serve(concat(head(document, n), random_tokens(rng, 50)));
    EXPECT_EQ(r.tokens_reused, n / 32 * 32);
    EXPECT_GT(r.from_disk, 0);
  }
}

TEST(Store, AfterARestartEverythingComesFromDisk) {
  std::mt19937 rng(7);
  Rig rig({.disk = Disk::fake});
  const Tokens document = random_tokens(rng, 1500);
  rig.serve(document);
  ASSERT_TRUE(rig.store->flush(1000));
  rig.restart();
  rig.knobs->reads_per_poll = 0;  // Reads end only when a layer is waited for.
  const Reuse r = rig.serve(concat(head(document, 1400), random_tokens(rng, 20)));
  EXPECT_EQ(r.tokens_reused, 1376);
  EXPECT_EQ(r.from_disk, 1376);
  EXPECT_EQ(rig.store->stats().hits_disk_tokens, 1376u);
}

TEST(Store, FlushLosesNoPublishedBlockOfALiveSequence) {
  std::mt19937 rng(8);
  Rig rig({.disk = Disk::fake});
  const Tokens document = random_tokens(rng, 300);
  rig.knobs->queue_max = 1;  // Nearly every write is dropped at first.
  rig.knobs->writes_per_poll = 0;
  auto run = rig.open(document);
  ASSERT_TRUE(rig.finish(*run));
  ASSERT_TRUE(rig.store->flush(1000));  // SIGTERM in mid-request.
  rig.close(*run);
  rig.restart();
  EXPECT_EQ(rig.serve(document).from_disk, 288);
}

// No flush: a server that is only killed loses no more than the last second of writes.
TEST(Store, WhatAFullQueueDroppedIsWrittenOnceThereIsRoom) {
  std::mt19937 rng(23);
  for (const auto& groups : {window_groups(), three_groups()}) {
    Rig rig({.groups = groups, .disk = Disk::fake});
    const Tokens document = random_tokens(rng, 1500);
    rig.knobs->queue_max = 1;
    rig.knobs->writes_per_poll = 0;
    rig.serve(document);
    rig.knobs->writes_per_poll = 1;
    for (int i = 0; i < 30; ++i) {
      rig.clock.advance_seconds(1);
      rig.store->poll();
      rig.store->poll();
    }
    rig.restart();
    EXPECT_EQ(rig.serve(document).from_disk, 1472);
  }
}

TEST(Store, TheReasonIsKnownAfterARestartToo) {
  std::mt19937 rng(24);
  Rig rig({.groups = full_groups(), .disk = Disk::fake});
  const Tokens prompt = random_tokens(rng, 800);
  rig.serve(prompt);
  rig.store->flush(1000);
  for (const auto& [at, reused] : {std::pair{703, 672}, {207, 192}, {3, 0}}) {
    rig.restart();
    Tokens other = prompt;
    other[static_cast<std::size_t>(at)] += 1;
    const Reuse r = rig.serve(other);
    EXPECT_EQ(r.tokens_reused, reused);
    EXPECT_EQ(r.reason, "token " + std::to_string(at) + " differs");
  }
}

TEST(Store, ExtentsHoldSixteenAlignedBlocksAndAShortOneIsRewrittenWhole) {
  std::mt19937 rng(9);
  Rig rig({.groups = full_groups(), .disk = Disk::fake});
  const Tokens document = random_tokens(rng, 32 * 40);
  rig.serve(head(document, 32 * 21));
  EXPECT_EQ(rig.disk->extent_sizes, (std::vector<std::size_t>{16, 5}));
  rig.serve(document);  // The next turn completes the short extent.
  EXPECT_EQ(rig.disk->extent_sizes, (std::vector<std::size_t>{16, 5, 16, 8}));
}

TEST(Store, ABranchDoesNotRewriteAnotherChainsExtent) {
  std::mt19937 rng(10);
  Rig rig({.groups = full_groups(), .disk = Disk::fake});
  const Tokens document = random_tokens(rng, 32 * 16);
  rig.serve(head(document, 32 * 8));
  rig.serve(concat(head(document, 32 * 4), random_tokens(rng, 32 * 12)));
  EXPECT_EQ(rig.disk->extent_sizes, (std::vector<std::size_t>{8, 12}));
}

TEST(Store, TwoIdleSecondsSealAnExtent) {
  std::mt19937 rng(11);
  Rig rig({.groups = full_groups(), .disk = Disk::fake});
  auto run = rig.open(random_tokens(rng, 100));
  ASSERT_TRUE(rig.finish(*run));
  EXPECT_TRUE(rig.disk->extent_sizes.empty());
  rig.clock.advance_seconds(2);
  rig.store->poll();
  EXPECT_EQ(rig.disk->extent_sizes, (std::vector<std::size_t>{3}));
  rig.close(*run);
}

TEST(Store, WindowMemoryDoesNotGrowWithContext) {
  std::mt19937 rng(12);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig({.context = 20000, .disk = disk});
    auto run = rig.open(random_tokens(rng, 1));
    std::uint64_t window_bytes = 0;
    for (int i = 0; i < 12; ++i) {
      for (int j = 0; j < 640; ++j) rig.append(*run, static_cast<TokenId>(rng() % 1000));
      ASSERT_TRUE(rig.finish(*run));
      rig.store->poll();
      const std::uint64_t full_bytes = static_cast<std::uint64_t>((rig.store->length(*run->seq) + 31) / 32) * 8192;
      window_bytes = std::max(window_bytes, rig.store->stats().pinned_bytes - full_bytes);
    }
    // Window 70, slack 4 blocks, the tail, and up to 15 blocks that an extent of each group still gathers.
    EXPECT_LE(window_bytes, (3u + 4 + 1 + (disk == Disk::fake ? 16 : 0)) * 4096);
    rig.close(*run);
  }
}

TEST(Store, GeneratedTokensAreReusedByTheNextTurn) {
  std::mt19937 rng(13);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig({.disk = disk});
    auto run = rig.open(random_tokens(rng, 200));
    ASSERT_TRUE(rig.finish(*run));
    rig.store->mark_resume_point(*run->seq);
    for (int i = 0; i < 150; ++i) {
      rig.append(*run, static_cast<TokenId>(rng() % 1000));
      ASSERT_TRUE(rig.finish(*run));
    }
    const Tokens all = run->tokens;
    rig.close(*run);
    EXPECT_EQ(rig.serve(concat(all, random_tokens(rng, 30))).tokens_reused, 320);  // Of 350.
  }
}

TEST(Store, TenSequencesWithOneColdPrefixComputeItOnce) {
  std::mt19937 rng(14);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig({.disk = disk});
    const Tokens prefix = random_tokens(rng, 640);
    std::vector<Rig::Run> runs;
    for (int i = 0; i < 10; ++i) {
      auto r = rig.open(concat(prefix, random_tokens(rng, 20 + i)));
      ASSERT_TRUE(r);
      runs.push_back(*r);
    }
    std::int64_t steps = 0;
    for (bool busy = true; busy && steps < 1000; ++steps) {
      busy = false;
      for (auto& r : runs) {
        if (rig.left(r) == 0) continue;
        busy = true;
        if (rig.store->state(*r.seq) != SeqState::ready) continue;
        const std::int64_t count = std::min<std::int64_t>(rig.left(r), 64);
        ASSERT_TRUE(rig.store->grow(*r.seq, count).ok());
        rig.step({{&r, count}});
      }
      rig.store->poll();
    }
    std::int64_t tails = 0;
    for (auto& r : runs) tails += static_cast<std::int64_t>(r.tokens.size()) - 640;
    EXPECT_EQ(rig.computed, 640 + tails);
    EXPECT_EQ(rig.store->stats().computed_tokens, static_cast<std::uint64_t>(640 + tails));
    EXPECT_EQ(rig.store->stats().hits_in_flight_tokens, 9u * 640);
    for (std::size_t i = 1; i < runs.size(); ++i) EXPECT_EQ(rig.store->reuse(*runs[i].seq).from_in_flight, 640);
    for (auto& r : runs) rig.close(r);
  }
}

TEST(Store, APeerWaitsOnlyForWhatItShares) {
  std::mt19937 rng(15);
  Rig rig;
  const Tokens prefix = random_tokens(rng, 256);
  auto a = rig.open(concat(prefix, random_tokens(rng, 512)));
  auto b = rig.open(concat(prefix, random_tokens(rng, 100)));
  auto c = rig.open(random_tokens(rng, 300));
  EXPECT_EQ(rig.store->state(*c->seq), SeqState::ready);
  EXPECT_EQ(rig.store->state(*b->seq), SeqState::waiting_peer);
  EXPECT_EQ(rig.store->length(*b->seq), 0);
  EXPECT_EQ(rig.store->grow(*b->seq, 1).code(), Code::unavailable);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(rig.store->state(*b->seq), SeqState::waiting_peer);
    ASSERT_TRUE(rig.store->grow(*a->seq, 64).ok());
    rig.step({{&*a, 64}});
  }
  EXPECT_EQ(rig.store->state(*b->seq), SeqState::ready);
  EXPECT_EQ(rig.store->length(*b->seq), 256);
  ASSERT_TRUE(rig.finish(*a));  // Far beyond: its ring has left b's window, b still has it.
  ASSERT_TRUE(rig.finish(*b));
  ASSERT_TRUE(rig.finish(*c));
  for (auto* r : {&*a, &*b, &*c}) rig.close(*r);
}

TEST(Store, AWaiterTakesOverWhenTheOwnerIsCancelled) {
  std::mt19937 rng(16);
  Rig rig;
  const Tokens prefix = random_tokens(rng, 512);
  std::vector<Rig::Run> runs;
  for (int i = 0; i < 4; ++i) runs.push_back(*rig.open(concat(prefix, random_tokens(rng, 40))));
  ASSERT_TRUE(rig.store->grow(*runs[0].seq, 64).ok());
  rig.step({{&runs[0], 64}});
  ASSERT_TRUE(rig.store->grow(*runs[0].seq, 64).ok());  // Cancelled between growing and committing.
  rig.close(runs[0]);
  EXPECT_EQ(rig.store->state(*runs[1].seq), SeqState::ready);
  EXPECT_EQ(rig.store->length(*runs[1].seq), 64);  // What the owner had published.
  EXPECT_EQ(rig.store->state(*runs[2].seq), SeqState::waiting_peer);
  rig.close(runs[1]);  // And again, before it did anything.
  EXPECT_EQ(rig.store->state(*runs[2].seq), SeqState::ready);
  ASSERT_TRUE(rig.finish(runs[2]));
  EXPECT_EQ(rig.store->state(*runs[3].seq), SeqState::ready);
  EXPECT_EQ(rig.store->reuse(*runs[3].seq).from_in_flight, 512);
  ASSERT_TRUE(rig.finish(runs[3]));
  EXPECT_EQ(rig.computed, 64 + (512 - 64) + 40 + 40);
  rig.close(runs[2]);
  rig.close(runs[3]);
}

TEST(Store, PreemptionIsCloseAndReopen) {
  std::mt19937 rng(17);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig({.disk = disk});
    auto run = rig.open(random_tokens(rng, 300));
    ASSERT_TRUE(rig.finish(*run));
    for (int i = 0; i < 45; ++i) rig.append(*run, static_cast<TokenId>(rng() % 1000));
    ASSERT_TRUE(rig.finish(*run));
    const Tokens all = run->tokens;
    rig.close(*run);
    auto again = rig.open(all);
    EXPECT_EQ(rig.store->length(*again->seq), 320);
    ASSERT_TRUE(rig.finish(*again));
    rig.close(*again);
  }
}

TEST(Store, ADamagedBlockIsDroppedAndTheSequenceGoesOn) {
  std::mt19937 rng(18);
  Rig rig({.disk = Disk::fake});
  const Tokens document = random_tokens(rng, 800);
  rig.serve(document);
  rig.store->flush(1000);
  rig.restart();
  for (auto& [key, entry] : rig.stored->blocks)
    if (entry.block.index == 10) entry.damaged.insert(0);  // The full group's part alone.
  auto run = rig.open(document);
  EXPECT_EQ(rig.store->length(*run->seq), 768);
  auto peer = rig.open(document);  // Relies on the same read.
  ASSERT_TRUE(rig.store->grow(*run->seq, 32).ok());
  EXPECT_EQ(rig.step({{&*run, 32}}), Rig::Stepped::repaired);
  EXPECT_EQ(rig.store->length(*run->seq), 320);
  EXPECT_EQ(rig.store->reuse(*run->seq).reason, "damaged block");
  EXPECT_EQ(rig.store->reuse(*run->seq).tokens_reused, 320);
  ASSERT_TRUE(rig.finish(*run));
  EXPECT_EQ(rig.store->stats().corrupt_blocks, 1u);
  ASSERT_TRUE(rig.store->grow(*peer->seq, 32).ok());
  EXPECT_EQ(rig.step({{&*peer, 32}}), Rig::Stepped::repaired);
  ASSERT_TRUE(rig.finish(*peer));
  rig.close(*run);
  rig.close(*peer);
  rig.store->flush(1000);
  rig.restart();
  EXPECT_EQ(rig.serve(document).tokens_reused, 768) << "the block was written anew";
}

// No descriptors left, say: the disk tier still lists the blocks, and every read of them fails.
TEST(Store, ReadsThatKeepFailingAreNotTriedAgain) {
  std::mt19937 rng(22);
  Rig rig({.disk = Disk::fake});
  const Tokens document = random_tokens(rng, 500);
  rig.serve(document);
  rig.store->flush(1000);
  rig.restart();
  for (auto& [key, entry] : rig.stored->blocks)
    if (entry.block.index >= 4) entry.stubborn = {0, 1};
  auto run = rig.open(document);
  int repairs = 0;
  while (rig.left(*run) > 0 && repairs < 10) {
    const std::int64_t count = std::min<std::int64_t>(rig.left(*run), 64);
    ASSERT_TRUE(rig.store->grow(*run->seq, count).ok());
    repairs += rig.step({{&*run, count}}) == Rig::Stepped::repaired;
  }
  EXPECT_EQ(repairs, 1);
  EXPECT_EQ(rig.store->reuse(*run->seq).tokens_reused, 128);
  rig.close(*run);
}

TEST(Store, RepairOfASoundSequenceDoesNothing) {
  std::mt19937 rng(19);
  Rig rig({.disk = Disk::fake});
  auto run = rig.open(random_tokens(rng, 100));
  ASSERT_TRUE(rig.finish(*run));
  rig.store->repair(*run->seq);
  EXPECT_EQ(rig.store->length(*run->seq), 100);
  rig.close(*run);
}

TEST(Store, NothingUnpinnedIsKeptWhenTheBudgetForItIsZero) {
  std::mt19937 rng(20);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig({.unpinned_bytes = 0, .disk = disk});
    const Tokens document = random_tokens(rng, 500);
    rig.serve(document);
    rig.store->poll();
    EXPECT_EQ(rig.store->stats().committed_bytes, 0u);
    EXPECT_EQ(rig.serve(document).from_disk, disk == Disk::fake ? 480 : 0);
  }
}

TEST(Store, SaltsDoNotShare) {
  std::mt19937 rng(21);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig({.disk = disk});
    const Tokens document = random_tokens(rng, 200);
    rig.serve(document, "alice");
    rig.store->flush(1000);
    const Reuse r = rig.serve(document, "bob");
    EXPECT_EQ(r.tokens_reused, 0);
    EXPECT_EQ(r.reason, "nothing stored for this prefix");
    EXPECT_EQ(rig.serve(document, "alice").tokens_reused, 192);
  }
}

TEST(Store, RequestsThatCannotBeAreRefusedWithNumbers) {
  Rig rig({.context = 100, .sequences = 1});
  EXPECT_EQ(rig.store->open_sequence({}, "").status().code(), Code::invalid_argument);
  const Tokens prompt(101, 5);
  const Status s = rig.store->open_sequence(prompt, "").status();
  EXPECT_EQ(s.code(), Code::invalid_argument);
  EXPECT_NE(s.message().find("101"), std::string::npos);
  EXPECT_NE(s.message().find("100"), std::string::npos);
  auto run = rig.open(head(prompt, 100));
  ASSERT_TRUE(rig.finish(*run));
  EXPECT_EQ(rig.store->grow(*run->seq, 1).code(), Code::invalid_argument) << "the context is full";
  EXPECT_EQ(rig.store->open_sequence(head(prompt, 10), "").status().code(), Code::resource_exhausted);
  rig.close(*run);
}

TEST(Store, ConfigurationsThatCannotBeAreRefused) {
  platform::FakeClock clock;
  StoreConfig good;
  good.groups = window_groups();
  good.context_max = 100;
  EXPECT_TRUE(StoreImpl::create(good, clock, {}).ok());
  StoreConfig c = good;
  c.groups.clear();
  EXPECT_EQ(StoreImpl::create(c, clock, {}).status().code(), Code::invalid_argument);
  c = good;
  c.groups[1].kind = model::CacheGroup::Kind::checkpoint;
  EXPECT_FALSE(StoreImpl::create(c, clock, {}).ok()) << "states of no bytes";
  c.groups[1] = state_group();
  EXPECT_TRUE(StoreImpl::create(c, clock, {}).ok());
  c.checkpoint_tokens = -1;
  EXPECT_FALSE(StoreImpl::create(c, clock, {}).ok());
  c = good;
  c.groups[1].window = 0;
  EXPECT_FALSE(StoreImpl::create(c, clock, {}).ok());
  c = good;
  c.groups[1].layers[0].layer = LayerIndex{2};
  EXPECT_FALSE(StoreImpl::create(c, clock, {}).ok());
  c = good;
  c.groups[0].layers[0].k_dim = 0;
  EXPECT_FALSE(StoreImpl::create(c, clock, {}).ok());
}

}  // namespace
}  // namespace lode::kv::test
