// kv_write with AVX2 and F16C: K is transposed 8 tokens by 8 dims at a time, in q8_0 after rotation and rounding. Bit
// for bit the generic one (NaN payloads aside). Owns nothing. Step thread only.
#include <algorithm>

#include "base/status.h"
#include "kernels/cpu/avx2/kv_i16.h"
#include "kernels/cpu/avx2/kv_q8.h"
#include "kernels/cpu/avx2/math.h"
#include "kernels/cpu/avx2/transpose.h"
#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {
namespace {

using Half = std::uint16_t;

void store8(float* to, __m256 x) {
  _mm256_storeu_ps(to, x);
}
void store8(Half* to, __m256 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
void store1(float* to, float x) {
  *to = x;
}
void store1(Half* to, float x) {
  *to = static_cast<Half>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0));
}

// k: `count` tokens of one head, `stride` floats apart -> to [k_dim, 32], columns [0, count).
template <typename T>
void write_k(const float* k, std::int64_t stride, std::int64_t count, std::int64_t k_dim, T* to) {
  std::int64_t t = 0;
  for (; t + 8 <= count; t += 8) {
    const float* from = k + t * stride;
    std::int64_t d = 0;
    for (; d + 8 <= k_dim; d += 8) {
      __m256 r[8];
      for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * stride + d);
      transpose8(r);
      for (int i = 0; i < 8; ++i) store8(to + (d + i) * kBlockTokens + t, r[i]);
    }
    for (; d < k_dim; ++d) {
      for (int i = 0; i < 8; ++i) store1(to + d * kBlockTokens + t + i, from[i * stride + d]);
    }
  }
  for (; t < count; ++t) {
    for (std::int64_t d = 0; d < k_dim; ++d) store1(to + d * kBlockTokens + t, k[t * stride + d]);
  }
}

// v: `count` tokens of one head, `stride` floats apart -> to [count, v_dim].
template <typename T>
void write_v(const float* v, std::int64_t stride, std::int64_t count, std::int64_t v_dim, T* to) {
  for (std::int64_t t = 0; t < count; ++t) {
    std::int64_t d = 0;
    for (; d + 8 <= v_dim; d += 8) store8(to + t * v_dim + d, _mm256_loadu_ps(v + t * stride + d));
    for (; d < v_dim; ++d) store1(to + t * v_dim + d, v[t * stride + d]);
  }
}

// from [8, stride] bytes -> to [8, 32] bytes, transposed.
void transpose8_bytes(const std::int8_t* from, std::int64_t stride, std::int8_t* to) {
  __m128i r[4];
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm_unpacklo_epi8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 2 * i * stride)),
                             _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + (2 * i + 1) * stride)));
  }
  const __m128i low[2] = {_mm_unpacklo_epi16(r[0], r[1]), _mm_unpackhi_epi16(r[0], r[1])};
  const __m128i high[2] = {_mm_unpacklo_epi16(r[2], r[3]), _mm_unpackhi_epi16(r[2], r[3])};
  for (int i = 0; i < 2; ++i) {
    const __m128i columns[2] = {_mm_unpacklo_epi32(low[i], high[i]), _mm_unpackhi_epi32(low[i], high[i])};
    for (int j = 0; j < 2; ++j) {
      std::int8_t* pair = to + (4 * i + 2 * j) * kBlockTokens;
      _mm_storel_epi64(reinterpret_cast<__m128i*>(pair), columns[j]);
      _mm_storel_epi64(reinterpret_cast<__m128i*>(pair + kBlockTokens), _mm_srli_si128(columns[j], 8));
    }
  }
}

// Rotates and rounds `count` values, whole rotation blocks of n: codes [count], scale g to scales[g * scale_stride].
void round_piece(const float* x, std::int64_t count, std::int64_t n, std::int8_t* codes, Half* scales,
                 std::int64_t scale_stride) {
  float rotated[kRotationMax];
  std::copy_n(x, count, rotated);
  rotate_blocks(rotated, count, n);
  for (std::int64_t i = 0; i < count; i += kKvGroup) {
    scales[i / kKvGroup * scale_stride] = quantize_kv_group(rotated + i, std::min(kKvGroup, count - i), codes + i);
  }
}

// k: `count` tokens of one head -> to [k_dim, 32] and scales [k_groups, 32], columns [0, count).
void write_k_q8(const float* k, std::int64_t stride, std::int64_t count, std::int64_t k_dim, std::int8_t* to,
                Half* scales) {
  const std::int64_t n = rotation_block(k_dim), piece = rotation_piece(k_dim);
  std::int8_t codes[8][kRotationMax];
  for (std::int64_t t = 0; t < count; t += 8) {
    const std::int64_t tokens = std::min<std::int64_t>(8, count - t);
    for (std::int64_t first = 0; first < k_dim; first += piece) {
      const std::int64_t width = std::min(piece, k_dim - first);
      for (std::int64_t i = 0; i < tokens; ++i) {
        round_piece(k + (t + i) * stride + first, width, n, codes[i], scales + first / kKvGroup * kBlockTokens + t + i,
                    kBlockTokens);
      }
      std::int8_t* columns = to + first * kBlockTokens + t;
      std::int64_t d = 0;
      for (; tokens == 8 && d + 8 <= width; d += 8) {
        transpose8_bytes(codes[0] + d, kRotationMax, columns + d * kBlockTokens);
      }
      for (; d < width; ++d) {
        for (std::int64_t i = 0; i < tokens; ++i) columns[d * kBlockTokens + i] = codes[i][d];
      }
    }
  }
}

// v: `count` tokens of one head -> to [count, v_dim] and scales [count, v_groups].
void write_v_q8(const float* v, std::int64_t stride, std::int64_t count, std::int64_t v_dim, std::int8_t* to,
                Half* scales) {
  const std::int64_t n = rotation_block(v_dim), piece = rotation_piece(v_dim), groups = kv_groups(v_dim);
  for (std::int64_t t = 0; t < count; ++t) {
    for (std::int64_t first = 0; first < v_dim; first += piece) {
      round_piece(v + t * stride + first, std::min(piece, v_dim - first), n, to + t * v_dim + first,
                  scales + t * groups + first / kKvGroup, 1);
    }
  }
}

// Tokens [i, i + count) of a run, all in one block.
struct Piece {
  const KvLayer& layer;
  std::byte* block;
  std::int64_t t;  // The first one's place in the block.
  std::int64_t count;
};

// k: the first token of head h; the next is kv_heads * k_dim further on.
void write_k_side(const Piece& piece, std::int64_t h, const float* k) {
  const KvLayer& layer = piece.layer;
  const std::int64_t k_dim = layer.k_dim, stride = layer.kv_heads * k_dim, at = h * k_dim * kBlockTokens + piece.t;
  std::byte* to = piece.block + layer.k_offset;
  switch (layer.k_type) {
    case KvType::f32: return write_k(k, stride, piece.count, k_dim, reinterpret_cast<float*>(to) + at);
    case KvType::f16: return write_k(k, stride, piece.count, k_dim, reinterpret_cast<Half*>(to) + at);
    case KvType::q8_0: {
      auto* scales = reinterpret_cast<Half*>(to + kv_scales_offset(layer.kv_heads, k_dim));
      return write_k_q8(k, stride, piece.count, k_dim, reinterpret_cast<std::int8_t*>(to) + at,
                        scales + h * kv_groups(k_dim) * kBlockTokens + piece.t);
    }
    case KvType::i16: return write_k_i16(k, stride, piece.count, k_dim, i16_k(layer, piece.block, h), piece.t);
  }
}

void write_v_side(const Piece& piece, std::int64_t h, const float* v) {
  const KvLayer& layer = piece.layer;
  const std::int64_t v_dim = layer.v_dim, stride = layer.kv_heads * v_dim, row = h * kBlockTokens + piece.t;
  std::byte* to = piece.block + layer.v_offset;
  switch (layer.v_type) {
    case KvType::f32: return write_v(v, stride, piece.count, v_dim, reinterpret_cast<float*>(to) + row * v_dim);
    case KvType::f16: return write_v(v, stride, piece.count, v_dim, reinterpret_cast<Half*>(to) + row * v_dim);
    case KvType::q8_0: {
      auto* scales = reinterpret_cast<Half*>(to + kv_scales_offset(layer.kv_heads, v_dim));
      return write_v_q8(v, stride, piece.count, v_dim, reinterpret_cast<std::int8_t*>(to) + row * v_dim,
                        scales + row * kv_groups(v_dim));
    }
    case KvType::i16: return write_v_i16(v, stride, piece.count, v_dim, i16_v(layer, piece.block, h), piece.t);
  }
}

void write_piece(const KvWriteArgs& args, const KvRun& run, std::int64_t i, std::int64_t count) {
  const KvLayer& layer = args.layer;
  const std::int64_t position = run.first_position + i;
  const Piece piece{layer, run.blocks[position / kBlockTokens], position % kBlockTokens, count};
  for (std::int64_t h = 0; h < layer.kv_heads; ++h) {
    const std::int64_t row = (run.first_row + i) * layer.kv_heads + h;
    write_k_side(piece, h, args.k + row * layer.k_dim);
    write_v_side(piece, h, args.v + row * layer.v_dim);
  }
}

}  // namespace

void kv_write(Stream& stream, const KvWriteArgs& args) {
  const KvLayer& layer = args.layer;
  LODE_CHECK(layer.k_type != KvType::i16 || layer.k_dim <= kI16DimMax);
  LODE_CHECK(layer.v_type != KvType::i16 || layer.v_dim <= kI16DimMax);
  const std::int64_t width = kBlockTokens * layer.kv_heads * (layer.k_dim + layer.v_dim);
  for (const KvRun& run : args.runs) {
    if (run.count <= 0) continue;
    const std::int64_t first_block = run.first_position / kBlockTokens;
    const std::int64_t last_block = (run.first_position + run.count - 1) / kBlockTokens;
    for_rows(stream, last_block - first_block + 1, width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t b = first_block + begin; b < first_block + end; ++b) {
        const std::int64_t i = std::max<std::int64_t>(b * kBlockTokens - run.first_position, 0);
        const std::int64_t stop = std::min((b + 1) * kBlockTokens - run.first_position, run.count);
        write_piece(args, run, i, stop - i);
      }
    });
  }
}

}  // namespace lode::kernels::avx2
