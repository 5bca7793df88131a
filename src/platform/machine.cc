// Parsers of /proc/meminfo, /proc/self/{cgroup,mountinfo,status} and the files of cgroup v1 and v2.
#include "platform/machine.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "base/bytes.h"

namespace lode::platform {
namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The number at the start of `text`, blanks skipped.
std::optional<std::uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> number_in(const fs::path& path) {
  return leading_number(slurp(path));
}

// The number after `key` at the start of a line ("MemTotal:", "total_active_file").
std::optional<std::uint64_t> field(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::string_view view = line;
    if (!view.starts_with(key)) continue;
    const std::string_view rest = view.substr(key.size());
    if (key.ends_with(':') || rest.starts_with(' ')) return leading_number(rest);
  }
  return std::nullopt;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> out;
  for (std::string w; in >> w;) out.push_back(w);
  return out;
}

bool has_item(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == item) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

struct Hierarchy {
  enum class Kind { v1, v2 } kind = Kind::v2;
  std::vector<fs::path> folders;  // This process' group first, the mount's root last. Only those that exist.
};

// This process' path in the hierarchy of `controller` (v1) or in the unified one (v2, empty controller).
std::optional<std::string> own_path(const fs::path& root, std::string_view controller) {
  std::istringstream lines(slurp(root / "proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const bool unified = controllers.empty() && std::string_view(line).starts_with("0:");
    if (controller.empty() ? unified : has_item(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The hierarchies that can limit `controller`, as /proc/self/mountinfo shows them.
std::vector<Hierarchy> hierarchies(const fs::path& root, std::string_view controller) {
  std::vector<Hierarchy> out;
  std::istringstream lines(slurp(root / "proc/self/mountinfo"));
  for (std::string line; std::getline(lines, line);) {
    // id parent major:minor ROOT MOUNT-POINT options ... - TYPE source SUPER-OPTIONS
    const std::vector<std::string> w = words(line);
    const auto dash = std::find(w.begin(), w.end(), "-");
    if (w.size() < 5 || w.end() - dash < 4) continue;
    const bool v2 = dash[1] == "cgroup2";
    if (!v2 && !(dash[1] == "cgroup" && has_item(dash[3], controller))) continue;
    const std::optional<std::string> path = own_path(root, v2 ? std::string_view() : controller);
    if (!path) continue;
    // A container without its own cgroup namespace sees the host's path, and its own group as the mount's root.
    std::string below = *path;
    if (w[3] != "/") below = below.starts_with(w[3]) ? below.substr(w[3].size()) : "/";
    Hierarchy h;
    h.kind = v2 ? Hierarchy::Kind::v2 : Hierarchy::Kind::v1;
    const fs::path mount = root / fs::path(w[4]).relative_path();
    fs::path at = fs::path(below).relative_path().lexically_normal();
    if (at == "." || (!at.empty() && *at.begin() == ".."))
      at.clear();  // A path outside the namespace: its root is all.
    for (;; at = at.parent_path()) {
      std::error_code error;
      if (fs::is_directory(mount / at, error)) h.folders.push_back(mount / at);
      if (at.empty()) break;
    }
    out.push_back(std::move(h));
  }
  return out;
}

constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;  // v1 writes 2^63 rounded down to a page.

std::optional<MemoryLimit> memory_v1(const fs::path& folder) {
  const auto limit = number_in(folder / "memory.limit_in_bytes");
  if (!limit || *limit >= kNoLimit) return std::nullopt;
  const std::string stat = slurp(folder / "memory.stat");
  const std::uint64_t usage = number_in(folder / "memory.usage_in_bytes").value_or(0);
  const std::uint64_t cache =
      field(stat, "total_active_file").value_or(0) + field(stat, "total_inactive_file").value_or(0);
  return MemoryLimit{*limit, usage - std::min(usage, cache), (folder / "memory.limit_in_bytes").string()};
}

std::optional<MemoryLimit> memory_v2(const fs::path& folder) {
  std::optional<MemoryLimit> least;
  // memory.high does not kill, but a process above it is slowed down until it is below: as good as a limit.
  for (const char* name : {"memory.max", "memory.high"}) {
    const auto limit = number_in(folder / name);
    if (!limit || *limit >= kNoLimit || (least && least->limit <= *limit)) continue;
    least = MemoryLimit{*limit, 0, (folder / name).string()};
  }
  if (!least) return least;
  const std::string stat = slurp(folder / "memory.stat");
  const std::uint64_t usage = number_in(folder / "memory.current").value_or(0);
  const std::uint64_t cache = field(stat, "active_file").value_or(0) + field(stat, "inactive_file").value_or(0);
  least->used = usage - std::min(usage, cache);
  return least;
}

std::uint64_t room(const MemoryLimit& m) {
  return m.limit > m.used ? m.limit - m.used : 0;
}

std::optional<double> cpus_of(const fs::path& folder, Hierarchy::Kind kind) {
  std::optional<std::uint64_t> quota, period;  // Microseconds.
  if (kind == Hierarchy::Kind::v2) {
    const std::vector<std::string> w = words(slurp(folder / "cpu.max"));
    if (w.size() >= 2) quota = leading_number(w[0]), period = leading_number(w[1]);
  } else {
    quota = number_in(folder / "cpu.cfs_quota_us");  // "-1", no number here, means none.
    period = number_in(folder / "cpu.cfs_period_us");
  }
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

int affinity_cores() {
  // Sized for 8,192 processors: the fixed cpu_set_t fails beyond 1,024.
  constexpr int kMost = 8192;
  cpu_set_t* set = CPU_ALLOC(kMost);
  if (set == nullptr) return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const std::size_t bytes = CPU_ALLOC_SIZE(kMost);
  CPU_ZERO_S(bytes, set);
  const bool known = sched_getaffinity(0, bytes, set) == 0;
  const int count = known ? CPU_COUNT_S(bytes, set) : static_cast<int>(std::thread::hardware_concurrency());
  CPU_FREE(set);
  return std::max(1, count);
}

std::uint64_t free_space(fs::path path) {
  std::error_code error;
  path = fs::absolute(path, error);
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  const fs::space_info space = fs::space(path, error);
  return error ? 0 : static_cast<std::uint64_t>(space.available);
}

}  // namespace

std::optional<MemoryLimit> cgroup_memory(const fs::path& root) {
  std::optional<MemoryLimit> least;
  for (const Hierarchy& h : hierarchies(root, "memory")) {
    for (const fs::path& folder : h.folders) {
      auto found = h.kind == Hierarchy::Kind::v1 ? memory_v1(folder) : memory_v2(folder);
      if (found && (!least || room(*found) < room(*least))) least = std::move(found);
    }
  }
  return least;
}

std::optional<double> cgroup_cpus(const fs::path& root) {
  std::optional<double> least;
  for (const Hierarchy& h : hierarchies(root, "cpu")) {
    for (const fs::path& folder : h.folders) {
      const auto found = cpus_of(folder, h.kind);
      if (found && (!least || *found < *least)) least = found;
    }
  }
  return least;
}

Hardware detect(const DetectOptions& options) {
  Hardware hw;
  hw.cores = affinity_cores();
  if (const auto cpus = cgroup_cpus(options.root)) {
    // Rounded up: half a core still runs one thread.
    hw.cores = std::clamp(static_cast<int>(std::ceil(std::min(*cpus, 1e6))), 1, hw.cores);
  }
  const std::string meminfo = slurp(options.root / "proc/meminfo");
  hw.ram_total = field(meminfo, "MemTotal:").value_or(0) * kKiB;
  hw.ram_available = field(meminfo, "MemAvailable:").value_or(hw.ram_total / kKiB) * kKiB;
  hw.own_bytes = field(slurp(options.root / "proc/self/status"), "RssAnon:").value_or(0) * kKiB;
  if (auto limit = cgroup_memory(options.root)) {
    hw.cgroup_limit = limit->limit;
    hw.cgroup_used = limit->used;
    hw.cgroup_source = std::move(limit->source);
  }
  if (!options.disk.empty()) hw.disk_free = free_space(options.disk);
  return hw;
}

}  // namespace lode::platform
