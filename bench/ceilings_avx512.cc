// The ceilings' loops with AVX-512 and its VNNI. Compiled for them, called only where the processor has them. See
// ceilings.h.
#include <immintrin.h>

#include <cstring>

#include "ceilings.h"

namespace lode::bench {
namespace {

template <int kStreams>
std::uint64_t read_streams(const std::byte* at, std::size_t bytes, std::size_t ahead) {
  const std::size_t piece = bytes / kStreams;
  __m512i sums[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  for (std::size_t i = 0; i < piece; i += 256) {
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* p = at + static_cast<std::size_t>(s) * piece + i;
      for (int j = 0; j < 4; ++j) {
        if (ahead != 0) _mm_prefetch(reinterpret_cast<const char*>(p + ahead + 64 * j), _MM_HINT_T0);
        sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(p + 64 * j));
      }
    }
  }
  alignas(64) std::uint64_t out[8];
  _mm512_store_si512(out, _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3])));
  std::uint64_t all = 0;
  for (const std::uint64_t word : out) all ^= word;
  return all;
}

std::uint64_t read(const std::byte* at, std::size_t bytes, int streams, std::size_t ahead) {
  switch (streams) {
    case 4: return read_streams<4>(at, bytes, ahead);
    case 2: return read_streams<2>(at, bytes, ahead);
    default: return read_streams<1>(at, bytes, ahead);
  }
}

// A tile of 4 rows and 3 tokens: 12 sums hide a latency of 5 cycles at two products a cycle. They are variables of
// their own, since g++ 12 keeps an array of them in memory.
constexpr int kRows = 4, kTokens = 3, kSteps = 16;

std::uint64_t int8_loop(std::int64_t rounds) {
  alignas(64) std::uint8_t w[kRows][kSteps * 64];
  alignas(64) std::int8_t x[kTokens][kSteps * 64];
  std::memset(w, 3, sizeof w);
  std::memset(x, 5, sizeof x);
  __m512i a0 = _mm512_setzero_si512(), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0;
  __m512i b2 = a0, b3 = a0, c0 = a0, c1 = a0, c2 = a0, c3 = a0;
  for (std::int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : : "r"(w), "r"(x) : "memory");  // The panels are read again each round.
    for (int k = 0; k < kSteps; ++k) {
      const __m512i w0 = _mm512_load_si512(w[0] + 64 * k), w1 = _mm512_load_si512(w[1] + 64 * k),
                    w2 = _mm512_load_si512(w[2] + 64 * k), w3 = _mm512_load_si512(w[3] + 64 * k);
      const auto step = [&](const std::int8_t* at, __m512i& s0, __m512i& s1, __m512i& s2, __m512i& s3) {
        const __m512i acts = _mm512_load_si512(at + 64 * k);
        s0 = _mm512_dpbusd_epi32(s0, w0, acts);
        s1 = _mm512_dpbusd_epi32(s1, w1, acts);
        s2 = _mm512_dpbusd_epi32(s2, w2, acts);
        s3 = _mm512_dpbusd_epi32(s3, w3, acts);
      };
      step(x[0], a0, a1, a2, a3);
      step(x[1], b0, b1, b2, b3);
      step(x[2], c0, c1, c2, c3);
    }
  }
  const __m512i all = ((a0 ^ a1) ^ (a2 ^ a3)) ^ ((b0 ^ b1) ^ (b2 ^ b3)) ^ ((c0 ^ c1) ^ (c2 ^ c3));
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi32(all));
}

constexpr int kVectors = 4, kScalars = 3, kFloatSteps = 16;

std::uint64_t f32_loop(std::int64_t rounds) {
  alignas(64) float w[kFloatSteps][kVectors * 16];
  float x[kFloatSteps][kScalars];
  for (auto& row : w)
    for (auto& v : row) v = 0.5f;
  for (auto& row : x)
    for (auto& v : row) v = 0.25f;
  __m512 a0 = _mm512_setzero_ps(), a1 = a0, a2 = a0, a3 = a0, b0 = a0, b1 = a0;
  __m512 b2 = a0, b3 = a0, c0 = a0, c1 = a0, c2 = a0, c3 = a0;
  for (std::int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : : "r"(w), "r"(x) : "memory");
    for (int k = 0; k < kFloatSteps; ++k) {
      const __m512 w0 = _mm512_load_ps(w[k]), w1 = _mm512_load_ps(w[k] + 16), w2 = _mm512_load_ps(w[k] + 32),
                   w3 = _mm512_load_ps(w[k] + 48);
      const auto step = [&](float value, __m512& s0, __m512& s1, __m512& s2, __m512& s3) {
        const __m512 act = _mm512_set1_ps(value);
        s0 = _mm512_fmadd_ps(w0, act, s0);
        s1 = _mm512_fmadd_ps(w1, act, s1);
        s2 = _mm512_fmadd_ps(w2, act, s2);
        s3 = _mm512_fmadd_ps(w3, act, s3);
      };
      step(x[k][0], a0, a1, a2, a3);
      step(x[k][1], b0, b1, b2, b3);
      step(x[k][2], c0, c1, c2, c3);
    }
  }
  const __m512 all = ((a0 + a1) + (a2 + a3)) + ((b0 + b1) + (b2 + b3)) + ((c0 + c1) + (c2 + c3));
  return static_cast<std::uint64_t>(_mm512_reduce_add_ps(all) > 0);
}

}  // namespace

const CeilingLoops kAvx512Loops{.name = "avx512",
                                .int8 = "vpdpbusd, 64 values",
                                .f32 = "vfmadd, 16 floats",
                                .read = read,
                                .int8_loop = int8_loop,
                                .f32_loop = f32_loop,
                                .int8_macs = kRows * kTokens * kSteps * 64,
                                .f32_macs = kVectors * kScalars * kFloatSteps * 16};

}  // namespace lode::bench
