// Block formats in AVX2 registers: 32 unsigned codes of a block at a time, and helpers that every product shares. For
// cpu/avx2/matmul*.cc only.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/blocks.h"
#include "quant/grids.h"

namespace lode::kernels::avx2 {

inline __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
inline void store256(void* p, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
// Four bytes at any address in every lane.
inline __m256i broadcast32(const void* p) {
  std::int32_t v;
  std::memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}

// 16 bytes -> 32 codes: low nibbles, then high nibbles.
inline __m256i nibbles(const std::uint8_t* qs) {
  const __m128i b = load128(qs);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(b, 4), b), _mm256_set1_epi8(15));
}
// Bit i of 32 -> 0x10 in byte i.
inline __m256i fifth_bits(const std::uint8_t* qh) {
  const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                          2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  const __m256i bytes = _mm256_and_si256(_mm256_shuffle_epi8(broadcast32(qh), spread), bit);
  return _mm256_and_si256(_mm256_cmpeq_epi8(bytes, bit), _mm256_set1_epi8(16));
}

// g32 formats. weight = code - (1 << kShift), or the code itself where kShift is 0; kMin: d * code + m. kFits: sums of
// 16 products of such weights with activations fit int16 (|w| <= 16: 16 * 16 * 127 = 32,512).
template <typename Block>
struct Format32;
template <>
struct Format32<quant::BlockQ4_0> {
  static constexpr int kShift = 3;
  static constexpr bool kMin = false;
  static __m256i codes(const quant::BlockQ4_0* b) { return nibbles(b->qs); }
};
template <>
struct Format32<quant::BlockQ4_1> {
  static constexpr int kShift = 0;
  static constexpr bool kMin = true;
  static __m256i codes(const quant::BlockQ4_1* b) { return nibbles(b->qs); }
};
template <>
struct Format32<quant::BlockQ5_0> {
  static constexpr int kShift = 4;
  static constexpr bool kMin = false;
  static __m256i codes(const quant::BlockQ5_0* b) { return _mm256_or_si256(nibbles(b->qs), fifth_bits(b->qh)); }
};
template <>
struct Format32<quant::BlockQ5_1> {
  static constexpr int kShift = 0;
  static constexpr bool kMin = true;
  static __m256i codes(const quant::BlockQ5_1* b) { return _mm256_or_si256(nibbles(b->qs), fifth_bits(b->qh)); }
};
template <>
struct Format32<quant::BlockMXFP4> {
  static constexpr int kShift = 4;
  static constexpr bool kMin = false;
  static __m256i codes(const quant::BlockMXFP4* b) {
    const __m128i values = _mm_add_epi8(load128(quant::kValuesE2m1.data()), _mm_set1_epi8(16));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), nibbles(b->qs));
  }
};
template <>
struct Format32<quant::BlockQ8_0> {
  static constexpr int kShift = 7;
  static constexpr bool kMin = false;
  static __m256i codes(const quant::BlockQ8_0* b) { return _mm256_xor_si256(load256(b->qs), _mm256_set1_epi8(-128)); }
};

// quant::unpack_scales_k4 in registers: a load of 16 bytes would wait for the small stores before it.
inline __m128i scales_k4(const std::uint8_t* packed) {
  std::uint32_t a, b, c;
  std::memcpy(&a, packed, 4);
  std::memcpy(&b, packed + 4, 4);
  std::memcpy(&c, packed + 8, 4);
  const __m128i low = _mm_setr_epi32(static_cast<int>(a), static_cast<int>(c), static_cast<int>(b),
                                     static_cast<int>(c >> 4));  // Four bits of 4 to 7 in words 1 and 3.
  const __m128i high = _mm_setr_epi32(0, static_cast<int>(a), 0, static_cast<int>(b));
  const __m128i mask = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
  return _mm_or_si128(_mm_and_si128(low, mask), _mm_and_si128(_mm_srli_epi32(high, 2), _mm_set1_epi8(0x30)));
}

// g256 formats. codes(b, j): values 32j .. 32j+31. kSub: values under one integer scale. weight = code - (1 << kShift).
template <typename Block>
struct Format256;
template <>
struct Format256<quant::BlockQ4_K> {
  static constexpr int kShift = 0, kSub = 32;
  static constexpr bool kMin = true;
  static __m256i codes(const quant::BlockQ4_K* b, int j) {
    const __m256i v = load256(b->qs + 32 * (j / 2));
    return _mm256_and_si256(j % 2 == 0 ? v : _mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
  }
};
template <>
struct Format256<quant::BlockQ5_K> {
  static constexpr int kShift = 0, kSub = 32;
  static constexpr bool kMin = true;
  static __m256i codes(const quant::BlockQ5_K* b, int j) {
    const __m256i v = load256(b->qs + 32 * (j / 2));
    const __m256i low = _mm256_and_si256(j % 2 == 0 ? v : _mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << j));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(load256(b->qh), bit), bit);
    return _mm256_or_si256(low, _mm256_and_si256(set, _mm256_set1_epi8(16)));
  }
};
template <>
struct Format256<quant::BlockQ6_K> {
  static constexpr int kShift = 5, kSub = 16;
  static constexpr bool kMin = false;
  static __m256i codes(const quant::BlockQ6_K* b, int j) {
    const int half = j / 4, part = j % 4;
    const __m256i ql = load256(b->ql + 64 * half + 32 * (part % 2)), qh = load256(b->qh + 32 * half);
    const __m256i low = _mm256_and_si256(part < 2 ? ql : _mm256_srli_epi16(ql, 4), _mm256_set1_epi8(15));
    const __m256i high = part == 0   ? _mm256_slli_epi16(qh, 4)
                         : part == 1 ? _mm256_slli_epi16(qh, 2)
                         : part == 2 ? qh
                                     : _mm256_srli_epi16(qh, 2);
    return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(48)));
  }
};

// 2-bit codes 32j .. 32j+31 that lie as in Q2_K.
inline __m256i two_bits(const std::uint8_t* qs, int j) {
  return _mm256_and_si256(_mm256_srli_epi16(load256(qs + 32 * (j / 4)), 2 * (j % 4)), _mm256_set1_epi8(3));
}
template <>
struct Format256<quant::BlockQ2_K> {
  static constexpr int kShift = 0, kSub = 16;
  static constexpr bool kMin = true;
  static __m256i codes(const quant::BlockQ2_K* b, int j) { return two_bits(b->qs, j); }
};
template <>
struct Format256<quant::BlockQ3_K> {
  static constexpr int kShift = 2, kSub = 16;
  static constexpr bool kMin = false;
  static __m256i codes(const quant::BlockQ3_K* b, int j) {
    const __m256i bit = _mm256_set1_epi8(static_cast<char>(1 << j));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(load256(b->hmask), bit), bit);
    return _mm256_or_si256(two_bits(b->qs, j), _mm256_and_si256(set, _mm256_set1_epi8(4)));
  }
};

// Eight binary16 numbers as f32.
inline __m256 eight_halves(const std::uint16_t* h) {
  return _mm256_cvtph_ps(_mm_setr_epi16(static_cast<short>(h[0]), static_cast<short>(h[1]), static_cast<short>(h[2]),
                                        static_cast<short>(h[3]), static_cast<short>(h[4]), static_cast<short>(h[5]),
                                        static_cast<short>(h[6]), static_cast<short>(h[7])));
}
// Those at `rows[r] + offset` for r < 8.
inline __m256 gather_f16(const std::byte* const* rows, std::int64_t offset) {
  std::uint16_t h[8];
  for (int r = 0; r < 8; ++r) std::memcpy(&h[r], rows[r] + offset, 2);
  return eight_halves(h);
}

}  // namespace lode::kernels::avx2
