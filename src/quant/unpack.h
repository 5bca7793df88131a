// Blocks in integers: what the scalar reference (dequant.cc) and the generic kernels share. Owns nothing. Every format
// is whole numbers under one, two or sixteen scales, so that products with quantized activations are exact in integers.
#pragma once

#include <cstdint>

#include "quant/blocks.h"

namespace lode::quant {

// 32 weights: value = d[i / 16] * w + m. Both d are the same but in NVFP4; m counts only where kHasMin.
struct Group32 {
  std::int8_t w[32];
  float d[2], m;
};
// 256 weights in sub-blocks of 16: value = (d * scale) * w, less dmin * min where kHasMin. |scale * w| <= 4096.
struct Group256 {
  std::int8_t w[256];
  std::int32_t scale[16];
  std::int32_t min[16];
  float d, dmin;
};

template <typename Block>
inline constexpr bool kHasMin = false;
template <>
inline constexpr bool kHasMin<BlockQ4_1> = true;
template <>
inline constexpr bool kHasMin<BlockQ5_1> = true;
template <>
inline constexpr bool kHasMin<BlockQ4_K> = true;
template <>
inline constexpr bool kHasMin<BlockQ5_K> = true;
template <>
inline constexpr bool kHasMin<BlockQ2_K> = true;

// Groups of 32 in a block of a g32 format.
template <typename Block>
inline constexpr int kParts = 1;
template <>
inline constexpr int kParts<BlockQ1_0> = 4;
template <>
inline constexpr int kParts<BlockQ2_0> = 2;
template <>
inline constexpr int kParts<BlockNVFP4> = 2;

// Values 32 * part .. 32 * part + 31 of a block.
void unpack(const BlockQ4_0& b, int part, Group32& g);
void unpack(const BlockQ4_1& b, int part, Group32& g);
void unpack(const BlockQ5_0& b, int part, Group32& g);
void unpack(const BlockQ5_1& b, int part, Group32& g);
void unpack(const BlockQ8_0& b, int part, Group32& g);
void unpack(const BlockIQ4_NL& b, int part, Group32& g);
void unpack(const BlockMXFP4& b, int part, Group32& g);
void unpack(const BlockNVFP4& b, int part, Group32& g);
void unpack(const BlockQ1_0& b, int part, Group32& g);
void unpack(const BlockQ2_0& b, int part, Group32& g);

void unpack(const BlockQ2_K& b, Group256& g);
void unpack(const BlockQ3_K& b, Group256& g);
void unpack(const BlockQ4_K& b, Group256& g);
void unpack(const BlockQ5_K& b, Group256& g);
void unpack(const BlockQ6_K& b, Group256& g);
void unpack(const BlockTQ1_0& b, Group256& g);
void unpack(const BlockTQ2_0& b, Group256& g);
// Their d has the format's power of two inside: d / 8 for IQ2 and IQ1, d / 4 for IQ3_XXS.
void unpack(const BlockIQ4_XS& b, Group256& g);
void unpack(const BlockIQ3_S& b, Group256& g);
void unpack(const BlockIQ3_XXS& b, Group256& g);
void unpack(const BlockIQ2_XXS& b, Group256& g);
void unpack(const BlockIQ2_XS& b, Group256& g);
void unpack(const BlockIQ2_S& b, Group256& g);
void unpack(const BlockIQ1_S& b, Group256& g);
void unpack(const BlockIQ1_M& b, Group256& g);

}  // namespace lode::quant
