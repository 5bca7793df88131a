// causal_conv, l2_norm, delta_gates and delta_net with AVX2: lanes over channels and over the value dim, so that every
// sum keeps its order. Bit for bit the generic ones. Owns nothing. Step thread only.
#include "kernels/cpu/generic/recurrent.h"

#include "base/status.h"
#include "kernels/cpu/avx2/math.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {
namespace {

// The state's columns as four registers a key: first decayed and read, then written and read again.
void delta_token(float* tile, std::int64_t k_dim, const float* q, const float* k, const float* v, float decay,
                 float beta, float* out) {
  const __m256 d = _mm256_set1_ps(decay), b = _mm256_set1_ps(beta);
  __m256 seen[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  for (std::int64_t i = 0; i < k_dim; ++i) {
    const __m256 key = _mm256_broadcast_ss(k + i);
    float* s = tile + i * kDeltaTile;
    for (int j = 0; j < 4; ++j) {
      const __m256 faded = _mm256_mul_ps(_mm256_loadu_ps(s + 8 * j), d);
      _mm256_storeu_ps(s + 8 * j, faded);
      seen[j] = _mm256_fmadd_ps(key, faded, seen[j]);
    }
  }
  __m256 delta[4], sum[4];
  for (int j = 0; j < 4; ++j) {
    delta[j] = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(v + 8 * j), seen[j]), b);
    sum[j] = _mm256_setzero_ps();
  }
  for (std::int64_t i = 0; i < k_dim; ++i) {
    const __m256 key = _mm256_broadcast_ss(k + i), query = _mm256_broadcast_ss(q + i);
    float* s = tile + i * kDeltaTile;
    for (int j = 0; j < 4; ++j) {
      const __m256 next = _mm256_fmadd_ps(key, delta[j], _mm256_loadu_ps(s + 8 * j));
      _mm256_storeu_ps(s + 8 * j, next);
      sum[j] = _mm256_fmadd_ps(query, next, sum[j]);
    }
  }
  for (int j = 0; j < 4; ++j) _mm256_storeu_ps(out + 8 * j, sum[j]);
}

void delta_tile(const DeltaNetArgs& a, const DeltaTask& task) {
  const std::int64_t key_head = task.head % a.k_heads;
  float ragged_v[kDeltaTile] = {}, ragged_out[kDeltaTile];
  const bool whole = task.width == kDeltaTile;
  load_tile(a, task);
  for (std::int64_t t = 0; t < task.run->count; ++t) {
    const std::int64_t row = task.run->first_row + t, at = row * a.v_heads + task.head;
    const float* v = a.v + row * a.stride + task.head * a.v_dim + task.column;
    float* out = a.out + at * a.v_dim + task.column;
    if (!whole) copy_floats(ragged_v, v, task.width);
    delta_token(task.tile, a.k_dim, a.q + row * a.stride + key_head * a.k_dim,
                a.k + row * a.stride + key_head * a.k_dim, whole ? v : ragged_v, a.decay[at], a.beta[at],
                whole ? out : ragged_out);
    if (!whole) copy_floats(out, ragged_out, task.width);
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
      for (std::int64_t c = begin; c < end; c += 8) {
        const __m256i mask = first_lanes(end - c < 8 ? end - c : 8);
        __m256 sum = _mm256_setzero_ps();
        for (std::int64_t tap = 0; tap < a.taps; ++tap) {
          const __m256 x = in[tap] == nullptr ? _mm256_setzero_ps() : _mm256_maskload_ps(in[tap] + c, mask);
          sum = _mm256_fmadd_ps(_mm256_maskload_ps(a.weights + tap * a.channels + c, mask), x, sum);
        }
        _mm256_maskstore_ps(out + c, mask, silu<Lanes>(sum));
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
        const float root = _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(sum_of_squares(x, a.dim) + a.eps)));
        const __m256 factor = _mm256_set1_ps(a.scale / root);
        for (std::int64_t i = 0; i < a.dim; i += 8) {
          const __m256i mask = first_lanes(a.dim - i < 8 ? a.dim - i : 8);
          _mm256_maskstore_ps(x + i, mask, _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), factor));
        }
      }
    }
  });
}

void delta_gates(Stream& stream, const DeltaGatesArgs& a) {
  for_rows(stream, a.n, a.heads * 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* alpha = a.alpha + r * a.heads;
      float* beta = a.beta + r * a.heads;
      for (std::int64_t h = 0; h < a.heads; h += 8) {
        const __m256i mask = first_lanes(a.heads - h < 8 ? a.heads - h : 8);
        const __m256 x = _mm256_add_ps(_mm256_maskload_ps(alpha + h, mask), _mm256_maskload_ps(a.dt_bias + h, mask));
        const __m256 log_decay = _mm256_mul_ps(_mm256_maskload_ps(a.a + h, mask), softplus<Lanes>(x));
        _mm256_maskstore_ps(alpha + h, mask, exp<Lanes>(log_decay));
        _mm256_maskstore_ps(beta + h, mask, sigmoid<Lanes>(_mm256_maskload_ps(beta + h, mask)));
      }
    }
  });
}

void delta_net(Stream& stream, const DeltaNetArgs& a) {
  LODE_CHECK(a.k_dim <= kDeltaKeyDimMax && a.v_heads % a.k_heads == 0);
  LODE_CHECK(static_cast<std::size_t>(a.k_dim * kDeltaTile) * sizeof(float) <= stream.scratch_bytes_per_thread);
  for_delta_tiles(stream, a, [&](const DeltaTask& task) { delta_tile(a, task); });
}

}  // namespace lode::kernels::avx2
