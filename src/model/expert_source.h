// How a forward page gets the matrices of the experts that a step needs. experts/ implements it over tiers; the model
// itself over the mapped file (MappedExperts). Owns nothing. Step thread only.
//
// For every layer with experts a step calls, in this order: begin (the whole list, before anything is computed), ready
// until every expert of the list has come, end. The page computes experts in whatever order they come: an expert's
// output for a token stays apart until all are there and is then summed in the token's own rank order, so arrivals
// cannot change a bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/kernels.h"

namespace lode::model {

// One expert of one layer: the unit that a cache keeps or drops.
struct ExpertWeights {
  ExpertId expert;
  kernels::Matrix gate, up;  // [ffn, width] each
  kernels::Matrix down;      // [width, ffn]
};

// All experts of a layer where they lie in the file; weights[e].expert is e.
struct ExpertLayer {
  LayerIndex layer;
  std::vector<ExpertWeights> weights;  // [experts]
};

// An expert that the step needs, and for how many of its tokens.
struct ExpertUse {
  ExpertId expert;
  std::int32_t tokens = 0;
};

class ExpertSource {
 public:
  virtual ~ExpertSource() = default;
  // The layer's whole list, ascending ids, at least one. It lives until `end`. Starts what has to be fetched. A step
  // that was abandoned calls no end: begin forgets what is left of it.
  virtual void begin(LayerIndex layer, std::span<const ExpertUse> uses) = 0;
  // Experts of the list that are in place and have not been handed out yet; waits until there is at least one. Span and
  // matrices are valid until the next call: a list that is longer than there is memory comes in turns. An error says
  // that one of the list never comes; the step is then abandoned.
  virtual Result<std::span<const ExpertWeights>> ready(LayerIndex layer) = 0;
  // All of the list is computed: slots may be given to others.
  virtual void end(LayerIndex layer) = 0;

  // Whether a guess of what a step of `tokens` will use in `next`, the layer with experts that follows, is worth a
  // product with its router; asked between begin and ready. guess: experts, in no order, perhaps more than once.
  virtual bool wants_guess(LayerIndex next, std::int64_t tokens) const { return false; }
  virtual void guess(LayerIndex next, std::span<const std::int32_t> experts) {}
};

// Every expert is in place, in the file. Allocates nothing: `room` [experts] holds the list of the moment.
class MappedExperts final : public ExpertSource {
 public:
  MappedExperts(std::span<const ExpertLayer> layers, std::span<ExpertWeights> room) : layers_(layers), room_(room) {}

  void begin(LayerIndex, std::span<const ExpertUse> uses) override { uses_ = uses; }
  Result<std::span<const ExpertWeights>> ready(LayerIndex layer) override {
    const ExpertLayer* found = nullptr;
    for (const ExpertLayer& l : layers_)
      if (l.layer == layer) found = &l;
    LODE_CHECK(found != nullptr && uses_.size() <= room_.size());
    for (std::size_t i = 0; i < uses_.size(); ++i) room_[i] = found->weights[uses_[i].expert.v];
    const auto all = room_.first(uses_.size());
    uses_ = {};
    return std::span<const ExpertWeights>(all);
  }
  void end(LayerIndex) override {}

 private:
  std::span<const ExpertLayer> layers_;
  std::span<ExpertWeights> room_;
  std::span<const ExpertUse> uses_;
};

}  // namespace lode::model
