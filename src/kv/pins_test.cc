#include "kv/pins.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "kv/disk_test_util.h"

namespace lode::kv {
namespace {

using namespace test;
constexpr std::int64_t kSoon = 20'000;  // Milliseconds; a test that waits this long has failed.

Pin pin_of(const std::vector<DiskBlock>& chain, std::size_t blocks, std::string name = "doc") {
  return {.key = chain[blocks - 1].key,
          .root = chain[0].parent,
          .blocks = static_cast<std::int64_t>(blocks),
          .wall_seconds = 1'800'000'123,
          .first = {0, static_cast<std::int64_t>(blocks) - 3},
          .name = std::move(name)};
}

void write_chain(Harness& h, const std::vector<DiskBlock>& chain) {
  for (std::size_t at = 0; at < chain.size(); at += 16)
    for (const GroupId group : {kFull, kWindow})
      h.write(group, std::span(chain).subspan(at, std::min<std::size_t>(16, chain.size() - at)));
  ASSERT_TRUE(h.tier->flush(kSoon));
}

// Enough of other chains that everything unpinned has to go.
void flood(Harness& h, std::uint64_t seed) {
  for (std::uint64_t i = 0; i < 40; ++i) write_chain(h, make_chain(16, seed + i));
}

TEST(PinFile, ComesBackAsItWasAndBelievesNothingDamaged) {
  platform::FakeFileSystem fs;
  ASSERT_TRUE(fs.make_dirs("/kv").ok());
  const PinFile file(fs, "/kv");
  EXPECT_TRUE(file.load().empty());
  const auto chain = make_chain(20, 3);
  const std::vector<Pin> pins = {pin_of(chain, 20), pin_of(chain, 7, std::string(300, 'n'))};
  ASSERT_TRUE(file.store(pins).ok());
  const auto back = file.load();
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].key, pins[0].key);
  EXPECT_EQ(back[0].root, pins[0].root);
  EXPECT_EQ(back[0].blocks, 20);
  EXPECT_EQ(back[0].first, pins[0].first);
  EXPECT_EQ(back[0].name, "doc");
  EXPECT_EQ(back[0].wall_seconds, 1'800'000'123);
  EXPECT_EQ(back[1].name, std::string(PinFile::kNameBytesMax, 'n')) << "cut";
  auto opened = fs.open("/kv/pins", {.access = platform::OpenOptions::Access::update});
  ASSERT_TRUE(opened.ok());
  const std::uint64_t size = *(*opened)->size();
  EXPECT_EQ(size, 16 + 2 * 280u) << "docs/kv-format.md";
  for (std::uint64_t at = 0; at < size; at += 7) {
    std::byte was{};
    ASSERT_TRUE((*opened)->pread({&was, 1}, at).ok());
    const std::byte wrong = was ^ std::byte{4};
    ASSERT_TRUE((*opened)->pwrite({&wrong, 1}, at).ok());
    EXPECT_TRUE(file.load().empty()) << "byte " << at;
    ASSERT_TRUE((*opened)->pwrite({&was, 1}, at).ok());
  }
  EXPECT_EQ(file.load().size(), 2u);
}

TEST(Pins, EvictionTakesEverythingElseAlsoAfterARestart) {
  Harness h;
  h.config.quota_bytes = 4u << 20;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(40, 1);
  write_chain(h, chain);
  ASSERT_TRUE(h.tier->pin(pin_of(chain, 36)).ok());
  EXPECT_TRUE(h.tier->pinned(chain[0].key, kFull));
  EXPECT_FALSE(h.tier->pinned(chain[0].key, kWindow)) << "its window lies further on";
  EXPECT_TRUE(h.tier->pinned(chain[35].key, kWindow));
  EXPECT_FALSE(h.tier->pinned(chain[36].key, kFull));
  for (int restart = 0; restart < 2; ++restart) {
    flood(h, 1000 + 100 * static_cast<std::uint64_t>(restart));
    EXPECT_EQ(h.contained(kFull, std::span(chain).first(36)), 36u);
    EXPECT_EQ(h.contained(kWindow, std::span(chain).subspan(33, 3)), 3u);
    EXPECT_EQ(h.contained(kWindow, std::span(chain).first(16)), 0u) << "nobody needs that";
    EXPECT_EQ(h.read(kFull, std::span(chain).first(36)), 36u);
    h.expect_tidy();
    ASSERT_TRUE(h.open().ok());
    ASSERT_EQ(h.tier->pins().size(), 1u);
  }
  ASSERT_TRUE(h.tier->unpin(chain[35].key).ok());
  EXPECT_EQ(h.tier->pinned_bytes(), 0u);
  flood(h, 5000);
  EXPECT_EQ(h.contained(kFull, chain), 0u);
  ASSERT_TRUE(h.open().ok());
  EXPECT_TRUE(h.tier->pins().empty());
}

// "Last copy": another model's process makes room in the same folder.
TEST(Pins, HoldAgainstOtherModelsAndOtherLayouts) {
  for (const bool same_model : {false, true}) {
    for (const bool lose_log : {false, true}) {
      Harness h;
      h.config.quota_bytes = 4u << 20;
      ASSERT_TRUE(h.open().ok());
      const auto chain = make_chain(32, 1);
      write_chain(h, chain);
      ASSERT_TRUE(h.tier->pin(pin_of(chain, 32)).ok());
      const auto first = h.config;
      h.tier.reset();
      if (lose_log) {
        ASSERT_TRUE(h.fake.unlink(h.own() / "index.log").ok());
      }
      if (same_model) h.config.groups = {make_layout({8192, 8192}, 0, 2), make_layout({4096, 4096, 4096}, 1, 2)};
      else h.config.model_fingerprint.fill(0xcd);
      ASSERT_TRUE(h.open().ok());
      for (std::uint64_t i = 0; i < 40; ++i) {
        const auto other = make_chain(16, 7000 + i);
        h.write(kWindow, other);
        ASSERT_TRUE(h.tier->flush(kSoon));
      }
      h.tier.reset();
      h.config = first;
      ASSERT_TRUE(h.open().ok());
      EXPECT_EQ(h.contained(kFull, chain), 32u) << same_model << lose_log;
      EXPECT_EQ(h.read(kFull, chain), 32u);
      EXPECT_EQ(h.tier->pins().size(), 1u);
    }
  }
}

TEST(Pins, WhatDoesNotFitIsRefusedWithFiguresAndChangesNothing) {
  Harness h;
  h.config.quota_bytes = 2u << 20;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(80, 1);
  for (std::size_t at = 0; at < 80; at += 16) h.write(kFull, std::span(chain).subspan(at, 16));
  h.write(kWindow, std::span(chain).subspan(64, 16));
  ASSERT_TRUE(h.tier->flush(kSoon));
  const Status big = h.tier->pin(pin_of(chain, 80));
  EXPECT_TRUE(big.ok()) << big.message();
  const auto more = make_chain(32, 2);
  for (std::size_t at = 0; at < 32; at += 16) h.write(kFull, std::span(more).subspan(at, 16));
  ASSERT_TRUE(h.tier->flush(kSoon));
  Pin pin = pin_of(more, 32);
  pin.first = {0, 32};
  const Status refused = h.tier->pin(pin);
  EXPECT_EQ(refused.code(), Code::resource_exhausted);
  EXPECT_NE(refused.message().find("1.50 MiB"), std::string::npos) << refused.message();
  EXPECT_EQ(h.tier->pins().size(), 1u);
  EXPECT_FALSE(h.tier->pinned(more[0].key, kFull));
}

TEST(Pins, AFileThatCannotBeWrittenPinsNothing) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto chain = make_chain(16, 1);
  write_chain(h, chain);
  h.fake.fail_at(h.fake.ops(), EIO, 5);
  EXPECT_FALSE(h.tier->pin(pin_of(chain, 16)).ok());
  EXPECT_TRUE(h.tier->pins().empty());
  EXPECT_FALSE(h.tier->pinned(chain[0].key, kFull));
}

// A crash anywhere while a pin is made: the file is the old one or the new one.
TEST(Pins, ACrashLeavesTheOldFileOrTheNew) {
  bool whole = false;
  for (std::uint64_t at = 0; !whole; ++at) {
    ASSERT_LT(at, 50u);
    platform::FakeFileSystem fs;
    ASSERT_TRUE(fs.make_dirs("/kv").ok());
    const auto chain = make_chain(16, 1);
    const PinFile file(fs, "/kv");
    ASSERT_TRUE(file.store(std::vector<Pin>{pin_of(chain, 8)}).ok());
    fs.crash_at(fs.ops() + at, at);
    whole = file.store(std::vector<Pin>{pin_of(chain, 8), pin_of(chain, 16)}).ok();
    fs.restart(platform::FakeFileSystem::Lose::some, at);
    const std::size_t pins = file.load().size();
    EXPECT_TRUE(whole ? pins == 2 : pins == 1 || pins == 2) << "operation " << at << ": " << pins << " pins";
  }
}

TEST(Pins, APurgeLeavesThemAndExtentsThatOthersShare) {
  Harness h;
  ASSERT_TRUE(h.open().ok());
  const auto a = make_chain(32, 1), b = make_chain(32, 2);
  write_chain(h, a);
  write_chain(h, b);
  ASSERT_TRUE(h.tier->pin(pin_of(a, 16)).ok());
  std::vector<BlockKey> keys;
  for (const auto& block : a) keys.push_back(block.key);
  for (std::size_t i = 0; i < 20; ++i) keys.push_back(b[i].key);  // Not all of its second extent.
  EXPECT_GT(h.tier->purge(keys), 0u);
  EXPECT_EQ(h.contained(kFull, std::span(a).first(16)), 16u);
  EXPECT_EQ(h.contained(kFull, std::span(a).subspan(16)), 0u);
  EXPECT_EQ(h.contained(kFull, std::span(b).first(16)), 0u);
  EXPECT_EQ(h.contained(kFull, std::span(b).subspan(16)), 16u);
  EXPECT_EQ(h.tier->removed(b[0].key, kFull)->why, RemovedWhy::purged);
  ASSERT_TRUE(h.tier->flush(kSoon));
  h.expect_tidy();
}

}  // namespace
}  // namespace lode::kv
