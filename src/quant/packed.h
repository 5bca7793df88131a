// Packed rows: 8 rows of a matrix with their bytes in the order in which a product meets them, so that one register
// holds 4 columns of 8 rows and one run of memory feeds it. Block i of all 8 rows becomes one of the structs below,
// which lie one behind another: 8 packed rows take the bytes of 8 rows. Owns nothing. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/blocks.h"
#include "quant/types.h"

namespace lode::quant {

inline constexpr std::int64_t kPackedRows = 8;

// Four bytes of each of 8 rows: what one register of 32 bytes takes.
using Quad8 = std::uint8_t[8][4];

// Codes as in the block of the same name. qs[c][r] are bytes 4c .. 4c+3 of row r's qs: columns 4c .. in their low
// nibbles, 16 + 4c .. in their high ones.
struct PackedQ4_0 {
  std::uint16_t d[8];
  Quad8 qs[4];
};
struct PackedQ4_1 {
  std::uint16_t d[8], m[8];
  Quad8 qs[4];
};
// Bit c of qh[r][b] is bit 4 of row r's code 4c + b.
struct PackedQ5_0 {
  std::uint16_t d[8];
  Quad8 qh;
  Quad8 qs[4];
};
struct PackedQ5_1 {
  std::uint16_t d[8], m[8];
  Quad8 qh;
  Quad8 qs[4];
};
struct PackedQ8_0 {
  std::uint16_t d[8];
  Quad8 qs[8];  // int8
};
// scales[i][r] is byte i of row r's packed scales.
struct PackedQ4_K {
  std::uint16_t d[8], dmin[8];
  std::uint8_t scales[12][8];
  Quad8 qs[32];
};
struct PackedQ5_K {
  std::uint16_t d[8], dmin[8];
  std::uint8_t scales[12][8];
  Quad8 qh[8];
  Quad8 qs[32];
};
struct PackedQ6_K {
  std::uint16_t d[8];
  std::int8_t scales[16][8];
  Quad8 qh[16];
  Quad8 ql[32];
};

// Whether rows of this type can be packed.
bool has_packed(DType type);

// Packs 8 rows of `cols` values, which lie one behind another at `rows`. Both sides have 8 * row_bytes(type, cols)
// bytes and must not overlap. The type can be packed.
void pack_rows(DType type, const std::byte* rows, std::int64_t cols, std::byte* packed);

// The inverse for one row, 0 to 7: `row` takes row_bytes(type, cols) bytes.
void unpack_row(DType type, const std::byte* packed, std::int64_t cols, int r, std::byte* row);

}  // namespace lode::quant
