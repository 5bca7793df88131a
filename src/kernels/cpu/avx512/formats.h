// Block formats in 512-bit registers: 64 unsigned codes at a time, rows and their scales. Templates over the vector
// type (zmm.h). Owns nothing. For this folder's matmul_*.h only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/kernels.h"
#include "quant/blocks.h"

namespace lode::kernels::avx512 {

// Computes y[t * y_stride + r] for rows [first, end) of w and all tokens of x.
struct RowsTask {
  const Matrix* w;
  std::int64_t first, end;
  const Acts* x;
  float* y;
  std::int64_t y_stride;
  std::byte* scratch;  // [kMatmulScratch], this thread's.
};
using RowsFn = void (*)(const RowsTask&);

static inline std::int64_t least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// Where the 16 rows that begin at `first` lie; rows past the matrix's end repeat the last one and are not stored.
struct Rows16 {
  const std::byte* row[16];
  std::int64_t bytes;  // Of a row.
};
static inline Rows16 rows_at(const Matrix& w, std::int64_t bytes, std::int64_t first) {
  Rows16 rows;
  rows.bytes = bytes;
  for (int r = 0; r < 16; ++r) rows.row[r] = w.data + least(first + r, w.rows - 1) * bytes;
  return rows;
}

// The next 16 rows lie right behind these: asks for the piece of them that `count` blocks from block i will need.
template <typename V, typename Block>
static inline void fetch_next_rows(const std::byte* first_row, std::int64_t bytes, std::int64_t i, std::int64_t count) {
  const std::byte* piece = first_row + 16 * bytes + 16 * i * static_cast<std::int64_t>(sizeof(Block));
  for (std::int64_t at = 0; at < 16 * count * static_cast<std::int64_t>(sizeof(Block)); at += 64)
    V::fetch_near(piece + at);
}

// Binary16 numbers at `offset` bytes into each of 16 rows. Gathered in general registers: a vector load of 16 stored
// halves would wait for the stores to reach the cache.
template <typename V>
static inline typename V::F row_halves(const Rows16& rows, std::int64_t offset) {
  std::uint64_t word[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    std::uint16_t h[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) std::memcpy(&h[j], rows.row[4 * i + j] + offset, 2);
    word[i] = h[0] | static_cast<std::uint64_t>(h[1]) << 16 | static_cast<std::uint64_t>(h[2]) << 32 |
              static_cast<std::uint64_t>(h[3]) << 48;
  }
  return V::halves(word[0], word[1], word[2], word[3]);
}

template <typename V>
static inline std::uint64_t load_u64(const void* p) {
  std::uint64_t x;
  std::memcpy(&x, p, 8);
  return x;
}
template <typename V>
static inline std::uint32_t load_u32(const void* p) {
  std::uint32_t x;
  std::memcpy(&x, p, 4);
  return x;
}

// ---- Formats of 32: codes of two blocks (of one row, or of two), 32 bytes each. weight = code - kOffset. ----

// 16 bytes of each block -> low nibbles, high nibbles.
template <typename V>
static inline typename V::I nibbles(const std::uint8_t* a, const std::uint8_t* b) {
  return V::and_(V::rotate64(V::quads(a, b), V::counts64(0, 4, 0, 4)), V::set8(15));
}
template <typename V>
static inline typename V::I fifth_bits(typename V::I low, const std::uint8_t* a, const std::uint8_t* b) {
  return V::add8_where(low, load_u32<V>(a) | static_cast<std::uint64_t>(load_u32<V>(b)) << 32, 16);
}

template <typename V, typename Block>
struct Format32;
template <typename V>
struct Format32<V, quant::BlockQ4_0> {
  static constexpr int kOffset = 8;
  static constexpr bool kMin = false;
  static typename V::I codes(const quant::BlockQ4_0* a, const quant::BlockQ4_0* b) { return nibbles<V>(a->qs, b->qs); }
};
template <typename V>
struct Format32<V, quant::BlockQ4_1> {
  static constexpr int kOffset = 0;
  static constexpr bool kMin = true;
  static typename V::I codes(const quant::BlockQ4_1* a, const quant::BlockQ4_1* b) { return nibbles<V>(a->qs, b->qs); }
};
template <typename V>
struct Format32<V, quant::BlockQ5_0> {
  static constexpr int kOffset = 16;
  static constexpr bool kMin = false;
  static typename V::I codes(const quant::BlockQ5_0* a, const quant::BlockQ5_0* b) {
    return fifth_bits<V>(nibbles<V>(a->qs, b->qs), a->qh, b->qh);
  }
};
template <typename V>
struct Format32<V, quant::BlockQ5_1> {
  static constexpr int kOffset = 0;
  static constexpr bool kMin = true;
  static typename V::I codes(const quant::BlockQ5_1* a, const quant::BlockQ5_1* b) {
    return fifth_bits<V>(nibbles<V>(a->qs, b->qs), a->qh, b->qh);
  }
};
template <typename V>
struct Format32<V, quant::BlockQ8_0> {
  static constexpr int kOffset = 128;
  static constexpr bool kMin = false;
  static typename V::I codes(const quant::BlockQ8_0* a, const quant::BlockQ8_0* b) {
    return V::xor_(V::pair(a->qs, b->qs), V::set8(-128));
  }
};

// ---- Formats of 256. two(a, b, j): codes 32j .. 32j+31 of two blocks. run(b, j): codes 64j .. 64j+63 of one. kSub:
// values under one integer scale, kMinSub: under one minimum. weight = code - kOffset. ----

// Eight 6-bit scales and eight minimums, a byte each (quant::unpack_scales_k4 in registers).
struct ScalesK4 {
  std::uint64_t scales, mins;
};
template <typename V>
static inline ScalesK4 scales_k4(const std::uint8_t* packed) {
  const std::uint64_t a = load_u32<V>(packed), b = load_u32<V>(packed + 4), c = load_u32<V>(packed + 8);
  return {(a & 0x3f3f3f3f) | ((c & 0x0f0f0f0f) | ((a >> 2) & 0x30303030)) << 32,
          (b & 0x3f3f3f3f) | (((c >> 4) & 0x0f0f0f0f) | ((b >> 2) & 0x30303030)) << 32};
}

template <typename V, typename Block>
struct Format256;

template <typename V>
struct Format256<V, quant::BlockQ4_K> {
  using Block = quant::BlockQ4_K;
  static constexpr int kOffset = 0, kSub = 32, kMinSub = 32;
  static constexpr bool kMin = true;
  static typename V::I two(const Block* a, const Block* b, int j) {
    const int shift = 4 * (j % 2);
    return V::and_(
        V::rotate64(V::pair(a->qs + 32 * (j / 2), b->qs + 32 * (j / 2)), V::counts64(shift, shift, shift, shift)),
        V::set8(15));
  }
  static typename V::I run(const Block* b, int j) {
    const std::uint8_t* qs = b->qs + 32 * j;
    return V::and_(V::rotate64(V::pair(qs, qs), V::counts64(0, 0, 4, 4)), V::set8(15));
  }
};

template <typename V>
struct Format256<V, quant::BlockQ5_K> {
  using Block = quant::BlockQ5_K;
  static constexpr int kOffset = 0, kSub = 32, kMinSub = 32;
  static constexpr bool kMin = true;
  // A rotation by j - 4 brings bit j of every byte to its bit 4; what comes from other bytes is masked off.
  static typename V::I two(const Block* a, const Block* b, int j) {
    const int shift = 4 * (j % 2), bit = (j - 4) & 63;
    const typename V::I low = V::and_(
        V::rotate64(V::pair(a->qs + 32 * (j / 2), b->qs + 32 * (j / 2)), V::counts64(shift, shift, shift, shift)),
        V::set8(15));
    return V::or_(low, V::and_(V::rotate64(V::pair(a->qh, b->qh), V::counts64(bit, bit, bit, bit)), V::set8(16)));
  }
  static typename V::I run(const Block* b, int j) {
    const int even = (2 * j - 4) & 63, odd = (2 * j - 3) & 63;
    const std::uint8_t* qs = b->qs + 32 * j;
    const typename V::I low = V::and_(V::rotate64(V::pair(qs, qs), V::counts64(0, 0, 4, 4)), V::set8(15));
    return V::or_(low, V::and_(V::rotate64(V::pair(b->qh, b->qh), V::counts64(even, even, odd, odd)), V::set8(16)));
  }
};

template <typename V>
struct Format256<V, quant::BlockQ6_K> {
  using Block = quant::BlockQ6_K;
  static constexpr int kOffset = 32, kSub = 16;
  static constexpr bool kMin = false;
  // A rotation by 2 part - 4 brings the two high bits of a part to bits 4 and 5.
  static typename V::I two(const Block* a, const Block* b, int j) {
    const int half = j / 4, part = j % 4, shift = part < 2 ? 0 : 4, bits = (2 * part - 4) & 63;
    const int low_at = 64 * half + 32 * (part % 2), high_at = 32 * half;
    const typename V::I low = V::and_(
        V::rotate64(V::pair(a->ql + low_at, b->ql + low_at), V::counts64(shift, shift, shift, shift)), V::set8(15));
    const typename V::I high =
        V::rotate64(V::pair(a->qh + high_at, b->qh + high_at), V::counts64(bits, bits, bits, bits));
    return V::or_(low, V::and_(high, V::set8(48)));
  }
  static typename V::I run(const Block* b, int j) {
    const int half = j / 2, shift = 4 * (j % 2), bits = (4 * (j % 2) - 4) & 63, next = (bits + 2) & 63;
    const std::uint8_t* qh = b->qh + 32 * half;
    const typename V::I low =
        V::and_(V::rotate64(V::iload(b->ql + 64 * half), V::counts64(shift, shift, shift, shift)), V::set8(15));
    return V::or_(low, V::and_(V::rotate64(V::pair(qh, qh), V::counts64(bits, bits, next, next)), V::set8(48)));
  }
};

}  // namespace lode::kernels::avx512
