#include "quant/packed.h"

#include <cstring>

#include "base/status.h"

namespace lode::quant {
namespace {

// Which bytes of a block go where in the packed one; `Copy` moves n bytes one way or the other, so that packing and
// unpacking cannot disagree.
template <typename Copy, std::size_t kSteps, typename Bytes>
void quads(Copy copy, Quad8 (&packed)[kSteps], Bytes& row, int r) {
  static_assert(sizeof(row) == 4 * kSteps);
  for (std::size_t c = 0; c < kSteps; ++c) copy(packed[c][r], reinterpret_cast<std::uint8_t*>(row) + 4 * c, 4);
}

// 32 single bits, bit i for code i, and the order that PackedQ5_0 has them in.
struct ToPacked {
  void operator()(void* packed, const void* row, std::size_t n) const { std::memcpy(packed, row, n); }
  static void bits(Quad8& packed, const std::uint8_t* qh, int r) {
    std::uint32_t all;
    std::memcpy(&all, qh, 4);
    for (int b = 0; b < 4; ++b) {
      std::uint32_t v = (all >> b) & 0x11111111u;  // Bit 4c is what becomes bit c.
      v = (v | (v >> 3)) & 0x03030303u;
      v = (v | (v >> 6)) & 0x000f000fu;
      packed[r][b] = static_cast<std::uint8_t>(v | (v >> 12));
    }
  }
};
struct ToRow {
  void operator()(const void* packed, void* row, std::size_t n) const { std::memcpy(row, packed, n); }
  static void bits(const Quad8& packed, std::uint8_t* qh, int r) {
    std::memset(qh, 0, 4);
    for (int i = 0; i < 32; ++i)
      qh[i / 8] = static_cast<std::uint8_t>(qh[i / 8] | (((packed[r][i % 4] >> (i / 4)) & 1) << (i % 8)));
  }
};

template <typename Copy>
void move(Copy copy, PackedQ4_0& p, BlockQ4_0& b, int r) {
  copy(&p.d[r], &b.d, 2);
  quads(copy, p.qs, b.qs, r);
}
template <typename Copy>
void move(Copy copy, PackedQ4_1& p, BlockQ4_1& b, int r) {
  copy(&p.d[r], &b.d, 2);
  copy(&p.m[r], &b.m, 2);
  quads(copy, p.qs, b.qs, r);
}
template <typename Copy>
void move(Copy copy, PackedQ5_0& p, BlockQ5_0& b, int r) {
  copy(&p.d[r], &b.d, 2);
  Copy::bits(p.qh, b.qh, r);
  quads(copy, p.qs, b.qs, r);
}
template <typename Copy>
void move(Copy copy, PackedQ5_1& p, BlockQ5_1& b, int r) {
  copy(&p.d[r], &b.d, 2);
  copy(&p.m[r], &b.m, 2);
  Copy::bits(p.qh, b.qh, r);
  quads(copy, p.qs, b.qs, r);
}
template <typename Copy>
void move(Copy copy, PackedQ8_0& p, BlockQ8_0& b, int r) {
  copy(&p.d[r], &b.d, 2);
  quads(copy, p.qs, b.qs, r);
}
template <typename Copy>
void move(Copy copy, PackedQ4_K& p, BlockQ4_K& b, int r) {
  copy(&p.d[r], &b.d, 2);
  copy(&p.dmin[r], &b.dmin, 2);
  for (int i = 0; i < 12; ++i) copy(&p.scales[i][r], &b.scales[i], 1);
  quads(copy, p.qs, b.qs, r);
}
template <typename Copy>
void move(Copy copy, PackedQ5_K& p, BlockQ5_K& b, int r) {
  copy(&p.d[r], &b.d, 2);
  copy(&p.dmin[r], &b.dmin, 2);
  for (int i = 0; i < 12; ++i) copy(&p.scales[i][r], &b.scales[i], 1);
  quads(copy, p.qh, b.qh, r);
  quads(copy, p.qs, b.qs, r);
}
template <typename Copy>
void move(Copy copy, PackedQ6_K& p, BlockQ6_K& b, int r) {
  copy(&p.d[r], &b.d, 2);
  for (int i = 0; i < 16; ++i) copy(&p.scales[i][r], &b.scales[i], 1);
  quads(copy, p.qh, b.qh, r);
  quads(copy, p.ql, b.ql, r);
}

template <typename Packed, typename Block>
struct Kind {
  static_assert(sizeof(Packed) == kPackedRows * sizeof(Block) && alignof(Packed) <= 2);
  static constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Block));

  static void pack(const std::byte* rows, std::int64_t blocks, std::byte* out) {
    for (std::int64_t i = 0; i < blocks; ++i) {
      Packed packed;
      for (int r = 0; r < kPackedRows; ++r) {
        Block block;
        std::memcpy(&block, rows + (r * blocks + i) * kBytes, sizeof(Block));
        move(ToPacked{}, packed, block, r);
      }
      std::memcpy(out + i * static_cast<std::int64_t>(sizeof(Packed)), &packed, sizeof(Packed));
    }
  }
  static void unpack(const std::byte* from, std::int64_t blocks, int r, std::byte* row) {
    for (std::int64_t i = 0; i < blocks; ++i) {
      Packed packed;
      std::memcpy(&packed, from + i * static_cast<std::int64_t>(sizeof(Packed)), sizeof(Packed));
      Block block;
      move(ToRow{}, packed, block, r);
      std::memcpy(row + i * kBytes, &block, sizeof(Block));
    }
  }
};

struct Functions {
  void (*pack)(const std::byte*, std::int64_t, std::byte*) = nullptr;
  void (*unpack)(const std::byte*, std::int64_t, int, std::byte*) = nullptr;
};
template <typename Packed, typename Block>
constexpr Functions functions_of() {
  return {Kind<Packed, Block>::pack, Kind<Packed, Block>::unpack};
}

Functions functions(DType type) {
  switch (type) {
    case DType::q4_0: return functions_of<PackedQ4_0, BlockQ4_0>();
    case DType::q4_1: return functions_of<PackedQ4_1, BlockQ4_1>();
    case DType::q5_0: return functions_of<PackedQ5_0, BlockQ5_0>();
    case DType::q5_1: return functions_of<PackedQ5_1, BlockQ5_1>();
    case DType::q8_0: return functions_of<PackedQ8_0, BlockQ8_0>();
    case DType::q4_k: return functions_of<PackedQ4_K, BlockQ4_K>();
    case DType::q5_k: return functions_of<PackedQ5_K, BlockQ5_K>();
    case DType::q6_k: return functions_of<PackedQ6_K, BlockQ6_K>();
    default: return {};
  }
}

}  // namespace

bool has_packed(DType type) {
  return functions(type).pack != nullptr;
}

void pack_rows(DType type, const std::byte* rows, std::int64_t cols, std::byte* packed) {
  const Functions f = functions(type);
  LODE_CHECK(f.pack != nullptr && cols % info(type).block == 0);
  f.pack(rows, cols / info(type).block, packed);
}

void unpack_row(DType type, const std::byte* packed, std::int64_t cols, int r, std::byte* row) {
  const Functions f = functions(type);
  LODE_CHECK(f.unpack != nullptr && cols % info(type).block == 0 && r >= 0 && r < kPackedRows);
  f.unpack(packed, cols / info(type).block, r, row);
}

}  // namespace lode::quant
