// Panels (matmul_panel.h) from packed rows (quant/packed.h): 16 rows of a panel are two times 8 packed rows, whose
// bytes lie as the panel wants them. Products of few tokens with packed rows are AVX2's: both are bound by memory.
// Templates over the vector type. Owns nothing.
#pragma once

#include "kernels/cpu/avx512/matmul_panel.h"
#include "quant/packed.h"

namespace lode::kernels::avx512 {

// Rows [first, first + 16) as two groups of 8; where there is only one, it stands in for the other.
struct PackedRows16 {
  const std::byte* eight[2];
};
struct FromPacked {
  using Rows = PackedRows16;
  static Rows at(const Matrix& w, std::int64_t bytes, std::int64_t first) {
    const std::int64_t last = w.rows - quant::kPackedRows;
    return {{w.data + least(first, last) * bytes, w.data + least(first + quant::kPackedRows, last) * bytes}};
  }
};

// Block i of both groups.
template <typename Packed>
struct PackedPair {
  const Packed *a, *b;
  PackedPair(const PackedRows16& rows, std::int64_t i)
      : a(reinterpret_cast<const Packed*>(rows.eight[0]) + i), b(reinterpret_cast<const Packed*>(rows.eight[1]) + i) {}
};

// The bits of every byte of x moved down by `count`, or up where it is negative, of which `mask` stay: whatever a
// neighbouring byte has moved in is not among them.
template <typename V>
static inline typename V::I bits_at(typename V::I x, int count, int mask) {
  const int turn = count & 63;
  return V::and_(count == 0 ? x : V::rotate64(x, V::counts64(turn, turn, turn, turn)), V::set8(mask));
}

template <typename V>
static inline typename V::F packed_halves(const std::uint16_t* a, const std::uint16_t* b) {
  return V::halves(load_u64<V>(a), load_u64<V>(a + 4), load_u64<V>(b), load_u64<V>(b + 4));
}

// Codes of columns 4c .. of a group of 32: 16 rows x 4.
template <typename V, typename Packed>
static inline typename V::I packed_codes(const PackedPair<Packed>& p, int c) {
  if constexpr (std::is_same_v<Packed, quant::PackedQ8_0>) {
    return V::xor_(V::pair(p.a->qs[c], p.b->qs[c]), V::set8(-128));
  } else {
    const typename V::I nibble = bits_at<V>(V::pair(p.a->qs[c % 4], p.b->qs[c % 4]), c < 4 ? 0 : 4, 15);
    if constexpr (std::is_same_v<Packed, quant::PackedQ5_0> || std::is_same_v<Packed, quant::PackedQ5_1>)
      return V::or_(nibble, bits_at<V>(V::pair(p.a->qh, p.b->qh), c - 4, 16));
    else return nibble;
  }
}

template <typename V, typename Block, typename Packed>
struct PackedUnpack32 : FromPacked {
  using Format = Format32<V, Block>;
  static void run(const Rows* rows, std::int64_t first, std::int64_t groups, Panel32& panel) {
    for (std::int64_t g = 0; g < groups; ++g)
      for (int v = 0; v < 2; ++v) {
        const PackedPair<Packed> p(rows[v], first + g);
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c) V::istore(panel.codes + (g * 8 + c) * kStep + v * 64, packed_codes<V>(p, c));
        V::store(panel.d[g] + 16 * v, packed_halves<V>(p.a->d, p.b->d));
        if constexpr (Format::kMin) V::store(panel.m[g] + 16 * v, packed_halves<V>(p.a->m, p.b->m));
      }
  }
};

// Codes of columns 32j + 4c .. of a block of 256.
template <typename V>
static inline typename V::I packed_codes(const PackedPair<quant::PackedQ4_K>& p, int j, int c) {
  const int at = 8 * (j / 2) + c;
  return bits_at<V>(V::pair(p.a->qs[at], p.b->qs[at]), j % 2 * 4, 15);
}
template <typename V>
static inline typename V::I packed_codes(const PackedPair<quant::PackedQ5_K>& p, int j, int c) {
  const int at = 8 * (j / 2) + c;
  return V::or_(bits_at<V>(V::pair(p.a->qs[at], p.b->qs[at]), j % 2 * 4, 15),
                bits_at<V>(V::pair(p.a->qh[c], p.b->qh[c]), j - 4, 16));
}
template <typename V>
static inline typename V::I packed_codes(const PackedPair<quant::PackedQ6_K>& p, int j, int c) {
  const int half = j / 4, part = j % 4, low = 16 * half + 8 * (part % 2) + c, high = 8 * half + c;
  return V::or_(bits_at<V>(V::pair(p.a->ql[low], p.b->ql[low]), part < 2 ? 0 : 4, 15),
                bits_at<V>(V::pair(p.a->qh[high], p.b->qh[high]), 2 * part - 4, 48));
}

// Byte r of word j: the scale (minimum) of row r's sub-block j, of Q4_K and Q5_K (quant::unpack_scales_k4, 8 at a
// time).
struct PackedScalesK4 {
  std::uint64_t scale[8], min[8];
};
template <typename V>
static inline PackedScalesK4 packed_scales_k4(const std::uint8_t (*bytes)[8]) {
  constexpr std::uint64_t kSix = 0x3f3f3f3f3f3f3f3f, kFour = 0x0f0f0f0f0f0f0f0f, kTwo = 0x3030303030303030;
  PackedScalesK4 s;
  for (int j = 0; j < 4; ++j) {
    const std::uint64_t a = load_u64<V>(bytes[j]), b = load_u64<V>(bytes[j + 4]), c = load_u64<V>(bytes[j + 8]);
    s.scale[j] = a & kSix;
    s.min[j] = b & kSix;
    s.scale[j + 4] = (c & kFour) | ((a >> 2) & kTwo);
    s.min[j + 4] = ((c >> 4) & kFour) | ((b >> 2) & kTwo);
  }
  return s;
}
template <typename V, typename Packed>
static inline void store_packed_scales(const PackedPair<Packed>& p, std::int64_t g, int v, Panel256& panel) {
  if constexpr (std::is_same_v<Packed, quant::PackedQ6_K>) {
    for (int j = 0; j < 16; ++j) {
      std::int8_t both[16];
      std::memcpy(both, p.a->scales[j], 8);
      std::memcpy(both + 8, p.b->scales[j], 8);
      V::istore(panel.scale[g][j] + 16 * v, V::widen_s8(both));
    }
  } else {
    const PackedScalesK4 a = packed_scales_k4<V>(p.a->scales), b = packed_scales_k4<V>(p.b->scales);
    for (int j = 0; j < 8; ++j) V::istore(panel.scale[g][j] + 16 * v, V::widen_u8(a.scale[j], b.scale[j]));
    for (int j = 0; j < 4; ++j) {
      const typename V::I even = V::widen_u8(a.min[2 * j], b.min[2 * j]);
      const typename V::I odd = V::widen_u8(a.min[2 * j + 1], b.min[2 * j + 1]);
      V::istore(panel.min[g][j] + 16 * v, V::or_(even, V::mul32(odd, V::set32(1 << 16))));
    }
  }
}

template <typename V, typename Block, typename Packed>
struct PackedUnpack256 : FromPacked {
  using Format = Format256<V, Block>;
  static void run(const Rows* rows, std::int64_t first, std::int64_t groups, Panel256& panel) {
    for (std::int64_t g = 0; g < groups; ++g)
      for (int v = 0; v < 2; ++v) {
        const PackedPair<Packed> p(rows[v], first + g);
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j)
#pragma GCC unroll 8
          for (int c = 0; c < 8; ++c)
            V::istore(panel.codes + ((8 * g + j) * 8 + c) * kStep + v * 64, packed_codes<V>(p, j, c));
        store_packed_scales<V>(p, g, v, panel);
        V::store(panel.d[g] + 16 * v, packed_halves<V>(p.a->d, p.b->d));
        if constexpr (Format::kMin) V::store(panel.dmin[g] + 16 * v, packed_halves<V>(p.a->dmin, p.b->dmin));
      }
  }
};

template <typename V>
static RowsFn packed_panel_function(quant::DType type) {
  switch (type) {
    case quant::DType::q4_0: return panel_g32<V, PackedUnpack32<V, quant::BlockQ4_0, quant::PackedQ4_0>>;
    case quant::DType::q4_1: return panel_g32<V, PackedUnpack32<V, quant::BlockQ4_1, quant::PackedQ4_1>>;
    case quant::DType::q5_0: return panel_g32<V, PackedUnpack32<V, quant::BlockQ5_0, quant::PackedQ5_0>>;
    case quant::DType::q5_1: return panel_g32<V, PackedUnpack32<V, quant::BlockQ5_1, quant::PackedQ5_1>>;
    case quant::DType::q8_0: return panel_g32<V, PackedUnpack32<V, quant::BlockQ8_0, quant::PackedQ8_0>>;
    case quant::DType::q4_k: return panel_g256<V, PackedUnpack256<V, quant::BlockQ4_K, quant::PackedQ4_K>>;
    case quant::DType::q5_k: return panel_g256<V, PackedUnpack256<V, quant::BlockQ5_K, quant::PackedQ5_K>>;
    case quant::DType::q6_k: return panel_g256<V, PackedUnpack256<V, quant::BlockQ6_K, quant::PackedQ6_K>>;
    default: return nullptr;
  }
}

}  // namespace lode::kernels::avx512
