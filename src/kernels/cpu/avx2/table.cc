#include "kernels/cpu/ops.h"

namespace lode::kernels::avx2 {

const Table kTable = {
    .name = "avx2",
    .numerics_id = "cpu-1",
    .packs = packs,
    .embed = generic::embed,
    .matmul = matmul,
    .rms_norm = rms_norm,
    .add = add,
    .add_bias = add_bias,
    .rope_table = rope_table,
    .rope = rope,
    .glu = glu,
    .kv_write = kv_write,
    .attention = attention,
    .gather_rows = gather_rows,
    .softcap = softcap,
    .split_pairs = generic::split_pairs,
    .causal_conv = causal_conv,
    .l2_norm = l2_norm,
    .delta_gates = delta_gates,
    .delta_net = delta_net,
    .route = route,
    .combine_experts = combine_experts,
    .add_gated = add_gated,
};

}  // namespace lode::kernels::avx2
