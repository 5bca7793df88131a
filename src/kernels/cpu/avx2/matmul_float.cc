// Products with float weights: 16 virtual lanes over k in two registers, one fma a lane and step, then halves are
// added. Tiles of 2 rows x 3 tokens keep 12 sums in registers.
#include <algorithm>

#include "kernels/cpu/avx2/formats.h"
#include "kernels/cpu/avx2/matmul.h"

namespace lode::kernels::avx2 {
namespace {

using quant::DType;

struct F32 {
  static constexpr std::int64_t kBytes = 4;
  static __m256 load8(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr std::int64_t kBytes = 2;
  static __m256 load8(const std::byte* p) { return _mm256_cvtph_ps(load128(p)); }
};
struct BF16 {
  static constexpr std::int64_t kBytes = 2;
  static __m256 load8(const std::byte* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
  }
};

inline float reduce(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

template <typename W, int kRows, int kTokens>
void tile(const RowsTask& task, std::int64_t row, std::int64_t token) {
  const Acts& x = *task.x;
  const std::int64_t bytes = x.cols * W::kBytes, whole = x.cols / 16 * 16;
  const std::byte* w = task.w->data + row * bytes;
  const float* a = x.x + token * x.cols;
  __m256 acc[kRows][kTokens][2];
  for (auto& r : acc)
    for (auto& t : r) t[0] = t[1] = _mm256_setzero_ps();
  const auto step = [&](const std::byte* const* ws, const float* const* as) {
    for (int h = 0; h < 2; ++h) {
      __m256 wv[kRows];
      for (int r = 0; r < kRows; ++r) wv[r] = W::load8(ws[r] + 8 * h * W::kBytes);
      for (int t = 0; t < kTokens; ++t) {
        const __m256 av = _mm256_loadu_ps(as[t] + 8 * h);
        for (int r = 0; r < kRows; ++r) acc[r][t][h] = _mm256_fmadd_ps(wv[r], av, acc[r][t][h]);
      }
    }
  };
  const std::byte* ws[kRows];
  const float* as[kTokens];
  for (std::int64_t k = 0; k < whole; k += 16) {
    for (int r = 0; r < kRows; ++r) ws[r] = w + r * bytes + k * W::kBytes;
    for (int t = 0; t < kTokens; ++t) as[t] = a + t * x.cols + k;
    step(ws, as);
  }
  if (whole < x.cols) {  // The row is padded with zeros to a multiple of 16.
    std::byte w_tail[kRows][16 * W::kBytes] = {};
    float a_tail[kTokens][16] = {};
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(w_tail[r], w + r * bytes + whole * W::kBytes, static_cast<std::size_t>((x.cols - whole) * W::kBytes));
      ws[r] = w_tail[r];
    }
    for (int t = 0; t < kTokens; ++t) {
      std::copy(a + t * x.cols + whole, a + (t + 1) * x.cols, a_tail[t]);
      as[t] = a_tail[t];
    }
    step(ws, as);
  }
  for (int t = 0; t < kTokens; ++t)
    for (int r = 0; r < kRows; ++r) task.y[(token + t) * task.y_stride + row + r] = reduce(acc[r][t][0], acc[r][t][1]);
}

template <typename W, int kRows>
void tokens(const RowsTask& task, std::int64_t row) {
  std::int64_t t = 0;
  for (; t + 3 <= task.x->n; t += 3) tile<W, kRows, 3>(task, row, t);
  if (task.x->n - t == 2) tile<W, kRows, 2>(task, row, t);
  if (task.x->n - t == 1) tile<W, kRows, 1>(task, row, t);
}

template <typename W>
void float_rows(const RowsTask& task) {
  std::int64_t r = task.first;
  if (task.x->n == 1)
    for (; r + 4 <= task.end; r += 4) tile<W, 4, 1>(task, r, 0);
  for (; r + 2 <= task.end; r += 2) tokens<W, 2>(task, r);
  if (r < task.end) tokens<W, 1>(task, r);
}

}  // namespace

RowsFn float_function(DType type) {
  switch (type) {
    case DType::f32: return float_rows<F32>;
    case DType::f16: return float_rows<F16>;
    case DType::bf16: return float_rows<BF16>;
    default: return nullptr;
  }
}

}  // namespace lode::kernels::avx2
