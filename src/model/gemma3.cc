// The gemma3 family: sliding-window layers beside full ones, norms before and after each half, QK norms, GeGLU.
// One forward page; see model.h for who calls it.
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "model/config.h"
#include "model/families.h"
#include "model/rope.h"
#include "model/scratch.h"
#include "model/tensors.h"

namespace lode::model {
namespace {

using kernels::Acts;
using kernels::Matrix;

struct GemmaLayer {
  bool local = false;            // A layer of short range: its own rope base and, where the file has one, the window.
  const float* attn_norm;        // [width]
  Matrix wq, wk, wv;             // [heads * k_dim, width], [kv_heads * k_dim, width], [kv_heads * v_dim, width]
  const float *q_norm, *k_norm;  // [k_dim]
  Matrix wo;                     // [width, heads * v_dim]
  const float* post_attn_norm;   // [width]
  const float* ffn_norm;         // [width]
  Matrix gate, up, down;         // [ffn, width], [ffn, width], [width, ffn]
  const float* post_ffn_norm;    // [width]
};

class Gemma3 final : public Model {
 public:
  Status init(const LoadContext& context);
  std::uint64_t scratch_bytes(const StepLimits& limits) const override { return scratch_size(shape_, limits); }
  Status forward(kernels::Stream& s, const Batch& batch, KvView& kv, const StepLimits& limits, std::byte* scratch,
                 float* logits) const override;

 private:
  Status read_layers(TensorReader& t);
  // Which layers are local: the file's array, every n-th, or (as Google ships them) all but every sixth.
  std::vector<bool> local_pattern(ConfigReader& r, const gguf::File& file) const;
  void declare_groups();

  Config c_;
  TransformerShape shape_;
  std::int64_t window_ = 0;  // Tokens that a local layer sees; 0: all.
  float attn_scale_ = 1, final_softcap_ = 0;
  Rope global_rope_, local_rope_;
  std::vector<bool> local_;
  Matrix token_embd_, output_;  // [vocab, width]
  const float* output_norm_ = nullptr;
  std::vector<GemmaLayer> layers_;
};

std::vector<bool> Gemma3::local_pattern(ConfigReader& r, const gguf::File& file) const {
  std::vector<bool> local(static_cast<std::size_t>(c_.layers), false);
  const gguf::Value* v = file.find(r.full("attention.sliding_window_pattern"));
  if (v && v->type == gguf::ValueType::array) {
    const auto flags = r.per_layer("attention.sliding_window_pattern", c_.layers, std::nullopt, 0, 1);
    for (std::size_t i = 0; i < local.size(); ++i) local[i] = flags[i] != 0;
    return local;
  }
  const std::int64_t period = r.optional("attention.sliding_window_pattern", 6, 1, 512);
  for (std::size_t i = 0; i < local.size(); ++i) local[i] = (static_cast<std::int64_t>(i) + 1) % period != 0;
  return local;
}

Status Gemma3::init(const LoadContext& context) {
  const gguf::File& file = context.file;
  ConfigReader r(file, "gemma3");
  c_ = read_config(r, file);
  // A window of 0, or none, means that every layer sees everything; local layers keep their rope.
  window_ = r.optional("attention.sliding_window", 0, 0, 1 << 30);
  local_ = local_pattern(r, file);
  const std::int64_t k_swa = r.optional("attention.key_length_swa", c_.k_dim, 1, 8192);
  const std::int64_t v_swa = r.optional("attention.value_length_swa", c_.v_dim, 1, 8192);
  const std::int64_t rope_swa = r.optional("rope.dimension_count_swa", c_.rope_dims, 2, 8192);
  if (r.status().ok() && (k_swa != c_.k_dim || v_swa != c_.v_dim || rope_swa != c_.rope_dims))
    r.fail(Status::unsupported(
        fmt::format("{}: windowed layers with head sizes of their own are not gemma3's", file.path().string())));
  const RopeScaling scaling = read_rope_scaling(r, c_);  // Of the global layers; local ones are not stretched.
  const double local_base = r.optional_float("rope.freq_base_swa", 10000, 1, 1e12);
  final_softcap_ = static_cast<float>(r.optional_float("final_logit_softcapping", 0, 0, 1e6));
  LODE_RETURN_IF_ERROR(r.status());

  // The 27B model (62 layers) scales by width / heads, all others by the head size.
  attn_scale_ = 1.0f / std::sqrt(static_cast<float>(c_.layers == 62 ? c_.width / c_.heads : c_.k_dim));

  TensorReader t(file, context.options.place);
  token_embd_ = t.matrix("token_embd.weight", c_.vocab, c_.width);
  output_norm_ = t.vector("output_norm.weight", c_.width);
  output_ = t.optional_matrix("output.weight", c_.vocab, c_.width);
  if (!output_.data) output_ = token_embd_;  // Tied.
  const RopeFactors factors = read_rope_factors(t, scaling, c_.rope_dims);
  LODE_RETURN_IF_ERROR(read_layers(t));
  LODE_RETURN_IF_ERROR(t.finish(c_.layers));
  global_rope_ = make_rope(c_.rope_dims, c_.rope_base, scaling, factors, context.options.context);
  local_rope_ = make_rope(c_.rope_dims, local_base, {}, {}, 0);
  rope_id_ = "gemma3:" + describe(global_rope_) + "|" + describe(local_rope_);

  shape_ = {c_.width, c_.heads, c_.kv_heads, c_.k_dim, c_.v_dim, c_.ffn, global_rope_.pairs(), 2};
  declare_groups();
  fill_facts(facts_, c_);
  return Status::success();
}

Status Gemma3::read_layers(TensorReader& t) {
  for (std::int64_t i = 0; i < c_.layers && t.status().ok(); ++i) {
    GemmaLayer l{};
    const auto name = [&](std::string_view part) { return layer_tensor(i, part); };
    l.local = local_[static_cast<std::size_t>(i)];
    l.attn_norm = t.vector(name("attn_norm"), c_.width);
    l.wq = t.matrix(name("attn_q"), c_.heads * c_.k_dim, c_.width);
    l.wk = t.matrix(name("attn_k"), c_.kv_heads * c_.k_dim, c_.width);
    l.wv = t.matrix(name("attn_v"), c_.kv_heads * c_.v_dim, c_.width);
    l.q_norm = t.vector(name("attn_q_norm"), c_.k_dim);
    l.k_norm = t.vector(name("attn_k_norm"), c_.k_dim);
    l.wo = t.matrix(name("attn_output"), c_.width, c_.heads * c_.v_dim);
    l.post_attn_norm = t.vector(name("post_attention_norm"), c_.width);
    l.ffn_norm = t.vector(name("ffn_norm"), c_.width);
    l.gate = t.matrix(name("ffn_gate"), c_.ffn, c_.width);
    l.up = t.matrix(name("ffn_up"), c_.ffn, c_.width);
    l.down = t.matrix(name("ffn_down"), c_.width, c_.ffn);
    l.post_ffn_norm = t.vector(name("post_ffw_norm"), c_.width);
    layers_.push_back(l);
  }
  return t.status();
}

void Gemma3::declare_groups() {
  CacheGroup full{CacheGroup::Kind::full, 0, {}}, window{CacheGroup::Kind::window, window_, {}};
  for (std::uint32_t i = 0; i < c_.layers; ++i)
    (local_[i] && window_ > 0 ? window : full).layers.push_back(cache_layer(i, c_));
  if (!full.layers.empty()) groups_.push_back(full);
  if (!window.layers.empty()) groups_.push_back(window);
}

Status Gemma3::forward(kernels::Stream& s, const Batch& batch, KvView& kv, const StepLimits& limits, std::byte* scratch,
                       float* logits) const {
  const kernels::Table& k = *s.ops;
  const std::int64_t n = static_cast<std::int64_t>(batch.ids.size()),
                     m = static_cast<std::int64_t>(batch.output_rows.size());
  Cutter cut(scratch);
  TransformerScratch b = cut_scratch(cut, shape_, limits);
  const std::int64_t q_width = c_.heads * c_.k_dim, k_width = c_.kv_heads * c_.k_dim, v_width = c_.kv_heads * c_.v_dim;
  Acts acts;

  k.embed(s, token_embd_, batch.ids.data(), n, std::sqrt(static_cast<float>(c_.width)), b.x);
  k.rope_table(s, batch.positions.data(), n, global_rope_.inv_freq.data(), global_rope_.pairs(),
               global_rope_.attn_factor, b.cos_sin[0]);
  k.rope_table(s, batch.positions.data(), n, local_rope_.inv_freq.data(), local_rope_.pairs(), 1.0f, b.cos_sin[1]);

  for (std::uint32_t i = 0; i < c_.layers; ++i) {
    const GemmaLayer& l = layers_[i];
    const float* cos_sin = b.cos_sin[l.local ? 1 : 0];
    // Attention.
    k.rms_norm(s, b.x, l.attn_norm, c_.eps, n, c_.width, b.h);
    kernels::acts_bind(acts, b.h, n, c_.width, b.acts_room);
    kernels::matmul(s, {{&l.wq, b.q, q_width}, {&l.wk, b.k, k_width}, {&l.wv, b.v, v_width}}, acts);
    k.rms_norm(s, b.q, l.q_norm, c_.eps, n * c_.heads, c_.k_dim, b.q);
    k.rms_norm(s, b.k, l.k_norm, c_.eps, n * c_.kv_heads, c_.k_dim, b.k);
    k.rope(s, b.q, n, c_.heads, c_.k_dim, global_rope_.pairs(), kernels::RopeStyle::neox, cos_sin);
    k.rope(s, b.k, n, c_.kv_heads, c_.k_dim, global_rope_.pairs(), kernels::RopeStyle::neox, cos_sin);
    LODE_RETURN_IF_ERROR(kv.wait(LayerIndex{i}));
    k.kv_write(s, {b.k, b.v, kv.layer(LayerIndex{i}), kv.runs(LayerIndex{i})});
    if (i + 1 == c_.layers && m == 0) return Status::success();  // Nobody reads what follows.
    k.attention(s, {.q = b.q,
                    .out = b.att,
                    .heads = static_cast<std::int32_t>(c_.heads),
                    .scale = attn_scale_,
                    .window = l.local ? window_ : 0,
                    .layer = kv.layer(LayerIndex{i}),
                    .runs = kv.runs(LayerIndex{i}),
                    .span_room = b.span_room,
                    .span_room_floats = b.span_room_floats});
    kernels::acts_bind(acts, b.att, n, c_.heads * c_.v_dim, b.acts_room);
    kernels::matmul(s, {{&l.wo, b.h, c_.width}}, acts);
    k.rms_norm(s, b.h, l.post_attn_norm, c_.eps, n, c_.width, b.h);
    k.add(s, b.x, b.h, n * c_.width);
    // Feed forward.
    k.rms_norm(s, b.x, l.ffn_norm, c_.eps, n, c_.width, b.h);
    kernels::acts_bind(acts, b.h, n, c_.width, b.acts_room);
    kernels::matmul(s, {{&l.gate, b.gate, c_.ffn}, {&l.up, b.up, c_.ffn}}, acts);
    k.glu(s, kernels::Activation::gelu_tanh, b.gate, b.up, b.gate, n * c_.ffn);
    kernels::acts_bind(acts, b.gate, n, c_.ffn, b.acts_room);
    kernels::matmul(s, {{&l.down, b.h, c_.width}}, acts);
    k.rms_norm(s, b.h, l.post_ffn_norm, c_.eps, n, c_.width, b.h);
    k.add(s, b.x, b.h, n * c_.width);
  }

  // Logits of the rows that are asked for.
  k.gather_rows(s, b.x, batch.output_rows.data(), m, c_.width, b.out);
  k.rms_norm(s, b.out, output_norm_, c_.eps, m, c_.width, b.out);
  kernels::acts_bind(acts, b.out, m, c_.width, b.acts_room);
  kernels::matmul(s, {{&output_, logits, c_.vocab}}, acts);
  if (final_softcap_ > 0) k.softcap(s, logits, final_softcap_, m * c_.vocab);
  return Status::success();
}

}  // namespace

Result<std::unique_ptr<Model>> load_gemma3(const LoadContext& context) {
  auto model = std::make_unique<Gemma3>();
  LODE_RETURN_IF_ERROR(model->init(context));
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace lode::model
