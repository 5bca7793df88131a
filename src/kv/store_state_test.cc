// What the store promises about recurrent states: which boundaries can be resumed at, what memory that takes, and that
// nothing but the right state is ever read (every step of the rig compares it).
#include <gtest/gtest.h>

#include <chrono>

#include "kv/store_test_util.h"

namespace lode::kv::test {
namespace {

using Disk = RigOptions::Disk;

// One state of the rig's hybrid: 8 + 4 KiB. A block of its full layers: 8 KiB.
constexpr std::uint64_t kStateBytes = 12 << 10, kBlockBytes = 8 << 10;
constexpr std::int64_t kNever = 1 << 20;  // A distance of checkpoints that no test reaches.

RigOptions hybrid(std::int64_t every = 256, Disk disk = Disk::off) {
  return {.groups = hybrid_groups(), .checkpoint_tokens = every, .disk = disk};
}

// Of blocks from this one on.
void damage_states(Rig& rig, std::int64_t from_block) {
  for (auto& [key, entry] : rig.stored->blocks)
    if (entry.block.index >= from_block && entry.bytes.contains(0)) entry.damaged.insert(0);
}

TEST(StoreState, TheSamePromptResumesAtTheLastBoundaryBeforeItsEnd) {
  std::mt19937 rng(1);
  for (const auto& groups : {hybrid_groups(), three_groups(), std::vector{state_group()}}) {
    RigOptions o = hybrid(kNever);
    o.groups = groups;
    Rig rig(o);
    for (const std::int64_t n : {500, 512, 33}) {
      const Tokens prompt = random_tokens(rng, n);
      EXPECT_EQ(rig.serve(prompt).resume, "none");
      const Reuse r = rig.serve(prompt);
      EXPECT_EQ(r.tokens_reused, (n - 1) / 32 * 32);
      EXPECT_EQ(r.from_ram, r.tokens_reused);
      EXPECT_EQ(r.resume, "checkpoint");
      EXPECT_EQ(r.reason, "whole prompt but its last tokens");
    }
  }
}

TEST(StoreState, StepsEndWhereACheckpointIsPlanned) {
  std::mt19937 rng(2);
  Rig rig(hybrid(256));
  auto run = rig.open(random_tokens(rng, 1000), "", {330, 100000, 0, -5});
  std::vector<std::int64_t> ends;
  while (rig.left(*run) > 0) {
    const std::int64_t count = rig.store->step_limit(*run->seq, std::min<std::int64_t>(rig.left(*run), 500));
    ASSERT_GE(count, 1);
    for (std::int64_t done = 0; done < count; done += std::min<std::int64_t>(64, count - done)) {
      const std::int64_t part = std::min<std::int64_t>(64, count - done);
      EXPECT_EQ(rig.store->step_limit(*run->seq, part), part);
      ASSERT_TRUE(rig.store->grow(*run->seq, part).ok());
      rig.step({{&*run, part}});
    }
    ends.push_back(rig.store->length(*run->seq));
  }
  // Every 256; the mark at 330; the end at 992. Its slack, 864, is too near to 768.
  EXPECT_EQ(ends, (std::vector<std::int64_t>{256, 320, 512, 768, 992, 1000}));
  EXPECT_EQ(rig.store->step_limit(*run->seq, 500), 24);  // Generated text has them too.
  rig.close(*run);
  Rig attention({.groups = window_groups()});
  auto other = attention.open(random_tokens(rng, 1000));
  EXPECT_EQ(attention.store->step_limit(*other->seq, 700), 700);
  attention.close(*other);
}

TEST(StoreState, AnotherQuestionAfterTheSameDocumentResumesShortlyBeforeIt) {
  std::mt19937 rng(3);
  Rig rig(hybrid(kNever));
  const Tokens document = random_tokens(rng, 1500);
  rig.serve(concat(document, random_tokens(rng, 60)));
  const Reuse r = rig.serve(concat(document, random_tokens(rng, 40)));
  EXPECT_EQ(r.tokens_reused, 1408);  // The end at 1536, less the slack of 128.
  EXPECT_EQ(r.reason, "token 1500 differs, no checkpoint nearer than token 1408");
}

TEST(StoreState, WherePromptsPartACheckpointIsKept) {
  std::mt19937 rng(4);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig(hybrid(kNever, disk));
    const Tokens document = random_tokens(rng, 320);
    rig.serve(concat(document, random_tokens(rng, 640)));
    Reuse r = rig.serve(concat(document, random_tokens(rng, 640)));
    EXPECT_EQ(r.tokens_reused, 0);
    EXPECT_EQ(r.reason, "token 320 differs, no checkpoint up to token 320");
    r = rig.serve(concat(document, random_tokens(rng, 640)));
    EXPECT_EQ(r.tokens_reused, 320);
    EXPECT_EQ(r.reason, "token 320 differs");
  }
}

TEST(StoreState, AMarkIsKeptAndOtherPromptsResumeThere) {
  std::mt19937 rng(5);
  for (const auto& groups : {hybrid_groups(), three_groups(), window_groups()}) {
    RigOptions o = hybrid(kNever);
    o.groups = groups;
    Rig rig(o);
    const Tokens system = random_tokens(rng, 300);
    rig.serve(concat(system, random_tokens(rng, 700)), "", {300});
    EXPECT_EQ(rig.serve(concat(system, random_tokens(rng, 50))).tokens_reused, 288);
  }
}

TEST(StoreState, RegularCheckpointsServeAnyBranchAlsoAfterARestart) {
  std::mt19937 rng(6);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig(hybrid(256, disk));
    const Tokens document = random_tokens(rng, 1500);
    rig.serve(document);
    if (disk == Disk::fake) {
      ASSERT_TRUE(rig.store->flush(1000));
      rig.restart();
      rig.knobs->reads_per_poll = 0;  // Reads end only when a layer is waited for.
    }
    for (const std::int64_t n : {1000, 600, 300}) {
      const Reuse r = rig.serve(concat(head(document, n), random_tokens(rng, 50)));
      EXPECT_EQ(r.tokens_reused, n / 256 * 256);
      EXPECT_EQ(r.from_disk > 0, disk == Disk::fake);
      EXPECT_EQ(r.reason.substr(0, r.reason.find(',')), "token " + std::to_string(n) + " differs");
    }
    const Reuse r = rig.serve(document);
    EXPECT_EQ(r.tokens_reused, 1472);
    EXPECT_EQ(r.reason, "whole prompt but its last tokens");
  }
}

TEST(StoreState, ATurnsEndIsAResumePointUnlessItIsNearAnother) {
  std::mt19937 rng(7);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig(hybrid(kNever, disk));
    for (const auto& [generated, reused] : {std::pair{150, 320}, {40, 192}, {1, 192}}) {
      auto run = rig.open(random_tokens(rng, 200));
      ASSERT_TRUE(rig.finish(*run));
      rig.store->mark_resume_point(*run->seq);
      for (int i = 0; i < generated; ++i) {
        rig.append(*run, static_cast<TokenId>(rng() % 1000));
        ASSERT_TRUE(rig.finish(*run));
      }
      const Tokens all = run->tokens;
      rig.close(*run);
      if (disk == Disk::fake) {
        rig.store->flush(1000);
        rig.restart();
      }
      EXPECT_EQ(rig.serve(concat(all, random_tokens(rng, 30))).tokens_reused, reused);
    }
  }
}

TEST(StoreState, APreemptedSequenceResumesWhereItsLastStepEndedABlock) {
  std::mt19937 rng(8);
  for (const std::uint64_t unpinned : {4u << 20, 0u}) {
    RigOptions o = hybrid(kNever, Disk::fake);
    o.unpinned_bytes = unpinned;
    Rig rig(o);
    const Tokens prompt = random_tokens(rng, 900);
    auto run = rig.open(prompt);
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(rig.store->grow(*run->seq, 48).ok());
      rig.step({{&*run, 48}});
    }
    ASSERT_TRUE(rig.store->grow(*run->seq, 48).ok());
    rig.close(*run);
    rig.store->poll();
    if (unpinned == 0) {
      EXPECT_EQ(rig.store->stats().committed_bytes, 0u);
    }
    run = rig.open(prompt);
    EXPECT_EQ(rig.store->length(*run->seq), 192);
    ASSERT_TRUE(rig.finish(*run));
    rig.close(*run);
  }
}

TEST(StoreState, AnAbandonedStepIsRepeated) {
  std::mt19937 rng(9);
  Rig rig(hybrid(256));
  auto run = rig.open(random_tokens(rng, 400));
  while (rig.left(*run) > 0) {
    const std::int64_t count = rig.store->step_limit(*run->seq, std::min<std::int64_t>(rig.left(*run), 40));
    for (const std::int64_t tried : {std::int64_t{1}, count, count}) {
      ASSERT_TRUE(rig.store->grow(*run->seq, count).ok());
      EXPECT_EQ(rig.step({{&*run, tried}}, Rig::Then::abandon), Rig::Stepped::abandoned);
    }
    EXPECT_EQ(rig.step({{&*run, count}}), Rig::Stepped::ok);
  }
  rig.close(*run);
}

TEST(StoreState, TenSequencesWithOneColdPrefixComputeItOnce) {
  std::mt19937 rng(10);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig(hybrid(kNever, disk));
    const Tokens prefix = random_tokens(rng, 640);
    std::vector<Rig::Run> runs;
    std::int64_t tails = 0;
    for (int i = 0; i < 10; ++i) {
      // Far beyond the slack: the first sequence learns from the second that a checkpoint is wanted at 640.
      runs.push_back(*rig.open(concat(prefix, random_tokens(rng, 200 + i))));
      tails += 200 + i;
    }
    for (std::size_t i = 1; i < 10; ++i) EXPECT_EQ(rig.store->state(*runs[i].seq), SeqState::waiting_peer);
    for (auto& r : runs) {
      ASSERT_EQ(rig.store->state(*r.seq), SeqState::ready);
      ASSERT_TRUE(rig.finish(r));
    }
    EXPECT_EQ(rig.computed, 640 + tails);
    for (std::size_t i = 1; i < runs.size(); ++i) {
      EXPECT_EQ(rig.store->reuse(*runs[i].seq).from_in_flight, 640);
      EXPECT_EQ(rig.store->reuse(*runs[i].seq).resume, "checkpoint");
    }
    for (auto& r : runs) rig.close(r);
  }
}

TEST(StoreState, APeerWaitsForPlannedCheckpointsOnly) {
  std::mt19937 rng(21);
  Rig rig(hybrid(256));
  const Tokens prefix = random_tokens(rng, 320);
  auto a = rig.open(concat(prefix, random_tokens(rng, 300)));
  // 96 tokens are not worth a checkpoint: computed twice, and nobody waits for a state that never comes.
  auto b = rig.open(concat(head(prefix, 96), random_tokens(rng, 100)));
  EXPECT_EQ(rig.store->state(*b->seq), SeqState::ready);
  EXPECT_EQ(rig.store->reuse(*b->seq).tokens_reused, 0);
  // Nor are 64 after the regular one.
  auto c = rig.open(concat(prefix, random_tokens(rng, 100)));
  EXPECT_EQ(rig.store->state(*c->seq), SeqState::waiting_peer);
  ASSERT_TRUE(rig.finish(*a));
  EXPECT_EQ(rig.store->state(*c->seq), SeqState::ready);
  EXPECT_EQ(rig.store->length(*c->seq), 256);
  ASSERT_TRUE(rig.finish(*b));
  ASSERT_TRUE(rig.finish(*c));
  for (auto* r : {&*a, &*b, &*c}) rig.close(*r);
}

// Its memory was granted before the peer came: the step goes past the checkpoint that the peer waits for.
TEST(StoreState, APromisedCheckpointThatIsPassedIsWaitedForNoLonger) {
  std::mt19937 rng(11);
  RigOptions o = hybrid(kNever);
  o.chunk = 300;
  Rig rig(o);
  const Tokens prefix = random_tokens(rng, 256);
  auto a = rig.open(concat(prefix, random_tokens(rng, 300)));
  EXPECT_EQ(rig.store->step_limit(*a->seq, 300), 300);
  ASSERT_TRUE(rig.store->grow(*a->seq, 300).ok());
  auto b = rig.open(concat(prefix, random_tokens(rng, 100)));
  ASSERT_EQ(rig.store->state(*b->seq), SeqState::waiting_peer);
  EXPECT_EQ(rig.store->step_limit(*a->seq, 300), 256);
  rig.step({{&*a, 300}});
  EXPECT_EQ(rig.store->state(*b->seq), SeqState::ready);
  EXPECT_EQ(rig.store->length(*b->seq), 0);
  ASSERT_TRUE(rig.finish(*b));
  ASSERT_TRUE(rig.finish(*a));
  rig.close(*a);
  rig.close(*b);
}

TEST(StoreState, AWaiterTakesOverWhenTheOwnerIsCancelled) {
  std::mt19937 rng(12);
  Rig rig(hybrid(256));
  const Tokens prefix = random_tokens(rng, 512);
  std::vector<Rig::Run> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(*rig.open(concat(prefix, random_tokens(rng, 40))));
  for (int i = 0; i < 6; ++i) {
    const std::int64_t count = rig.store->step_limit(*runs[0].seq, 64);
    ASSERT_TRUE(rig.store->grow(*runs[0].seq, count).ok());
    rig.step({{&runs[0], count}});
  }
  rig.close(runs[0]);
  EXPECT_EQ(rig.store->state(*runs[1].seq), SeqState::ready);
  EXPECT_EQ(rig.store->length(*runs[1].seq), 384) << "where the owner's last step ended";
  EXPECT_EQ(rig.store->state(*runs[2].seq), SeqState::waiting_peer);
  ASSERT_TRUE(rig.finish(runs[1]));
  EXPECT_EQ(rig.store->state(*runs[2].seq), SeqState::ready);
  EXPECT_EQ(rig.store->length(*runs[2].seq), 512);
  ASSERT_TRUE(rig.finish(runs[2]));
  rig.close(runs[1]);
  rig.close(runs[2]);
}

TEST(StoreState, ADamagedCheckpointFallsBackToTheOneBeforeAndIsKeptAnew) {
  std::mt19937 rng(13);
  Rig rig(hybrid(256, Disk::fake));
  const Tokens document = random_tokens(rng, 800);
  rig.serve(document);
  rig.store->flush(1000);
  rig.restart();
  damage_states(rig, 20);  // Of the checkpoints at 256, 512 and 768, the last.
  auto run = rig.open(document);
  EXPECT_EQ(rig.store->length(*run->seq), 768);
  auto peer = rig.open(document);  // Relies on the same read.
  ASSERT_TRUE(rig.store->grow(*run->seq, 32).ok());
  EXPECT_EQ(rig.step({{&*run, 32}}), Rig::Stepped::repaired);
  EXPECT_EQ(rig.store->length(*run->seq), 512);
  EXPECT_EQ(rig.store->reuse(*run->seq).reason, "damaged block");
  EXPECT_EQ(rig.store->reuse(*run->seq).resume, "checkpoint");
  ASSERT_TRUE(rig.finish(*run));
  ASSERT_TRUE(rig.store->grow(*peer->seq, 32).ok());
  EXPECT_EQ(rig.step({{&*peer, 32}}), Rig::Stepped::repaired);
  EXPECT_EQ(rig.store->length(*peer->seq), 768) << "the other one has made it again";
  ASSERT_TRUE(rig.finish(*peer));
  rig.close(*run);
  rig.close(*peer);
  rig.store->flush(1000);
  rig.restart();
  EXPECT_EQ(rig.serve(document).from_disk, 768);
}

TEST(StoreState, ACheckpointIsAnExtentOfItsOwn) {
  std::mt19937 rng(14);
  Rig rig(hybrid(512, Disk::fake));
  rig.serve(random_tokens(rng, 32 * 40 - 5));
  // At every 512, and at the end, 1248: the history before it, then the checkpoint. Its slack is too near to 1024.
  EXPECT_EQ(rig.disk->extent_sizes, (std::vector<std::size_t>{16, 1, 16, 1, 7, 1}));
  rig.store->flush(1000);
  for (const auto& [key, entry] : rig.stored->blocks)
    EXPECT_EQ(entry.bytes.contains(0), entry.block.index == 15 || entry.block.index == 31 || entry.block.index == 38)
        << entry.block.index;
}

TEST(StoreState, NothingUnpinnedIsKeptWhenTheBudgetForItIsZero) {
  std::mt19937 rng(15);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    RigOptions o = hybrid(256, disk);
    o.unpinned_bytes = 0;
    Rig rig(o);
    const Tokens document = random_tokens(rng, 500);
    rig.serve(document);
    rig.store->poll();
    EXPECT_EQ(rig.store->stats().committed_bytes, 0u);
    EXPECT_EQ(rig.serve(document).from_disk, disk == Disk::fake ? 480 : 0);
  }
}

TEST(StoreState, ASequencePinsFewStatesHoweverLongItIs) {
  std::mt19937 rng(16);
  RigOptions o = hybrid(256);
  o.context = 20000;
  Rig rig(o);
  auto run = rig.open(random_tokens(rng, 1));
  std::uint64_t states = 0;
  for (int i = 0; i < 12; ++i) {
    for (int j = 0; j < 640; ++j) rig.append(*run, static_cast<TokenId>(rng() % 1000));
    ASSERT_TRUE(rig.finish(*run));
    rig.store->poll();
    const auto blocks = static_cast<std::uint64_t>((rig.store->length(*run->seq) + 31) / 32);
    states = std::max(states, (rig.store->stats().pinned_bytes - blocks * kBlockBytes) / kStateBytes);
  }
  EXPECT_LE(states, 3u);
  rig.close(*run);
}

// Checkpoints in a chain's middle go before the chain. Its last one is worth the 64 tokens since the one before it, and
// may go too.
TEST(StoreState, ALostCheckpointCostsNoHistory) {
  std::mt19937 rng(17);
  RigOptions o = hybrid(64);
  o.context = 4000;
  o.unpinned_bytes = 46 * kBlockBytes + 6 * kStateBytes;  // Of 23: every eighth block's, and the end's.
  Rig rig(o);
  const Tokens document = random_tokens(rng, 1500);
  rig.serve(document);
  EXPECT_GE(rig.serve(document).tokens_reused, 1408);
  EXPECT_GE(rig.serve(concat(head(document, 700), random_tokens(rng, 20))).tokens_reused, 512);
}

// A chain that has lost its last checkpoint keeps no blocks beyond the one before.
TEST(StoreState, BlocksAfterTheLastCheckpointAreWorthNothing) {
  std::mt19937 rng(18);
  RigOptions o = hybrid(64);
  o.unpinned_bytes = 20 * kBlockBytes + 3 * kStateBytes;
  Rig rig(o);
  const Tokens document = random_tokens(rng, 800);
  rig.serve(document);  // 25 blocks. 9 of 12 checkpoints go, then the last block, the end, and all down to 512.
  EXPECT_EQ(rig.store->stats().unpinned_bytes, 16 * kBlockBytes + 2 * kStateBytes);
  EXPECT_EQ(rig.serve(document).tokens_reused, 512);
}

TEST(StoreState, AFullDiskCostsTheDiskTierOnly) {
  std::mt19937 rng(19);
  Rig rig(hybrid(256, Disk::fake));
  rig.knobs->refuse = WriteResult::dropped_quota;
  const Tokens document = random_tokens(rng, 800);
  rig.serve(document);
  EXPECT_EQ(rig.serve(document).from_ram, 768);
  rig.knobs->refuse = WriteResult::queued;
  ASSERT_TRUE(rig.store->flush(1000));
  rig.restart();
  EXPECT_EQ(rig.serve(document).from_disk, 768);
}

TEST(StoreState, LittleMemoryIsAnAnswerNotACrash) {
  std::mt19937 rng(20);
  for (const std::uint64_t bytes : {0u, 4096u, 16u << 10, 48u << 10, 100u << 10}) {
    RigOptions o = hybrid(256, Disk::fake);
    o.arena_bytes = o.unpinned_bytes = bytes;
    Rig rig(o);
    auto a = rig.open(random_tokens(rng, 400)), b = rig.open(random_tokens(rng, 300));
    ASSERT_TRUE(a && b);
    for (auto* r : {&*a, &*b}) {
      const Status grown = rig.store->grow(*r->seq, 64);
      EXPECT_TRUE(grown.ok() || grown.code() == Code::resource_exhausted);
      rig.close(*r);
    }
  }
  // Room for one: its history, and two states.
  RigOptions o = hybrid(64);
  o.arena_bytes = o.unpinned_bytes = 208 << 10;  // 17 blocks are 136 KiB, three states in pieces of 16 KiB at most 72.
  Rig rig(o);
  for (int i = 0; i < 4; ++i) rig.serve(random_tokens(rng, 540));
}

TEST(StoreState, TheDistanceOfCheckpointsFollowsTheirBytes) {
  const auto interval = [](std::int64_t state_bytes, std::int32_t kv_heads) {
    model::CacheGroup state = state_group(), full = full_groups()[0];
    state.layers = {{.layer = LayerIndex{1}, .state_bytes = state_bytes}};
    full.layers = {{LayerIndex{0}, kv_heads, 256, 256}};  // 1 KiB a token and head.
    std::vector<model::CacheGroup> groups{state};
    if (kv_heads > 0) groups.push_back(full);
    std::vector<model::BlockLayout> layouts;
    for (const auto& g : groups) layouts.push_back(model::block_layout(g, kernels::KvType::f16, kernels::KvType::f16));
    return checkpoint_interval(groups, layouts);
  };
  EXPECT_EQ(interval(1 << 20, 1), 1024);
  EXPECT_EQ(interval(1 << 20, 12), 1024);
  EXPECT_EQ(interval(19 << 20, 12), 2048);  // Qwen3.5 0.8B: 12 KiB of KV a token.
  EXPECT_EQ(interval(75 << 20, 24), 4096);  // Qwen3 Next.
  EXPECT_EQ(interval(1 << 20, 0), 4096);
}

}  // namespace
}  // namespace lode::kv::test
