// causal_conv, l2_norm, delta_gates and delta_net in plain C++: the reference that every instruction set equals bit for
// bit. Owns nothing. Step thread only.
#include "kernels/cpu/generic/recurrent.h"

#include <cmath>

#include "base/status.h"
#include "kernels/cpu/generic/math.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {
namespace {

// Value i into lane i % 16, ascending; then the tree (docs/numerics.md, "Sums of floats").
float sum_of_squares(const float* x, std::int64_t count) {
  float lane[16] = {};
  for (std::int64_t i = 0; i < count; ++i) lane[i % 16] = std::fma(x[i], x[i], lane[i % 16]);
  for (int step = 8; step >= 1; step /= 2) {
    for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
  }
  return lane[0];
}

void delta_tile(const DeltaNetArgs& a, const DeltaTask& task) {
  const std::int64_t key_head = task.head % a.k_heads;
  load_tile(a, task);
  for (std::int64_t t = 0; t < task.run->count; ++t) {
    const std::int64_t row = task.run->first_row + t;
    const float* q = a.q + row * a.stride + key_head * a.k_dim;
    const float* k = a.k + row * a.stride + key_head * a.k_dim;
    const float* v = a.v + row * a.stride + task.head * a.v_dim + task.column;
    float* out = a.out + (row * a.v_heads + task.head) * a.v_dim + task.column;
    const float decay = a.decay[row * a.v_heads + task.head], beta = a.beta[row * a.v_heads + task.head];
    for (std::int64_t j = 0; j < task.width; ++j) {
      float* s = task.tile + j;
      float seen = 0;
      for (std::int64_t i = 0; i < a.k_dim; ++i) {
        s[i * kDeltaTile] = s[i * kDeltaTile] * decay;
        seen = std::fma(k[i], s[i * kDeltaTile], seen);
      }
      const float delta = (v[j] - seen) * beta;
      float sum = 0;
      for (std::int64_t i = 0; i < a.k_dim; ++i) {
        s[i * kDeltaTile] = std::fma(k[i], delta, s[i * kDeltaTile]);
        sum = std::fma(q[i], s[i * kDeltaTile], sum);
      }
      out[j] = sum;
    }
  }
  store_tile(a, task);
}

}  // namespace

void causal_conv(Stream& stream, const CausalConvArgs& a) {
  LODE_CHECK(a.taps >= 1 && a.taps <= kConvTapsMax);
  for_channels(stream, a, [&](const StateRun& run, std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < run.count; ++t) {
      const float* in[kConvTapsMax];  // [taps]
      for (std::int64_t tap = 0; tap < a.taps; ++tap) in[tap] = conv_input(a, run, t, tap);
      float* out = a.out + (run.first_row + t) * a.channels;
      for (std::int64_t c = begin; c < end; ++c) {
        float sum = 0;
        for (std::int64_t tap = 0; tap < a.taps; ++tap) {
          sum = std::fma(a.weights[tap * a.channels + c], in[tap] == nullptr ? 0.0f : in[tap][c], sum);
        }
        out[c] = silu<Lane>(sum);
      }
    }
    keep_conv_inputs(a, run, begin, end);
  });
}

void l2_norm(Stream& stream, const L2NormArgs& a) {
  for_rows(stream, a.n, a.heads * a.dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t h = 0; h < a.heads; ++h) {
        float* x = a.x + r * a.stride + h * a.dim;
        const float factor = a.scale / std::sqrt(sum_of_squares(x, a.dim) + a.eps);
        for (std::int64_t i = 0; i < a.dim; ++i) x[i] *= factor;
      }
    }
  });
}

void delta_gates(Stream& stream, const DeltaGatesArgs& a) {
  for_rows(stream, a.n, a.heads * 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* alpha = a.alpha + r * a.heads;
      float* beta = a.beta + r * a.heads;
      for (std::int64_t h = 0; h < a.heads; ++h) {
        alpha[h] = exp<Lane>(a.a[h] * softplus<Lane>(alpha[h] + a.dt_bias[h]));
        beta[h] = sigmoid<Lane>(beta[h]);
      }
    }
  });
}

void delta_net(Stream& stream, const DeltaNetArgs& a) {
  LODE_CHECK(a.k_dim <= kDeltaKeyDimMax && a.v_heads % a.k_heads == 0);
  LODE_CHECK(static_cast<std::size_t>(a.k_dim * kDeltaTile) * sizeof(float) <= stream.scratch_bytes_per_thread);
  for_delta_tiles(stream, a, [&](const DeltaTask& task) { delta_tile(a, task); });
}

}  // namespace lode::kernels::generic
