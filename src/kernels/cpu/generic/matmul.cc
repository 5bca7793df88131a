// Products in scalar code: what docs/numerics.md says, in the order it says it. Every other table must give these bits.
#include <cmath>
#include <cstring>

#include "kernels/cpu/acts.h"
#include "kernels/cpu/generic/quantize.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/split.h"
#include "quant/blocks.h"

namespace lode::kernels::generic {
namespace {

using quant::f16_to_f32;

// A group of 32 weights: value = d * w + m.
struct Group32 {
  std::int8_t w[32];
  float d, m;
};
// A group of 256 weights in sub-blocks of 256 / subs values: value = d * scale * w - dmin * min.
struct Group256 {
  std::int8_t w[256];
  std::int32_t scale[16];
  std::int32_t min[8];  // Of 32 values each; zeros where the format has none.
  float d, dmin;
};

void nibbles(const std::uint8_t* qs, int offset, std::int8_t* w) {
  for (int i = 0; i < 16; ++i) {
    w[i] = static_cast<std::int8_t>((qs[i] & 15) - offset);
    w[i + 16] = static_cast<std::int8_t>((qs[i] >> 4) - offset);
  }
}
void add_fifth_bits(const std::uint8_t* qh, std::int8_t* w) {
  for (int i = 0; i < 32; ++i) w[i] = static_cast<std::int8_t>(w[i] + (((qh[i / 8] >> (i % 8)) & 1) << 4));
}

void unpack(const quant::BlockQ4_0& b, Group32& g) {
  nibbles(b.qs, 8, g.w);
  g.d = f16_to_f32(b.d);
}
void unpack(const quant::BlockQ4_1& b, Group32& g) {
  nibbles(b.qs, 0, g.w);
  g.d = f16_to_f32(b.d);
  g.m = f16_to_f32(b.m);
}
void unpack(const quant::BlockQ5_0& b, Group32& g) {
  nibbles(b.qs, 16, g.w);
  add_fifth_bits(b.qh, g.w);
  g.d = f16_to_f32(b.d);
}
void unpack(const quant::BlockQ5_1& b, Group32& g) {
  nibbles(b.qs, 0, g.w);
  add_fifth_bits(b.qh, g.w);
  g.d = f16_to_f32(b.d);
  g.m = f16_to_f32(b.m);
}
void unpack(const quant::BlockQ8_0& b, Group32& g) {
  std::memcpy(g.w, b.qs, 32);
  g.d = f16_to_f32(b.d);
}

template <typename Block>
void unpack_k45(const Block& b, Group256& g) {
  std::uint8_t sc[16];
  quant::unpack_scales_k4(b.scales, sc);
  for (int j = 0; j < 16; ++j) g.scale[j] = sc[j / 2];
  for (int j = 0; j < 8; ++j) g.min[j] = sc[8 + j];
  for (int k = 0; k < 256; ++k)
    g.w[k] = static_cast<std::int8_t>((b.qs[32 * (k / 64) + k % 32] >> (4 * ((k / 32) % 2))) & 15);
  g.d = f16_to_f32(b.d);
  g.dmin = f16_to_f32(b.dmin);
}
void unpack(const quant::BlockQ4_K& b, Group256& g) {
  unpack_k45(b, g);
}
void unpack(const quant::BlockQ5_K& b, Group256& g) {
  unpack_k45(b, g);
  for (int k = 0; k < 256; ++k) g.w[k] = static_cast<std::int8_t>(g.w[k] | (((b.qh[k % 32] >> (k / 32)) & 1) << 4));
}
void unpack(const quant::BlockQ6_K& b, Group256& g) {
  for (int k = 0; k < 256; ++k) {
    const int half = k / 128, part = (k / 32) % 4, i = k % 32;
    const int low = (b.ql[64 * half + 32 * (part % 2) + i] >> (4 * (part / 2))) & 15;
    const int high = (b.qh[32 * half + i] >> (2 * part)) & 3;
    g.w[k] = static_cast<std::int8_t>((low | (high << 4)) - 32);
  }
  for (int j = 0; j < 16; ++j) g.scale[j] = b.scales[j];
  g.d = f16_to_f32(b.d);
}

std::int32_t dot(const std::int8_t* w, const std::int8_t* q, int count) {
  std::int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += w[i] * q[i];
  return sum;
}

// One row of a g32 format against all tokens: y[t * stride].
template <typename Block, bool kMin>
void row_g32(const std::byte* row, const Acts& x, float* y, std::int64_t stride) {
  const std::int64_t groups = x.cols / 32;
  for (std::int64_t t = 0; t < x.n; ++t) y[t * stride] = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    Block block;
    std::memcpy(&block, row + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    Group32 g;
    unpack(block, g);
    for (std::int64_t t = 0; t < x.n; ++t) {
      const std::int64_t at = t * groups + i;
      const std::int32_t sum = dot(g.w, x.q32 + t * x.cols + 32 * i, 32);
      float acc = std::fma(static_cast<float>(sum), g.d * x.d32[at], y[t * stride]);
      if (kMin) acc = std::fma(g.m, x.t32[at], acc);
      y[t * stride] = acc;
    }
  }
}

template <typename Block, bool kMin>
void row_g256(const std::byte* row, const Acts& x, float* y, std::int64_t stride) {
  const std::int64_t groups = x.cols / 256;
  for (std::int64_t t = 0; t < x.n; ++t) y[t * stride] = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    Block block;
    std::memcpy(&block, row + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
    Group256 g;
    unpack(block, g);
    for (std::int64_t t = 0; t < x.n; ++t) {
      const std::int8_t* q = x.q256 + t * x.cols + 256 * i;
      std::int32_t sum = 0;
      for (int j = 0; j < 16; ++j) sum += g.scale[j] * dot(g.w + 16 * j, q + 16 * j, 16);
      const float scale = x.d256[t * groups + i];
      float acc = std::fma(static_cast<float>(sum), g.d * scale, y[t * stride]);
      if (kMin) {
        std::int32_t min_sum = 0;
        for (int j = 0; j < 8; ++j) min_sum += g.min[j] * x.u256[t * (x.cols / 32) + 8 * i + j];
        acc = std::fma(-static_cast<float>(min_sum), g.dmin * scale, acc);
      }
      y[t * stride] = acc;
    }
  }
}

float load(const float* w, std::int64_t k) {
  return w[k];
}
struct Half {
  std::uint16_t bits;
};
float load(const Half* w, std::int64_t k) {
  return f16_to_f32(w[k].bits);
}
struct Brain {
  std::uint16_t bits;
};
float load(const Brain* w, std::int64_t k) {
  return quant::bf16_to_f32(w[k].bits);
}

// 16 lanes over k, the row padded with zeros to a multiple of 16, then halves are added: 16, 8, 4, 2, 1.
template <typename Weight>
void row_float(const std::byte* row, const Acts& x, float* y, std::int64_t stride) {
  const Weight* w = reinterpret_cast<const Weight*>(row);
  for (std::int64_t t = 0; t < x.n; ++t) {
    float lane[16] = {};
    for (std::int64_t k = 0; k < (x.cols + 15) / 16 * 16; ++k) {
      const float a = k < x.cols ? load(w, k) : 0.0f, b = k < x.cols ? x.x[t * x.cols + k] : 0.0f;
      lane[k % 16] = std::fma(a, b, lane[k % 16]);
    }
    for (int half = 8; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    y[t * stride] = lane[0];
  }
}

using RowFn = void (*)(const std::byte* row, const Acts& x, float* y, std::int64_t stride);

RowFn row_function(quant::DType type) {
  using quant::DType;
  switch (type) {
    case DType::f32: return row_float<float>;
    case DType::f16: return row_float<Half>;
    case DType::bf16: return row_float<Brain>;
    case DType::q4_0: return row_g32<quant::BlockQ4_0, false>;
    case DType::q4_1: return row_g32<quant::BlockQ4_1, true>;
    case DType::q5_0: return row_g32<quant::BlockQ5_0, false>;
    case DType::q5_1: return row_g32<quant::BlockQ5_1, true>;
    case DType::q8_0: return row_g32<quant::BlockQ8_0, false>;
    case DType::q4_k: return row_g256<quant::BlockQ4_K, true>;
    case DType::q5_k: return row_g256<quant::BlockQ5_K, true>;
    case DType::q6_k: return row_g256<quant::BlockQ6_K, false>;
    default: break;
  }
  LODE_CHECK(!"matmul of a type that is not computable");
  return nullptr;
}

}  // namespace

void matmul(Stream& stream, std::span<const MatmulJob> jobs, Acts& x) {
  ensure_acts(stream, x, jobs, {quantize_row_g32, quantize_row_g256});
  split_rows(stream, jobs, x.n, 1, [&](const MatmulJob& job, std::int64_t first, std::int64_t end, int) {
    const RowFn fn = row_function(job.w->type);
    const std::int64_t bytes = quant::row_bytes(job.w->type, job.w->cols);
    for (std::int64_t r = first; r < end; ++r) fn(job.w->data + r * bytes, x, job.y + r, job.y_stride);
  });
}

}  // namespace lode::kernels::generic
