// The ceilings' loops with AVX2 and FMA. Compiled for it, called only where the processor has it. See ceilings.h.
#include <immintrin.h>

#include <cstring>

#include "ceilings.h"

namespace lode::bench {
namespace {

// One pass over `streams` equal pieces side by side: each has its own place in the hardware's prefetchers.
template <int kStreams>
std::uint64_t read_streams(const std::byte* at, std::size_t bytes, std::size_t ahead) {
  const std::size_t piece = bytes / kStreams;
  __m256i sums[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  for (std::size_t i = 0; i < piece; i += 128) {
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* p = at + static_cast<std::size_t>(s) * piece + i;
      if (ahead != 0) {
        _mm_prefetch(reinterpret_cast<const char*>(p + ahead), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(p + ahead + 64), _MM_HINT_T0);
      }
      for (int j = 0; j < 4; ++j)
        sums[j] = _mm256_xor_si256(sums[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32 * j)));
    }
  }
  alignas(32) std::uint64_t out[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(out),
                     _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3])));
  return out[0] ^ out[1] ^ out[2] ^ out[3];
}

std::uint64_t read(const std::byte* at, std::size_t bytes, int streams, std::size_t ahead) {
  switch (streams) {
    case 4: return read_streams<4>(at, bytes, ahead);
    case 2: return read_streams<2>(at, bytes, ahead);
    default: return read_streams<1>(at, bytes, ahead);
  }
}

// A tile of 2 rows and 4 tokens: 8 sums, so that with the operands nearly all 16 registers are in use and each load
// serves several products. They are variables of their own, since g++ 12 keeps an array of them in memory. 16 steps of
// 32 values: 6 panels of 512 bytes, well inside the first cache.
constexpr int kRows = 2, kTokens = 4, kSteps = 16;

std::uint64_t int8_loop(std::int64_t rounds) {
  alignas(32) std::uint8_t w[kRows][kSteps * 32];
  alignas(32) std::int8_t x[kTokens][kSteps * 32];
  std::memset(w, 3, sizeof w);
  std::memset(x, 5, sizeof x);
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i a0 = _mm256_setzero_si256(), a1 = a0, b0 = a0, b1 = a0, c0 = a0, c1 = a0, d0 = a0, d1 = a0;
  for (std::int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : : "r"(w), "r"(x) : "memory");  // The panels are read again each round.
    for (int k = 0; k < kSteps; ++k) {
      const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(w[0] + 32 * k)),
                    w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(w[1] + 32 * k));
      const auto step = [&](const std::int8_t* at, __m256i& s0, __m256i& s1) {
        const __m256i acts = _mm256_load_si256(reinterpret_cast<const __m256i*>(at + 32 * k));
        s0 = _mm256_add_epi32(s0, _mm256_madd_epi16(_mm256_maddubs_epi16(w0, acts), ones));
        s1 = _mm256_add_epi32(s1, _mm256_madd_epi16(_mm256_maddubs_epi16(w1, acts), ones));
      };
      step(x[0], a0, a1);
      step(x[1], b0, b1);
      step(x[2], c0, c1);
      step(x[3], d0, d1);
    }
  }
  const __m256i all = ((a0 ^ a1) ^ (b0 ^ b1)) ^ ((c0 ^ c1) ^ (d0 ^ d1));
  return static_cast<std::uint64_t>(_mm256_extract_epi32(all, 0));
}

// 3 vectors of 8 values and 4 broadcast ones: 12 sums hide the latency of 4 to 5 cycles at two products a cycle.
constexpr int kVectors = 3, kScalars = 4, kFloatSteps = 32;

std::uint64_t f32_loop(std::int64_t rounds) {
  alignas(32) float w[kFloatSteps][kVectors * 8];
  float x[kFloatSteps][kScalars];
  for (auto& row : w)
    for (auto& v : row) v = 0.5f;
  for (auto& row : x)
    for (auto& v : row) v = 0.25f;
  __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, b0 = a0, b1 = a0, b2 = a0;
  __m256 c0 = a0, c1 = a0, c2 = a0, d0 = a0, d1 = a0, d2 = a0;
  const auto step = [](const float* at, __m256 w0, __m256 w1, __m256 w2, __m256& s0, __m256& s1, __m256& s2) {
    const __m256 act = _mm256_broadcast_ss(at);
    s0 = _mm256_fmadd_ps(w0, act, s0);
    s1 = _mm256_fmadd_ps(w1, act, s1);
    s2 = _mm256_fmadd_ps(w2, act, s2);
  };
  for (std::int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : : "r"(w), "r"(x) : "memory");
    for (int k = 0; k < kFloatSteps; ++k) {
      const __m256 w0 = _mm256_load_ps(w[k]), w1 = _mm256_load_ps(w[k] + 8), w2 = _mm256_load_ps(w[k] + 16);
      step(&x[k][0], w0, w1, w2, a0, a1, a2);
      step(&x[k][1], w0, w1, w2, b0, b1, b2);
      step(&x[k][2], w0, w1, w2, c0, c1, c2);
      step(&x[k][3], w0, w1, w2, d0, d1, d2);
    }
  }
  const __m256 all = ((a0 + a1) + (a2 + b0)) + ((b1 + b2) + (c0 + c1)) + ((c2 + d0) + (d1 + d2));
  return static_cast<std::uint64_t>(_mm256_cvtss_f32(all) > 0);
}

}  // namespace

const CeilingLoops kAvx2Loops{.name = "avx2",
                              .int8 = "vpmaddubsw, vpmaddwd, vpaddd",
                              .f32 = "vfmadd, 8 floats",
                              .read = read,
                              .int8_loop = int8_loop,
                              .f32_loop = f32_loop,
                              .int8_macs = kRows * kTokens * kSteps * 32,
                              .f32_macs = kVectors * kScalars * kFloatSteps * 8};

}  // namespace lode::bench
