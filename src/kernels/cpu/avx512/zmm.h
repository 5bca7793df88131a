// The 512-bit operations that this folder's kernels are written in, as intrinsics. The kernels are templates over this
// type; emulated.h has the same operations in plain C++, so that a processor without AVX-512 can run the kernels' own
// code in tests. Only for avx512/*.cc, which are compiled for AVX-512 F, BW, DQ, VL and VNNI. Owns nothing.
//
// Everything in this folder's headers is a template over the vector type or `static`: an inline function of another
// kind would be emitted with AVX-512 code under a name that the rest of the program links to.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace lode::kernels::avx512 {

struct Zmm {
  using F = __m512;         // 16 f32
  using I = __m512i;        // 64 bytes, or 16 int32
  using M = std::uint16_t;  // Bit i: lane i.
  using T = F;              // As generic/math.h calls it.

  // ---- f32 ----
  static inline F zero() { return _mm512_setzero_ps(); }
  static inline F set(float x) { return _mm512_set1_ps(x); }
  static inline F load(const float* p) { return _mm512_loadu_ps(p); }
  static inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  // The first `count` <= 16 lanes; the others are zero. Masked lanes touch no memory.
  static inline F load_first(const float* p, std::int64_t count) { return _mm512_maskz_loadu_ps(first(count), p); }
  static inline void store_first(float* p, std::int64_t count, F x) { _mm512_mask_storeu_ps(p, first(count), x); }
  // 16 numbers of binary16 or bfloat16.
  static inline F load_half(const std::uint16_t* p) { return _mm512_cvtph_ps(load256(p)); }
  static inline F load_half_first(const std::uint16_t* p, std::int64_t count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), p));
  }
  static inline F load_brain(const std::uint16_t* p) { return brain(load256(p)); }
  static inline F load_brain_first(const std::uint16_t* p, std::int64_t count) {
    return brain(_mm256_maskz_loadu_epi16(first(count), p));
  }
  // Four binary16 numbers a word, the first in the low bits.
  static inline F halves(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
    const __m128i low = _mm_set_epi64x(static_cast<long long>(b), static_cast<long long>(a));
    const __m128i high = _mm_set_epi64x(static_cast<long long>(d), static_cast<long long>(c));
    return _mm512_cvtph_ps(_mm256_set_m128i(high, low));
  }

  static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
  static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static inline F div(F a, F b) { return _mm512_div_ps(a, b); }
  static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }         // a b + c
  static inline F fms(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }         // a b - c
  static inline F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }       // c - a b
  static inline F fma_alt(F a, F b, F c) { return _mm512_fmaddsub_ps(a, b, c); }  // Even lanes a b - c, odd a b + c.
  static inline F max(F a, F b) { return _mm512_max_ps(a, b); }                   // b where either is NaN.
  static inline M less(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static inline F select(M mask, F yes, F no) { return _mm512_mask_blend_ps(mask, no, yes); }
  // 2^k from the low mantissa bits of kRound + k.
  static inline F exp2i(F shifted) {
    const __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(127 << 23)));
  }
  static inline float lane0(F x) { return _mm512_cvtss_f32(x); }
  // Lane i + lane i + 8 for i < 8, then + 4, + 2, + 1.
  static inline float tree_sum(F x) {
    const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
  }
  static inline float largest(F x) {
    const __m256 m8 = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    const __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_shuffle_ps(m2, m2, 1)));
  }
  // Shuffles of pairs (2i, 2i + 1): the even one twice, the odd one twice, the two swapped.
  static inline F evens(F x) { return _mm512_moveldup_ps(x); }
  static inline F odds(F x) { return _mm512_movehdup_ps(x); }
  static inline F swap_pairs(F x) { return _mm512_permute_ps(x, 0xB1); }
  // The even, the odd lanes of the 32 lanes (a, b).
  static inline F all_evens(F a, F b) {
    const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, at, b);
  }
  static inline F all_odds(F a, F b) {
    const __m512i at = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, at, b);
  }

  // ---- integers ----
  static inline I izero() { return _mm512_setzero_si512(); }
  static inline I set8(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static inline I set32(std::int32_t x) { return _mm512_set1_epi32(x); }
  static inline I iload(const void* p) { return _mm512_loadu_si512(p); }
  static inline void istore(void* p, I x) { _mm512_storeu_si512(p, x); }
  // Four bytes at any address in every lane.
  static inline I broadcast32(const void* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return _mm512_set1_epi32(v);
  }
  // 32 bytes at `low`, then 32 at `high`; 32 bytes and zeros.
  static inline I pair(const void* low, const void* high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(load256(low)), load256(high), 1);
  }
  static inline I low_half(const void* p) { return _mm512_zextsi256_si512(load256(p)); }
  // 16 bytes at `low` twice, then 16 at `high` twice.
  static inline I quads(const void* low, const void* high) {
    const __m512i a = _mm512_broadcast_i32x4(load128(low));
    return _mm512_mask_broadcast_i32x4(a, 0xff00, load128(high));
  }
  // 16 bytes (two words of eight) as 16 int32.
  static inline I widen_u8(std::uint64_t low, std::uint64_t high) {
    return _mm512_cvtepu8_epi32(_mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low)));
  }
  static inline I widen_s8(const std::int8_t* p) { return _mm512_cvtepi8_epi32(load128(p)); }
  static inline I widen_s16(const std::int16_t* p) { return _mm512_cvtepi16_epi32(load256(p)); }
  // Lanes 8-15: eight int16 as int32; lanes 0-7: zero.
  static inline I widen_s16_high(const std::int16_t* p) {
    return _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_cvtepi16_epi32(load128(p)), 1);
  }

  // acc + the sum of each lane's four products of a byte of u (0..255) and a byte of s (-128..127). Does not saturate.
  static inline I dot_u8s8(I acc, I u, I s) { return _mm512_dpbusd_epi32(acc, u, s); }
  // acc + the sum of each lane's two products of int16. Does not saturate.
  static inline I dot_s16(I acc, I a, I b) { return _mm512_dpwssd_epi32(acc, a, b); }
  static inline I add32(I a, I b) { return _mm512_add_epi32(a, b); }
  static inline I sub32(I a, I b) { return _mm512_sub_epi32(a, b); }
  static inline I mul32(I a, I b) { return _mm512_mullo_epi32(a, b); }
  // Stores 16 values, to nearest even, as int16, which all of them fit; returns what was stored.
  static inline F store_s16(std::int16_t* p, F x) {
    const I words = _mm512_cvtps_epi32(x);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(words));
    return _mm512_cvtepi32_ps(words);
  }
  static inline F to_f32(I x) { return _mm512_cvtepi32_ps(x); }
  static inline I and_(I a, I b) { return _mm512_and_si512(a, b); }
  static inline I or_(I a, I b) { return _mm512_or_si512(a, b); }
  static inline I xor_(I a, I b) { return _mm512_xor_si512(a, b); }
  // Rotates each word of 64 bits right by its own count.
  static inline I rotate64(I x, I counts) { return _mm512_rorv_epi64(x, counts); }
  // Eight counts: lanes of 64 bits 0-1, 2-3, 4-5, 6-7.
  static inline I counts64(int a, int b, int c, int d) { return _mm512_setr_epi64(a, a, b, b, c, c, d, d); }
  // Adds `value` to byte i where bit i is set.
  static inline I add8_where(I x, std::uint64_t bits, int value) {
    return _mm512_mask_add_epi8(x, bits, x, set8(value));
  }
  // Lane i: lane index[i] of x.
  static inline I permute32(I index, I x) { return _mm512_permutexvar_epi32(index, x); }
  // Lane i of 16: first + i / repeat.
  template <int kFirst, int kRepeat>
  static inline I lane_index() {
    constexpr int f = kFirst, r = kRepeat;
    return _mm512_setr_epi32(f, f + 1 / r, f + 2 / r, f + 3 / r, f + 4 / r, f + 5 / r, f + 6 / r, f + 7 / r, f + 8 / r,
                             f + 9 / r, f + 10 / r, f + 11 / r, f + 12 / r, f + 13 / r, f + 14 / r, f + 15 / r);
  }
  // Interleaves the low, the high halves of each 128-bit lane.
  static inline I low32(I a, I b) { return _mm512_unpacklo_epi32(a, b); }
  static inline I high32(I a, I b) { return _mm512_unpackhi_epi32(a, b); }
  static inline I low64(I a, I b) { return _mm512_unpacklo_epi64(a, b); }
  static inline I high64(I a, I b) { return _mm512_unpackhi_epi64(a, b); }
  // 128-bit lanes a0, a2, b0, b2; a1, a3, b1, b3.
  static inline I even_quads(I a, I b) { return _mm512_shuffle_i32x4(a, b, 0x88); }
  static inline I odd_quads(I a, I b) { return _mm512_shuffle_i32x4(a, b, 0xDD); }

  static inline void fetch_near(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
  static inline void fetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }
  // Keeps a sum in its register here, so that the compiler neither reorders nor spills around it.
  static inline void pin(I& x) { asm volatile("" : "+v"(x)); }
  static inline void pin(F& x) { asm volatile("" : "+v"(x)); }

 private:
  static inline __mmask16 first(std::int64_t count) { return static_cast<__mmask16>((1u << count) - 1); }
  static inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static inline F brain(__m256i x) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16)); }
};

}  // namespace lode::kernels::avx512
