// Timing of the ceilings, and the loops of processors without AVX2. See ceilings.h.
#include "ceilings.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "kernels/kernels.h"

namespace lode::bench {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Keeps the optimizer from knowing a value.
template <typename T>
void hide(T& value) {
  asm volatile("" : "+r"(value));
}

std::uint64_t generic_read(const std::byte* at, std::size_t bytes, int, std::size_t) {
  std::uint64_t sums[8] = {};
  for (std::size_t i = 0; i < bytes; i += sizeof sums) {
    std::uint64_t words[8];
    std::memcpy(words, at + i, sizeof words);
    for (int j = 0; j < 8; ++j) sums[j] ^= words[j];
  }
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

constexpr std::int64_t kGenericMacs = 64;
std::uint64_t generic_int8(std::int64_t rounds) {
  std::int8_t a[kGenericMacs], b[kGenericMacs];
  std::memset(a, 3, sizeof a);
  std::memset(b, 5, sizeof b);
  std::int32_t sums[kGenericMacs] = {};
  for (std::int64_t r = 0; r < rounds; ++r) {
    std::int8_t* p = a;
    hide(p);
    for (std::int64_t i = 0; i < kGenericMacs; ++i) sums[i] += p[i] * b[i];
  }
  std::int32_t all = 0;
  for (const std::int32_t s : sums) all ^= s;
  return static_cast<std::uint64_t>(all);
}
std::uint64_t generic_f32(std::int64_t rounds) {
  float a[kGenericMacs], sums[kGenericMacs] = {};
  std::fill(std::begin(a), std::end(a), 0.5f);
  for (std::int64_t r = 0; r < rounds; ++r) {
    float* p = a;
    hide(p);
    for (std::int64_t i = 0; i < kGenericMacs; ++i) sums[i] = p[i] * 0.5f + sums[i];
  }
  float all = 0;
  for (const float s : sums) all += s;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &all, sizeof bits);
  return bits;
}

// Four times the last cache and at least 256 MiB, so that nearly nothing is still there from the pass before; at most
// 512 MiB, since what is reported as a core's cache may be that of a whole server (256 MiB on an AMD EPYC's guest).
std::size_t buffer_size() {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::uint64_t wanted = cache > 0 ? 4 * static_cast<std::uint64_t>(cache) : 0;
  return std::clamp<std::uint64_t>(align_up(wanted, 4 * kMiB), 256 * kMiB, 512 * kMiB);
}

std::byte* buffer() {
  static std::byte* const data = [] {
    const std::size_t bytes = buffer_size();
    auto* at = static_cast<std::byte*>(std::aligned_alloc(4096, bytes));
    if (at == nullptr) throw std::bad_alloc();
    std::memset(at, 1, bytes);
    return at;
  }();
  return data;
}

}  // namespace

const CeilingLoops kGenericLoops{.name = "generic",
                                 .int8 = "compiled C++",
                                 .f32 = "compiled C++, multiply and add",
                                 .read = generic_read,
                                 .int8_loop = generic_int8,
                                 .f32_loop = generic_f32,
                                 .int8_macs = kGenericMacs,
                                 .f32_macs = kGenericMacs};

const CeilingLoops& loops_for(std::string_view table) {
  if (table == "avx2") return kAvx2Loops;
  if (table == "avx512") return kAvx512Loops;
  for (const kernels::Table* here : kernels::available_tables()) {
    if (here->name == "avx512") return kAvx512Loops;
    if (here->name == "avx2") return kAvx2Loops;
  }
  return kGenericLoops;
}

CeilingMeter::CeilingMeter(int threads, std::string_view table)
    : loops_(loops_for(table)), pool_(threads), bytes_(buffer_size()), data_(buffer()) {
  double best = 0;
  for (const int streams : {1, 2, 4}) {
    for (const std::size_t ahead : {0, 512, 1024, 2048}) {
      const double rate = std::max(read_once(streams, ahead), read_once(streams, ahead));
      if (rate <= best) continue;
      best = rate;
      streams_ = streams;
      ahead_ = ahead;
    }
  }
}

double CeilingMeter::read_once(int streams, std::size_t ahead) {
  constexpr std::int64_t kParts = 64;  // 4 MiB and more each: threads that are held up leave theirs to the others.
  const std::size_t part = bytes_ / kParts / 4096 * 4096;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool_.size()) * 8);
  const auto start = std::chrono::steady_clock::now();
  pool_.run(kParts, [&](std::int64_t i, int thread) {
    sums[static_cast<std::size_t>(thread) * 8] ^=
        loops_.read(data_ + static_cast<std::size_t>(i) * part, part, streams, ahead);
  });
  const double seconds = seconds_since(start);
  for (const std::uint64_t s : sums) sink_ ^= s;
  hide(sink_);
  return static_cast<double>(part * kParts) * 1e-9 / seconds;
}

double CeilingMeter::compute(std::uint64_t (*loop)(std::int64_t), std::int64_t macs) {
  // About 5 ms of work a thread at 100 G/s, in parts of a tenth of that.
  const std::int64_t rounds = 50'000'000 / macs, parts = 10 * pool_.size();
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(pool_.size()) * 8);
  const auto start = std::chrono::steady_clock::now();
  pool_.run(parts, [&](std::int64_t, int thread) { sums[static_cast<std::size_t>(thread) * 8] ^= loop(rounds); });
  const double seconds = seconds_since(start);
  for (const std::uint64_t s : sums) sink_ ^= s;
  hide(sink_);
  return static_cast<double>(rounds * macs * parts) * 1e-9 / seconds;
}

Ceilings CeilingMeter::measure() {
  return {.stream_gb_s = read_once(streams_, ahead_),
          .int8_gmac_s = compute(loops_.int8_loop, loops_.int8_macs),
          .f32_gmac_s = compute(loops_.f32_loop, loops_.f32_macs)};
}

CeilingMeter& meter_for(int threads, std::string_view table) {
  static std::map<std::pair<int, std::string>, std::unique_ptr<CeilingMeter>> meters;
  auto& meter = meters[{threads, std::string(table)}];
  if (!meter) meter = std::make_unique<CeilingMeter>(threads, table);
  return *meter;
}

}  // namespace lode::bench
