// The codebooks of the IQ formats, the sign bytes they share and the scale bytes of MXFP4 and NVFP4, as constant
// tables. They are part of the file format: the points were taken from gguf-py 0.19 (quants.py, which packs
// ggml-common.h's tables), and are kept here in the same order, since files hold indices into them. Any thread.
#pragma once

#include <array>
#include <cstdint>

namespace lode::quant {

// Points of 8 weights: byte i of a word, as int8, is weight i. IQ2: magnitudes 8, 25 or 43.
extern const std::array<std::uint64_t, 256> kGrid2xxs;
extern const std::array<std::uint64_t, 512> kGrid2xs;
extern const std::array<std::uint64_t, 1024> kGrid2s;
// IQ1_S and IQ1_M: -8, 0 or 8, in eighths, so that their delta of an eighth is a whole number as well.
extern const std::array<std::uint64_t, 2048> kGrid1s;
// Points of 4 weights. IQ3_XXS: magnitudes 4, 12, ..., 52, 62. IQ3_S: 1, 3, ..., 15.
extern const std::array<std::uint32_t, 256> kGrid3xxs;
extern const std::array<std::uint32_t, 512> kGrid3s;

// Signs of 8 weights from 7 bits: bit i set means weight i is negative, and bit 7 makes the number of set bits even.
extern const std::array<std::uint8_t, 128> kSigns7;

// Weights of the 4-bit codes of IQ4_NL and IQ4_XS (-127 .. 113), and of E2M1 in MXFP4 and NVFP4 (twice the number).
extern const std::array<std::int8_t, 16> kValuesIq4;
extern const std::array<std::int8_t, 16> kValuesE2m1;
// Scale bytes as f32, halved because E2M1 weights are doubled. E8M0: 2^(byte - 128). E4M3 without a sign: 0x7f (and 0)
// means 0, and the top bit is ignored, but 0xff is 240.
extern const std::array<float, 256> kHalfE8m0;
extern const std::array<float, 256> kHalfUe4m3;

}  // namespace lode::quant
