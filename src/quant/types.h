// Block formats of GGUF tensors: names, sizes, scalar dequantization. Owns nothing. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lode::quant {

// The numbers are GGUF's own type numbers (ggml's `ggml_type`).
enum class DType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
};

// How activations must be quantized for a matrix of a format. g32: int8, one f32 scale per 32 values. g256: int8, one
// f32 scale per 256. f32: left as they are (float weights).
enum class ActFormat : std::uint8_t { f32, g32, g256 };

struct TypeInfo {
  DType type;
  std::string_view name;  // "Q5_0"
  std::int64_t block;     // Values in a block along a row.
  std::int64_t block_bytes;
  ActFormat act;
  bool computable;  // dequantize_row and the matrix kernels exist; otherwise only the size is known.
};

// nullptr for a number that is no (longer a) type.
const TypeInfo* find_type(std::uint32_t number);
const TypeInfo& info(DType type);
// Comma-separated names of the computable types, for error messages.
std::string_view computable_names();

// Bytes of a row of `cols` values; cols must be a multiple of the block.
std::int64_t row_bytes(DType type, std::int64_t cols);

// The scalar reference: `n` values (a multiple of the block) from packed blocks to exact f32, in gguf-py's order of
// operations. The type must be computable.
void dequantize_row(DType type, const std::byte* src, float* dst, std::int64_t n);

// IEEE binary16 <-> binary32, round to nearest even, in integer arithmetic: the same on every machine.
float f16_to_f32(std::uint16_t h);
std::uint16_t f32_to_f16(float f);
inline float bf16_to_f32(std::uint16_t b) {
  const std::uint32_t u = static_cast<std::uint32_t>(b) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

}  // namespace lode::quant
