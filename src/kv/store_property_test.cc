// The store may miss, it never lies: random sessions over every shape of store, with the fake disk tier.
#include <gtest/gtest.h>

#include "kv/store_sessions.h"

namespace lode::kv::test {
namespace {

using Disk = RigOptions::Disk;

struct Case {
  const char* name;
  RigOptions options;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class StoreProperty : public ::testing::TestWithParam<Case> {};

TEST_P(StoreProperty, NeverLies) {
  std::int64_t reused = 0, repairs = 0, shared = 0, preemptions = 0;
  std::uint64_t to_device = 0, to_ram = 0;
  for (std::uint32_t seed = 0; seed < 12 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Sessions s(seed, GetParam().options);
    s.run(700);
    reused += s.reused;
    repairs += s.repairs;
    shared += s.shared;
    preemptions += s.preemptions;
    to_device += s.to_device;
    to_ram += s.to_ram;
  }
  // The test has looked at what it is about.
  EXPECT_GT(reused, 0);
  EXPECT_GT(shared, 0);
  if (GetParam().options.disk == Disk::fake) {
    EXPECT_GT(repairs, 0);
  }
  if (GetParam().options.arena_bytes < (1 << 20)) {
    EXPECT_GT(preemptions, 0);
  }
  if (GetParam().options.device_bytes > 0) {
    EXPECT_GT(to_device, 0u);
    EXPECT_GT(to_ram, 0u);
  }
}

std::vector<model::CacheGroup> chunk_groups() {
  auto g = window_groups();
  g[1].kind = model::CacheGroup::Kind::chunk;
  g[1].window = 96;
  return g;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, StoreProperty,
    ::testing::Values(
        Case{"WindowDisk", {.context = 1000, .sequences = 6, .disk = Disk::fake}},
        Case{"WindowDiskLittleMemory",
             {.arena_bytes = 640 << 10,
              .unpinned_bytes = 200 << 10,
              .context = 1000,
              .sequences = 6,
              .disk = Disk::fake}},
        Case{"WindowRam", {.unpinned_bytes = 1 << 20, .context = 1000, .sequences = 6}},
        Case{"WindowRamLittleMemory",
             {.arena_bytes = 640 << 10, .unpinned_bytes = 300 << 10, .context = 1000, .sequences = 6}},
        Case{"FullDisk",
             {.groups = full_groups(),
              .unpinned_bytes = 300 << 10,
              .context = 1000,
              .sequences = 6,
              .disk = Disk::fake}},
        Case{"NothingKept", {.unpinned_bytes = 0, .context = 1000, .sequences = 6, .disk = Disk::fake}},
        Case{"ChunkDisk", {.groups = chunk_groups(), .context = 1000, .sequences = 6, .disk = Disk::fake}},
        Case{"HybridDisk", {.groups = hybrid_groups(), .context = 1000, .sequences = 6, .disk = Disk::fake}},
        Case{"HybridDiskLittleMemory",
             {.groups = hybrid_groups(),
              .arena_bytes = 640 << 10,
              .unpinned_bytes = 200 << 10,
              .context = 1000,
              .sequences = 6,
              .disk = Disk::fake}},
        Case{"HybridRamLittleMemory",
             {.groups = hybrid_groups(),
              .arena_bytes = 640 << 10,
              .unpinned_bytes = 300 << 10,
              .context = 1000,
              .sequences = 6}},
        Case{"HybridNothingKept",
             {.groups = hybrid_groups(), .unpinned_bytes = 0, .context = 1000, .sequences = 6, .disk = Disk::fake}},
        Case{"ThreeGroupsDisk",
             {.groups = three_groups(),
              .unpinned_bytes = 400 << 10,
              .context = 1000,
              .sequences = 6,
              .disk = Disk::fake}},
        Case{"ThreeGroupsRam",
             {.groups = three_groups(), .unpinned_bytes = 500 << 10, .context = 1000, .sequences = 6}},
        Case{"DeviceDisk",
             {.groups = wide(window_groups()),
              .arena_bytes = 16 << 20,
              .unpinned_bytes = 2 << 20,
              .context = 1000,
              .sequences = 6,
              .disk = Disk::fake,
              .device_bytes = 4 << 20}},
        Case{"DeviceLittleMemory",
             {.groups = wide(full_groups()),
              .arena_bytes = 200 << 10,
              .unpinned_bytes = 100 << 10,
              .context = 1000,
              .sequences = 6,
              .disk = Disk::fake,
              .device_bytes = 2 << 20}},
        Case{"DeviceRam",
             {.groups = wide(window_groups()),
              .arena_bytes = 16 << 20,
              .unpinned_bytes = 2 << 20,
              .context = 1000,
              .sequences = 6,
              .device_bytes = 4 << 20}},
        Case{"DeviceHybrid",
             {.groups = wide(three_groups()),
              .arena_bytes = 16 << 20,
              .unpinned_bytes = 2 << 20,
              .context = 1000,
              .sequences = 6,
              .disk = Disk::fake,
              .device_bytes = 6 << 20}},
        Case{"RecurrentAloneDisk",
             {.groups = {state_group()},
              .unpinned_bytes = 200 << 10,
              .context = 1000,
              .sequences = 6,
              .disk = Disk::fake}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace lode::kv::test
