// The qwen35 and qwen35moe families (Qwen3.5, after Qwen3-Next): most layers keep a recurrent state (gated delta net),
// one in full_attention_interval attends to everything, with a gate on its output and rotation of a part of each head.
// qwen35moe has routed experts and a gated shared expert. Sources: Yang et al. 2024 (gated delta rule), Qwen3-Next's
// published modelling code; text positions only, where the sections of M-RoPE are plain rope.
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

// A layer with full attention. Q and the gate of the output come out of one matrix: [heads, {q, gate}, k_dim] rows.
struct FullAttention {
  Matrix wq, wk, wv;             // [heads * 2 * k_dim, width], [kv_heads * k_dim, width], [kv_heads * v_dim, width]
  const float *q_norm, *k_norm;  // [k_dim]
  Matrix wo;                     // [width, heads * v_dim]
};

// A layer with a recurrent state: [taps - 1, channels] inputs of the convolution, then [v_heads, k_dim, v_dim].
struct DeltaAttention {
  Matrix wqkv, wz;           // [channels, width], [inner, width]
  Matrix walpha, wbeta;      // [v_heads, width]
  std::vector<float> conv;   // [taps, channels]; the file has [channels, taps].
  const float *dt_bias, *a;  // [v_heads]
  const float* norm;         // [v_dim]
  Matrix wo;                 // [width, inner]
};

struct Qwen35Layer {
  const float* attn_norm;  // [width]
  bool full = false;
  FullAttention attention;
  DeltaAttention delta;
  const float* ffn_norm;  // [width]
  DenseFfn ffn;           // The dense half, or the shared expert.
  Matrix shared_gate;     // [1, width]; data is nullptr: no shared expert.
  ExpertFfn experts;
};

// Buffers of both kinds of layers, beside the transformer's own.
struct DeltaScratch {
  float* q_and_gate;       // [n, heads, 2, k_dim]
  float* gate;             // [n, heads, k_dim]
  float *qkv, *mixed;      // [n, channels] before and after the convolution
  float *z, *out;          // [n, inner]
  float *alpha, *beta;     // [n, v_heads]
  float* shared_gate;      // [n]
  float* shared;           // [n, width] the shared expert's output
  std::byte* shared_room;  // acts_bytes(n, shared_ffn)
};

class Qwen35 final : public Model {
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
    DeltaScratch d;
    ExpertScratch e;
  };
  Status read_layers(TensorReader& t);
  FullAttention read_attention(TensorReader& t, std::int64_t layer) const;
  DeltaAttention read_delta(TensorReader& t, std::int64_t layer) const;
  void declare_groups();
  Scratch cut_all(Cutter& cut, const StepLimits& limits) const;

  // The two halves of a layer: from the activations of the normed input to b.t.h [n, width].
  Status attend(kernels::Stream& s, std::uint32_t i, const Batch& batch, Acts& acts, KvView& kv,
                const Scratch& b) const;
  Status recur(kernels::Stream& s, std::uint32_t i, Acts& acts, KvView& kv, const Scratch& b) const;
  Status feed_forward(kernels::Stream& s, std::uint32_t i, Acts& acts, ExpertSource& source, const Scratch& b) const;

  Config c_;
  DeltaConfig d_;
  bool moe_ = false;
  ExpertConfig expert_config_;
  std::int64_t shared_ffn_ = 0;
  TransformerShape shape_;
  Rope rope_;
  Ends ends_;
  std::vector<Qwen35Layer> layers_;
};

Status Qwen35::init(const LoadContext& context) {
  const gguf::File& file = context.file;
  const std::string architecture(context.architecture);
  moe_ = architecture == "qwen35moe";
  ConfigReader r(file, architecture);
  c_ = read_config(r, file, moe_ ? FfnKey::optional : FfnKey::required);
  d_ = read_delta_config(r);
  if (moe_) {
    expert_config_ = read_expert_config(r, c_);
    shared_ffn_ = r.optional("expert_shared_feed_forward_length", expert_config_.ffn, 1, 1 << 22);
  }
  const RopeScaling scaling = read_rope_scaling(r, c_);
  if (r.status().ok() && c_.k_dim != c_.v_dim)
    r.fail(Status::unsupported(fmt::format("{}: {} has a gate as wide as its queries, {}, on values of {}",
                                           file.path().string(), architecture, c_.k_dim, c_.v_dim)));
  LODE_RETURN_IF_ERROR(r.status());
  if (!moe_) LODE_RETURN_IF_ERROR(refuse_experts(file, architecture));

  TensorReader t(file, context.options.place);
  ends_ = read_ends(t, c_);
  ends_.output_bias = t.optional_vector("output.bias", c_.vocab);
  const RopeFactors factors = read_rope_factors(t, scaling, c_.rope_dims);
  LODE_RETURN_IF_ERROR(read_layers(t));
  LODE_RETURN_IF_ERROR(t.finish(c_.layers));

  rope_ = make_rope(c_.rope_dims, c_.rope_base, scaling, factors, context.options.context);
  rope_id_ = architecture + ":" + describe(rope_);
  shape_ = {c_.width, c_.heads, c_.kv_heads, c_.k_dim, c_.v_dim, moe_ ? shared_ffn_ : c_.ffn, rope_.pairs(), 1};
  shape_.widest_input = d_.inner();
  declare_groups();
  fill_facts(facts_, c_);
  facts_.cols_max = std::max({facts_.cols_max, d_.inner(), shared_ffn_});
  if (moe_) fill_expert_facts(facts_, expert_config_, experts_);
  return Status::success();
}

Status Qwen35::read_layers(TensorReader& t) {
  for (std::int64_t i = 0; i < c_.layers && t.status().ok(); ++i) {
    Qwen35Layer l{};
    const auto name = [&](std::string_view part) { return layer_tensor(i, part); };
    l.full = (i + 1) % d_.interval == 0;
    l.attn_norm = t.vector(name("attn_norm"), c_.width);
    if (l.full) l.attention = read_attention(t, i);
    else l.delta = read_delta(t, i);
    l.ffn_norm = t.vector(name("post_attention_norm"), c_.width);
    if (moe_) {
      const LayerIndex layer{static_cast<std::uint32_t>(i)};
      l.experts = {layer, t.matrix(name("ffn_gate_inp"), expert_config_.count, c_.width), expert_config_};
      experts_.push_back({layer, read_experts(t, i, c_.width, expert_config_)});
      l.ffn = read_dense_ffn(t, i, c_.width, shared_ffn_, "_shexp");
      l.shared_gate = t.row(name("ffn_gate_inp_shexp"), c_.width);
    } else {
      l.ffn = read_dense_ffn(t, i, c_.width, c_.ffn, "");
    }
    layers_.push_back(std::move(l));
  }
  return t.status();
}

FullAttention Qwen35::read_attention(TensorReader& t, std::int64_t layer) const {
  const auto name = [&](std::string_view part) { return layer_tensor(layer, part); };
  return {.wq = t.matrix(name("attn_q"), c_.heads * 2 * c_.k_dim, c_.width),
          .wk = t.matrix(name("attn_k"), c_.kv_heads * c_.k_dim, c_.width),
          .wv = t.matrix(name("attn_v"), c_.kv_heads * c_.v_dim, c_.width),
          .q_norm = t.vector(name("attn_q_norm"), c_.k_dim),
          .k_norm = t.vector(name("attn_k_norm"), c_.k_dim),
          .wo = t.matrix(name("attn_output"), c_.width, c_.heads * c_.v_dim)};
}

DeltaAttention Qwen35::read_delta(TensorReader& t, std::int64_t layer) const {
  const auto name = [&](std::string_view part) { return layer_tensor(layer, part); };
  DeltaAttention d{.wqkv = t.matrix(name("attn_qkv"), d_.channels(), c_.width),
                   .wz = t.matrix(name("attn_gate"), d_.inner(), c_.width),
                   .walpha = t.matrix(name("ssm_alpha"), d_.v_heads, c_.width),
                   .wbeta = t.matrix(name("ssm_beta"), d_.v_heads, c_.width),
                   .conv = {},
                   .dt_bias = t.vector(layer_bias(layer, "ssm_dt"), d_.v_heads),
                   .a = t.vector(fmt::format("blk.{}.ssm_a", layer), d_.v_heads),
                   .norm = t.vector(name("ssm_norm"), d_.v_dim),
                   .wo = t.matrix(name("ssm_out"), c_.width, d_.inner())};
  // One tap's weights of all channels side by side, as the kernel's lanes want them.
  const Matrix conv = t.matrix(name("ssm_conv1d"), d_.channels(), d_.taps);
  if (conv.rows == 0 || conv.data == nullptr) return d;
  d.conv.resize(static_cast<std::size_t>(d_.taps * d_.channels()));
  std::vector<float> row(static_cast<std::size_t>(d_.taps));
  const std::int64_t bytes = quant::row_bytes(conv.type, d_.taps);
  for (std::int64_t c = 0; c < d_.channels(); ++c) {
    quant::dequantize_row(conv.type, conv.data + c * bytes, row.data(), d_.taps);
    for (std::int64_t tap = 0; tap < d_.taps; ++tap)
      d.conv[static_cast<std::size_t>(tap * d_.channels() + c)] = row[static_cast<std::size_t>(tap)];
  }
  return d;
}

void Qwen35::declare_groups() {
  CacheGroup full{CacheGroup::Kind::full, 0, {}}, states{CacheGroup::Kind::checkpoint, 0, {}};
  const std::int64_t floats = (d_.taps - 1) * d_.channels() + d_.v_heads * d_.k_dim * d_.v_dim;
  for (std::int64_t i = 0; i < c_.layers; ++i) {
    if (layers_[static_cast<std::size_t>(i)].full) full.layers.push_back(cache_layer(i, c_));
    else states.layers.push_back({.layer = LayerIndex{static_cast<std::uint32_t>(i)}, .state_bytes = floats * 4});
  }
  if (!full.layers.empty()) groups_.push_back(full);
  if (!states.layers.empty()) groups_.push_back(states);
}

Qwen35::Scratch Qwen35::cut_all(Cutter& cut, const StepLimits& limits) const {
  const std::int64_t n = limits.rows;
  Scratch b{cut_scratch(cut, shape_, limits), {}, {}};
  b.d.q_and_gate = cut.take<float>(n * c_.heads * 2 * c_.k_dim);
  b.d.gate = cut.take<float>(n * c_.heads * c_.k_dim);
  b.d.qkv = cut.take<float>(n * d_.channels());
  b.d.mixed = cut.take<float>(n * d_.channels());
  b.d.z = cut.take<float>(n * d_.inner());
  b.d.out = cut.take<float>(n * d_.inner());
  b.d.alpha = cut.take<float>(n * d_.v_heads);
  b.d.beta = cut.take<float>(n * d_.v_heads);
  if (!moe_) return b;
  b.d.shared_gate = cut.take<float>(n);
  b.d.shared = cut.take<float>(n * c_.width);
  b.d.shared_room = cut.take<std::byte>(static_cast<std::int64_t>(kernels::acts_bytes(n, shared_ffn_)));
  b.e = cut_expert_scratch(cut, n, c_.width, expert_config_);
  return b;
}

Status Qwen35::forward(kernels::Stream& s, const Batch& batch, KvView& kv, const StepLimits& limits, std::byte* scratch,
                       float* logits) const {
  const kernels::Table& k = *s.ops;
  const std::int64_t n = static_cast<std::int64_t>(batch.ids.size());
  Cutter cut(scratch);
  const Scratch cuts = cut_all(cut, limits);
  const TransformerScratch& b = cuts.t;
  MappedExperts mapped(experts_, {cuts.e.room, static_cast<std::size_t>(expert_config_.count)});
  ExpertSource& source = batch.experts ? *batch.experts : mapped;
  Acts acts;

  k.embed(s, ends_.token_embd, batch.ids.data(), n, 1.0f, b.x);
  k.rope_table(s, batch.positions.data(), n, rope_.inv_freq.data(), rope_.pairs(), rope_.attn_factor, b.cos_sin[0]);

  for (std::uint32_t i = 0; i < c_.layers; ++i) {
    const Qwen35Layer& l = layers_[i];
    k.rms_norm(s, b.x, l.attn_norm, c_.eps, n, c_.width, b.h);
    kernels::acts_bind(acts, b.h, n, c_.width, b.acts_room);
    LODE_RETURN_IF_ERROR(l.full ? attend(s, i, batch, acts, kv, cuts) : recur(s, i, acts, kv, cuts));
    if (i + 1 == c_.layers && batch.output_rows.empty()) return Status::success();  // Nobody reads what follows.
    k.add(s, b.x, b.h, n * c_.width);

    k.rms_norm(s, b.x, l.ffn_norm, c_.eps, n, c_.width, b.h);
    kernels::acts_bind(acts, b.h, n, c_.width, b.acts_room);
    LODE_RETURN_IF_ERROR(feed_forward(s, i, acts, source, cuts));
    k.add(s, b.x, b.h, n * c_.width);
  }
  run_logits(s, ends_, c_, batch, b.x, b, logits);
  return Status::success();
}

Status Qwen35::attend(kernels::Stream& s, std::uint32_t i, const Batch& batch, Acts& acts, KvView& kv,
                      const Scratch& cuts) const {
  const kernels::Table& k = *s.ops;
  const FullAttention& w = layers_[i].attention;
  const TransformerScratch& b = cuts.t;
  const std::int64_t n = acts.n, q_width = c_.heads * c_.k_dim;
  const std::int64_t k_width = c_.kv_heads * c_.k_dim, v_width = c_.kv_heads * c_.v_dim;
  kernels::matmul(s, {{&w.wq, cuts.d.q_and_gate, 2 * q_width}, {&w.wk, b.k, k_width}, {&w.wv, b.v, v_width}}, acts);
  k.split_pairs(s, cuts.d.q_and_gate, n * c_.heads, c_.k_dim, b.q, cuts.d.gate);
  k.rms_norm(s, b.q, w.q_norm, c_.eps, n * c_.heads, c_.k_dim, b.q);
  k.rms_norm(s, b.k, w.k_norm, c_.eps, n * c_.kv_heads, c_.k_dim, b.k);
  k.rope(s, b.q, n, c_.heads, c_.k_dim, rope_.pairs(), kernels::RopeStyle::neox, b.cos_sin[0]);
  k.rope(s, b.k, n, c_.kv_heads, c_.k_dim, rope_.pairs(), kernels::RopeStyle::neox, b.cos_sin[0]);
  LODE_RETURN_IF_ERROR(kv.wait(LayerIndex{i}));
  k.kv_write(s, {b.k, b.v, kv.layer(LayerIndex{i}), kv.runs(LayerIndex{i})});
  if (i + 1 == c_.layers && batch.output_rows.empty()) return Status::success();  // Nobody reads what follows.
  k.attention(s, {.q = b.q,
                  .out = b.att,
                  .heads = static_cast<std::int32_t>(c_.heads),
                  .scale = 1.0f / std::sqrt(static_cast<float>(c_.k_dim)),
                  .layer = kv.layer(LayerIndex{i}),
                  .runs = kv.runs(LayerIndex{i}),
                  .span_room = b.span_room,
                  .span_room_floats = b.span_room_floats});
  k.glu(s, kernels::Activation::sigmoid, cuts.d.gate, b.att, b.att, n * q_width);
  kernels::acts_bind(acts, b.att, n, q_width, b.acts_room);
  kernels::matmul(s, {{&w.wo, b.h, c_.width}}, acts);
  return Status::success();
}

Status Qwen35::recur(kernels::Stream& s, std::uint32_t i, Acts& acts, KvView& kv, const Scratch& cuts) const {
  const kernels::Table& k = *s.ops;
  const DeltaAttention& w = layers_[i].delta;
  const DeltaScratch& b = cuts.d;
  const std::int64_t n = acts.n, channels = d_.channels(), keys = d_.k_heads * d_.k_dim;
  kernels::matmul(s,
                  {{&w.wqkv, b.qkv, channels},
                   {&w.wz, b.z, d_.inner()},
                   {&w.walpha, b.alpha, d_.v_heads},
                   {&w.wbeta, b.beta, d_.v_heads}},
                  acts);
  k.delta_gates(s, {b.alpha, b.beta, w.dt_bias, w.a, n, d_.v_heads});
  LODE_RETURN_IF_ERROR(kv.wait(LayerIndex{i}));
  const std::span<const kernels::StateRun> runs = kv.states(LayerIndex{i});
  k.causal_conv(s, {b.qkv, w.conv.data(), b.mixed, channels, d_.taps, runs, 0});
  // Q and K of length 1, Q divided by the root of its size as in attention.
  constexpr float kL2Eps = 1e-6f;  // Qwen3-Next's.
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(d_.k_dim));
  k.l2_norm(s, {b.mixed, n, channels, d_.k_heads, d_.k_dim, kL2Eps, q_scale});
  k.l2_norm(s, {b.mixed + keys, n, channels, d_.k_heads, d_.k_dim, kL2Eps, 1.0f});
  k.delta_net(s, {.q = b.mixed,
                  .k = b.mixed + keys,
                  .v = b.mixed + 2 * keys,
                  .decay = b.alpha,
                  .beta = b.beta,
                  .out = b.out,
                  .stride = channels,
                  .k_heads = d_.k_heads,
                  .v_heads = d_.v_heads,
                  .k_dim = d_.k_dim,
                  .v_dim = d_.v_dim,
                  .runs = runs,
                  .state_offset = (d_.taps - 1) * channels * 4});
  k.rms_norm(s, b.out, w.norm, c_.eps, n * d_.v_heads, d_.v_dim, b.out);
  k.glu(s, kernels::Activation::silu, b.z, b.out, b.out, n * d_.inner());
  kernels::acts_bind(acts, b.out, n, d_.inner(), cuts.t.acts_room);
  kernels::matmul(s, {{&w.wo, cuts.t.h, c_.width}}, acts);
  return Status::success();
}

Status Qwen35::feed_forward(kernels::Stream& s, std::uint32_t i, Acts& acts, ExpertSource& source,
                            const Scratch& cuts) const {
  const Qwen35Layer& l = layers_[i];
  const TransformerScratch& b = cuts.t;
  if (!moe_) {
    run_dense_ffn(s, l.ffn, acts, {b.gate, b.up, b.h, b.acts_room});
    return Status::success();
  }
  // The shared expert goes first: the routed ones' output may replace the input, which nobody needs after them.
  kernels::matmul(s, {{&l.shared_gate, cuts.d.shared_gate, 1}}, acts);
  run_dense_ffn(s, l.ffn, acts, {b.gate, b.up, cuts.d.shared, cuts.d.shared_room});
  NextRouter next;
  if (i + 1 < layers_.size()) next = {&layers_[i + 1].experts, layers_[i + 1].ffn_norm, c_.eps, b.x};
  LODE_RETURN_IF_ERROR(run_experts(s, l.experts, acts, source, cuts.e, b.h, next));
  s.ops->add_gated(s, b.h, cuts.d.shared, cuts.d.shared_gate, acts.n, c_.width);
  return Status::success();
}

}  // namespace

Result<std::unique_ptr<Model>> load_qwen35(const LoadContext& context) {
  auto model = std::make_unique<Qwen35>();
  LODE_RETURN_IF_ERROR(model->init(context));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace lode::model
