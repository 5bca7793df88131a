#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "memory/arena.h"
#include "memory/budget.h"
#include "memory/slot_pool.h"

namespace lode::memory {
namespace {

TEST(Budget, IsHardAndCountsByOwner) {
  Budget b(7 * kMiB);  // Three pieces; the odd MiB is nobody's.
  const OwnerId kv = b.add_owner("kv"), experts = b.add_owner("experts");
  EXPECT_EQ(b.bytes_max(), 6 * kMiB);
  EXPECT_TRUE(b.take(kv, 2));
  EXPECT_FALSE(b.take(experts, 2));
  EXPECT_EQ(b.committed_bytes(), 4 * kMiB) << "a refusal takes nothing";
  EXPECT_TRUE(b.take(experts, 1));
  b.give_back(kv, 2);
  EXPECT_TRUE(b.take(experts, 2));  // Memory moved from one owner to the other.
  EXPECT_EQ(b.owner_bytes(experts), 6 * kMiB);
  EXPECT_EQ(b.owner_bytes(kv), 0u);
  EXPECT_EQ(b.peak_bytes(), 6 * kMiB);
}

TEST(BudgetDeathTest, GivingBackMoreThanTakenIsABug) {
  Budget b(4 * kMiB);
  const OwnerId kv = b.add_owner("kv");
  ASSERT_TRUE(b.take(kv, 1));
  EXPECT_DEATH(b.give_back(kv, 2), "broken invariant");
}

TEST(SlotPool, LowestFirstAndPiecesFollowUse) {
  Budget b(8 * kMiB);
  auto pool = SlotPool::create(b, {.name = "kv", .slot_bytes = 768 * kKiB});  // 2 2/3 slots a piece.
  ASSERT_TRUE(pool.ok());
  SlotPool& p = **pool;
  EXPECT_EQ(b.committed_bytes(), 0u);
  const SlotId s0 = *p.allocate(), s1 = *p.allocate();
  EXPECT_EQ(s0.v, 0u);
  EXPECT_EQ(s1.v, 1u);
  EXPECT_EQ(b.committed_bytes(), 2 * kMiB);
  const SlotId s2 = *p.allocate();  // Crosses into the second piece.
  EXPECT_EQ(b.committed_bytes(), 4 * kMiB);
  std::memset(p.address(s2), 1, 768 * kKiB);
  p.free(s0);
  p.free(s1);
  EXPECT_EQ(b.committed_bytes(), 4 * kMiB) << "s2 overlaps both pieces";
  EXPECT_EQ(p.allocate()->v, 0u);
  p.free(SlotId{0});
  p.free(s2);
  EXPECT_EQ(b.committed_bytes(), 0u);
}

TEST(SlotPool, PrefersCommittedMemoryToALowerAddress) {
  Budget b(8 * kMiB);
  auto pool = SlotPool::create(b, {.name = "kv", .slot_bytes = kMiB});
  SlotPool& p = **pool;
  std::vector<SlotId> s;
  for (int i = 0; i < 6; ++i) s.push_back(*p.allocate());
  p.free(s[0]);
  p.free(s[1]);  // Piece 0 is gone.
  p.free(s[3]);  // A hole in piece 1.
  EXPECT_EQ(b.committed_bytes(), 4 * kMiB);
  EXPECT_EQ(p.allocate()->v, 3u);
  EXPECT_EQ(b.committed_bytes(), 4 * kMiB);
  EXPECT_EQ(p.allocate()->v, 0u);
}

TEST(SlotPool, TwoPoolsShareOneBudget) {
  Budget b(4 * kMiB);
  auto a = SlotPool::create(b, {.name = "a", .slot_bytes = kMiB});
  auto c = SlotPool::create(b, {.name = "c", .slot_bytes = 4096});
  std::vector<SlotId> s;
  while (auto slot = (*a)->allocate()) s.push_back(*slot);
  EXPECT_EQ(s.size(), 4u);
  EXPECT_FALSE((*c)->allocate().has_value());
  (*a)->free(s[3]);
  EXPECT_FALSE((*c)->allocate().has_value()) << "its piece is still in use";
  (*a)->free(s[2]);
  EXPECT_TRUE((*c)->allocate().has_value());
  EXPECT_EQ((*a)->allocate(), std::nullopt);
}

TEST(SlotPool, ABudgetBelowOneSlotHoldsNone) {
  Budget b(kMiB);
  auto pool = SlotPool::create(b, {.name = "kv", .slot_bytes = 4096});
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ((*pool)->allocate(), std::nullopt);
}

TEST(SlotPool, SlotsLargerThanAPiece) {
  Budget b(10 * kMiB);
  auto pool = SlotPool::create(b, {.name = "kv", .slot_bytes = 3 * kMiB});
  SlotPool& p = **pool;
  EXPECT_EQ(p.slots_max(), 3u);
  const SlotId s0 = *p.allocate(), s1 = *p.allocate(), s2 = *p.allocate();
  EXPECT_EQ(b.committed_bytes(), 10 * kMiB);
  p.free(s1);  // [3, 6) MiB: pieces 1 and 2; its neighbours use the first half of 1, and piece 3 on.
  EXPECT_EQ(b.committed_bytes(), 8 * kMiB);
  p.free(s0);
  p.free(s2);
  EXPECT_EQ(b.committed_bytes(), 0u);
}

// Random use against a plain model: no two live slots overlap, bytes stay, the budget holds, nothing is left at the
// end.
TEST(SlotPool, RandomUseKeepsBytesAndBudget) {
  std::mt19937 rng(7);
  Budget b(1 * kMiB, 16 * kKiB);
  std::vector<std::unique_ptr<SlotPool>> pools;
  for (std::uint64_t bytes : {4096u, 12288u, 20480u})
    pools.push_back(
        std::move(SlotPool::create(b, {.name = "p", .slot_bytes = bytes, .freed = SlotPoolOptions::Freed::poison}))
            .value());
  struct Live {
    std::size_t pool;
    SlotId slot;
    std::uint8_t stamp;
  };
  std::vector<Live> live;
  for (int step = 0; step < 20000; ++step) {
    const std::size_t k = rng() % pools.size();
    if (rng() % 100 < (step / 2000 % 2 ? 40u : 55u)) {
      if (auto slot = pools[k]->allocate()) {
        live.push_back({k, *slot, static_cast<std::uint8_t>(rng() % 160)});
        std::memset(pools[k]->address(*slot), live.back().stamp, pools[k]->slot_bytes());
      } else {
        EXPECT_LT(b.bytes_max() - b.committed_bytes(), 3 * b.piece_bytes()) << "refused though there was room";
      }
    } else if (!live.empty()) {
      const std::size_t i = rng() % live.size();
      const Live l = live[i];
      const auto* p = reinterpret_cast<const std::uint8_t*>(pools[l.pool]->address(l.slot));
      for (std::uint64_t j = 0; j < pools[l.pool]->slot_bytes(); j += 509) ASSERT_EQ(p[j], l.stamp);
      pools[l.pool]->free(l.slot);
      live[i] = live.back();
      live.pop_back();
    }
    ASSERT_LE(b.committed_bytes(), b.bytes_max());
  }
  for (const Live& l : live) pools[l.pool]->free(l.slot);
  EXPECT_EQ(b.committed_bytes(), 0u);
}

}  // namespace
}  // namespace lode::memory
