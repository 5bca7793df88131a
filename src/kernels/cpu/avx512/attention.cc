#include "kernels/cpu/avx512/attention.h"

#include "kernels/cpu/avx512/ops.h"
#include "kernels/cpu/avx512/zmm.h"
#include "kernels/cpu/ops.h"

namespace lode::kernels::avx512 {

void attention(Stream& stream, const AttentionArgs& args) {
  attention<Zmm>(stream, args, avx2::attention);
}

}  // namespace lode::kernels::avx512
