// Packed rows (quant/packed.h) in AVX2 registers: 4 columns of 8 rows at a time as unsigned bytes, and the integer
// scales of 8 rows at once. For cpu/avx2/matmul_packed*.cc and matmul_panel.cc only.
#pragma once

#include "kernels/cpu/avx2/formats.h"
#include "quant/packed.h"

namespace lode::kernels::avx2 {

template <typename Block>
struct PackedOf;
template <>
struct PackedOf<quant::BlockQ4_0> {
  using Type = quant::PackedQ4_0;
};
template <>
struct PackedOf<quant::BlockQ4_1> {
  using Type = quant::PackedQ4_1;
};
template <>
struct PackedOf<quant::BlockQ5_0> {
  using Type = quant::PackedQ5_0;
};
template <>
struct PackedOf<quant::BlockQ5_1> {
  using Type = quant::PackedQ5_1;
};
template <>
struct PackedOf<quant::BlockQ8_0> {
  using Type = quant::PackedQ8_0;
};
template <>
struct PackedOf<quant::BlockQ4_K> {
  using Type = quant::PackedQ4_K;
};
template <>
struct PackedOf<quant::BlockQ5_K> {
  using Type = quant::PackedQ5_K;
};
template <>
struct PackedOf<quant::BlockQ6_K> {
  using Type = quant::PackedQ6_K;
};

// Block i of the 8 rows that begin at `rows`.
template <typename Block>
inline const typename PackedOf<Block>::Type* packed_block(const std::byte* rows, std::int64_t i) {
  return reinterpret_cast<const typename PackedOf<Block>::Type*>(rows) + i;
}

[[gnu::always_inline]] inline __m256i low_nibbles(__m256i v) {
  return _mm256_and_si256(v, _mm256_set1_epi8(15));
}
[[gnu::always_inline]] inline __m256i high_nibbles(__m256i v) {
  return _mm256_and_si256(_mm256_srli_epi16(v, 4), _mm256_set1_epi8(15));
}
// Bit `bit` of every byte, as 16.
[[gnu::always_inline]] inline __m256i bit_as_16(__m256i v, int bit) {
  const __m256i moved = bit < 4 ? _mm256_slli_epi16(v, 4 - bit) : _mm256_srli_epi16(v, bit - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(16));
}

// Codes of columns 4c .. 4c + 3 (c < 8) of a group of 32.
template <typename Packed>
[[gnu::always_inline]] inline __m256i packed_codes(const Packed* p, int c) {
  if constexpr (std::is_same_v<Packed, quant::PackedQ8_0>) {
    return load256(p->qs[c]);  // Signed.
  } else {
    const __m256i v = load256(p->qs[c % 4]);
    const __m256i code = c < 4 ? low_nibbles(v) : high_nibbles(v);
    if constexpr (std::is_same_v<Packed, quant::PackedQ5_0> || std::is_same_v<Packed, quant::PackedQ5_1>)
      return _mm256_or_si256(code, bit_as_16(load256(p->qh), c));
    else return code;
  }
}

// Codes of columns 32j + 4c .. of a block of 256 (j, c < 8).
[[gnu::always_inline]] inline __m256i packed_codes(const quant::PackedQ4_K* p, int j, int c) {
  const __m256i v = load256(p->qs[8 * (j / 2) + c]);
  return j % 2 == 0 ? low_nibbles(v) : high_nibbles(v);
}
[[gnu::always_inline]] inline __m256i packed_codes(const quant::PackedQ5_K* p, int j, int c) {
  const __m256i v = load256(p->qs[8 * (j / 2) + c]);
  return _mm256_or_si256(j % 2 == 0 ? low_nibbles(v) : high_nibbles(v), bit_as_16(load256(p->qh[c]), j));
}
[[gnu::always_inline]] inline __m256i packed_codes(const quant::PackedQ6_K* p, int j, int c) {
  const int half = j / 4, part = j % 4;
  const __m256i ql = load256(p->ql[16 * half + 8 * (part % 2) + c]), qh = load256(p->qh[8 * half + c]);
  const __m256i low = part < 2 ? low_nibbles(ql) : high_nibbles(ql);
  const __m256i high = part == 0   ? _mm256_slli_epi16(qh, 4)
                       : part == 1 ? _mm256_slli_epi16(qh, 2)
                       : part == 2 ? qh
                                   : _mm256_srli_epi16(qh, 2);
  return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(48)));
}

// The binary16 numbers of 8 rows, as f32.
inline __m256 packed_halves(const std::uint16_t* h) {
  return _mm256_cvtph_ps(load128(h));
}

// Eight bytes of rows 0 to 7, each twice in its lane as int16. `sixteen`: two such eights, of which `high` is wanted.
[[gnu::always_inline]] inline __m256i twice_unsigned(__m128i eight) {
  const __m256i v = _mm256_cvtepu8_epi32(eight);
  return _mm256_or_si256(v, _mm256_slli_epi32(v, 16));
}
[[gnu::always_inline]] inline __m256i twice_signed(__m128i eight) {
  const __m256i v = _mm256_cvtepi8_epi32(eight);
  return _mm256_blend_epi16(v, _mm256_slli_epi32(v, 16), 0xaa);
}
// Eight bytes of rows 0 to 7 from each of two, as pairs of int16: lane r is (first[r], second[r]).
[[gnu::always_inline]] inline __m256i pair_unsigned(__m128i first, __m128i second) {
  return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(first, second));
}
inline __m128i load64(const void* p) {
  return _mm_loadl_epi64(static_cast<const __m128i*>(p));
}

// The scales and minimums of Q4_K and Q5_K of 8 rows: [sub-block][row] (unpack_scales_k4, 32 at a time).
struct PackedScales {
  alignas(32) std::uint8_t scale[8][8];
  alignas(32) std::uint8_t min[8][8];
};
[[gnu::always_inline]] inline void packed_scales(const std::uint8_t (*bytes)[8], PackedScales& out) {
  const __m256i a = load256(bytes[0]), b = load256(bytes[4]), c = load256(bytes[8]);
  const __m256i six = _mm256_set1_epi8(0x3f), two = _mm256_set1_epi8(0x30);
  store256(out.scale[0], _mm256_and_si256(a, six));
  store256(out.min[0], _mm256_and_si256(b, six));
  store256(out.scale[4], _mm256_or_si256(low_nibbles(c), _mm256_and_si256(_mm256_srli_epi16(a, 2), two)));
  store256(out.min[4], _mm256_or_si256(high_nibbles(c), _mm256_and_si256(_mm256_srli_epi16(b, 2), two)));
}

}  // namespace lode::kernels::avx2
