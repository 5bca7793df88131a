// Products in scalar code: what docs/numerics.md says, in the order it says it. Every other table must give these bits.
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/acts.h"
#include "kernels/cpu/generic/quantize.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/split.h"
#include "quant/unpack.h"

namespace lode::kernels::generic {
namespace {

using quant::f16_to_f32;

std::int32_t dot(const std::int8_t* w, const std::int8_t* q, int count) {
  std::int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += w[i] * q[i];
  return sum;
}

template <typename Block>
Block block_at(const std::byte* row, std::int64_t i) {
  Block block;
  std::memcpy(&block, row + i * static_cast<std::int64_t>(sizeof(Block)), sizeof(Block));
  return block;
}

// One row of a g32 format against all tokens: y[t * stride].
template <typename Block>
void row_g32(const std::byte* row, const Acts& x, float* y, std::int64_t stride) {
  // NVFP4 has a scale for 16 values: its groups are half as long.
  constexpr bool kHalves = std::is_same_v<Block, quant::BlockNVFP4>;
  const std::int64_t groups = x.cols / 32;
  for (std::int64_t t = 0; t < x.n; ++t) y[t * stride] = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    quant::Group32 g;
    unpack(block_at<Block>(row, i / quant::kParts<Block>), static_cast<int>(i % quant::kParts<Block>), g);
    for (std::int64_t t = 0; t < x.n; ++t) {
      const std::int64_t at = t * groups + i;
      const std::int8_t* q = x.q32 + t * x.cols + 32 * i;
      float acc = y[t * stride];
      if (kHalves) {
        for (int h = 0; h < 2; ++h)
          acc = std::fma(static_cast<float>(dot(g.w + 16 * h, q + 16 * h, 16)), g.d[h] * x.d32[at], acc);
      } else {
        acc = std::fma(static_cast<float>(dot(g.w, q, 32)), g.d[0] * x.d32[at], acc);
      }
      if (quant::kHasMin<Block>) acc = std::fma(g.m, x.t32[at], acc);
      y[t * stride] = acc;
    }
  }
}

template <typename Block>
void row_g256(const std::byte* row, const Acts& x, float* y, std::int64_t stride) {
  const std::int64_t groups = x.cols / 256;
  for (std::int64_t t = 0; t < x.n; ++t) y[t * stride] = 0;
  for (std::int64_t i = 0; i < groups; ++i) {
    quant::Group256 g;
    unpack(block_at<Block>(row, i), g);
    for (std::int64_t t = 0; t < x.n; ++t) {
      const std::int8_t* q = x.q256 + t * x.cols + 256 * i;
      std::int32_t sum = 0;
      for (int j = 0; j < 16; ++j) sum += g.scale[j] * dot(g.w + 16 * j, q + 16 * j, 16);
      const float scale = x.d256[t * groups + i];
      float acc = std::fma(static_cast<float>(sum), g.d * scale, y[t * stride]);
      if (quant::kHasMin<Block>) {
        std::int32_t min_sum = 0;
        for (int j = 0; j < 16; ++j) min_sum += g.min[j] * x.s256[t * (x.cols / 16) + 16 * i + j];
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
    case DType::q4_0: return row_g32<quant::BlockQ4_0>;
    case DType::q4_1: return row_g32<quant::BlockQ4_1>;
    case DType::q5_0: return row_g32<quant::BlockQ5_0>;
    case DType::q5_1: return row_g32<quant::BlockQ5_1>;
    case DType::q8_0: return row_g32<quant::BlockQ8_0>;
    case DType::iq4_nl: return row_g32<quant::BlockIQ4_NL>;
    case DType::mxfp4: return row_g32<quant::BlockMXFP4>;
    case DType::nvfp4: return row_g32<quant::BlockNVFP4>;
    case DType::q1_0: return row_g32<quant::BlockQ1_0>;
    case DType::q2_0: return row_g32<quant::BlockQ2_0>;
    case DType::q2_k: return row_g256<quant::BlockQ2_K>;
    case DType::q3_k: return row_g256<quant::BlockQ3_K>;
    case DType::q4_k: return row_g256<quant::BlockQ4_K>;
    case DType::q5_k: return row_g256<quant::BlockQ5_K>;
    case DType::q6_k: return row_g256<quant::BlockQ6_K>;
    case DType::tq1_0: return row_g256<quant::BlockTQ1_0>;
    case DType::tq2_0: return row_g256<quant::BlockTQ2_0>;
    case DType::iq4_xs: return row_g256<quant::BlockIQ4_XS>;
    case DType::iq3_s: return row_g256<quant::BlockIQ3_S>;
    case DType::iq3_xxs: return row_g256<quant::BlockIQ3_XXS>;
    case DType::iq2_xxs: return row_g256<quant::BlockIQ2_XXS>;
    case DType::iq2_xs: return row_g256<quant::BlockIQ2_XS>;
    case DType::iq2_s: return row_g256<quant::BlockIQ2_S>;
    case DType::iq1_s: return row_g256<quant::BlockIQ1_S>;
    case DType::iq1_m: return row_g256<quant::BlockIQ1_M>;
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
