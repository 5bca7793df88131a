#include "kernels/cpu/ops.h"

namespace lode::kernels::generic {

const Table kTable = {
    .name = "generic",
    .numerics_id = "cpu-1",
    .embed = generic::embed,
    .matmul = matmul,
    .rms_norm = generic::rms_norm,
    .add = generic::add,
    .add_bias = generic::add_bias,
    .rope_table = generic::rope_table,
    .rope = generic::rope,
    .glu = generic::glu,
    .kv_write = generic::kv_write,
    .attention = generic::attention,
    .gather_rows = generic::gather_rows,
    .softcap = generic::softcap,
    .split_pairs = generic::split_pairs,
    .causal_conv = generic::causal_conv,
    .l2_norm = generic::l2_norm,
    .delta_gates = generic::delta_gates,
    .delta_net = generic::delta_net,
    .route = generic::route,
    .combine_experts = generic::combine_experts,
    .add_gated = generic::add_gated,
};

}  // namespace lode::kernels::generic
