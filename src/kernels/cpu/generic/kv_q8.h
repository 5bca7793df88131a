// K and V in q8_0 on the CPU: the Walsh-Hadamard rotation and the rounding of a group to int8, plus what every
// instruction set shares of them (docs/numerics.md, "K and V in q8_0"). Owns nothing. Kernels and tests only.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace lode::kernels {

// Rotation blocks never exceed this. Beyond a group's 32 values a larger block lowers the total error no further, it
// only evens it out; 256 makes all common head sizes one block, and lets a writer work in 1 KiB of stack.
inline constexpr std::int64_t kRotationMax = 256;

// A group whose largest magnitude is below this is stored as zeros with scale 0: it is under half of the least scale.
inline constexpr float kKvTiny = 0x1p-25f;
inline constexpr std::uint16_t kHalfNaN = 0x7E00;

// Values of a head that are rotated together: the largest power of two that divides its size, at most 256.
static inline std::int64_t rotation_block(std::int64_t dim) {
  const std::int64_t n = dim & -dim;
  return n < kRotationMax ? n : kRotationMax;
}
// 1 / sqrt(n), rounded to f32, for a power of two n.
static inline float rotation_scale(std::int64_t n) {
  float scale = 1;
  for (; n >= 4; n /= 4) scale *= 0.5f;
  return n == 2 ? scale * 0x1.6a09e6p-1f : scale;
}
// Values of a head that a writer rotates and rounds together: whole rotation blocks and whole groups, at most 256.
static inline std::int64_t rotation_piece(std::int64_t dim) {
  const std::int64_t n = rotation_block(dim);
  return n > kKvGroup ? n : kKvGroup;
}

namespace generic {

// Multiplies a head, block by block of rotation_block(dim) values, by the orthonormal Walsh-Hadamard matrix, which is
// its own inverse. In place.
void rotate(float* x, std::int64_t dim);
// The same for `count` values of a head whose rotation blocks have n values (n divides count).
void rotate_blocks(float* x, std::int64_t count, std::int64_t n);
// Rounds `count` <= 32 values to codes in [-127, 127]; returns the group's f16 scale.
std::uint16_t quantize_kv_group(const float* x, std::int64_t count, std::int8_t* codes);

}  // namespace generic
}  // namespace lode::kernels
