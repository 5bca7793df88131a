#include "model/blocks.h"

namespace lode::model {

Ends read_ends(TensorReader& t, const Config& c) {
  Ends e;
  e.token_embd = t.matrix("token_embd.weight", c.vocab, c.width);
  e.output_norm = t.vector("output_norm.weight", c.width);
  e.output = t.has("output.weight") ? t.matrix("output.weight", c.vocab, c.width) : e.token_embd;  // Tied.
  return e;
}

void run_logits(kernels::Stream& s, const Ends& ends, const Config& c, const Batch& batch, const float* x,
                const TransformerScratch& b, float* logits) {
  const std::int64_t m = static_cast<std::int64_t>(batch.output_rows.size());
  kernels::Acts acts;
  s.ops->gather_rows(s, x, batch.output_rows.data(), m, c.width, b.out);
  s.ops->rms_norm(s, b.out, ends.output_norm, c.eps, m, c.width, b.out);
  kernels::acts_bind(acts, b.out, m, c.width, b.acts_room);
  kernels::matmul(s, {{&ends.output, logits, c.vocab}}, acts);
  if (ends.output_bias) s.ops->add_bias(s, logits, ends.output_bias, m, c.vocab);
}

DenseFfn read_dense_ffn(TensorReader& t, std::int64_t layer, std::int64_t width, std::int64_t ffn,
                        std::string_view suffix) {
  const auto name = [&](std::string part) { return layer_tensor(layer, part.append(suffix)); };
  return {.gate = t.matrix(name("ffn_gate"), ffn, width),
          .up = t.matrix(name("ffn_up"), ffn, width),
          .down = t.matrix(name("ffn_down"), width, ffn)};
}

void run_dense_ffn(kernels::Stream& s, const DenseFfn& w, kernels::Acts& x, const DenseFfnBuffers& b) {
  const std::int64_t n = x.n, ffn = w.gate.rows;
  kernels::matmul(s, {{&w.gate, b.gate, ffn}, {&w.up, b.up, ffn}}, x);
  s.ops->glu(s, kernels::Activation::silu, b.gate, b.up, b.gate, n * ffn);
  kernels::Acts acts;
  kernels::acts_bind(acts, b.gate, n, ffn, b.acts_room);
  kernels::matmul(s, {{&w.down, b.out, w.down.rows}}, acts);
}

}  // namespace lode::model
