// Pieces of a forward page that families share word for word: the ends of a model and a dense feed-forward half. Owns
// nothing. Loaders and forward pages only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/config.h"
#include "model/model.h"
#include "model/scratch.h"
#include "model/tensors.h"

namespace lode::model {

// What stands before the first layer and after the last.
struct Ends {
  kernels::Matrix token_embd, output;  // [vocab, width]; the same matrix where the file has no output.weight.
  const float* output_norm = nullptr;  // [width]
  const float* output_bias = nullptr;  // [vocab] or nullptr; read by the families that have one
};
Ends read_ends(TensorReader& t, const Config& c);
// Logits [m, vocab] of the batch's output rows of x [n, width].
void run_logits(kernels::Stream& s, const Ends& ends, const Config& c, const Batch& batch, const float* x,
                const TransformerScratch& b, float* logits);

// down(silu(gate x) * up x).
struct DenseFfn {
  kernels::Matrix gate, up, down;  // [ffn, width], [ffn, width], [width, ffn]
};
// `suffix` follows the tensors' names: "" for a dense layer, "_shexp" for a shared expert.
DenseFfn read_dense_ffn(TensorReader& t, std::int64_t layer, std::int64_t width, std::int64_t ffn,
                        std::string_view suffix);
// out [n, width] from the activations `x` (n rows); gate and up [n, ffn].
struct DenseFfnBuffers {
  float *gate, *up, *out;
  std::byte* acts_room;  // acts_bytes(n, ffn); may be x's own, which is used up by then.
};
void run_dense_ffn(kernels::Stream& s, const DenseFfn& w, kernels::Acts& x, const DenseFfnBuffers& b);

}  // namespace lode::model
