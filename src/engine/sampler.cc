#include "engine/sampler.h"

#include <algorithm>
#include <limits>

#include "base/portable_math.h"
#include "base/status.h"

namespace lode::engine {
namespace {

// Below this a temperature is greedy: dividing by it would overflow differences of a few hundred.
constexpr float kGreedyTemperature = 1e-4f;

std::uint64_t mix(std::uint64_t x) {  // The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The first of the largest; NaN is never the largest. Sixteen maxima side by side, which the compiler keeps in vector
// registers: one after another 262,144 logits take 180 us, so 15.
TokenId argmax(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  float top[kLanes];
  std::fill_n(top, kLanes, -std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes)
    for (std::size_t j = 0; j < kLanes; ++j) top[j] = logits[i + j] > top[j] ? logits[i + j] : top[j];
  for (; i < logits.size(); ++i) top[0] = logits[i] > top[0] ? logits[i] : top[0];
  const float most = *std::max_element(top, top + kLanes);
  const auto found = std::find(logits.begin(), logits.end(), most);
  return found == logits.end() ? 0 : static_cast<TokenId>(found - logits.begin());
}

}  // namespace

double uniform_draw(std::uint64_t seed, std::uint32_t choice, std::int64_t position) {
  const std::uint64_t x = mix(mix(mix(seed) ^ choice) ^ static_cast<std::uint64_t>(position));
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

std::span<const float> Sampler::adjust(std::span<const float> logits, const SamplingParams& p,
                                       std::span<const TokenId> history) {
  const bool penalties = p.repeat_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
  if (p.logit_bias.empty() && !penalties) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : p.logit_bias)
    if (id >= 0 && id < vocab_) adjusted_[static_cast<std::size_t>(id)] += bias;
  if (!penalties) return adjusted_;
  const std::size_t window = p.penalty_last_n < 0
                                 ? history.size()
                                 : std::min<std::size_t>(history.size(), static_cast<std::size_t>(p.penalty_last_n));
  const std::span<const TokenId> recent = history.last(window);
  for (std::size_t i = 0; i < recent.size(); ++i) {
    if (std::find(recent.begin(), recent.begin() + static_cast<std::ptrdiff_t>(i), recent[i]) !=
        recent.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    const auto count = static_cast<float>(std::count(recent.begin(), recent.end(), recent[i]));
    float& logit = adjusted_[static_cast<std::size_t>(recent[i])];
    logit = logit > 0 ? logit / p.repeat_penalty : logit * p.repeat_penalty;
    logit -= count * p.frequency_penalty + p.presence_penalty;
  }
  return adjusted_;
}

TokenId Sampler::sample(std::span<const float> logits, const SamplingParams& p, std::uint32_t choice,
                        std::span<const TokenId> history) {
  LODE_CHECK(static_cast<std::int64_t>(logits.size()) == vocab_);
  const std::span<const float> l = adjust(logits, p, history);
  if (p.temperature <= kGreedyTemperature || p.top_k == 1) return argmax(l);
  candidates_.clear();
  for (std::size_t i = 0; i < l.size(); ++i) candidates_.push_back({l[i], static_cast<TokenId>(i)});
  return draw(uniform_draw(p.seed, choice, static_cast<std::int64_t>(history.size())), p);
}

TokenId Sampler::draw(double u, const SamplingParams& p) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  const auto total = candidates_.size();
  std::size_t sorted = 0;  // Leading candidates that are in descending order.
  const auto sort_to = [&](std::size_t n) {
    if (n <= sorted) return;
    std::partial_sort(candidates_.begin() + static_cast<std::ptrdiff_t>(sorted),
                      candidates_.begin() + static_cast<std::ptrdiff_t>(n),
                      candidates_.begin() + static_cast<std::ptrdiff_t>(candidates_.size()), better);
    sorted = n;
  };
  if (p.top_k > 1 && static_cast<std::size_t>(p.top_k) < total) {
    sort_to(static_cast<std::size_t>(p.top_k));
    candidates_.resize(static_cast<std::size_t>(p.top_k));
  }
  sort_to(1);
  const double max = candidates_[0].logit, t = p.temperature;
  const auto weight = [&](const Candidate& c) { return portable::exp((static_cast<double>(c.logit) - max) / t); };
  if (p.min_p > 0) {
    const auto end = std::remove_if(candidates_.begin() + 1, candidates_.end(),
                                    [&](const Candidate& c) { return weight(c) < p.min_p; });
    candidates_.erase(end, candidates_.end());
    sorted = 1;
  }
  double sum = 0;
  for (const Candidate& c : candidates_) sum += weight(c);
  if (p.top_p < 1.0f) {
    // Sort only as far as the share reaches: 256 candidates cover nearly every text, all 262,144 take 20 ms.
    double share = 0;
    std::size_t keep = 0;
    while (keep < candidates_.size()) {
      if (keep == sorted) sort_to(std::min(candidates_.size(), std::max<std::size_t>(256, sorted * 8)));
      share += weight(candidates_[keep++]);
      if (share >= static_cast<double>(p.top_p) * sum) break;
    }
    candidates_.resize(keep);
    sum = share;
  }
  double left = u * sum;
  for (const Candidate& c : candidates_)
    if ((left -= weight(c)) < 0) return c.id;
  return candidates_[0].id;  // Rounding left a crumb.
}

void Sampler::log_probabilities(std::span<const float> logits, std::int32_t top, TokenInfo& info) {
  float max = logits[0];
  for (float l : logits) max = std::max(max, l);
  double sum = 0;
  for (float l : logits) sum += portable::exp(static_cast<double>(l) - max);
  const double norm = static_cast<double>(max) + portable::log(sum);
  const auto at = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(id)]) - norm);
  };
  info.logprob = at(info.id);
  // A short list by insertion: top is at most 20 or so, and almost every value fails the first comparison.
  info.top.clear();
  if (top <= 0) return;
  info.top.reserve(static_cast<std::size_t>(top) + 1);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float l = logits[i];
    if (info.top.size() == static_cast<std::size_t>(top) && l <= info.top.back().second) continue;
    auto place = std::find_if(info.top.begin(), info.top.end(), [&](const auto& e) { return l > e.second; });
    info.top.insert(place, {static_cast<TokenId>(i), l});
    if (info.top.size() > static_cast<std::size_t>(top)) info.top.pop_back();
  }
  for (auto& [id, value] : info.top) value = at(id);
}

}  // namespace lode::engine
