// Writes down which requests share how much with which earlier ones, for the cache simulator (bench/kv_sim): lines as
// trace.h has them, in the order in which the requests end. No text, no token, no key. Owns the file. Step thread only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/status.h"
#include "kv/key.h"
#include "kv/sequence.h"
#include "platform/clock.h"
#include "platform/file_system.h"

namespace lode::kv {

class TraceRecorder {
 public:
  // Blocks that it remembers; with more it stops: 100 MB.
  static constexpr std::size_t kBlocksMax = 1u << 20;

  // Replaces the file. Errors: those of the file system.
  static Result<std::unique_ptr<TraceRecorder>> create(platform::FileSystem& fs, platform::Clock& clock,
                                                       const std::filesystem::path& path);
  // Called before the sequence lets go of its blocks. One of less than a block is left out. A preempted sequence that
  // goes on is one more request, which shares all.
  void ended(const Sequence& seq);

 private:
  TraceRecorder(platform::Clock& clock, std::unique_ptr<platform::File> file)
      : clock_(clock), file_(std::move(file)), began_ns_(clock.now_ns()) {}
  void write(const std::string& line);

  platform::Clock& clock_;
  std::unique_ptr<platform::File> file_;  // nullptr: it has stopped.
  const std::int64_t began_ns_;
  std::uint64_t bytes_ = 0;
  std::int64_t requests_ = 0;
  std::unordered_map<BlockKey, std::int64_t, BlockKeyHash> first_;  // The request that had a block first.
};

}  // namespace lode::kv
