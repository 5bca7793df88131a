#include "quant/types.h"

#include <string>

#include "base/status.h"

namespace lode::quant {
namespace {

constexpr auto kF32 = ActFormat::f32;
constexpr auto kG32 = ActFormat::g32;
constexpr auto kG256 = ActFormat::g256;

// Every type that a GGUF may name today. Integers and doubles are never weights: their size is all one needs to know.
constexpr TypeInfo kTypes[] = {
    {DType::f32, "F32", 1, 4, kF32, true},
    {DType::f16, "F16", 1, 2, kF32, true},
    {DType::q4_0, "Q4_0", 32, 18, kG32, true},
    {DType::q4_1, "Q4_1", 32, 20, kG32, true},
    {DType::q5_0, "Q5_0", 32, 22, kG32, true},
    {DType::q5_1, "Q5_1", 32, 24, kG32, true},
    {DType::q8_0, "Q8_0", 32, 34, kG32, true},
    {DType::q2_k, "Q2_K", 256, 84, kG256, true},
    {DType::q3_k, "Q3_K", 256, 110, kG256, true},
    {DType::q4_k, "Q4_K", 256, 144, kG256, true},
    {DType::q5_k, "Q5_K", 256, 176, kG256, true},
    {DType::q6_k, "Q6_K", 256, 210, kG256, true},
    {DType::iq2_xxs, "IQ2_XXS", 256, 66, kG256, true},
    {DType::iq2_xs, "IQ2_XS", 256, 74, kG256, true},
    {DType::iq3_xxs, "IQ3_XXS", 256, 98, kG256, true},
    {DType::iq1_s, "IQ1_S", 256, 50, kG256, true},
    {DType::iq4_nl, "IQ4_NL", 32, 18, kG32, true},
    {DType::iq3_s, "IQ3_S", 256, 110, kG256, true},
    {DType::iq2_s, "IQ2_S", 256, 82, kG256, true},
    {DType::iq4_xs, "IQ4_XS", 256, 136, kG256, true},
    {DType::i8, "I8", 1, 1, kF32, false},
    {DType::i16, "I16", 1, 2, kF32, false},
    {DType::i32, "I32", 1, 4, kF32, false},
    {DType::i64, "I64", 1, 8, kF32, false},
    {DType::f64, "F64", 1, 8, kF32, false},
    {DType::iq1_m, "IQ1_M", 256, 56, kG256, true},
    {DType::bf16, "BF16", 1, 2, kF32, true},
    {DType::tq1_0, "TQ1_0", 256, 54, kG256, true},
    {DType::tq2_0, "TQ2_0", 256, 66, kG256, true},
    {DType::mxfp4, "MXFP4", 32, 17, kG32, true},
    {DType::nvfp4, "NVFP4", 64, 36, kG32, true},
    {DType::q1_0, "Q1_0", 128, 18, kG32, true},
    {DType::q2_0, "Q2_0", 64, 18, kG32, true},
};

}  // namespace

const TypeInfo* find_type(std::uint32_t number) {
  for (const TypeInfo& t : kTypes)
    if (static_cast<std::uint32_t>(t.type) == number) return &t;
  return nullptr;
}

const TypeInfo& info(DType type) {
  const TypeInfo* found = find_type(static_cast<std::uint32_t>(type));
  LODE_CHECK(found != nullptr);
  return *found;
}

std::string_view computable_names() {
  static const std::string names = [] {
    std::string all;
    for (const TypeInfo& t : kTypes) {
      if (!t.computable) continue;
      if (!all.empty()) all += ", ";
      all += t.name;
    }
    return all;
  }();
  return names;
}

std::int64_t row_bytes(DType type, std::int64_t cols) {
  const TypeInfo& t = info(type);
  LODE_CHECK(cols >= 0 && cols % t.block == 0);
  return cols / t.block * t.block_bytes;
}

float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1fu;
  std::uint32_t fraction = h & 0x3ffu;
  std::uint32_t bits;
  if (exponent == 0x1f) {  // Infinity; a NaN keeps its payload and becomes quiet, as the processor's conversion does.
    bits = sign | 0x7f800000u | (fraction << 13) | (fraction != 0 ? 0x400000u : 0u);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (fraction << 13);
  } else if (fraction == 0) {
    bits = sign;
  } else {  // A subnormal half is a normal float: move its leading one to bit 10.
    const int shift = __builtin_clz(fraction) - 21;
    fraction = (fraction << shift) & 0x3ffu;
    bits = sign | (static_cast<std::uint32_t>(113 - shift) << 23) | (fraction << 13);
  }
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}

std::uint16_t f32_to_f16(float f) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &f, 4);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {  // NaN: the top of the payload, made quiet.
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity.
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // Normal halves: add half an ulp, less one where the kept bit is even.
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else if (magnitude >= 0x33000000u) {  // Subnormal halves: shift the significand, round on what falls off.
    const std::uint32_t shift = 126u - (magnitude >> 23);  // 14 .. 24
    const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t kept = significand >> shift;
    const std::uint32_t rest = significand & ((1u << shift) - 1u);
    const std::uint32_t tie = 1u << (shift - 1);
    half = kept + (rest > tie || (rest == tie && (kept & 1u)) ? 1u : 0u);
  } else {
    half = 0;  // At most half of the smallest subnormal.
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace lode::quant
