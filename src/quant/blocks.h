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

#undef LODE_BLOCK

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 &&
              sizeof(BlockQ6_K) == 210);

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

}  // namespace lode::quant
