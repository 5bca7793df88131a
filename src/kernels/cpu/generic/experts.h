// Picking a token's experts: comparisons only, so that every instruction set shares it. Owns nothing. For
// cpu/*/experts.cc only.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/kernels.h"

namespace lode::kernels {

// The order of the router: NaN stands below every number, so that a broken model still has its `used` distinct ids.
static inline float route_key(float logit) {
  return logit != logit ? -std::numeric_limits<float>::infinity() : logit;
}

// ids[0 .. used): by descending logit, equal ones by ascending id. used <= experts.
static inline void pick_experts(const float* logits, std::int64_t experts, std::int64_t used, std::int32_t* ids) {
  for (std::int64_t rank = 0; rank < used; ++rank) {
    const std::int64_t last = rank > 0 ? ids[rank - 1] : -1;
    const float last_key = rank > 0 ? route_key(logits[last]) : 0;
    std::int64_t best = -1;
    float best_key = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      const float key = route_key(logits[e]);
      const bool left = rank == 0 || key < last_key || (key == last_key && e > last);
      if (left && (best < 0 || key > best_key)) {
        best = e;
        best_key = key;
      }
    }
    ids[rank] = static_cast<std::int32_t>(best);
  }
}

// weights[0 .. used) hold the experts' probabilities; divides and scales them as the family wants.
static inline void finish_weights(const RouteArgs& a, float* weights) {
  if (a.norm == RouteArgs::Norm::sum) {
    float sum = 0;
    for (std::int64_t r = 0; r < a.used; ++r) sum += weights[r];
    for (std::int64_t r = 0; r < a.used; ++r) weights[r] = weights[r] / sum;
  }
  if (a.scale != 1.0f) {
    for (std::int64_t r = 0; r < a.used; ++r) weights[r] *= a.scale;
  }
}

}  // namespace lode::kernels
