#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/portable_math.h"
#include "base/status.h"

namespace lode::engine {
namespace {

// Below this a temperature is greedy: dividing by it would overflow differences of a few hundred.
constexpr float kGreedyTemperature = 1e-4f;
// The logit of what is barred.
constexpr float kNever = -std::numeric_limits<float>::infinity();

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
  std::fill_n(top, kLanes, kNever);
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

double uniform_side_draw(std::uint64_t seed, std::uint32_t choice, std::int64_t position) {
  return uniform_draw(~seed, choice, position);
}

std::span<const float> Sampler::adjust(std::span<const float> logits, const SamplingParams& p,
                                       std::span<const TokenId> history, const Barred& barred) {
  const bool penalties = p.repeat_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
  const bool dry = p.dry_multiplier > 0 && p.dry_base >= 1.0f && p.dry_penalty_last_n != 0;
  const bool bars = !barred.mask.empty() || !barred.tokens.empty();
  if (p.logit_bias.empty() && !penalties && !dry && !bars) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : p.logit_bias)
    if (id >= 0 && id < vocab_) adjusted_[static_cast<std::size_t>(id)] += bias;
  if (penalties) penalize(p, history);
  if (dry) penalize_repetition(p, history);
  if (bars) bar(barred);
  return adjusted_;
}

void Sampler::penalize(const SamplingParams& p, std::span<const TokenId> history) {
  const std::size_t window = p.penalty_last_n < 0
                                 ? history.size()
                                 : std::min<std::size_t>(history.size(), static_cast<std::size_t>(p.penalty_last_n));
  const std::span<const TokenId> recent = history.last(window);
  for (const TokenId id : recent) ++counts_[static_cast<std::size_t>(id)];
  for (const TokenId id : recent) {
    const auto count = static_cast<float>(std::exchange(counts_[static_cast<std::size_t>(id)], 0));
    if (count == 0) continue;  // Not the first time.
    float& logit = adjusted_[static_cast<std::size_t>(id)];
    logit = logit > 0 ? logit / p.repeat_penalty : logit * p.repeat_penalty;
    logit -= count * p.frequency_penalty + p.presence_penalty;
  }
}

// How long a repetition each token would go on with: the Z-algorithm over the history read backwards, so that the cost
// is the history's length, whatever it repeats.
void Sampler::penalize_repetition(const SamplingParams& p, std::span<const TokenId> history) {
  const std::size_t n = p.dry_penalty_last_n < 0
                            ? history.size()
                            : std::min<std::size_t>(history.size(), static_cast<std::size_t>(p.dry_penalty_last_n));
  const auto back = [&](std::size_t i) { return history[history.size() - 1 - i]; };
  const auto breaks = [&](TokenId id) { return std::binary_search(p.dry_breakers.begin(), p.dry_breakers.end(), id); };
  std::size_t reach = 0;  // Tokens at the end without a breaker: no repetition is longer.
  while (reach < n && !breaks(back(reach))) ++reach;
  const auto allowed = static_cast<std::int64_t>(std::max(p.dry_allowed_length, 1));
  if (static_cast<std::int64_t>(reach) < allowed) return;
  matches_.assign(n, 0);
  for (std::size_t i = 1, left = 0, right = 0; i < n; ++i) {  // [left, right): the match that reaches furthest.
    std::size_t z = i < right ? std::min(right - i, static_cast<std::size_t>(matches_[i - left])) : 0;
    while (i + z < n && back(z) == back(i + z)) ++z;
    matches_[i] = static_cast<std::int32_t>(z);
    if (i + z > right) left = i, right = i + z;
    const auto length = static_cast<std::int32_t>(std::min(z, reach));
    std::int32_t& longest = counts_[static_cast<std::size_t>(back(i - 1))];
    if (length >= allowed && !breaks(back(i - 1))) longest = std::max(longest, length);
  }
  const double log_base = portable::log(static_cast<double>(p.dry_base));
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t length = std::exchange(counts_[static_cast<std::size_t>(back(i))], 0);
    if (length == 0) continue;
    // Beyond e^80 a penalty has left the range of float, and does no more than any other that is never drawn.
    const double exponent = std::min(80.0, log_base * static_cast<double>(length - allowed));
    adjusted_[static_cast<std::size_t>(back(i))] -=
        static_cast<float>(std::min(1e30, static_cast<double>(p.dry_multiplier) * portable::exp(exponent)));
  }
}

void Sampler::bar(const Barred& barred) {
  for (const TokenId id : barred.tokens) adjusted_[static_cast<std::size_t>(id)] = kNever;
  if (barred.mask.empty()) return;
  for (std::size_t word = 0; word < barred.mask.size(); ++word) {
    const std::uint32_t bits = barred.mask[word];
    const std::size_t begin = word * 32, end = std::min(begin + 32, adjusted_.size());
    if (bits == ~0u) continue;
    for (std::size_t i = begin; i < end; ++i)
      if ((bits >> (i - begin) & 1u) == 0) adjusted_[i] = kNever;
  }
}

TokenId Sampler::sample(std::span<const float> logits, const SamplingParams& p, std::uint32_t choice,
                        std::span<const TokenId> history, const Barred& barred) {
  LODE_CHECK(static_cast<std::int64_t>(logits.size()) == vocab_);
  const std::span<const float> l = adjust(logits, p, history, barred);
  if (p.temperature <= kGreedyTemperature || p.top_k == 1) {
    const TokenId best = argmax(l);
    return l[static_cast<std::size_t>(best)] == kNever ? -1 : best;
  }
  candidates_.clear();
  for (std::size_t i = 0; i < l.size(); ++i)
    if (l[i] != kNever) candidates_.push_back({l[i], static_cast<TokenId>(i)});
  if (candidates_.empty()) return -1;
  const auto position = static_cast<std::int64_t>(history.size());
  const double side = p.xtc_probability > 0 ? uniform_side_draw(p.seed, choice, position) : 1.0;
  return draw(uniform_draw(p.seed, choice, position), side, p);
}

namespace {

// The first `n` of a range in order, the first `sorted` of which are already. All orders here are total, so both ways
// give the same; for a whole range sorting takes a third of the time.
template <typename Iterator, typename Before>
void sort_first(Iterator begin, Iterator end, std::size_t sorted, std::size_t n, Before before) {
  const Iterator from = begin + static_cast<std::ptrdiff_t>(sorted), to = begin + static_cast<std::ptrdiff_t>(n);
  if (to == end) std::sort(from, end, before);
  else std::partial_sort(from, to, end, before);
}

}  // namespace

void Sampler::sort_to(std::size_t n) {
  if (n <= sorted_) return;
  sort_first(candidates_.begin(), candidates_.end(), sorted_, n, [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  sorted_ = n;
}

double Sampler::weight(const Candidate& c) const {
  return portable::exp((static_cast<double>(c.logit) - max_logit_) / temperature_);
}

double Sampler::total_weight() const {
  double sum = 0;
  for (const Candidate& c : candidates_) sum += weight(c);
  return sum;
}

// Tokens whose surprise is nearest to what the distribution lets expect, as many as make up the share.
void Sampler::keep_typical(const SamplingParams& p) {
  const double sum = total_weight(), log_sum = portable::log(sum);
  const auto log_weight = [&](const Candidate& c) {
    return (static_cast<double>(c.logit) - max_logit_) / temperature_;
  };
  double entropy = log_sum;  // The sum of w * (log_sum - log w) over the sum of w.
  for (const Candidate& c : candidates_) entropy -= weight(c) * log_weight(c) / sum;
  const auto distance = [&](const Candidate& c) { return std::abs(log_sum - log_weight(c) - entropy); };
  const auto nearer = [&](const Candidate& a, const Candidate& b) {
    const double x = distance(a), y = distance(b);
    return x != y ? x < y : a.id < b.id;
  };
  double share = 0;
  std::size_t keep = 0, in_order = 0;
  while (keep < candidates_.size() && share < static_cast<double>(p.typical_p)) {
    if (keep == in_order) {
      const std::size_t next = std::min(candidates_.size(), std::max<std::size_t>(256, in_order * 8));
      sort_first(candidates_.begin(), candidates_.end(), in_order, next, nearer);
      in_order = next;
    }
    share += weight(candidates_[keep++]) / sum;
  }
  candidates_.resize(std::max<std::size_t>(keep, 1));
  sorted_ = 0;
}

void Sampler::keep_share(const SamplingParams& p) {
  // Sort only as far as the share reaches: 256 candidates cover nearly every text, all 262,144 take 20 ms.
  const double sum = total_weight();
  double share = 0;
  std::size_t keep = 0;
  while (keep < candidates_.size()) {
    if (keep == sorted_) sort_to(std::min(candidates_.size(), std::max<std::size_t>(256, sorted_ * 8)));
    share += weight(candidates_[keep++]);
    if (share >= static_cast<double>(p.top_p) * sum) break;
  }
  candidates_.resize(keep);
  sorted_ = std::min(sorted_, keep);
}

// XTC: of the tokens that are likely enough, only the least likely stays.
void Sampler::drop_top(const SamplingParams& p) {
  const double sum = total_weight();
  std::size_t likely = 0;
  const auto is_likely = [&](const Candidate& c) { return weight(c) >= static_cast<double>(p.xtc_threshold) * sum; };
  while (likely < candidates_.size()) {
    if (likely == sorted_) sort_to(std::min(candidates_.size(), std::max<std::size_t>(256, sorted_ * 8)));
    if (!is_likely(candidates_[likely])) break;
    ++likely;
  }
  if (likely < 2) return;
  candidates_.erase(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(likely - 1));
  sorted_ = 1;
}

TokenId Sampler::draw(double u, double side, const SamplingParams& p) {
  sorted_ = 0;
  temperature_ = p.temperature;
  if (p.top_k > 1 && static_cast<std::size_t>(p.top_k) < candidates_.size()) {
    sort_to(static_cast<std::size_t>(p.top_k));
    candidates_.resize(static_cast<std::size_t>(p.top_k));
  }
  sort_to(1);
  max_logit_ = candidates_[0].logit;
  if (p.typical_p < 1.0f) {
    keep_typical(p);
    sort_to(1);
  }
  if (p.min_p > 0) {
    const double least = p.min_p * weight(candidates_[0]);
    const auto end = std::remove_if(candidates_.begin() + 1, candidates_.end(),
                                    [&](const Candidate& c) { return weight(c) < least; });
    candidates_.erase(end, candidates_.end());
    sorted_ = 1;
  }
  if (p.top_p < 1.0f) keep_share(p);
  if (side < static_cast<double>(p.xtc_probability)) drop_top(p);
  double left = u * total_weight();
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
