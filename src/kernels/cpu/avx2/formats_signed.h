// Block formats in AVX2 registers as signed weights, 32 bytes at a time: all that formats.h lacks, and those that it
// has for panels only. For cpu/avx2/matmul_signed*.cc only.
#pragma once

#include "kernels/cpu/avx2/formats.h"
#include "quant/grids.h"
#include "quant/unpack.h"

namespace lode::kernels::avx2 {

// -1 in byte i where bit i of 32 is set.
inline __m256i spread_bits(std::uint32_t bits) {
  const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                          2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
  const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201ull));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)), spread);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
}
// Bytes whose bit is set are negated.
inline __m256i negate(__m256i w, std::uint32_t bits) {
  const __m256i mask = spread_bits(bits);
  return _mm256_sub_epi8(_mm256_xor_si256(w, mask), mask);
}
// Four times 7 bits -> 32 sign bits.
inline std::uint32_t signs7(std::uint32_t word) {
  std::uint32_t bits = 0;
  for (int l = 0; l < 4; ++l) bits |= static_cast<std::uint32_t>(quant::kSigns7[(word >> (7 * l)) & 127]) << (8 * l);
  return bits;
}
inline std::uint32_t load32(const void* p) {
  std::uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
// Put together in registers: a load of 32 bytes would wait for the small stores before it.
inline __m256i four_words(const std::uint64_t* w) {
  return _mm256_setr_epi64x(static_cast<long long>(w[0]), static_cast<long long>(w[1]), static_cast<long long>(w[2]),
                            static_cast<long long>(w[3]));
}
inline __m256i eight_words(const std::uint32_t* w) {
  const auto at = [w](int i) { return static_cast<int>(w[i]); };
  return _mm256_setr_epi32(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
}
// Codes 0-15 through a table of 16 bytes.
inline __m256i look_up(const std::int8_t* table, __m256i codes) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(load128(table)), codes);
}
// Eight int32 scales of 32 values each -> 16 int16 scales of 16 values each.
inline __m256i twice(__m256i v) {
  return _mm256_blend_epi16(v, _mm256_slli_epi32(v, 16), 0xaa);
}
inline __m256i odd32(__m256i v) {  // 2 v + 1
  return _mm256_add_epi32(_mm256_add_epi32(v, v), _mm256_set1_epi32(1));
}
// Nibble j of 8, in order, in lane j.
inline __m256i eight_nibbles(const std::uint8_t* p) {
  const __m256i shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
  return _mm256_and_si256(_mm256_srlv_epi32(broadcast32(p), shifts), _mm256_set1_epi32(15));
}
// 2 * nibble + 1 for 16 nibbles in order, int16.
inline __m256i odd_nibbles(const std::uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)), low = _mm_set1_epi8(15);
  const __m128i nibbles = _mm_unpacklo_epi8(_mm_and_si128(bytes, low), _mm_and_si128(_mm_srli_epi16(bytes, 4), low));
  const __m256i v = _mm256_cvtepu8_epi16(nibbles);
  return _mm256_add_epi16(_mm256_add_epi16(v, v), _mm256_set1_epi16(1));
}

// g256 formats: weights(b, j) are values 32j .. 32j+31; scales(b) are 16 int16, each of 16 values; half(b) the binary16
// scale, which kUnit multiplies. Q2_K has mins(b) as well.
template <typename Block>
struct Signed256;

template <>
struct Signed256<quant::BlockQ2_K> {
  static constexpr float kUnit = 1;
  static __m256i weights(const quant::BlockQ2_K* b, int j) { return two_bits(b->qs, j); }
  static __m256i scales(const quant::BlockQ2_K* b) {
    return _mm256_cvtepu8_epi16(_mm_and_si128(load128(b->scales), _mm_set1_epi8(15)));
  }
  static __m256i mins(const quant::BlockQ2_K* b) {
    return _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(load128(b->scales), 4), _mm_set1_epi8(15)));
  }
  static std::uint16_t half(const quant::BlockQ2_K* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockQ3_K> {
  static constexpr float kUnit = 1;
  static __m256i weights(const quant::BlockQ3_K* b, int j) {
    return _mm256_sub_epi8(Format256<quant::BlockQ3_K>::codes(b, j), _mm256_set1_epi8(4));
  }
  static __m256i scales(const quant::BlockQ3_K* b) {
    std::uint8_t sc[16];
    quant::unpack_scales_k3(b->scales, sc);
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(load128(sc)), _mm256_set1_epi16(32));
  }
  static std::uint16_t half(const quant::BlockQ3_K* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockIQ4_XS> {
  static constexpr float kUnit = 1;
  static __m256i weights(const quant::BlockIQ4_XS* b, int j) {
    return look_up(quant::kValuesIq4.data(), nibbles(b->qs + 16 * j));
  }
  static __m256i scales(const quant::BlockIQ4_XS* b) {
    const __m256i high =
        _mm256_srlv_epi32(_mm256_set1_epi32(b->scales_h), _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
    const __m256i bits =
        _mm256_or_si256(eight_nibbles(b->scales_l), _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
    return twice(_mm256_sub_epi32(bits, _mm256_set1_epi32(32)));
  }
  static std::uint16_t half(const quant::BlockIQ4_XS* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockIQ3_S> {
  static constexpr float kUnit = 1;
  static __m256i weights(const quant::BlockIQ3_S* b, int j) {
    const unsigned high = b->qh[j];
    std::uint32_t w[8];
    for (unsigned k = 0; k < 8; ++k) w[k] = quant::kGrid3s[b->qs[8 * j + k] | (((high >> k) & 1u) << 8)];
    return negate(eight_words(w), load32(b->signs + 4 * j));
  }
  static __m256i scales(const quant::BlockIQ3_S* b) { return twice(odd32(eight_nibbles(b->scales))); }
  static std::uint16_t half(const quant::BlockIQ3_S* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockIQ3_XXS> {
  static constexpr float kUnit = 0.25f;
  static __m256i weights(const quant::BlockIQ3_XXS* b, int j) {
    std::uint32_t w[8];
    for (int k = 0; k < 8; ++k) w[k] = quant::kGrid3xxs[b->qs[8 * j + k]];
    return negate(eight_words(w), signs7(b->signs[j]));
  }
  static __m256i scales(const quant::BlockIQ3_XXS* b) {
    const std::byte* signs = reinterpret_cast<const std::byte*>(b) + offsetof(quant::BlockIQ3_XXS, signs);
    return twice(odd32(_mm256_srli_epi32(load256(signs), 28)));
  }
  static std::uint16_t half(const quant::BlockIQ3_XXS* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockIQ2_XXS> {
  static constexpr float kUnit = 0.125f;
  static __m256i weights(const quant::BlockIQ2_XXS* b, int j) {
    std::uint64_t w[4];
    for (int l = 0; l < 4; ++l) w[l] = quant::kGrid2xxs[b->sub[j].codes[l]];
    return negate(four_words(w), signs7(b->sub[j].signs));
  }
  static __m256i scales(const quant::BlockIQ2_XXS* b) {
    // Words 1, 3, 5, 7 of each half, put in order.
    const __m256 low = _mm256_castsi256_ps(load256(&b->sub[0])), high = _mm256_castsi256_ps(load256(&b->sub[4]));
    const __m256i words = _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(low, high, 0xdd)), 0xd8);
    return twice(odd32(_mm256_srli_epi32(words, 28)));
  }
  static std::uint16_t half(const quant::BlockIQ2_XXS* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockIQ2_XS> {
  static constexpr float kUnit = 0.125f;
  static __m256i weights(const quant::BlockIQ2_XS* b, int j) {
    std::uint64_t w[4];
    std::uint32_t signs = 0;
    for (int l = 0; l < 4; ++l) {
      const unsigned code = b->qs[4 * j + l];
      w[l] = quant::kGrid2xs[code & 511];
      signs |= static_cast<std::uint32_t>(quant::kSigns7[code >> 9]) << (8 * l);
    }
    return negate(four_words(w), signs);
  }
  static __m256i scales(const quant::BlockIQ2_XS* b) { return odd_nibbles(b->scales); }
  static std::uint16_t half(const quant::BlockIQ2_XS* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockIQ2_S> {
  static constexpr float kUnit = 0.125f;
  static __m256i weights(const quant::BlockIQ2_S* b, int j) {
    const unsigned high = b->qh[j];
    std::uint64_t w[4];
    for (unsigned l = 0; l < 4; ++l) w[l] = quant::kGrid2s[b->qs[4 * j + l] | (((high >> (2 * l)) & 3u) << 8)];
    return negate(four_words(w), load32(b->signs + 4 * j));
  }
  static __m256i scales(const quant::BlockIQ2_S* b) { return odd_nibbles(b->scales); }
  static std::uint16_t half(const quant::BlockIQ2_S* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockIQ1_S> {
  static constexpr float kUnit = 0.125f;
  static __m256i weights(const quant::BlockIQ1_S* b, int j) {
    const unsigned high = b->qh[j];
    std::uint64_t w[4];
    for (unsigned l = 0; l < 4; ++l) w[l] = quant::kGrid1s[b->qs[4 * j + l] | (((high >> (3 * l)) & 7u) << 8)];
    return _mm256_add_epi8(four_words(w), _mm256_set1_epi8(high & 0x8000u ? -1 : 1));
  }
  static __m256i scales(const quant::BlockIQ1_S* b) {
    const std::byte* qh = reinterpret_cast<const std::byte*>(b) + offsetof(quant::BlockIQ1_S, qh);
    const __m256i words = _mm256_cvtepu16_epi32(load128(qh));
    return twice(odd32(_mm256_and_si256(_mm256_srli_epi32(words, 12), _mm256_set1_epi32(7))));
  }
  static std::uint16_t half(const quant::BlockIQ1_S* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockIQ1_M> {
  static constexpr float kUnit = 0.125f;
  static __m256i weights(const quant::BlockIQ1_M* b, int j) {
    const unsigned high = b->qh[2 * j] | (static_cast<unsigned>(b->qh[2 * j + 1]) << 8);
    std::uint64_t w[4], delta[4];
    for (unsigned l = 0; l < 4; ++l) {
      const unsigned nibble = (high >> (4 * l)) & 15u;
      w[l] = quant::kGrid1s[b->qs[4 * j + l] | ((nibble & 7u) << 8)];
      delta[l] = nibble & 8u ? ~0ull : 0x0101010101010101ull;
    }
    return _mm256_add_epi8(four_words(w), four_words(delta));
  }
  // Bits 3i .. 3i+2 of a word move to the top by a product, since AVX2 has no shift of 16 bits by lane.
  static __m256i scales(const quant::BlockIQ1_M* b) {
    const std::byte* words = reinterpret_cast<const std::byte*>(b) + offsetof(quant::BlockIQ1_M, scales);
    const __m256i all = _mm256_broadcastsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(words)));
    const __m256i pick = _mm256_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3, 2, 3,  //
                                          4, 5, 4, 5, 4, 5, 4, 5, 6, 7, 6, 7, 6, 7, 6, 7);
    const __m256i up = _mm256_set1_epi64x(0x0010'0080'0400'2000ll);
    const __m256i v = _mm256_srli_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(all, pick), up), 13);
    return _mm256_add_epi16(_mm256_add_epi16(v, v), _mm256_set1_epi16(1));
  }
  static std::uint16_t half(const quant::BlockIQ1_M* b) { return quant::scale_iq1m(*b); }
};

template <>
struct Signed256<quant::BlockTQ1_0> {
  static constexpr float kUnit = 1;
  // Products of bytes modulo 256.
  static __m256i times(__m256i a, __m256i b) {
    const __m256i even = _mm256_and_si256(_mm256_mullo_epi16(a, b), _mm256_set1_epi16(255));
    const __m256i odd = _mm256_mullo_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
    return _mm256_or_si256(even, _mm256_slli_epi16(odd, 8));
  }
  static __m256i two_powers(int low, int high) {
    return _mm256_set_m128i(_mm_set1_epi8(static_cast<char>(high)), _mm_set1_epi8(static_cast<char>(low)));
  }
  static __m256i weights(const quant::BlockTQ1_0* b, int j) {
    static constexpr int kPowers[] = {1, 3, 9, 27, 81};
    const __m256i middle = _mm256_broadcastsi128_si256(load128(b->qs + 32));
    __m256i v;
    if (j < 5) {
      v = times(load256(b->qs), two_powers(kPowers[j], kPowers[j]));
    } else if (j < 7) {
      v = times(middle, two_powers(kPowers[2 * j - 10], kPowers[2 * j - 9]));
    } else {
      const __m256i last = _mm256_inserti128_si256(middle, _mm_set1_epi32(static_cast<int>(load32(b->qh))), 1);
      const __m128i powers = _mm_setr_epi32(0x01010101, 0x03030303, 0x09090909, 0x1b1b1b1b);
      v = times(last, _mm256_set_m128i(powers, _mm_set1_epi8(81)));
    }
    // v * 3 / 256 is 1 from 86 and 2 from 171.
    const __m256i one = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(86)), v);
    const __m256i two = _mm256_cmpeq_epi8(_mm256_max_epu8(v, _mm256_set1_epi8(static_cast<char>(171))), v);
    return _mm256_sub_epi8(_mm256_set1_epi8(-1), _mm256_add_epi8(one, two));
  }
  static __m256i scales(const quant::BlockTQ1_0*) { return _mm256_set1_epi16(1); }
  static std::uint16_t half(const quant::BlockTQ1_0* b) { return b->d; }
};

template <>
struct Signed256<quant::BlockTQ2_0> {
  static constexpr float kUnit = 1;
  static __m256i weights(const quant::BlockTQ2_0* b, int j) {
    return _mm256_sub_epi8(two_bits(b->qs, j), _mm256_set1_epi8(1));
  }
  static __m256i scales(const quant::BlockTQ2_0*) { return _mm256_set1_epi16(1); }
  static std::uint16_t half(const quant::BlockTQ2_0* b) { return b->d; }
};

// g32 formats: weights(b, part) are values 32 * part .. 32 * part + 31, scale(b, part, half) that of 16 of them.
template <typename Block>
struct Signed32;

template <>
struct Signed32<quant::BlockQ8_0> {
  static __m256i weights(const quant::BlockQ8_0* b, int) { return load256(b->qs); }
};

template <>
struct Signed32<quant::BlockIQ4_NL> {
  static __m256i weights(const quant::BlockIQ4_NL* b, int) { return look_up(quant::kValuesIq4.data(), nibbles(b->qs)); }
  static float scale(const quant::BlockIQ4_NL* b, int, int) { return _cvtsh_ss(b->d); }
};

template <>
struct Signed32<quant::BlockMXFP4> {
  static __m256i weights(const quant::BlockMXFP4* b, int) { return look_up(quant::kValuesE2m1.data(), nibbles(b->qs)); }
  static float scale(const quant::BlockMXFP4* b, int, int) { return quant::kHalfE8m0[b->e]; }
};

template <>
struct Signed32<quant::BlockNVFP4> {
  static __m256i weights(const quant::BlockNVFP4* b, int part) {
    // Two sub-blocks of 8 bytes: low nibbles, high nibbles, twice.
    const __m128i bytes = load128(b->qs + 16 * part), high = _mm_srli_epi16(bytes, 4);
    const __m256i codes = _mm256_set_m128i(_mm_unpackhi_epi64(bytes, high), _mm_unpacklo_epi64(bytes, high));
    return look_up(quant::kValuesE2m1.data(), _mm256_and_si256(codes, _mm256_set1_epi8(15)));
  }
  static float scale(const quant::BlockNVFP4* b, int part, int half) {
    return quant::kHalfUe4m3[b->d[2 * part + half]];
  }
};

template <>
struct Signed32<quant::BlockQ1_0> {
  static __m256i weights(const quant::BlockQ1_0* b, int part) {
    return _mm256_sub_epi8(_mm256_and_si256(spread_bits(load32(b->qs + 4 * part)), _mm256_set1_epi8(2)),
                           _mm256_set1_epi8(1));
  }
  static float scale(const quant::BlockQ1_0* b, int, int) { return _cvtsh_ss(b->d); }
};

template <>
struct Signed32<quant::BlockQ2_0> {
  static __m256i weights(const quant::BlockQ2_0* b, int part) {
    // Each byte four times in a 32-bit lane; byte n of the lane keeps code n.
    const __m256i lanes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b->qs + 8 * part)));
    const __m256i four = _mm256_mullo_epi32(lanes, _mm256_set1_epi32(0x01010101));
    const __m256i b0 = _mm256_and_si256(four, _mm256_set1_epi32(0x00000003));
    const __m256i b1 = _mm256_and_si256(_mm256_srli_epi32(four, 2), _mm256_set1_epi32(0x00000300));
    const __m256i b2 = _mm256_and_si256(_mm256_srli_epi32(four, 4), _mm256_set1_epi32(0x00030000));
    const __m256i b3 = _mm256_and_si256(_mm256_srli_epi32(four, 6), _mm256_set1_epi32(0x03000000));
    const __m256i codes = _mm256_or_si256(_mm256_or_si256(b0, b1), _mm256_or_si256(b2, b3));
    return _mm256_sub_epi8(codes, _mm256_set1_epi8(1));
  }
  static float scale(const quant::BlockQ2_0* b, int, int) { return _cvtsh_ss(b->d); }
};

}  // namespace lode::kernels::avx2
