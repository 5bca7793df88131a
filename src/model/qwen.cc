// The qwen2, qwen3 and qwen3moe families: pre-norm attention with rotary pairs (i, i + dims/2), SwiGLU. qwen2 has
// biases on Q, K and V; qwen3 norms Q and K per head instead; qwen3moe has routed experts for its feed-forward half.
// One forward page; see model.h for who calls it.
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "model/blocks.h"
#include "model/config.h"
#include "model/experts.h"
#include "model/families.h"
#include "model/rope.h"
#include "model/scratch.h"
#include "model/tensors.h"

namespace lode::model {
namespace {

using kernels::Acts;
using kernels::Matrix;

struct QwenLayer {
  const float* attn_norm;        // [width]
  Matrix wq, wk, wv;             // [heads * k_dim, width], [kv_heads * k_dim, width], [kv_heads * v_dim, width]
  const float *bq, *bk, *bv;     // As long as wq, wk, wv have rows; nullptr: none.
  const float *q_norm, *k_norm;  // [k_dim]; nullptr: none.
  Matrix wo;                     // [width, heads * v_dim]
  const float* ffn_norm;         // [width]
  DenseFfn ffn;                  // Dense families.
  ExpertFfn experts;             // Mixtures of experts.
};

class Qwen final : public Model {
 public:
  Status init(const LoadContext& context);
  std::uint64_t scratch_bytes(const StepLimits& limits) const override {
    Cutter count(nullptr);
    cut_all(count, limits);
    return count.used();
  }
  Status forward(kernels::Stream& s, const Batch& batch, KvView& kv, const StepLimits& limits, std::byte* scratch,
                 float* logits) const override;

 private:
  struct Scratch {
    TransformerScratch t;
    ExpertScratch e;
  };
  Status read_layers(TensorReader& t, std::string_view architecture);
  NextRouter next_router(std::uint32_t layer, const float* x) const {
    if (layer + 1 >= layers_.size()) return {};
    const QwenLayer& next = layers_[layer + 1];
    return {&next.experts, next.ffn_norm, c_.eps, x};
  }
  Scratch cut_all(Cutter& cut, const StepLimits& limits) const {
    Scratch b{cut_scratch(cut, shape_, limits), {}};
    if (moe_) b.e = cut_expert_scratch(cut, limits.rows, c_.width, expert_config_);
    return b;
  }

  Config c_;
  bool moe_ = false;
  ExpertConfig expert_config_;
  TransformerShape shape_;
  Rope rope_;
  Ends ends_;
  std::vector<QwenLayer> layers_;
};

Status Qwen::init(const LoadContext& context) {
  const gguf::File& file = context.file;
  const std::string architecture(context.architecture);
  moe_ = architecture == "qwen3moe";
  ConfigReader r(file, architecture);
  c_ = read_config(r, file, moe_ ? FfnKey::optional : FfnKey::required);
  if (moe_) expert_config_ = read_expert_config(r, c_);
  const RopeScaling scaling = read_rope_scaling(r, c_);
  LODE_RETURN_IF_ERROR(r.status());
  if (!moe_) LODE_RETURN_IF_ERROR(refuse_experts(file, architecture));

  TensorReader t(file, context.options.place);
  ends_ = read_ends(t, c_);
  ends_.output_bias = t.optional_vector("output.bias", c_.vocab);
  const RopeFactors factors = read_rope_factors(t, scaling, c_.rope_dims);
  LODE_RETURN_IF_ERROR(read_layers(t, architecture));
  LODE_RETURN_IF_ERROR(t.finish(c_.layers));

  rope_ = make_rope(c_.rope_dims, c_.rope_base, scaling, factors, context.options.context);
  rope_id_ = architecture + ":" + describe(rope_);
  shape_ = {c_.width, c_.heads, c_.kv_heads, c_.k_dim, c_.v_dim, moe_ ? 0 : c_.ffn, rope_.pairs(), 1};
  CacheGroup full{CacheGroup::Kind::full, 0, {}};
  for (std::int64_t i = 0; i < c_.layers; ++i) full.layers.push_back(cache_layer(i, c_));
  groups_ = {full};
  fill_facts(facts_, c_);
  if (moe_) fill_expert_facts(facts_, expert_config_, experts_);
  return Status::success();
}

Status Qwen::read_layers(TensorReader& t, std::string_view architecture) {
  const std::int64_t q_rows = c_.heads * c_.k_dim, k_rows = c_.kv_heads * c_.k_dim, v_rows = c_.kv_heads * c_.v_dim;
  for (std::int64_t i = 0; i < c_.layers && t.status().ok(); ++i) {
    QwenLayer l{};
    const auto name = [&](std::string_view part) { return layer_tensor(i, part); };
    l.attn_norm = t.vector(name("attn_norm"), c_.width);
    l.wq = t.matrix(name("attn_q"), q_rows, c_.width);
    l.wk = t.matrix(name("attn_k"), k_rows, c_.width);
    l.wv = t.matrix(name("attn_v"), v_rows, c_.width);
    if (architecture == "qwen2") {
      l.bq = t.vector(layer_bias(i, "attn_q"), q_rows);
      l.bk = t.vector(layer_bias(i, "attn_k"), k_rows);
      l.bv = t.vector(layer_bias(i, "attn_v"), v_rows);
    } else {
      l.q_norm = t.vector(name("attn_q_norm"), c_.k_dim);
      l.k_norm = t.vector(name("attn_k_norm"), c_.k_dim);
    }
    l.wo = t.matrix(name("attn_output"), c_.width, c_.heads * c_.v_dim);
    l.ffn_norm = t.vector(name("ffn_norm"), c_.width);
    if (moe_) {
      const LayerIndex layer{static_cast<std::uint32_t>(i)};
      l.experts = {layer, t.matrix(name("ffn_gate_inp"), expert_config_.count, c_.width), expert_config_};
      experts_.push_back({layer, read_experts(t, i, c_.width, expert_config_)});
    } else {
      l.ffn = read_dense_ffn(t, i, c_.width, c_.ffn, "");
    }
    layers_.push_back(l);
  }
  return t.status();
}

Status Qwen::forward(kernels::Stream& s, const Batch& batch, KvView& kv, const StepLimits& limits, std::byte* scratch,
                     float* logits) const {
  const kernels::Table& k = *s.ops;
  const std::int64_t n = static_cast<std::int64_t>(batch.ids.size());
  Cutter cut(scratch);
  const Scratch cuts = cut_all(cut, limits);
  const TransformerScratch& b = cuts.t;
  const std::int64_t q_width = c_.heads * c_.k_dim, k_width = c_.kv_heads * c_.k_dim, v_width = c_.kv_heads * c_.v_dim;
  const float attn_scale = 1.0f / std::sqrt(static_cast<float>(c_.k_dim));
  MappedExperts mapped(experts_, {cuts.e.room, static_cast<std::size_t>(expert_config_.count)});
  ExpertSource& source = batch.experts ? *batch.experts : mapped;
  Acts acts;

  k.embed(s, ends_.token_embd, batch.ids.data(), n, 1.0f, b.x);
  k.rope_table(s, batch.positions.data(), n, rope_.inv_freq.data(), rope_.pairs(), rope_.attn_factor, b.cos_sin[0]);

  for (std::uint32_t i = 0; i < c_.layers; ++i) {
    const QwenLayer& l = layers_[i];
    // Attention.
    k.rms_norm(s, b.x, l.attn_norm, c_.eps, n, c_.width, b.h);
    kernels::acts_bind(acts, b.h, n, c_.width, b.acts_room);
    kernels::matmul(s, {{&l.wq, b.q, q_width}, {&l.wk, b.k, k_width}, {&l.wv, b.v, v_width}}, acts);
    if (l.bq) {
      k.add_bias(s, b.q, l.bq, n, q_width);
      k.add_bias(s, b.k, l.bk, n, k_width);
      k.add_bias(s, b.v, l.bv, n, v_width);
    }
    if (l.q_norm) {
      k.rms_norm(s, b.q, l.q_norm, c_.eps, n * c_.heads, c_.k_dim, b.q);
      k.rms_norm(s, b.k, l.k_norm, c_.eps, n * c_.kv_heads, c_.k_dim, b.k);
    }
    k.rope(s, b.q, n, c_.heads, c_.k_dim, rope_.pairs(), kernels::RopeStyle::neox, b.cos_sin[0]);
    k.rope(s, b.k, n, c_.kv_heads, c_.k_dim, rope_.pairs(), kernels::RopeStyle::neox, b.cos_sin[0]);
    LODE_RETURN_IF_ERROR(kv.wait(LayerIndex{i}));
    k.kv_write(s, {b.k, b.v, kv.layer(LayerIndex{i}), kv.runs(LayerIndex{i})});
    if (i + 1 == c_.layers && batch.output_rows.empty()) return Status::success();  // Nobody reads what follows.
    k.attention(s, {.q = b.q,
                    .out = b.att,
                    .heads = static_cast<std::int32_t>(c_.heads),
                    .scale = attn_scale,
                    .layer = kv.layer(LayerIndex{i}),
                    .runs = kv.runs(LayerIndex{i}),
                    .span_room = b.span_room,
                    .span_room_floats = b.span_room_floats});
    kernels::acts_bind(acts, b.att, n, c_.heads * c_.v_dim, b.acts_room);
    kernels::matmul(s, {{&l.wo, b.h, c_.width}}, acts);
    k.add(s, b.x, b.h, n * c_.width);
    // Feed forward.
    k.rms_norm(s, b.x, l.ffn_norm, c_.eps, n, c_.width, b.h);
    kernels::acts_bind(acts, b.h, n, c_.width, b.acts_room);
    if (moe_) LODE_RETURN_IF_ERROR(run_experts(s, l.experts, acts, source, cuts.e, b.h, next_router(i, b.x)));
    else run_dense_ffn(s, l.ffn, acts, {b.gate, b.up, b.h, b.acts_room});
    k.add(s, b.x, b.h, n * c_.width);
  }
  run_logits(s, ends_, c_, batch, b.x, b, logits);
  return Status::success();
}

}  // namespace

Result<std::unique_ptr<Model>> load_qwen(const LoadContext& context) {
  auto model = std::make_unique<Qwen>();
  LODE_RETURN_IF_ERROR(model->init(context));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace lode::model
