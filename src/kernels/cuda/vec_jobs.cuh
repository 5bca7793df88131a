// A few products that share their activations, as one launch's argument. For matvec*.cu.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.cuh"

namespace lode::kernels::cuda {

inline constexpr int kVecJobs = 4;
struct VecJobs {
  const std::uint8_t* w[kVecJobs];
  float* y[kVecJobs];
  long long stride[kVecJobs];
  int rows[kVecJobs];
  int start[kVecJobs + 1];  // First unit (`unit` rows) of each job.
  int count, cols;
  int n;  // Rows of activations; a kernel for more computes the last one again and drops it.
};

// The jobs with rows cut into units; y shifted to activation row `first`.
inline VecJobs vec_jobs(std::span<const MatmulJob> jobs, std::int64_t first, std::int64_t n, int unit) {
  VecJobs v{};
  v.count = static_cast<int>(jobs.size());
  v.cols = static_cast<int>(jobs[0].w->cols);
  v.n = static_cast<int>(n);
  for (int i = 0; i < v.count; ++i) {
    const MatmulJob& job = jobs[static_cast<std::size_t>(i)];
    v.w[i] = reinterpret_cast<const std::uint8_t*>(job.w->data);
    v.y[i] = job.y + first * job.y_stride;
    v.stride[i] = job.y_stride;
    v.rows[i] = static_cast<int>(job.w->rows);
    v.start[i + 1] = v.start[i] + (v.rows[i] + unit - 1) / unit;
  }
  for (int i = v.count; i < kVecJobs; ++i) v.start[i + 1] = v.start[i];
  return v;
}

// The job that holds a unit.
__device__ __forceinline__ int job_of(const VecJobs& v, int unit) {
  return (unit >= v.start[1]) + (unit >= v.start[2]) + (unit >= v.start[3]);
}

}  // namespace lode::kernels::cuda
