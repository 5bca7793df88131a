// Formats whose codes are looked up: IQ1 to IQ4 with 256 values a block. A point's scale is a power of two times a
// whole number, so d takes the power and everything else stays whole.
#include "quant/grids.h"
#include "quant/types.h"
#include "quant/unpack.h"

namespace lode::quant {
namespace {

// Writes the first `count` bytes of a point, less than nothing where a sign bit is set.
template <typename Word>
void put(Word point, unsigned signs, std::int8_t* w) {
  for (unsigned i = 0; i < sizeof(Word); ++i) {
    const auto magnitude = static_cast<std::int8_t>((point >> (8 * i)) & 0xff);
    w[i] = static_cast<std::int8_t>((signs >> i) & 1 ? -magnitude : magnitude);
  }
}

// Bits 7l .. 7l+6 of a word as 8 signs.
unsigned signs_of(std::uint32_t word, int l) {
  return kSigns7[(word >> (7 * l)) & 127];
}

int nibble(const std::uint8_t* bytes, int i) {
  return (bytes[i / 2] >> (4 * (i % 2))) & 15;
}

}  // namespace

void unpack(const BlockIQ4_XS& b, Group256& g) {
  for (int k = 0; k < 256; ++k) {
    const std::uint8_t byte = b.qs[16 * (k / 32) + k % 16];
    g.w[k] = kValuesIq4[k % 32 < 16 ? byte & 15 : byte >> 4];
  }
  for (int j = 0; j < 16; ++j)
    g.scale[j] = (nibble(b.scales_l, j / 2) | (((b.scales_h >> (2 * (j / 2))) & 3) << 4)) - 32;
  g.d = f16_to_f32(b.d);
}

void unpack(const BlockIQ3_S& b, Group256& g) {
  for (int p = 0; p < 64; ++p) {  // A point of 4 weights.
    const int code = b.qs[p] | (((b.qh[p / 8] >> (p % 8)) & 1) << 8);
    put(kGrid3s[code], b.signs[p / 2] >> (4 * (p % 2)), g.w + 4 * p);
  }
  for (int j = 0; j < 16; ++j) g.scale[j] = 2 * nibble(b.scales, j / 2) + 1;
  g.d = f16_to_f32(b.d);
}

void unpack(const BlockIQ3_XXS& b, Group256& g) {
  for (int p = 0; p < 64; ++p)
    put(kGrid3xxs[b.qs[p]], signs_of(b.signs[p / 8], p % 8 / 2) >> (4 * (p % 2)), g.w + 4 * p);
  for (int j = 0; j < 16; ++j) g.scale[j] = static_cast<std::int32_t>(2 * (b.signs[j / 2] >> 28) + 1);
  g.d = f16_to_f32(b.d) * 0.25f;
}

void unpack(const BlockIQ2_XXS& b, Group256& g) {
  for (int p = 0; p < 32; ++p)
    put(kGrid2xxs[b.sub[p / 4].codes[p % 4]], signs_of(b.sub[p / 4].signs, p % 4), g.w + 8 * p);
  for (int j = 0; j < 16; ++j) g.scale[j] = static_cast<std::int32_t>(2 * (b.sub[j / 2].signs >> 28) + 1);
  g.d = f16_to_f32(b.d) * 0.125f;
}

void unpack(const BlockIQ2_XS& b, Group256& g) {
  for (int p = 0; p < 32; ++p) put(kGrid2xs[b.qs[p] & 511], kSigns7[b.qs[p] >> 9], g.w + 8 * p);
  for (int j = 0; j < 16; ++j) g.scale[j] = 2 * nibble(b.scales, j) + 1;
  g.d = f16_to_f32(b.d) * 0.125f;
}

void unpack(const BlockIQ2_S& b, Group256& g) {
  for (int p = 0; p < 32; ++p)
    put(kGrid2s[b.qs[p] | (((b.qh[p / 4] >> (2 * (p % 4))) & 3) << 8)], b.signs[p], g.w + 8 * p);
  for (int j = 0; j < 16; ++j) g.scale[j] = 2 * nibble(b.scales, j) + 1;
  g.d = f16_to_f32(b.d) * 0.125f;
}

void unpack(const BlockIQ1_S& b, Group256& g) {
  for (int p = 0; p < 32; ++p) {
    const int high = b.qh[p / 4];
    put(kGrid1s[b.qs[p] | (((high >> (3 * (p % 4))) & 7) << 8)], 0, g.w + 8 * p);
    for (int i = 0; i < 8; ++i) g.w[8 * p + i] = static_cast<std::int8_t>(g.w[8 * p + i] + (high & 0x8000 ? -1 : 1));
  }
  for (int j = 0; j < 16; ++j) g.scale[j] = 2 * ((b.qh[j / 2] >> 12) & 7) + 1;
  g.d = f16_to_f32(b.d) * 0.125f;
}

void unpack(const BlockIQ1_M& b, Group256& g) {
  for (int p = 0; p < 32; ++p) {
    const int high = nibble(b.qh, p);
    put(kGrid1s[b.qs[p] | ((high & 7) << 8)], 0, g.w + 8 * p);
    for (int i = 0; i < 8; ++i) g.w[8 * p + i] = static_cast<std::int8_t>(g.w[8 * p + i] + (high & 8 ? -1 : 1));
  }
  for (int j = 0; j < 16; ++j) g.scale[j] = 2 * ((b.scales[j / 4] >> (3 * (j % 4))) & 7) + 1;
  g.d = f16_to_f32(scale_iq1m(b)) * 0.125f;
}

}  // namespace lode::quant
