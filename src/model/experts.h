// A feed-forward half made of routed experts: reading it, and computing it grouped by expert. Owns nothing. Loaders and
// forward pages only.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "model/expert_source.h"
#include "model/tensors.h"
#include "model/workspace.h"

namespace lode::model {

// The matrices of one layer's experts, in any of the forms that files have: ffn_gate_exps and ffn_up_exps; both in
// ffn_gate_up_exps (gate first); or one tensor an expert (ffn_gate.7).
std::vector<ExpertWeights> read_experts(TensorReader& t, std::int64_t layer, std::int64_t width, const ExpertConfig& e);

struct ExpertScratch {
  float* logits;             // [n, experts] of the router
  std::int32_t* ids;         // [n, used] in rank order
  float* weights;            // [n, used]
  std::int32_t* places;      // [n, used] row of `y` that holds this rank's output
  std::int32_t* tokens;      // [n * used] the token of each row of `y`: by expert, then ascending
  std::int32_t* starts;      // [experts + 1] first row of an expert
  ExpertUse* uses;           // [experts]
  ExpertWeights* room;       // [experts] for MappedExperts
  kernels::MatmulJob* jobs;  // [2 * experts]
  float* x;                  // [n, width] one expert's tokens
  float *gate, *up;          // [max(n, used), ffn]
  float* y;                  // [n * used, width] experts' outputs
  std::byte* acts_room;      // acts_bytes(n, max(width, ffn))
  std::int32_t* guess_ids;   // [min(n, kGuessTokensMax), used]
  float* guess_weights;      // as guess_ids; nobody reads it
};
// Steps of more tokens use most experts anyway.
inline constexpr std::int64_t kGuessTokensMax = 32;
// Cuts for steps of up to `n` tokens.
ExpertScratch cut_expert_scratch(Cutter& cut, std::int64_t n, std::int64_t width, const ExpertConfig& e);

struct ExpertFfn {
  LayerIndex layer;
  kernels::Matrix router;  // [experts, width]
  ExpertConfig config;
};
// What tells early which experts the next layer will use: its router over this layer's hidden state, which the layer
// changes little. Only what is read ahead depends on it.
struct NextRouter {
  const ExpertFfn* ffn = nullptr;  // nullptr: no layer follows.
  const float* norm = nullptr;     // [width] of the next layer's input
  float eps = 0;
  const float* x = nullptr;  // [n, width] the hidden state before this layer's experts are added
};
// out [n, width] = the weighted experts of h [n, width], whose quantized forms are `acts`. An error is the source's.
Status run_experts(kernels::Stream& s, const ExpertFfn& w, kernels::Acts& acts, ExpertSource& source,
                   const ExpertScratch& b, float* out, const NextRouter& next = {});

}  // namespace lode::model
