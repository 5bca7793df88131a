// Damage, failing operations and crashes: the tier may miss, it never lies, and it never loses count.
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>

#include "kv/disk_test_util.h"
#include "kv/extent.h"

namespace lode::kv {
namespace {

using namespace test;
using platform::FakeFileSystem;
constexpr std::int64_t kSoon = 20'000;

// Operations between two faults. A sanitizer makes the fake disk some thirty times slower; there a sample must do.
constexpr std::uint64_t kStride = kSanitized ? 11 : 1;

// Hundreds of deliberate faults would each say so.
class DiskFaults : public ::testing::Test {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
  void TearDown() override { spdlog::set_level(spdlog::level::info); }
};

void flip_bytes(std::shared_ptr<const Cipher> cipher, std::size_t every) {
  Harness h;
  h.config.cipher = std::move(cipher);
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 1);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  const auto path = h.extents().at(0);
  const auto sound = *h.fake.contents(path);
  const std::uint64_t header = ExtentShape::of(h.config.groups[0], 16, sealing(h.config.cipher.get())).header_bytes();
  for (const bool while_open : {true, false}) {
    for (std::size_t at = 0; at < sound.size(); at += (at < 200 ? 11 : every) * kStride) {
      h.fake.set_contents(path, sound);
      ASSERT_TRUE(h.open().ok());
      if (h.contained(kFullGroup, chain) == 0) {  // Set aside in the last round: written again.
        h.write(kFullGroup, chain);
        ASSERT_TRUE(h.tier->flush(kSoon));
      }
      auto bytes = sound;
      bytes[at] ^= std::byte{0x04};
      h.fake.set_contents(path, bytes);
      if (!while_open) {
        ASSERT_TRUE(h.open().ok());
      }
      const std::size_t read = h.read(kFullGroup, chain);  // Checks every byte of what it counts.
      EXPECT_EQ(read, at < header ? 0u : 15u) << "byte " << at;
      EXPECT_EQ(h.contained(kFullGroup, chain), 0u) << "set aside";
      ASSERT_TRUE(h.tier->flush(kSoon));
      EXPECT_EQ(h.tier->stats().files_set_aside, 1u);
      EXPECT_EQ(h.extents().size(), 0u);
      h.expect_tidy();
    }
  }
}

TEST_F(DiskFaults, AnyFlippedByteIsAMissOfThatPartOnly) {
  flip_bytes(nullptr, 1777);
  flip_bytes(std::make_shared<const Cipher>(SecretBytes{3}), 7919);
}

TEST_F(DiskFaults, AnyCutOrLongerFileIsAMiss) {
  for (const bool while_open : {true, false}) {
    Harness h;
    const auto chain = make_chain(16, 1);
    ASSERT_TRUE(h.open().ok());
    h.write(kFullGroup, chain);
    ASSERT_TRUE(h.tier->flush(kSoon));
    const auto path = h.extents().at(0);
    const auto sound = *h.fake.contents(path);
    std::vector<std::size_t> sizes = {0, 1, 511, 4095, sound.size() - 1, sound.size() + 1, sound.size() + 4096};
    for (std::size_t n = 4096; n < sound.size(); n += 4096 * kStride) sizes.push_back(n), sizes.push_back(n + 77);
    for (const std::size_t size : sizes) {
      h.fake.set_contents(path, sound);
      ASSERT_TRUE(h.open().ok());
      auto bytes = sound;
      bytes.resize(size);
      h.fake.set_contents(path, bytes);
      if (!while_open) {
        ASSERT_TRUE(h.open().ok());
      }
      const std::size_t read = h.read(kFullGroup, chain);
      if (size < sound.size()) {
        EXPECT_LT(read, 16u) << size;
      }
      ASSERT_TRUE(h.tier->flush(kSoon));
      if (!while_open) {
        EXPECT_EQ(read, 0u);
        EXPECT_EQ(h.tier->stats().files_set_aside, 1u) << size;
        h.expect_tidy();
      }
    }
  }
}

TEST_F(DiskFaults, ADamagedLogIsRebuiltFromTheExtents) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(40, 1);
  for (const GroupId group : {kFullGroup, kWindowGroup}) {
    for (std::size_t i = 0; i < 40; i += 8) h.write(group, std::span(chain).subspan(i, 8));
  }
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.tier.reset();
  const auto sound = *h.fake.contents(h.own() / "index.log");
  for (std::size_t at = 0; at < sound.size(); at += 331 * kStride) {
    auto bytes = sound;
    if (at % 2) bytes.resize(at);
    else bytes[at] ^= std::byte{1};
    h.fake.set_contents(h.own() / "index.log", bytes);
    ASSERT_TRUE(h.open().ok());
    EXPECT_EQ(h.read(kFullGroup, chain), 40u);
    EXPECT_EQ(h.read(kWindowGroup, chain), 40u);
    h.expect_tidy();
    // And it is whole again: no header needs to be read.
    h.fake.reset_ops();
    ASSERT_TRUE(h.open().ok());
    EXPECT_LT(h.fake.ops(), 25u);
  }
}

// Everything a tier does in a life: groups, short extents, their replacement, eviction, drops, reads, a flush.
struct Life {
  std::vector<DiskBlock> a = make_chain(32, 1), b = make_chain(16, 2), c = make_chain(20, 3), d = make_chain(16, 4);
  std::vector<DiskBlock> durable;  // Of kFullGroup: written before a flush that said so.

  void run(Harness& h) {
    if (!h.open().ok()) return;
    h.write(kFullGroup, std::span(a).first(16));
    h.write(kWindowGroup, std::span(a).first(16));
    h.write(kFullGroup, std::span(a).subspan(16, 4));
    if (h.tier->flush(kSoon) && h.contained(kFullGroup, std::span(a).first(20)) == 20 && !h.fake.crashed()) {
      durable.assign(a.begin(), a.begin() + 16);
    }
    h.read(kFullGroup, a);
    h.write(kFullGroup, std::span(a).subspan(16, 16));
    h.write(kFullGroup, b);
    h.write(kWindowGroup, std::span(c).first(7));
    h.tier->flush(kSoon);
    for (const auto& block : std::span(a).first(16)) h.tier->touch(block.key);
    h.tier->drop(c[3].key);
    h.write(kFullGroup, std::span(c).first(16));
    h.write(kFullGroup, d);
    h.tier->flush(kSoon);
    h.read(kFullGroup, a);
    h.read(kFullGroup, d);
  }
  void check(Harness& h) {
    for (const GroupId group : {kFullGroup, kWindowGroup}) {
      for (const auto& chain : {a, b, c, d}) h.read(group, chain);  // Exact bytes or a miss.
    }
  }
};

// Room for four of Life's extents and what goes with them.
void make_tight(Harness& h) {
  h.config.quota_bytes = 1050u << 10;
}

// Where nothing need be given up, what a flush called durable survives.
class DiskCrashes : public DiskFaults, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override { DiskFaults::SetUp(); }
};

TEST_P(DiskCrashes, AtAnyOperation) {
  using Lose = FakeFileSystem::Lose;
  const bool tight = GetParam();
  std::uint64_t last = 0, survivors = 0;
  {
    Harness h;
    if (tight) make_tight(h);
    Life().run(h);
    last = h.fake.ops();
    EXPECT_EQ(h.tier->stats().evicted_extents > 0, tight);
  }
  for (std::uint64_t n = 0; n <= last; n += kStride) {
    for (const Lose lose : {Lose::nothing, Lose::unsynced, Lose::some}) {
      Harness h;
      if (tight) make_tight(h);
      h.fake.crash_at(n, n);
      Life life;
      life.run(h);
      h.tier.reset();
      h.fake.restart(lose, 1000 + n);
      ASSERT_TRUE(h.open().ok());
      h.expect_tidy();
      if (!tight && !life.durable.empty()) {
        EXPECT_EQ(h.read(kFullGroup, life.durable), life.durable.size());
        ++survivors;
      }
      life.check(h);
      ASSERT_TRUE(h.tier->flush(kSoon));
      h.expect_tidy();
      // Life goes on.
      const auto next = make_chain(16, 50);
      EXPECT_EQ(h.write(kFullGroup, next), WriteResult::queued);
      ASSERT_TRUE(h.tier->flush(kSoon));
      EXPECT_EQ(h.read(kFullGroup, next), 16u);
      h.expect_tidy();
      if (HasFailure()) FAIL() << "crash at operation " << n << ", mode " << static_cast<int>(lose);
    }
  }
  if (!tight) {
    EXPECT_GT(survivors, last / kStride);
  }
}

INSTANTIATE_TEST_SUITE_P(Quota, DiskCrashes, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Tight" : "Roomy"; });

class DiskErrors : public DiskFaults, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override { DiskFaults::SetUp(); }
};

TEST_P(DiskErrors, AnyOperationMayFailOnceOrFromThereOn) {
  std::uint64_t last = 0;
  {
    Harness h;
    make_tight(h);
    Life().run(h);
    last = h.fake.ops();
  }
  const int error = GetParam();
  for (std::uint64_t n = 0; n <= last; n += kStride) {
    for (const std::uint64_t more : {std::uint64_t{0}, ~std::uint64_t{0}}) {
      // Once: at every operation for the two errors that disks make, elsewhere a share of them to save time.
      const bool all = more == 0 && (error == EIO || error == ENOSPC);
      if (!all && n % 3 != static_cast<std::uint64_t>(error) % 3) continue;
      Harness h;
      make_tight(h);
      h.fake.fail_at(n, error, more);
      Life life;
      life.run(h);
      if (h.tier) life.check(h);
      h.fake.reset_ops();  // The disk is well again.
      h.clock.advance_seconds(120);
      if (!h.tier || h.tier->stats().mode.starts_with("read-only")) {
        ASSERT_TRUE(h.open().ok());
      }
      h.fake.reset_peak();
      life.check(h);
      const auto next = make_chain(16, 50);
      EXPECT_EQ(h.write(kFullGroup, next), WriteResult::queued);
      ASSERT_TRUE(h.tier->flush(kSoon));
      EXPECT_EQ(h.read(kFullGroup, next), 16u);
      ASSERT_TRUE(h.tier->flush(kSoon));
      h.expect_tidy();
      EXPECT_LE(h.fake.peak_allocated_bytes(), h.config.quota_bytes);
      ASSERT_TRUE(h.open().ok());
      life.check(h);
      EXPECT_EQ(h.read(kFullGroup, next), 16u);
      h.expect_tidy();
      if (HasFailure()) FAIL() << "operation " << n << " failed" << (more ? ", and all after it" : "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Errors, DiskErrors, ::testing::Values(ENOSPC, EIO, EMFILE, EROFS), [](const auto& info) {
  switch (info.param) {
    case ENOSPC: return "NoSpace";
    case EIO: return "InputOutput";
    case EMFILE: return "TooManyFiles";
    default: return "ReadOnly";
  }
});

TEST_F(DiskFaults, TheFolderMayVanishAtAnyTime) {
  for (int when = 0; when < 6; ++when) {
    Harness h;
    ASSERT_TRUE(h.open().ok());
    Life life;
    const auto maybe = [&](int now) {
      if (now == when) h.fake.vanish("/cache");
    };
    maybe(0);
    h.write(kFullGroup, std::span(life.a).first(16));
    maybe(1);
    h.write(kFullGroup, std::span(life.a).subspan(16, 4));
    maybe(2);
    ASSERT_TRUE(h.tier->flush(kSoon));
    maybe(3);
    h.write(kFullGroup, std::span(life.a).subspan(16, 16));
    maybe(4);
    h.write(kWindowGroup, life.b);
    ASSERT_TRUE(h.tier->flush(kSoon));
    maybe(5);
    life.check(h);
    h.write(kWindowGroup, life.c.size() > 16 ? std::span(life.c).first(16) : std::span(life.c));
    ASSERT_TRUE(h.tier->flush(kSoon));
    EXPECT_EQ(h.read(kWindowGroup, std::span(life.c).first(16)), 16u);
    life.check(h);
    ASSERT_TRUE(h.tier->flush(kSoon));
    h.expect_tidy();
  }
}

TEST_F(DiskFaults, AWriterWhoseFolderAnotherProcessTookWritesNoMore) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 1), more = make_chain(16, 2), late = make_chain(16, 3);
  h.write(kFullGroup, chain);
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.fake.vanish("/cache");
  auto other = DiskTier::open(h.config, h.fake, h.clock);
  ASSERT_TRUE(other.ok());
  ASSERT_FALSE((*other)->stats().mode.starts_with("read-only")) << (*other)->stats().mode;
  const auto theirs = h.fake.files(h.config.dir);

  int done = 0, failed = 0;
  h.write(kFullGroup, more, &done, &failed);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(done, 0);
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(h.contained(kFullGroup, chain), 0u) << "they went with the folder";
  EXPECT_EQ(h.write(kFullGroup, late), WriteResult::dropped_read_only);
  EXPECT_TRUE(h.tier->stats().mode.starts_with("read-only (another process took the folder over)"))
      << h.tier->stats().mode;
  EXPECT_EQ(h.tier->pin({}).code(), Code::unsupported);
  EXPECT_EQ(h.tier->unpin({}).code(), Code::unsupported);
  other->reset();  // It does not come back to write: what the other one has written is in no index here.
  h.clock.advance_seconds(1000);
  EXPECT_EQ(h.write(kFullGroup, late), WriteResult::dropped_read_only);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(h.fake.files(h.config.dir), theirs) << "the other process's folder was changed";
}

TEST_F(DiskFaults, AFullDiskIsReportedByItsResultAndTriedAgainLater) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  h.fake.set_total_bytes(100u << 10);
  int done = 0, failed = 0;
  // The free floor is 0 here, so that the disk itself refuses: the figure of free space is a second old at most.
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 1), &done, &failed), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(done, 1);
  h.fake.reset_ops();
  h.fake.fail_at(0, ENOSPC, ~0ull);
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 2), &done, &failed), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(h.tier->stats().write_errors, 1u);
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 3)), WriteResult::dropped_disk_error);
  h.fake.reset_ops();
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 3)), WriteResult::dropped_disk_error)
      << "not tried before a second is over";
  h.clock.advance_seconds(2);
  EXPECT_EQ(h.write(kFullGroup, make_chain(1, 3), &done), WriteResult::queued);
  ASSERT_TRUE(h.tier->flush(kSoon));
  EXPECT_EQ(done, 2);
  h.expect_tidy();
}

}  // namespace
}  // namespace lode::kv
