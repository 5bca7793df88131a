// The llama family (llama 1 to 3, SmolLM2, Mistral): pre-norm attention with rotary pairs (2i, 2i+1), SwiGLU.
// One forward page; see model.h for who calls it.
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "model/blocks.h"
#include "model/config.h"
#include "model/families.h"
#include "model/rope.h"
#include "model/scratch.h"
#include "model/tensors.h"

namespace lode::model {
namespace {

using kernels::Acts;
using kernels::Matrix;

struct LlamaLayer {
  const float* attn_norm;  // [width]
  Matrix wq, wk, wv;       // [heads * k_dim, width], [kv_heads * k_dim, width], [kv_heads * v_dim, width]
  Matrix wo;               // [width, heads * v_dim]
  const float* ffn_norm;   // [width]
  DenseFfn ffn;
};

class Llama final : public Model {
 public:
  Status init(const LoadContext& context);
  std::uint64_t scratch_bytes(const StepLimits& limits) const override { return scratch_size(shape_, limits); }
  Status forward(kernels::Stream& s, const Batch& batch, KvView& kv, const StepLimits& limits, std::byte* scratch,
                 float* logits) const override;

 private:
  Config c_;
  TransformerShape shape_;
  Rope rope_;
  Ends ends_;
  std::vector<LlamaLayer> layers_;
};

Status Llama::init(const LoadContext& context) {
  const gguf::File& file = context.file;
  ConfigReader r(file, "llama");
  c_ = read_config(r, file);
  const RopeScaling scaling = read_rope_scaling(r, c_);
  LODE_RETURN_IF_ERROR(r.status());
  LODE_RETURN_IF_ERROR(refuse_experts(file, "llama"));

  TensorReader t(file, context.options.place);
  ends_ = read_ends(t, c_);
  const RopeFactors factors = read_rope_factors(t, scaling, c_.rope_dims);
  for (std::int64_t i = 0; i < c_.layers && t.status().ok(); ++i) {
    LlamaLayer l{};
    const auto name = [&](std::string_view part) { return layer_tensor(i, part); };
    l.attn_norm = t.vector(name("attn_norm"), c_.width);
    l.wq = t.matrix(name("attn_q"), c_.heads * c_.k_dim, c_.width);
    l.wk = t.matrix(name("attn_k"), c_.kv_heads * c_.k_dim, c_.width);
    l.wv = t.matrix(name("attn_v"), c_.kv_heads * c_.v_dim, c_.width);
    l.wo = t.matrix(name("attn_output"), c_.width, c_.heads * c_.v_dim);
    l.ffn_norm = t.vector(name("ffn_norm"), c_.width);
    l.ffn = read_dense_ffn(t, i, c_.width, c_.ffn, "");
    layers_.push_back(l);
  }
  LODE_RETURN_IF_ERROR(t.finish(c_.layers));

  rope_ = make_rope(c_.rope_dims, c_.rope_base, scaling, factors, context.options.context);
  rope_id_ = "llama:" + describe(rope_);
  shape_ = {c_.width, c_.heads, c_.kv_heads, c_.k_dim, c_.v_dim, c_.ffn, rope_.pairs(), 1};
  CacheGroup full{CacheGroup::Kind::full, 0, {}};
  for (std::int64_t i = 0; i < c_.layers; ++i) full.layers.push_back(cache_layer(i, c_));
  groups_ = {full};
  fill_facts(facts_, c_);
  return Status::success();
}

Status Llama::forward(kernels::Stream& s, const Batch& batch, KvView& kv, const StepLimits& limits, std::byte* scratch,
                      float* logits) const {
  const kernels::Table& k = *s.ops;
  const std::int64_t n = static_cast<std::int64_t>(batch.ids.size()),
                     m = static_cast<std::int64_t>(batch.output_rows.size());
  Cutter cut(scratch);
  TransformerScratch b = cut_scratch(cut, shape_, limits);
  const std::int64_t q_width = c_.heads * c_.k_dim, k_width = c_.kv_heads * c_.k_dim, v_width = c_.kv_heads * c_.v_dim;
  const float attn_scale = 1.0f / std::sqrt(static_cast<float>(c_.k_dim));
  Acts acts;

  k.embed(s, ends_.token_embd, batch.ids.data(), n, 1.0f, b.x);
  k.rope_table(s, batch.positions.data(), n, rope_.inv_freq.data(), rope_.pairs(), rope_.attn_factor, b.cos_sin[0]);

  for (std::uint32_t i = 0; i < c_.layers; ++i) {
    const LlamaLayer& l = layers_[i];
    // Attention.
    k.rms_norm(s, b.x, l.attn_norm, c_.eps, n, c_.width, b.h);
    kernels::acts_bind(acts, b.h, n, c_.width, b.acts_room);
    kernels::matmul(s, {{&l.wq, b.q, q_width}, {&l.wk, b.k, k_width}, {&l.wv, b.v, v_width}}, acts);
    k.rope(s, b.q, n, c_.heads, c_.k_dim, rope_.pairs(), kernels::RopeStyle::normal, b.cos_sin[0]);
    k.rope(s, b.k, n, c_.kv_heads, c_.k_dim, rope_.pairs(), kernels::RopeStyle::normal, b.cos_sin[0]);
    LODE_RETURN_IF_ERROR(kv.wait(LayerIndex{i}));
    k.kv_write(s, {b.k, b.v, kv.layer(LayerIndex{i}), kv.runs(LayerIndex{i})});
    if (i + 1 == c_.layers && m == 0) return Status::success();  // Nobody reads what follows.
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
    run_dense_ffn(s, l.ffn, acts, {b.gate, b.up, b.h, b.acts_room});
    k.add(s, b.x, b.h, n * c_.width);
  }

  run_logits(s, ends_, c_, batch, b.x, b, logits);
  return Status::success();
}

}  // namespace

Result<std::unique_ptr<Model>> load_llama(const LoadContext& context) {
  auto model = std::make_unique<Llama>();
  LODE_RETURN_IF_ERROR(model->init(context));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace lode::model
