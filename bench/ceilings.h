// What this machine can do at most, beside which the kernels' figures are printed: memory read as a stream, int8 and
// f32 multiply-adds, each with the instructions of the chosen kernel table. Owns a thread pool and 256 MiB or more to
// read. Benchmarks only; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"

namespace lode::bench {

struct Ceilings {
  double stream_gb_s = 0;  // 1e9 bytes/s read from memory beyond the last cache.
  double int8_gmac_s = 0;  // 1e9 multiply-adds/s of 8-bit integers, summed in 32 bits.
  double f32_gmac_s = 0;   // 1e9 fused multiply-adds/s of single floats.
};

// The loops of one instruction set. Results go nowhere but into the return value, which keeps them from being removed.
struct CeilingLoops {
  std::string_view name;       // As the kernel table's.
  std::string_view int8, f32;  // The instructions, in words.
  // Reads `bytes` (a multiple of 4096) once, as `streams` neighbouring streams (1, 2 or 4), prefetching `ahead` bytes
  // before each (0: not at all).
  std::uint64_t (*read)(const std::byte* at, std::size_t bytes, int streams, std::size_t ahead);
  // `rounds` of int8_macs or f32_macs multiply-adds over operands in the first cache.
  std::uint64_t (*int8_loop)(std::int64_t rounds);
  std::uint64_t (*f32_loop)(std::int64_t rounds);
  std::int64_t int8_macs = 0, f32_macs = 0;
};
extern const CeilingLoops kGenericLoops, kAvx2Loops, kAvx512Loops;
// The loops that go with a kernel table. A table without loops of its own gets the best that this machine can run.
const CeilingLoops& loops_for(std::string_view table);

class CeilingMeter {
 public:
  // `table`: a name that kernels::select_table accepts here. Tries ways of reading and keeps the fastest: about 0.5 s.
  CeilingMeter(int threads, std::string_view table);

  // One short look, about 40 ms: shared machines change from one moment to the next, so measure beside the work.
  Ceilings measure();

  const CeilingLoops& loops() const { return loops_; }
  int threads() const { return pool_.size(); }
  int streams() const { return streams_; }  // Of the way of reading that was fastest.
  std::size_t prefetch_bytes() const { return ahead_; }
  std::size_t buffer_bytes() const { return bytes_; }

 private:
  double read_once(int streams, std::size_t ahead);  // GB/s
  double compute(std::uint64_t (*loop)(std::int64_t), std::int64_t macs);

  const CeilingLoops& loops_;
  ThreadPool pool_;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;  // Shared by all meters of the process, never freed.
  int streams_ = 1;
  std::size_t ahead_ = 0;
  std::uint64_t sink_ = 0;
};

// One meter for each number of threads, made when it is first asked for.
CeilingMeter& meter_for(int threads, std::string_view table);

}  // namespace lode::bench
