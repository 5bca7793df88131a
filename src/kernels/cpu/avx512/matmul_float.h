// Products with float weights: the 16 virtual lanes over k are one register, one fma a lane and step, then halves are
// added. Tiles of 4 rows x 6 tokens keep 24 sums in registers. Templates over the vector type. Owns nothing.
#pragma once

#include "kernels/cpu/avx512/formats.h"
#include "quant/types.h"

namespace lode::kernels::avx512 {

template <typename V>
struct WeightF32 {
  using T = float;
  static typename V::F load(const T* p) { return V::load(p); }
  static typename V::F load_first(const T* p, std::int64_t count) { return V::load_first(p, count); }
};
template <typename V>
struct WeightF16 {
  using T = std::uint16_t;
  static typename V::F load(const T* p) { return V::load_half(p); }
  static typename V::F load_first(const T* p, std::int64_t count) { return V::load_half_first(p, count); }
};
template <typename V>
struct WeightBF16 {
  using T = std::uint16_t;
  static typename V::F load(const T* p) { return V::load_brain(p); }
  static typename V::F load_first(const T* p, std::int64_t count) { return V::load_brain_first(p, count); }
};

template <typename V, typename W, int kRows, int kTokens>
static void float_tile(const RowsTask& task, std::int64_t row, std::int64_t token) {
  const Acts& x = *task.x;
  const std::int64_t whole = x.cols / 16 * 16;
  const auto* w = reinterpret_cast<const typename W::T*>(task.w->data) + row * x.cols;
  const float* a = x.x + token * x.cols;
  typename V::F acc[kRows][kTokens];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) acc[r][t] = V::zero();
  }
  const auto step = [&](const auto& load_w, const auto& load_a) {
    typename V::F wv[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) wv[r] = load_w(r);
#pragma GCC unroll 6
    for (int t = 0; t < kTokens; ++t) {
      const typename V::F av = load_a(t);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) acc[r][t] = V::fma(wv[r], av, acc[r][t]);
    }
  };
  for (std::int64_t k = 0; k < whole; k += 16)
    step([&](int r) { return W::load(w + r * x.cols + k); }, [&](int t) { return V::load(a + t * x.cols + k); });
  // The row is padded with zeros to a multiple of 16.
  if (const std::int64_t left = x.cols - whole; left > 0)
    step([&](int r) { return W::load_first(w + r * x.cols + whole, left); },
         [&](int t) { return V::load_first(a + t * x.cols + whole, left); });
#pragma GCC unroll 6
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) task.y[(token + t) * task.y_stride + row + r] = V::tree_sum(acc[r][t]);
  }
}

template <typename V, typename W, int kRows>
static void float_tokens(const RowsTask& task, std::int64_t row) {
  const std::int64_t n = task.x->n;
  std::int64_t t = 0;
  for (; t + 6 <= n; t += 6) float_tile<V, W, kRows, 6>(task, row, t);
  for (; t + 2 <= n; t += 2) float_tile<V, W, kRows, 2>(task, row, t);
  if (t < n) float_tile<V, W, kRows, 1>(task, row, t);
}

template <typename V, typename W>
static void float_rows(const RowsTask& task) {
  std::int64_t r = task.first;
  for (; r + 4 <= task.end; r += 4) float_tokens<V, W, 4>(task, r);
  for (; r < task.end; ++r) float_tokens<V, W, 1>(task, r);
}

}  // namespace lode::kernels::avx512
