// The table "cuda". Recurrent layers and mixtures of experts have no kernels here yet: Model::load refuses such models
// for a device, and a call that comes all the same is an error of the step, never a crash.
#include "kernels/cuda/ops.h"

namespace lode::kernels::cuda {
namespace {

void missing(Stream& s, const char* what) {
  device_of(s).fail(Status::unsupported(std::string(what) + ": no GPU kernel yet; run this model on the CPU"));
}

}  // namespace

Table make_table(std::string_view numerics_id) {
  return {
      .name = "cuda",
      .numerics_id = numerics_id,
      .embed = embed,
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
      .split_pairs = [](Stream& s, const float*, std::int64_t, std::int64_t, float*,
                        float*) { missing(s, "split_pairs"); },
      .causal_conv = [](Stream& s, const CausalConvArgs&) { missing(s, "causal_conv"); },
      .l2_norm = [](Stream& s, const L2NormArgs&) { missing(s, "l2_norm"); },
      .delta_gates = [](Stream& s, const DeltaGatesArgs&) { missing(s, "delta_gates"); },
      .delta_net = [](Stream& s, const DeltaNetArgs&) { missing(s, "delta_net"); },
      .route = [](Stream& s, const RouteArgs&) { missing(s, "route"); },
      .combine_experts = [](Stream& s, const CombineArgs&) { missing(s, "combine_experts"); },
      .add_gated = [](Stream& s, float*, const float*, const float*, std::int64_t,
                      std::int64_t) { missing(s, "add_gated"); },
  };
}

}  // namespace lode::kernels::cuda
