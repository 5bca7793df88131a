// Reads that finish later, many at once: io_uring, or a few threads where it is refused (containers often do). Owns its
// threads and the ring. submit() may be called from any thread; completions come on the reader's own threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "platform/file_system.h"
#include "platform/turns.h"

namespace lode::platform {

struct ReadOp;

class ReadSink {
 public:
  virtual ~ReadSink() = default;
  // `op` is done; on ok() every byte is in place. Called once an op, by several threads at once in thread mode. It may
  // submit more; it must not block for long, since the next completion waits for it.
  virtual void read_done(ReadOp& op, Status status) = 0;
};

// One scattered read of consecutive bytes of a file. Lives, with its file and buffers, until read_done was called.
struct ReadOp {
  File* file = nullptr;
  std::uint64_t offset = 0;                 // Bytes; a multiple of kFileAlign where the file bypasses the cache.
  std::vector<std::span<std::byte>> parts;  // In file order, at most 64; consumed: empty parts after completion.
  ReadSink* sink = nullptr;
  std::uint64_t tag = 0;  // The sink's to use.
};

struct AsyncReadOptions {
  enum class Mode : std::uint8_t { automatic, threads } mode = Mode::automatic;
  unsigned depth = 64;   // Reads in flight with io_uring.
  unsigned threads = 4;  // Otherwise.
  // Simulations: neither; reads are done in these turns, in any order. Outlives the reader.
  Turns* turns = nullptr;
};

class AsyncReader {
 public:
  // Falls back to threads where io_uring cannot be had.
  static std::unique_ptr<AsyncReader> create(const AsyncReadOptions& options);
  virtual ~AsyncReader() = default;  // All ops must be done.
  // Starts the ops in this order. A short read is continued; one at the end of the file fails with io_error.
  virtual void submit(std::span<ReadOp* const> ops) = 0;
  virtual std::string_view name() const = 0;  // "io_uring", "pread threads", "turns"
};

}  // namespace lode::platform
