// Tests of machine.h on made-up /proc and /sys trees, and on this machine.
#include "platform/machine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/bytes.h"

namespace lode::platform {
namespace {

namespace fs = std::filesystem;

class MachineTest : public ::testing::Test {
 protected:
  MachineTest() {
    std::string name = (fs::temp_directory_path() / "lode-machine-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~MachineTest() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void v2(const std::string& own, const std::string& mount_root = "/") {
    put("proc/self/cgroup", "0::" + own + "\n");
    put("proc/self/mountinfo", "22 1 0:20 / /proc rw - proc proc rw\n30 23 0:26 " + mount_root +
                                   " /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
    fs::create_directories(root_ / "sys/fs/cgroup");
  }
  void v1(const std::string& own, const std::string& mount_root = "/") {
    put("proc/self/cgroup", "9:name=systemd:/\n4:memory:" + own + "\n2:cpuacct,cpu:" + own + "\n0::/\n");
    put("proc/self/mountinfo",
        "35 31 0:32 " + mount_root + " /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n36 31 0:33 " + mount_root +
            " /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 "
            "cgroup2 rw\n");
  }
  fs::path root_;
};

TEST_F(MachineTest, NoCgroupsNoLimit) {
  EXPECT_FALSE(cgroup_memory(root_));
  EXPECT_FALSE(cgroup_cpus(root_));
  put("proc/self/cgroup", "garbage\n:::\n1\n0:\n");
  put("proc/self/mountinfo", "x\n- - -\n1 2 3 4 5 -\n1 2 3 / /c - cgroup2\n");
  EXPECT_FALSE(cgroup_memory(root_));
}

TEST_F(MachineTest, V2LimitWithoutFileCache) {
  v2("/app");
  put("sys/fs/cgroup/app/memory.max", "1073741824\n");
  put("sys/fs/cgroup/app/memory.high", "max\n");
  put("sys/fs/cgroup/app/memory.current", "700000000\n");
  put("sys/fs/cgroup/app/memory.stat",
      "anon 90000000\nfile 600000000\ninactive_file 400000000\nactive_file 200000000\n");
  const auto m = cgroup_memory(root_);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->limit, 1073741824u);
  EXPECT_EQ(m->used, 100000000u);
  EXPECT_TRUE(m->source.ends_with("sys/fs/cgroup/app/memory.max")) << m->source;
}

TEST_F(MachineTest, V2TheLevelWithTheLeastRoomCounts) {
  v2("/a/b/c");
  put("sys/fs/cgroup/a/b/c/memory.max", "max\n");
  put("sys/fs/cgroup/a/b/memory.max", "5000\n");
  put("sys/fs/cgroup/a/b/memory.current", "100\n");
  put("sys/fs/cgroup/a/memory.max", "9000\n");
  put("sys/fs/cgroup/a/memory.current", "8000\n");
  auto m = cgroup_memory(root_);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->limit, 9000u);
  EXPECT_EQ(m->used, 8000u);
  put("sys/fs/cgroup/a/b/c/memory.high", "600\n");
  m = cgroup_memory(root_);
  EXPECT_EQ(m->limit, 600u);
}

TEST_F(MachineTest, V2MoreUsedThanAllowed) {
  v2("/");
  put("sys/fs/cgroup/memory.max", "1000\n");
  put("sys/fs/cgroup/memory.current", "500\n");
  put("sys/fs/cgroup/memory.stat",
      "inactive_file 700\nactive_file 1\n");  // Read at another moment: no wrap below zero.
  EXPECT_EQ(cgroup_memory(root_)->used, 0u);
}

TEST_F(MachineTest, V1LimitAndHierarchy) {
  v1("/docker/abc");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "8000000000\n");
  put("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2000000000\n");
  put("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "900000000\n");
  put("sys/fs/cgroup/memory/docker/abc/memory.stat",
      "active_file 1\ninactive_file 2\ntotal_inactive_file 300000000\ntotal_active_file 100000000\n");
  const auto m = cgroup_memory(root_);
  ASSERT_TRUE(m);
  EXPECT_EQ(m->limit, 2000000000u);
  EXPECT_EQ(m->used, 500000000u);
}

TEST_F(MachineTest, V1UnlimitedIsNoLimit) {
  v1("/x");
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(cgroup_memory(root_));
}

// A container with the host's paths: its group is the mount's root.
TEST_F(MachineTest, MountRootIsStripped) {
  v1("/docker/abc", "/docker/abc");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "123456\n");
  EXPECT_EQ(cgroup_memory(root_)->limit, 123456u);
  v2("/docker/abc/sub", "/docker/abc");
  put("sys/fs/cgroup/sub/memory.max", "777\n");
  EXPECT_EQ(cgroup_memory(root_)->limit, 777u);
  v2("/../outside");
  put("sys/fs/cgroup/memory.max", "888\n");
  EXPECT_EQ(cgroup_memory(root_)->limit, 888u);
}

TEST_F(MachineTest, CpuQuota) {
  v2("/app");
  put("sys/fs/cgroup/app/cpu.max", "150000 100000\n");
  EXPECT_EQ(*cgroup_cpus(root_), 1.5);
  put("sys/fs/cgroup/app/cpu.max", "max 100000\n");
  EXPECT_FALSE(cgroup_cpus(root_));
  v1("/app");
  put("sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "50000\n");
  put("sys/fs/cgroup/cpu/app/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(*cgroup_cpus(root_), 0.5);
  EXPECT_EQ(detect({.root = root_, .disk = {}}).cores, 1);
  put("sys/fs/cgroup/cpu/app/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(cgroup_cpus(root_));
}

TEST_F(MachineTest, DetectReadsMemory) {
  v2("/app");
  put("proc/meminfo", "MemTotal:       16000 kB\nMemFree:         1000 kB\nMemAvailable:    9000 kB\n");
  put("proc/self/status", "VmRSS:     900 kB\nRssAnon:\t   512 kB\n");
  put("sys/fs/cgroup/app/memory.max", "4096000\n");
  const Hardware hw = detect({.root = root_, .disk = {}});
  EXPECT_EQ(hw.ram_total, 16000 * kKiB);
  EXPECT_EQ(hw.ram_available, 9000 * kKiB);
  EXPECT_EQ(hw.own_bytes, 512 * kKiB);
  EXPECT_EQ(hw.cgroup_limit, 4096000u);
}

TEST_F(MachineTest, ThisMachine) {
  const Hardware hw = detect({.root = "/", .disk = root_ / "not" / "yet" / "there"});
  EXPECT_GE(hw.cores, 1);
  EXPECT_GT(hw.ram_total, 64 * kMiB);
  EXPECT_GT(hw.ram_available, 0u);
  EXPECT_LE(hw.ram_available, hw.ram_total);
  EXPECT_GT(hw.own_bytes, 0u);
  EXPECT_GT(hw.disk_free, 0u);
}

}  // namespace
}  // namespace lode::platform
