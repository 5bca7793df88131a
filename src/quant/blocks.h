// The bytes of the computable block formats, as structs that may lie at any address (alignment 1), little endian.
// `d` and `m` are IEEE binary16. Owns nothing. For quant/ and kernels/ only; docs/numerics.md says what the codes mean.
#pragma once

#include <cstdint>

namespace lode::quant {

#define LODE_BLOCK struct __attribute__((packed))

// 32 values: code i is the low nibble of qs[i] for i < 16, the high nibble of qs[i - 16] after that.
LODE_BLOCK BlockQ4_0 {
  std::uint16_t d;
  std::uint8_t qs[16];  // value = d * (code - 8)
};
LODE_BLOCK BlockQ4_1 {
  std::uint16_t d, m;
  std::uint8_t qs[16];  // value = d * code + m
};
// Bit i of qh is bit 4 of code i.
LODE_BLOCK BlockQ5_0 {
  std::uint16_t d;
  std::uint8_t qh[4];
  std::uint8_t qs[16];  // value = d * (code - 16)
};
LODE_BLOCK BlockQ5_1 {
  std::uint16_t d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];  // value = d * code + m
};
LODE_BLOCK BlockQ8_0 {
  std::uint16_t d;
  std::int8_t qs[32];  // value = d * q; -128 is legal in a file
};

// 256 values in 8 sub-blocks of 32. Sub-blocks 2j and 2j+1 are the low and high nibbles of qs[32j .. 32j+31].
// scales packs eight 6-bit scales and eight 6-bit minimums (unpack_scales_k4).
LODE_BLOCK BlockQ4_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];  // value = (d * scale) * code - (dmin * min)
};
// Bit j of qh[i] is bit 4 of code i of sub-block j.
LODE_BLOCK BlockQ5_K {
  std::uint16_t d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
// 256 values in 16 sub-blocks of 16, two halves of 128. In a half, values 32g + i (g < 4, i < 32) have their low 4 bits
// in ql[32 * (g % 2) + i] (low nibble for g < 2, else high) and their high 2 bits in qh[i] >> 2g.
LODE_BLOCK BlockQ6_K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  std::uint16_t d;  // value = (d * scale) * (code - 32)
};

// 256 values in 16 sub-blocks of 16, two halves of 128. In a half, value 32g + i (g < 4, i < 32) has its 2 bits in
// qs[i] >> 2g (of that half's 32 bytes). A byte of scales: scale in the low nibble, minimum in the high one.
LODE_BLOCK BlockQ2_K {
  std::uint8_t scales[16];
  std::uint8_t qs[64];
  std::uint16_t d, dmin;  // value = (d * scale) * code - (dmin * min)
};
// As Q2_K, and bit j of hmask[i] is bit 2 of code i of the eight runs of 32. 6-bit scales: unpack_scales_k3.
LODE_BLOCK BlockQ3_K {
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  std::uint16_t d;  // value = (d * (scale - 32)) * (code - 4)
};

// Codes are indices into kValuesIq4, ordered as in Q4_0.
LODE_BLOCK BlockIQ4_NL {
  std::uint16_t d;
  std::uint8_t qs[16];
};
// Eight sub-blocks of 32 such codes. Scale j is 6 bits: nibble j of scales_l and bits 2j, 2j+1 of scales_h above it.
LODE_BLOCK BlockIQ4_XS {
  std::uint16_t d, scales_h;
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];  // value = (d * (scale - 32)) * weight
};

// Codebook formats, 8 sub-blocks of 32: a code names a point of 8 (IQ2, IQ1) or 4 (IQ3) weights in quant/grids.h.
// Signs are bits, set for minus; where 7 bits stand for 8 signs, kSigns7 has them. s is 2 * scale + 1.
LODE_BLOCK BlockIQ2_XXS {
  std::uint16_t d;
  LODE_BLOCK Sub {
    std::uint8_t codes[4];
    std::uint32_t signs;  // Four times 7 bits of signs, then the 4-bit scale.
  };
  Sub sub[8];  // value = d / 8 * s * weight
};
LODE_BLOCK BlockIQ2_XS {
  std::uint16_t d;
  std::uint16_t qs[32];    // 9 bits of code, 7 of signs
  std::uint8_t scales[8];  // A nibble for 16 values. value = d / 8 * s * weight
};
LODE_BLOCK BlockIQ2_S {
  std::uint16_t d;
  std::uint8_t qs[32];
  std::uint8_t signs[32];
  std::uint8_t qh[8];      // Two more bits for each of a sub-block's four codes.
  std::uint8_t scales[8];  // As IQ2_XS.
};
LODE_BLOCK BlockIQ3_XXS {
  std::uint16_t d;
  std::uint8_t qs[64];
  std::uint32_t signs[8];  // As IQ2_XXS. value = d / 4 * s * weight
};
LODE_BLOCK BlockIQ3_S {
  std::uint16_t d;
  std::uint8_t qs[64];
  std::uint8_t qh[8];  // Bit 8 of a sub-block's eight codes.
  std::uint8_t signs[32];
  std::uint8_t scales[4];  // A nibble a sub-block. value = d * s * weight
};
// Bits 3l .. 3l+2 of qh continue code l, bits 12-14 are the scale; bit 15 makes the delta -1/8 instead of 1/8.
LODE_BLOCK BlockIQ1_S {
  std::uint16_t d;
  std::uint8_t qs[32];
  std::uint16_t qh[8];  // value = d * s * (point + delta), point in {-1, 0, 1}
};
// A nibble of qh: three more bits for a code, and bit 3 makes its delta -1/8. Three bits of scales for 16 values, four
// of them in a word whose top 4 bits are a quarter of d, the lowest first.
LODE_BLOCK BlockIQ1_M {
  std::uint8_t qs[32];
  std::uint8_t qh[16];
  std::uint16_t scales[4];
};

// Codes are indices into kValuesE2m1, ordered as in Q4_0; e is the exponent of a power of two (kHalfE8m0).
LODE_BLOCK BlockMXFP4 {
  std::uint8_t e;
  std::uint8_t qs[16];
};
// 64 values in four sub-blocks of 16, each 8 bytes (low nibbles, then high ones) under a scale byte (kHalfUe4m3).
LODE_BLOCK BlockNVFP4 {
  std::uint8_t d[4];
  std::uint8_t qs[32];
};

// 128 values, a bit each: d where it is set, else -d.
LODE_BLOCK BlockQ1_0 {
  std::uint16_t d;
  std::uint8_t qs[16];
};
// 64 values of 2 bits, four consecutive ones a byte, the lowest first.
LODE_BLOCK BlockQ2_0 {
  std::uint16_t d;
  std::uint8_t qs[16];  // value = d * (code - 1)
};
// 256 values in base 3: a byte b holds up to five, value n being (b * 3^n mod 256) * 3 / 256 - 1, rounded down. Values
// 32n + i are in qs[i] (i < 32), 160 + 16n + i in qs[32 + i] (i < 16), 240 + 4n + i in qh[i] (n < 4).
LODE_BLOCK BlockTQ1_0 {
  std::uint8_t qs[48];
  std::uint8_t qh[4];
  std::uint16_t d;
};
// Codes as in Q2_K. value = d * (code - 1)
LODE_BLOCK BlockTQ2_0 {
  std::uint8_t qs[64];
  std::uint16_t d;
};

#undef LODE_BLOCK

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 &&
              sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockIQ4_XS) == 136 && sizeof(BlockIQ2_XXS) == 66 && sizeof(BlockIQ2_XS) == 74);
static_assert(sizeof(BlockIQ2_S) == 82 && sizeof(BlockIQ3_XXS) == 98 && sizeof(BlockIQ3_S) == 110);
static_assert(sizeof(BlockIQ1_S) == 50 && sizeof(BlockIQ1_M) == 56 && sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockNVFP4) == 36 && sizeof(BlockQ1_0) == 18 && sizeof(BlockQ2_0) == 18);
static_assert(sizeof(BlockTQ1_0) == 54 && sizeof(BlockTQ2_0) == 66);

// The 6-bit scales (sc[0..7]) and minimums (sc[8..15]) of Q4_K and Q5_K. Bytes 0-3 and 4-7 hold scales and minimums of
// sub-blocks 0-3 in their low 6 bits; for sub-blocks 4-7 the low 4 bits sit in bytes 8-11 (scale: low nibble, minimum:
// high nibble) and the high 2 bits on top of bytes 0-3 and 4-7. Four sub-blocks are decoded at once in a 32-bit word.
inline void unpack_scales_k4(const std::uint8_t* packed, std::uint8_t* sc) {
  std::uint32_t a, b, c;
  __builtin_memcpy(&a, packed, 4);
  __builtin_memcpy(&b, packed + 4, 4);
  __builtin_memcpy(&c, packed + 8, 4);
  const std::uint32_t words[4] = {
      a & 0x3f3f3f3fu,
      (c & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u),
      b & 0x3f3f3f3fu,
      ((c >> 4) & 0x0f0f0f0fu) | ((b >> 2) & 0x30303030u),
  };
  __builtin_memcpy(sc, words, 16);
}

// The sixteen 6-bit scales of Q3_K, 32 above their values: low 4 bits in the nibbles of bytes 0-7 (low ones first),
// high 2 in bytes 8-11, where scale 4n + i has bits 2n, 2n+1 of byte 8 + i.
inline void unpack_scales_k3(const std::uint8_t* packed, std::uint8_t* sc) {
  std::uint32_t a, b, c;
  __builtin_memcpy(&a, packed, 4);
  __builtin_memcpy(&b, packed + 4, 4);
  __builtin_memcpy(&c, packed + 8, 4);
  const std::uint32_t words[4] = {
      (a & 0x0f0f0f0fu) | ((c << 4) & 0x30303030u),
      (b & 0x0f0f0f0fu) | ((c << 2) & 0x30303030u),
      ((a >> 4) & 0x0f0f0f0fu) | (c & 0x30303030u),
      ((b >> 4) & 0x0f0f0f0fu) | ((c >> 2) & 0x30303030u),
  };
  __builtin_memcpy(sc, words, 16);
}
// The binary16 scale that IQ1_M spreads over its words.
inline std::uint16_t scale_iq1m(const BlockIQ1_M& b) {
  return static_cast<std::uint16_t>((b.scales[0] >> 12) | ((b.scales[1] >> 8) & 0x00f0) |
                                    ((b.scales[2] >> 4) & 0x0f00) | (b.scales[3] & 0xf000));
}

}  // namespace lode::quant
