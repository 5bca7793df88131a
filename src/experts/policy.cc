#include "experts/policy.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace lode::experts {
namespace {

constexpr float kFastWeight = 0.4f, kSlowWeight = 1.0f, kSuccessorWeight = 2.0f;
constexpr double kFastTokens = 8, kSlowTokens = 128, kSuccessorTokens = 64;  // Half-lives.
constexpr float kFarDiscount = 0.3f;

// What is left of a sum after `tokens` tokens.
float kept(double half_life, std::int64_t tokens) {
  return static_cast<float>(std::exp2(-static_cast<double>(tokens) / half_life));
}

}  // namespace

Policy::Policy(const PolicyShape& shape)
    : shape_(shape), floor_(std::min(shape.used, shape.slots / (2 * std::max(1u, shape.layers)))) {
  const std::size_t keys = std::size_t{shape.layers} * shape.experts;
  LODE_CHECK(keys > 0 && shape.used > 0 && shape.used <= shape.experts);
  for (auto* floats : {&fast_, &slow_, &values_}) floats->assign(keys, 0.0f);
  chosen_.assign(shape.experts, 0.0f);
  successors_.assign(keys * shape.experts, 0);
  last_.assign(std::size_t{shape.layers} * shape.used, 0);
  last_count_.assign(shape.layers, 0);
  resident_.assign(keys, 0);
  held_.assign(keys, 0);
  counts_.assign(shape.layers, 0);
}

std::uint64_t Policy::bytes(const PolicyShape& shape) {
  const std::uint64_t keys = std::uint64_t{shape.layers} * shape.experts;
  return keys * (3 * sizeof(float) + 2 + sizeof(std::uint16_t) * shape.experts);
}

void Policy::use(std::uint32_t layer, std::span<const model::ExpertUse> uses, std::int64_t tokens) {
  std::fill(chosen_.begin(), chosen_.end(), 0.0f);
  for (const model::ExpertUse& u : uses)
    chosen_[u.expert.v] = static_cast<float>(u.tokens) / static_cast<float>(tokens);
  const float fast = kept(kFastTokens, tokens), slow = kept(kSlowTokens, tokens);
  const std::size_t first = std::size_t{layer} * shape_.experts;
  for (std::size_t e = 0; e < shape_.experts; ++e) {
    fast_[first + e] = fast_[first + e] * fast + chosen_[e] * (1 - fast);
    slow_[first + e] = slow_[first + e] * slow + chosen_[e] * (1 - slow);
    values_[first + e] = kFastWeight * fast_[first + e] + kSlowWeight * slow_[first + e];
  }
  // Several tokens at once say nothing of what followed what.
  last_count_[layer] = tokens == 1 ? last_count_[layer] : 0;
  if (tokens == 1) learn_successors(layer, uses);
}

void Policy::learn_successors(std::uint32_t layer, std::span<const model::ExpertUse> uses) {
  static const float rate = 1 - kept(kSuccessorTokens, 1);
  const std::size_t first = std::size_t{layer} * shape_.experts;
  std::uint32_t* last = last_.data() + std::size_t{layer} * shape_.used;
  for (std::uint32_t i = 0; i < last_count_[layer]; ++i) {
    std::uint16_t* row = successors_.data() + (first + last[i]) * shape_.experts;
    for (std::size_t e = 0; e < shape_.experts; ++e) {
      const float share = row[e];
      row[e] = static_cast<std::uint16_t>(share + (65535.0f * chosen_[e] - share) * rate);
    }
  }
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(uses.size(), shape_.used));
  last_count_[layer] = count;
  const float weight = kSuccessorWeight / (65535.0f * static_cast<float>(count));
  for (std::uint32_t i = 0; i < count; ++i) {
    last[i] = uses[i].expert.v;
    const std::uint16_t* row = successors_.data() + (first + last[i]) * shape_.experts;
    for (std::size_t e = 0; e < shape_.experts; ++e) values_[first + e] += weight * static_cast<float>(row[e]);
  }
}

void Policy::keep(ExpertKey key) {
  LODE_CHECK(!resident_[key.v]);
  resident_[key.v] = 1;
  ++counts_[layer_of(key)];
}

void Policy::drop(ExpertKey key) {
  LODE_CHECK(resident_[key.v]);
  resident_[key.v] = 0;
  --counts_[layer_of(key)];
}

float Policy::value(ExpertKey key, std::uint32_t layer) const {
  const std::uint32_t away = (layer_of(key) + shape_.layers - layer - 1) % shape_.layers;
  return values_[key.v] * (1 - kFarDiscount * static_cast<float>(away) / static_cast<float>(shape_.layers));
}

// Looks at every resident expert: 2 us for 1,000 of them, beside the 500 us that reading one takes.
ExpertKey Policy::victim(std::uint32_t layer) const {
  ExpertKey best = ExpertKey::none(), spared = ExpertKey::none();
  float least = 0, least_spared = 0;
  for (std::uint32_t l = 0; l < shape_.layers; ++l) {
    const bool spare = counts_[l] <= floor_;
    for (std::uint32_t k = l * shape_.experts; k < (l + 1) * shape_.experts; ++k) {
      if (!resident_[k] || held_[k]) continue;
      const float worth = value({k}, layer);
      ExpertKey& found = spare ? spared : best;
      float& bound = spare ? least_spared : least;
      if (found.valid() && worth >= bound) continue;
      found = {k};
      bound = worth;
    }
  }
  return best.valid() ? best : spared;
}

}  // namespace lode::experts
