// A short simulation of whole stores; tests/kv_simulation.cc runs longer ones.
#include <gtest/gtest.h>

#include "kv/disk_test_util.h"
#include "kv/store_simulation.h"

namespace lode::kv::test {
namespace {

class StoreSimulation : public ::testing::Test {
 protected:
  void SetUp() override { spdlog::set_level(spdlog::level::off); }  // Its faults are deliberate.
  void TearDown() override { spdlog::set_level(spdlog::level::info); }
};

TEST_F(StoreSimulation, NeverLiesNorLeaks) {
  constexpr std::uint64_t kSeeds = kSanitized ? 6 : 24, kOperations = 400;
  std::int64_t reused = 0;
  for (std::uint64_t seed = 0; seed < kSeeds && !HasFailure(); ++seed) {
    Simulation s(seed);
    for (std::uint64_t i = 0; i < kOperations && !HasFailure(); ++i) {
      SCOPED_TRACE(fmt::format("kv_simulation --seed {} --operations {} ({})", seed, kOperations, s.setup().text()));
      s.operate(i);
      if (HasFailure()) ADD_FAILURE() << "operation " << i << ": " << s.last();
    }
    if (!HasFailure()) s.finish();
    reused += s.reused();
  }
  EXPECT_GT(reused, 0);
}

TEST_F(StoreSimulation, ASeedTakesTheSameCourseEachTime) {
  for (std::uint64_t seed = 100; seed < 108; ++seed) {
    std::vector<std::uint64_t> digests;
    for (int run = 0; run < 2; ++run) {
      const std::vector<std::byte> elsewhere(1 + 100'000 * static_cast<std::size_t>(run));  // Other addresses.
      Simulation s(seed);
      for (std::uint64_t i = 0; i < 200; ++i) s.operate(i);
      digests.push_back(s.digest());
    }
    EXPECT_EQ(digests[0], digests[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace lode::kv::test
