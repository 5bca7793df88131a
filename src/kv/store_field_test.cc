// Faults that users of other engines have reported, tried on the store. The numbers are the entries' own.
#include <gtest/gtest.h>

#include "kv/store_test_util.h"

namespace lode::kv::test {
namespace {

using Disk = RigOptions::Disk;

// F05: long sessions that came back from disk were answered from other requests' data.
TEST(FieldReports, F05SessionsComeBackFromDiskAsThemselves) {
  std::mt19937 rng(105);
  Rig rig({.arena_bytes = 1 << 20, .unpinned_bytes = 150 << 10, .context = 1500, .disk = Disk::fake});
  std::vector<Tokens> prompts;
  for (int i = 0; i < 8; ++i) prompts.push_back(random_tokens(rng, 700));
  for (const Tokens& p : prompts) rig.serve(p);
  rig.knobs->reads_per_poll = 0;
  for (int round = 0; round < 2; ++round)
    for (const Tokens& p : prompts) {
      auto shorter = rig.open(random_tokens(rng, 90));  // Beside it, another request allocates and frees.
      auto run = rig.open(concat(p, random_tokens(rng, 40)));
      ASSERT_TRUE(shorter && run);
      EXPECT_EQ(rig.store->reuse(*run->seq).tokens_reused, 672);
      EXPECT_GT(rig.store->reuse(*run->seq).from_disk, 300);  // RAM keeps some beginnings: leaves go first.
      while (rig.left(*run) > 0 || rig.left(*shorter) > 0) {
        std::vector<std::pair<Rig::Run*, std::int64_t>> parts;
        for (auto* r : {&*run, &*shorter})
          if (rig.left(*r) > 0) {
            ASSERT_TRUE(rig.store->grow(*r->seq, std::min<std::int64_t>(rig.left(*r), 32)).ok());
            parts.push_back({r, std::min<std::int64_t>(rig.left(*r), 32)});
          }
        ASSERT_EQ(rig.step(parts), Rig::Stepped::ok);  // Compares every byte that the queries see.
      }
      rig.close(*shorter);
      rig.close(*run);
    }
}

// F06: a store that failed left its key visible.
TEST(FieldReports, F06AFailedWriteIsNeverVisible) {
  std::mt19937 rng(106);
  Rig rig({.unpinned_bytes = 0, .disk = Disk::fake});
  const Tokens prompt = random_tokens(rng, 400);
  rig.knobs->writes = FakeDiskTier::Knobs::Fail::yes;
  rig.serve(prompt);
  rig.store->poll();
  EXPECT_TRUE(rig.stored->blocks.empty());
  EXPECT_EQ(rig.store->stats().committed_bytes, 0u);
  EXPECT_EQ(rig.serve(prompt).tokens_reused, 0);
  rig.store->poll();
  for (const WriteResult refused : {WriteResult::dropped_quota, WriteResult::dropped_read_only,
                                    WriteResult::dropped_disk_error, WriteResult::dropped_daily_cap}) {
    rig.knobs->refuse = refused;
    EXPECT_EQ(rig.serve(prompt).tokens_reused, 0);
  }
  *rig.knobs = {};
  rig.serve(prompt);
  rig.store->poll();
  EXPECT_EQ(rig.serve(prompt).tokens_reused, 384);
}

// F07: reading a block while it was still being written gave wrong answers.
TEST(FieldReports, F07ABlockThatIsBeingWrittenIsTakenFromRam) {
  std::mt19937 rng(107);
  Rig rig({.unpinned_bytes = 0, .disk = Disk::fake});
  const Tokens prompt = random_tokens(rng, 400);
  rig.knobs->writes_per_poll = 0;  // The disk has stalled.
  rig.serve(prompt);
  rig.store->poll();
  EXPECT_GT(rig.disk->queued(), 0u);
  const Reuse r = rig.serve(prompt);
  EXPECT_EQ(r.from_ram, 384);
  EXPECT_EQ(r.from_disk, 0);
  rig.knobs->writes_per_poll = 1;  // One group's extent becomes durable, the other is still in the queue.
  rig.store->poll();
  EXPECT_EQ(rig.serve(prompt).tokens_reused, 384);
}

// F09: a full RAM tier crashed.
TEST(FieldReports, F09AFullRamTierIsAnAnswerNotACrash) {
  std::mt19937 rng(109);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    for (const std::uint64_t bytes : {0u, 4096u, 16u << 10, 48u << 10, 100u << 10}) {
      Rig rig({.arena_bytes = bytes, .unpinned_bytes = bytes, .disk = disk});
      auto a = rig.open(random_tokens(rng, 400)), b = rig.open(random_tokens(rng, 300)),
           c = rig.open(random_tokens(rng, 300));
      ASSERT_TRUE(a && b && c);
      for (auto* r : {&*a, &*b, &*c}) {
        const Status grown = rig.store->grow(*r->seq, 64);
        EXPECT_TRUE(grown.ok() || grown.code() == Code::resource_exhausted);
        rig.close(*r);
      }
    }
    // Room for one request: three of them, one after the other, evict each other.
    Rig rig({.arena_bytes = 256 << 10, .unpinned_bytes = 256 << 10, .disk = disk});
    for (int i = 0; i < 3; ++i) rig.serve(random_tokens(rng, 400));
    // Three at once: the youngest gives way, and all end.
    std::vector<Rig::Run> runs;
    for (int i = 0; i < 3; ++i) runs.push_back(*rig.open(random_tokens(rng, 400)));
    while (!runs.empty()) {
      while (!rig.finish(runs.front())) {
        ASSERT_GT(runs.size(), 1u);
        rig.close(runs.back());
        runs.pop_back();
      }
      rig.close(runs.front());
      runs.erase(runs.begin());
    }
  }
}

// F10: a prefix that only the disk had was not looked for while stubs of it remained.
TEST(FieldReports, F10AnEvictedPrefixIsFoundOnDisk) {
  std::mt19937 rng(110);
  Rig rig({.arena_bytes = 512 << 10, .unpinned_bytes = 512 << 10, .disk = Disk::fake});
  const Tokens a = random_tokens(rng, 500);
  rig.serve(a);
  for (int i = 0; i < 6; ++i) rig.serve(random_tokens(rng, 500));
  const Reuse r = rig.serve(concat(a, random_tokens(rng, 10)));
  EXPECT_EQ(r.tokens_reused, 480);
  EXPECT_EQ(r.from_disk, 480);
}

// F11: one part of a block was missing and it was used anyway.
TEST(FieldReports, F11ABlockIsUsedWholeOrNotAtAll) {
  std::mt19937 rng(111);
  for (const std::uint32_t group : {0u, 1u}) {
    Rig rig({.disk = Disk::fake});
    const Tokens prompt = random_tokens(rng, 800);
    rig.serve(prompt);
    rig.store->flush(1000);
    rig.restart();
    for (auto& [key, entry] : rig.stored->blocks)
      if (entry.block.index >= 22) entry.bytes.erase(group);
    const Reuse r = rig.serve(prompt);
    EXPECT_EQ(r.tokens_reused, 22 * 32);
    EXPECT_EQ(r.reason, group == 0 ? "evicted" : "window state not stored");
  }
}

// F12: duplicate blocks were freed while a running request still pointed at them.
TEST(FieldReports, F12DuplicateBlocksAreNotFreedUnderARunningRequest) {
  std::mt19937 rng(112);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig({.unpinned_bytes = 0, .disk = disk});
    const Tokens prompt = random_tokens(rng, 100);
    auto a = rig.open(prompt);
    ASSERT_TRUE(rig.finish(*a));
    auto b = rig.open(prompt);
    ASSERT_TRUE(rig.finish(*b));
    EXPECT_EQ(rig.store->reuse(*b->seq).tokens_reused, 96);
    for (int i = 0; i < 300; ++i) {  // Both generate the same text: every block is computed twice.
      for (auto* r : {&*a, &*b}) {
        rig.append(*r, static_cast<TokenId>(i % 7));
        ASSERT_TRUE(rig.store->grow(*r->seq, 1).ok());
      }
      rig.step({{&*a, 1}, {&*b, 1}});
      if (i == 150) {
        rig.close(*a);
        a = rig.open(b->tokens);
        ASSERT_TRUE(a && rig.finish(*a));
      }
      if (i % 50 == 0) rig.serve(random_tokens(rng, 64));  // A third allocates what was freed, and overwrites it.
      rig.store->poll();
    }
    const std::uint64_t one = (400 + 31) / 32 * 8192u;
    EXPECT_LT(rig.store->stats().pinned_bytes, one + one / 2) << "they share their full-history blocks";
    rig.close(*a);
    rig.close(*b);
    rig.store->flush(1000);
    EXPECT_EQ(rig.store->stats().committed_bytes, 0u);
  }
}

// 6 bits of hash instead of 256: collisions everywhere.
BlockKey weak_child_key(const BlockKey& parent, std::span<const TokenId, kBlockTokens> ids) {
  BlockKey key = child_key(parent, ids);
  key.bytes[0] &= 63;
  std::fill(key.bytes.begin() + 1, key.bytes.end(), std::uint8_t{0});
  return key;
}

// F13: predictable hashes let one user make another read wrong data.
TEST(FieldReports, F13CollidingKeysNeverShareBytes) {
  std::mt19937 rng(113);
  for (const Disk disk : {Disk::off, Disk::fake}) {
    Rig rig({.groups = disk == Disk::off ? full_groups() : window_groups(),
             .unpinned_bytes = 1 << 20,
             .context = 600,
             .disk = disk,
             .child_key = &weak_child_key});
    std::vector<Tokens> prompts;
    std::int64_t reused = 0;
    for (int i = 0; i < 1000; ++i) {
      Tokens p = random_tokens(rng, 40 + static_cast<std::int64_t>(rng() % 200));
      if (!prompts.empty() && rng() % 2) {
        const Tokens& old = prompts[rng() % prompts.size()];
        p = concat(head(old, static_cast<std::int64_t>(rng() % old.size())), p);
        p.resize(std::min<std::size_t>(p.size(), 500));
      }
      prompts.push_back(p);
      reused += rig.serve(p).tokens_reused;  // Compares every byte with what no cache would have.
      if (HasFailure()) FAIL() << "prompt " << i;
      if (i == 500 && disk == Disk::fake) {
        rig.store->flush(1000);
        rig.restart();
      }
    }
    EXPECT_GT(reused, 2000);
  }
}

// F14: two kinds of extra key hashed alike.
TEST(FieldReports, F14SaltAndTypesCannotBeConfused) {
  std::mt19937 rng(114);
  const Tokens prompt = random_tokens(rng, 200);
  Rig first({.disk = Disk::fake, .k_type = "ab"});
  first.serve(prompt, "c");
  first.store->flush(1000);
  for (const auto& [k_type, salt] :
       {std::pair<std::string, std::string>{"a", "bc"}, {"abc", ""}, {"c", "ab"}, {"", "abc"}}) {
    Rig other({.disk = Disk::fake, .k_type = k_type});
    other.stored->blocks = first.stored->blocks;
    EXPECT_EQ(other.serve(prompt, salt).tokens_reused, 0) << k_type << "/" << salt;
  }
  Rig same({.disk = Disk::fake, .k_type = "ab"});
  same.stored->blocks = first.stored->blocks;
  EXPECT_EQ(same.serve(prompt, "c").tokens_reused, 192);
}

// F28: a cap that was checked after allocation, and one entry above it.
TEST(FieldReports, F28TheCapHoldsBeforeAnythingIsKept) {
  std::mt19937 rng(128);
  Rig rig({.unpinned_bytes = 64 << 10});
  for (int i = 0; i < 200; ++i) {
    rig.serve(random_tokens(rng, 700));  // 22 blocks of 12 KiB: more than the cap alone.
    ASSERT_LE(rig.store->stats().unpinned_bytes, 64u << 10);
  }
  const StoreStats s = rig.store->stats();
  EXPECT_LE(s.peak_committed_bytes, s.arena_bytes_max);
}

// I08: a pool full of idle chats failed everybody.
TEST(FieldReports, I08IdleChatsAreEvictedBeforeAnybodyFails) {
  std::mt19937 rng(208);
  Rig rig({.arena_bytes = 512 << 10, .unpinned_bytes = 512 << 10});
  std::vector<Tokens> chats;
  for (int i = 0; i < 4; ++i) chats.push_back(random_tokens(rng, 100));
  for (int turn = 0; turn < 8; ++turn)
    for (Tokens& chat : chats) {
      chat = concat(chat, random_tokens(rng, 60));
      rig.serve(chat);
      if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace lode::kv::test
