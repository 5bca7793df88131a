#include "platform/virtual_range.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/bytes.h"

namespace lode::platform {
namespace {

TEST(VirtualRange, CommitsZeroedMemoryAndGivesItBack) {
  auto r = VirtualRange::reserve(64 * kGiB);  // Address space is free.
  ASSERT_TRUE(r.ok()) << r.status().message();
  EXPECT_GE(r->capacity(), 64 * kGiB);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(r->data()) % (2 * kMiB), 0u);
  const std::uint64_t at = 32 * kGiB;
  ASSERT_TRUE(r->commit(at, 2 * kMiB).ok());
  EXPECT_EQ(r->data()[at], std::byte{0});
  std::memset(r->data() + at, 0x5A, 2 * kMiB);
  r->decommit(at, 2 * kMiB);
  ASSERT_TRUE(r->commit(at, 2 * kMiB).ok());
  EXPECT_EQ(r->data()[at], std::byte{0}) << "decommit must drop the old bytes";
  EXPECT_EQ(r->data()[at + 2 * kMiB - 1], std::byte{0});
}

TEST(VirtualRangeDeathTest, TouchingUncommittedMemoryFaults) {
  auto r = VirtualRange::reserve(4 * kMiB);
  ASSERT_TRUE(r.ok());
  ASSERT_TRUE(r->commit(0, 2 * kMiB).ok());
  r->data()[0] = std::byte{1};
  EXPECT_DEATH(static_cast<volatile std::byte*>(r->data())[2 * kMiB] = std::byte{1}, "");
  r->decommit(0, 2 * kMiB);
  EXPECT_DEATH(static_cast<volatile std::byte*>(r->data())[0] = std::byte{1}, "");
}

TEST(VirtualRange, AnImpossibleSizeIsAnError) {
  const auto r = VirtualRange::reserve(1ull << 62);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), Code::resource_exhausted);
}

}  // namespace
}  // namespace lode::platform
