// Formats without a codebook.
#include "quant/unpack.h"

#include <cstring>

#include "quant/grids.h"
#include "quant/types.h"

namespace lode::quant {
namespace {

int nibble(const std::uint8_t* qs, int i) {
  return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}
int fifth_bit(const std::uint8_t* qh, int i) {
  return ((qh[i / 8] >> (i % 8)) & 1) << 4;
}
void one_scale(float d, Group32& g) {
  g.d[0] = g.d[1] = d;
}
void one_scale(std::uint16_t d, Group256& g) {
  g.d = f16_to_f32(d);
  for (int j = 0; j < 16; ++j) g.scale[j] = 1;
}
// Value k of 256 whose 2 bits lie as in Q2_K.
int two_bits(const std::uint8_t* qs, int k) {
  return (qs[32 * (k / 128) + k % 32] >> (2 * ((k / 32) % 4))) & 3;
}

}  // namespace

void unpack(const BlockQ4_0& b, int, Group32& g) {
  for (int i = 0; i < 32; ++i) g.w[i] = static_cast<std::int8_t>(nibble(b.qs, i) - 8);
  one_scale(f16_to_f32(b.d), g);
}

void unpack(const BlockQ4_1& b, int, Group32& g) {
  for (int i = 0; i < 32; ++i) g.w[i] = static_cast<std::int8_t>(nibble(b.qs, i));
  one_scale(f16_to_f32(b.d), g);
  g.m = f16_to_f32(b.m);
}

void unpack(const BlockQ5_0& b, int, Group32& g) {
  for (int i = 0; i < 32; ++i) g.w[i] = static_cast<std::int8_t>((nibble(b.qs, i) | fifth_bit(b.qh, i)) - 16);
  one_scale(f16_to_f32(b.d), g);
}

void unpack(const BlockQ5_1& b, int, Group32& g) {
  for (int i = 0; i < 32; ++i) g.w[i] = static_cast<std::int8_t>(nibble(b.qs, i) | fifth_bit(b.qh, i));
  one_scale(f16_to_f32(b.d), g);
  g.m = f16_to_f32(b.m);
}

void unpack(const BlockQ8_0& b, int, Group32& g) {
  std::memcpy(g.w, b.qs, 32);
  one_scale(f16_to_f32(b.d), g);
}

void unpack(const BlockIQ4_NL& b, int, Group32& g) {
  for (int i = 0; i < 32; ++i) g.w[i] = kValuesIq4[nibble(b.qs, i)];
  one_scale(f16_to_f32(b.d), g);
}

void unpack(const BlockMXFP4& b, int, Group32& g) {
  for (int i = 0; i < 32; ++i) g.w[i] = kValuesE2m1[nibble(b.qs, i)];
  one_scale(kHalfE8m0[b.e], g);
}

void unpack(const BlockNVFP4& b, int part, Group32& g) {
  for (int i = 0; i < 32; ++i) {
    const std::uint8_t byte = b.qs[16 * part + 8 * (i / 16) + i % 8];
    g.w[i] = kValuesE2m1[i % 16 < 8 ? byte & 15 : byte >> 4];
  }
  for (int half = 0; half < 2; ++half) g.d[half] = kHalfUe4m3[b.d[2 * part + half]];
}

void unpack(const BlockQ1_0& b, int part, Group32& g) {
  for (int i = 0; i < 32; ++i) g.w[i] = (b.qs[4 * part + i / 8] >> (i % 8)) & 1 ? 1 : -1;
  one_scale(f16_to_f32(b.d), g);
}

void unpack(const BlockQ2_0& b, int part, Group32& g) {
  for (int i = 0; i < 32; ++i) g.w[i] = static_cast<std::int8_t>(((b.qs[8 * part + i / 4] >> (2 * (i % 4))) & 3) - 1);
  one_scale(f16_to_f32(b.d), g);
}

void unpack(const BlockQ2_K& b, Group256& g) {
  for (int k = 0; k < 256; ++k) g.w[k] = static_cast<std::int8_t>(two_bits(b.qs, k));
  for (int j = 0; j < 16; ++j) {
    g.scale[j] = b.scales[j] & 15;
    g.min[j] = b.scales[j] >> 4;
  }
  g.d = f16_to_f32(b.d);
  g.dmin = f16_to_f32(b.dmin);
}

void unpack(const BlockQ3_K& b, Group256& g) {
  for (int k = 0; k < 256; ++k) {
    const int high = (b.hmask[k % 32] >> (k / 32)) & 1;
    g.w[k] = static_cast<std::int8_t>((two_bits(b.qs, k) | (high << 2)) - 4);
  }
  std::uint8_t sc[16];
  unpack_scales_k3(b.scales, sc);
  for (int j = 0; j < 16; ++j) g.scale[j] = sc[j] - 32;
  g.d = f16_to_f32(b.d);
}

namespace {

template <typename Block>
void unpack_k45(const Block& b, Group256& g) {
  std::uint8_t sc[16];
  unpack_scales_k4(b.scales, sc);
  for (int j = 0; j < 16; ++j) {
    g.scale[j] = sc[j / 2];
    g.min[j] = sc[8 + j / 2];
  }
  for (int k = 0; k < 256; ++k)
    g.w[k] = static_cast<std::int8_t>((b.qs[32 * (k / 64) + k % 32] >> (4 * ((k / 32) % 2))) & 15);
  g.d = f16_to_f32(b.d);
  g.dmin = f16_to_f32(b.dmin);
}

}  // namespace

void unpack(const BlockQ4_K& b, Group256& g) {
  unpack_k45(b, g);
}

void unpack(const BlockQ5_K& b, Group256& g) {
  unpack_k45(b, g);
  for (int k = 0; k < 256; ++k) g.w[k] = static_cast<std::int8_t>(g.w[k] | (((b.qh[k % 32] >> (k / 32)) & 1) << 4));
}

void unpack(const BlockQ6_K& b, Group256& g) {
  for (int k = 0; k < 256; ++k) {
    const int half = k / 128, part = (k / 32) % 4, i = k % 32;
    const int low = (b.ql[64 * half + 32 * (part % 2) + i] >> (4 * (part / 2))) & 15;
    const int high = (b.qh[32 * half + i] >> (2 * part)) & 3;
    g.w[k] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
  for (int j = 0; j < 16; ++j) g.scale[j] = b.scales[j];
  g.d = f16_to_f32(b.d);
}

void unpack(const BlockTQ1_0& b, Group256& g) {
  static constexpr std::uint8_t kPowers[] = {1, 3, 9, 27, 81};
  for (int k = 0; k < 256; ++k) {
    const std::uint8_t byte = k < 160 ? b.qs[k % 32] : k < 240 ? b.qs[32 + k % 16] : b.qh[k % 4];
    const int n = k < 160 ? k / 32 : k < 240 ? (k - 160) / 16 : (k - 240) / 4;
    const auto low = static_cast<std::uint8_t>(byte * kPowers[n]);
    g.w[k] = static_cast<std::int8_t>(((low * 3) >> 8) - 1);
  }
  one_scale(b.d, g);
}

void unpack(const BlockTQ2_0& b, Group256& g) {
  for (int k = 0; k < 256; ++k) g.w[k] = static_cast<std::int8_t>(two_bits(b.qs, k) - 1);
  one_scale(b.d, g);
}

}  // namespace lode::quant
