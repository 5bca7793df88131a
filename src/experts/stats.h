// What an expert cache has done. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace lode::experts {

// Since the start. Bytes are those asked of the disk, whole pages.
struct CacheStats {
  std::uint64_t slots = 0, slot_bytes = 0, resident = 0, experts = 0;
  std::uint64_t hits = 0;    // Experts that a step needed and found, those that prefetch had brought included.
  std::uint64_t misses = 0;  // Those that it had to ask for.
  std::uint64_t bytes_read = 0;
  std::uint64_t stalls = 0;           // Times that a step waited for a read,
  std::int64_t stall_ns = 0;          // and how long in all.
  std::uint64_t prefetched = 0;       // Experts read before anybody needed them,
  std::uint64_t prefetch_used = 0;    // of which a step needed so many before they left,
  std::uint64_t prefetch_wasted = 0;  // and so many left unused.
  std::uint64_t read_errors = 0;
  std::string mode;  // "io_uring, O_DIRECT"
};

}  // namespace lode::experts
