#include "kernels/cpu/avx512/matmul.h"

#include "kernels/cpu/avx2/quantize.h"
#include "kernels/cpu/avx512/ops.h"
#include "kernels/cpu/avx512/zmm.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx512 {

void matmul(Stream& stream, std::span<const MatmulJob> jobs, Acts& x) {
  matmul<Zmm>(stream, jobs, x, {avx2::matmul, {avx2::quantize_row_g32, avx2::quantize_row_g256}});
}

}  // namespace lode::kernels::avx512
