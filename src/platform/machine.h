// What the machine and its container allow: cores, memory, cgroup limits, free disk space. Reads /proc and the cgroup
// tree, owns nothing. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lode::platform {

struct Hardware {
  int cores = 1;                              // That this process may use: affinity, and the container's CPU quota.
  std::uint64_t ram_total = 0;                // Bytes.
  std::uint64_t ram_available = 0;            // Without swapping: free, and page cache that the kernel would give up.
  std::optional<std::uint64_t> cgroup_limit;  // The container's limit with the least room; nullopt: none.
  std::uint64_t cgroup_used = 0;              // Charged there and not given up under pressure: without file cache.
  std::string cgroup_source;                  // The file that states the limit.
  std::uint64_t own_bytes = 0;                // This process' anonymous memory, part of both kinds of use above.
  std::uint64_t disk_free = 0;                // Where `disk` lies, for an unprivileged user.
};

struct DetectOptions {
  std::filesystem::path root = "/";  // Tests put a tree of /proc and /sys there.
  std::filesystem::path disk;        // Folder of the disk tier, which may not exist yet; empty: none.
};

// Never fails: what cannot be read keeps its default, and a limit that is not found is no limit.
Hardware detect(const DetectOptions& options);

// ---- The pieces, for tests.

// Room under one cgroup's limit. Limits of 2^62 and more, and "max", mean none.
struct MemoryLimit {
  std::uint64_t limit = 0, used = 0;  // Bytes; `used` without file cache.
  std::string source;
};
// The limit with the least room from this process' group up to the root of the hierarchy, over v1 and v2.
std::optional<MemoryLimit> cgroup_memory(const std::filesystem::path& root);
// The smallest CPU quota on that way, in cores (1.5 for 150 ms of every 100 ms); nullopt: none.
std::optional<double> cgroup_cpus(const std::filesystem::path& root);

}  // namespace lode::platform
