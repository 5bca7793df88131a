// Norms, rope, activations and other functions of single rows in 512 bits, as templates over the vector type. Bit for
// bit the generic ones. Ragged ends are masked, never read or written. Owns nothing. For elementwise.cc and tests.
#pragma once

#include "kernels/cpu/generic/elementwise.h"
#include "kernels/cpu/generic/math.h"

namespace lode::kernels::avx512 {

static inline std::int64_t up_to_16(std::int64_t left) {
  return left < 16 ? left : 16;
}

template <typename V>
static float sum_of_squares(const float* x, std::int64_t width) {
  typename V::F sum = V::zero();
  std::int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const typename V::F a = V::load(x + i);
    sum = V::fma(a, a, sum);
  }
  if (i < width) {  // The absent lanes add 0 * 0 to sums of squares: a no-op.
    const typename V::F a = V::load_first(x + i, width - i);
    sum = V::fma(a, a, sum);
  }
  return V::tree_sum(sum);
}

template <typename V>
static void scale_row(const float* x, const float* weight, float inverse, std::int64_t width, float* out) {
  const typename V::F s = V::set(inverse);
  for (std::int64_t i = 0; i < width; i += 16) {
    const std::int64_t count = up_to_16(width - i);
    typename V::F y = V::mul(V::load_first(x + i, count), s);
    if (weight != nullptr) y = V::mul(y, V::load_first(weight + i, count));
    V::store_first(out + i, count, y);
  }
}

template <typename V>
static void rms_norm(Stream& stream, const float* x, const float* weight, float eps, std::int64_t rows,
                     std::int64_t width, float* out) {
  for_rows(stream, rows, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = x + r * width;
      const float mean = sum_of_squares<V>(in, width) / static_cast<float>(width);
      scale_row<V>(in, weight, 1.0f / __builtin_sqrtf(mean + eps), width, out + r * width);
    }
  });
}

template <typename V>
static void add_into(float* y, const float* x, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) V::store(y + i, V::add(V::load(y + i), V::load(x + i)));
  if (i < count)
    V::store_first(y + i, count - i, V::add(V::load_first(y + i, count - i), V::load_first(x + i, count - i)));
}

template <typename V>
static void add(Stream& stream, float* y, const float* x, std::int64_t count) {
  for_pieces(stream, count, kElementGrain,
             [&](std::int64_t begin, std::int64_t end) { add_into<V>(y + begin, x + begin, end - begin); });
}

template <typename V>
static void add_bias(Stream& stream, float* y, const float* bias, std::int64_t n, std::int64_t width) {
  for_rows(stream, n, width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) add_into<V>(y + r * width, bias, width);
  });
}

template <typename V>
static void softcap(Stream& stream, float* x, float cap, std::int64_t count) {
  for_pieces(stream, count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    const typename V::F c = V::set(cap);
    for (std::int64_t i = begin; i < end; i += 16) {
      const std::int64_t lanes = up_to_16(end - i);
      V::store_first(x + i, lanes, capped<V>(V::load_first(x + i, lanes), c));
    }
  });
}

template <typename V, typename Act>
static void glu_piece(const float* gate, const float* up, float* out, std::int64_t count, const Act& act) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const std::int64_t lanes = up_to_16(count - i);
    V::store_first(out + i, lanes, V::mul(act(V::load_first(gate + i, lanes)), V::load_first(up + i, lanes)));
  }
}

// Whether this table has code for an activation.
static inline bool activates(Activation activation) {
  return activation == Activation::silu || activation == Activation::gelu_tanh || activation == Activation::sigmoid;
}

// `other` serves the activations that activates() denies.
template <typename V>
static void glu(Stream& stream, Activation activation, const float* gate, const float* up, float* out,
                std::int64_t count,
                void (*other)(Stream&, Activation, const float*, const float*, float*, std::int64_t)) {
  if (!activates(activation)) return other(stream, activation, gate, up, out, count);
  for_pieces(stream, count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    const auto piece = [&](const auto& act) { glu_piece<V>(gate + begin, up + begin, out + begin, end - begin, act); };
    if (activation == Activation::silu) piece([](typename V::F x) { return silu<V>(x); });
    if (activation == Activation::gelu_tanh) piece([](typename V::F x) { return gelu_tanh<V>(x); });
    if (activation == Activation::sigmoid) piece([](typename V::F x) { return sigmoid<V>(x); });
  });
}

// Pairs (i, i + pairs).
template <typename V>
static void rotate_neox(float* head, std::int64_t pairs, const float* cos_sin) {
  for (std::int64_t i = 0; i < pairs; i += 16) {
    const std::int64_t count = up_to_16(pairs - i), low = up_to_16(2 * count), high = 2 * count - low;
    // (cos, sin) of 16 pairs: 16 floats, then the rest.
    const typename V::F first = V::load_first(cos_sin + 2 * i, low);
    const typename V::F second = high > 0 ? V::load_first(cos_sin + 2 * i + 16, high) : V::zero();
    const typename V::F c = V::all_evens(first, second), s = V::all_odds(first, second);
    const typename V::F a = V::load_first(head + i, count), b = V::load_first(head + pairs + i, count);
    V::store_first(head + i, count, V::fms(a, c, V::mul(b, s)));
    V::store_first(head + pairs + i, count, V::fma(a, s, V::mul(b, c)));
  }
}

// Pairs (2i, 2i + 1).
template <typename V>
static void rotate_normal(float* head, std::int64_t pairs, const float* cos_sin) {
  for (std::int64_t i = 0; i < 2 * pairs; i += 16) {
    const std::int64_t count = up_to_16(2 * pairs - i);
    const typename V::F x = V::load_first(head + i, count), cs = V::load_first(cos_sin + i, count);
    // Even lanes a cos - b sin, odd lanes a sin + b cos.
    const typename V::F crossed = V::mul(V::odds(x), V::swap_pairs(cs));
    V::store_first(head + i, count, V::fma_alt(V::evens(x), cs, crossed));
  }
}

template <typename V>
static void rope(Stream& stream, float* x, std::int64_t n, std::int64_t heads, std::int64_t dim, std::int64_t pairs,
                 RopeStyle style, const float* cos_sin) {
  for_rows(stream, n, heads * dim, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        float* head = x + (r * heads + h) * dim;
        const float* cs = cos_sin + r * pairs * 2;
        if (style == RopeStyle::normal) {
          rotate_normal<V>(head, pairs, cs);
        } else {
          rotate_neox<V>(head, pairs, cs);
        }
      }
    }
  });
}

}  // namespace lode::kernels::avx512
