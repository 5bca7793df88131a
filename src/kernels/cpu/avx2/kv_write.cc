// kv_write with AVX2 and F16C: K is transposed 8 tokens by 8 dims at a time. Bit for bit the generic one (NaN payloads
// aside). Owns nothing. Step thread only.
#include <algorithm>

#include "base/status.h"
#include "kernels/cpu/avx2/math.h"
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

void transpose8(__m256 (&r)[8]) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
    b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xEE);
    b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
    b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
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

// Tokens [i, i + count) of a run, all in one block.
void write_piece(const KvWriteArgs& args, const KvRun& run, std::int64_t i, std::int64_t count) {
  const KvLayer& layer = args.layer;
  const std::int64_t position = run.first_position + i, t = position % kBlockTokens;
  const std::int64_t k_dim = layer.k_dim, v_dim = layer.v_dim;
  std::byte* block = run.blocks[position / kBlockTokens];
  for (std::int64_t h = 0; h < layer.kv_heads; ++h) {
    const float* k = args.k + ((run.first_row + i) * layer.kv_heads + h) * k_dim;
    const float* v = args.v + ((run.first_row + i) * layer.kv_heads + h) * v_dim;
    const std::int64_t k_at = h * k_dim * kBlockTokens + t, v_at = (h * kBlockTokens + t) * v_dim;
    if (layer.k_type == KvType::f16) {
      write_k(k, layer.kv_heads * k_dim, count, k_dim, reinterpret_cast<Half*>(block + layer.k_offset) + k_at);
    } else {
      write_k(k, layer.kv_heads * k_dim, count, k_dim, reinterpret_cast<float*>(block + layer.k_offset) + k_at);
    }
    if (layer.v_type == KvType::f16) {
      write_v(v, layer.kv_heads * v_dim, count, v_dim, reinterpret_cast<Half*>(block + layer.v_offset) + v_at);
    } else {
      write_v(v, layer.kv_heads * v_dim, count, v_dim, reinterpret_cast<float*>(block + layer.v_offset) + v_at);
    }
  }
}

}  // namespace

void kv_write(Stream& stream, const KvWriteArgs& args) {
  const KvLayer& layer = args.layer;
  LODE_CHECK(layer.k_type != KvType::q8_0 && layer.v_type != KvType::q8_0);
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
