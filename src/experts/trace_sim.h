// Eviction policies over recorded routing: which hit rate each reaches with a cache of a given size. For
// bench/expert_sim and tests. Owns its traces. Any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "experts/policy.h"

namespace lode::experts::sim {

// What a router chose for a text's tokens, one after another.
struct Trace {
  std::uint32_t tokens = 0, layers = 0, used = 0, experts = 0;
  std::vector<std::uint16_t> ids;  // [tokens, layers, used]
  const std::uint16_t* at(std::uint32_t token, std::uint32_t layer) const {
    return ids.data() + (std::size_t{token} * layers + layer) * used;
  }
};

// A .npy file of uint8 or uint16 [tokens, layers, used], as `lode bench --record-routing` writes it; `tokens_max`: the
// first so many.
inline Result<Trace> read_trace(const std::filesystem::path& path, std::uint32_t tokens_max) {
  std::ifstream in(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const auto bad = [&] { return Status::corrupt(path.string() + ": not a .npy file of [tokens, layers, used] ids"); };
  if (all.size() < 10 || all.compare(0, 6, "\x93NUMPY") != 0) return bad();
  const std::size_t head = 10 + static_cast<unsigned char>(all[8]) + 256u * static_cast<unsigned char>(all[9]);
  const std::string text = all.substr(0, std::min(head, all.size()));
  const std::size_t width = text.find("|u1") != std::string::npos ? 1 : text.find("<u2") != std::string::npos ? 2 : 0;
  const std::size_t open = text.find('(');
  if (width == 0 || open == std::string::npos || text.find("'fortran_order': False") == std::string::npos) return bad();
  std::array<std::uint32_t, 3> shape{};
  const char* next = text.c_str() + open + 1;
  for (std::uint32_t& n : shape) {
    char* end = nullptr;
    n = static_cast<std::uint32_t>(std::strtoul(next, &end, 10));
    if (end == next || n == 0) return bad();
    next = *end == ',' ? end + 1 : end;
  }
  Trace t{std::min(shape[0], tokens_max), shape[1], shape[2], 0, {}};
  const std::size_t count = std::size_t{t.tokens} * t.layers * t.used;
  if (all.size() < head + count * width) return bad();
  for (std::size_t i = 0; i < count; ++i) {
    const auto* at = reinterpret_cast<const unsigned char*>(all.data()) + head + i * width;
    t.ids.push_back(static_cast<std::uint16_t>(width == 1 ? at[0] : at[0] + 256 * at[1]));
    t.experts = std::max<std::uint32_t>(t.experts, t.ids.back() + 1u);
  }
  return t;
}

// Decides what leaves. Keys are layer * experts + expert.
class Rule {
 public:
  virtual ~Rule() = default;
  // Layer `layer` of token `token` uses these; called after their hits were counted.
  virtual void use(std::uint32_t token, std::uint32_t layer, const std::vector<std::uint32_t>& keys) = 0;
  virtual void enter(std::uint32_t key) {}
  virtual void leave(std::uint32_t key) {}
  virtual double value(std::uint32_t key, std::uint32_t layer) = 0;  // The least leaves.
};

class Lru : public Rule {
 public:
  explicit Lru(const Trace& t) : last_(t.layers * t.experts) {}
  void use(std::uint32_t, std::uint32_t, const std::vector<std::uint32_t>& keys) override {
    for (const auto k : keys) last_[k] = ++now_;
  }
  double value(std::uint32_t key, std::uint32_t) override { return last_[key]; }

 protected:
  std::vector<double> last_;
  double now_ = 0;
};

// A second use protects, up to `share` of the cache; the protected one that was used longest ago then falls back. The
// share ramps from 0 at one token's worth to its full value at 1.8 of it.
class Slru final : public Lru {
 public:
  Slru(const Trace& t, std::uint32_t slots, double share) : Lru(t), state_(t.layers * t.experts) {
    const double token = t.layers * t.used;
    most_ = static_cast<std::uint32_t>(slots * share * std::clamp((slots / token - 1) / 0.8, 0.0, 1.0));
  }
  void use(std::uint32_t token, std::uint32_t layer, const std::vector<std::uint32_t>& keys) override {
    for (const auto k : keys) {
      protected_ += state_[k] == 1;
      state_[k] = state_[k] == 3 ? 1 : 2;
    }
    Lru::use(token, layer, keys);
    while (protected_ > most_) {
      std::uint32_t oldest = 0;
      double least = std::numeric_limits<double>::max();
      for (std::uint32_t k = 0; k < state_.size(); ++k)
        if (state_[k] == 2 && last_[k] < least) oldest = k, least = last_[k];
      state_[oldest] = 1;
      --protected_;
    }
  }
  void enter(std::uint32_t key) override { state_[key] = 3; }
  void leave(std::uint32_t key) override {
    protected_ -= state_[key] == 2;
    state_[key] = 0;
  }
  double value(std::uint32_t key, std::uint32_t) override { return last_[key] + (state_[key] == 2 ? 1e15 : 0); }

 private:
  std::vector<std::uint8_t> state_;  // 0 absent, 1 probation, 2 protected, 3 came with this very use.
  std::uint32_t most_ = 0, protected_ = 0;
};

// Counts of uses; `recent`: each divided by the time since the last one (LFRU).
class Lfu final : public Rule {
 public:
  Lfu(const Trace& t, bool recent) : recent_(recent), uses_(t.layers * t.experts), last_(uses_.size()) {}
  void use(std::uint32_t token, std::uint32_t, const std::vector<std::uint32_t>& keys) override {
    now_ = token;
    for (const auto k : keys) ++uses_[k], last_[k] = now_;
  }
  double value(std::uint32_t key, std::uint32_t) override {
    return recent_ ? uses_[key] / (now_ - last_[key] + 1) : uses_[key];
  }

 private:
  bool recent_;
  std::vector<double> uses_, last_;
  double now_ = 0;
};

// The busiest of the whole trace, known beforehand.
class StaticHot final : public Rule {
 public:
  explicit StaticHot(const Trace& t) : uses_(t.layers * t.experts) {
    for (std::size_t i = 0; i < t.ids.size(); ++i) ++uses_[i / t.used % t.layers * t.experts + t.ids[i]];
  }
  void use(std::uint32_t, std::uint32_t, const std::vector<std::uint32_t>&) override {}
  double value(std::uint32_t key, std::uint32_t) override { return uses_[key]; }

 private:
  std::vector<double> uses_;
};

// The optimum: what is used again last, or never, leaves.
class Belady final : public Rule {
 public:
  explicit Belady(const Trace& t) : layers_(t.layers), uses_(t.layers * t.experts), next_(uses_.size()) {
    for (std::size_t i = 0; i < t.ids.size(); ++i)
      uses_[i / t.used % t.layers * t.experts + t.ids[i]].push_back(i / t.used);
  }
  void use(std::uint32_t token, std::uint32_t layer, const std::vector<std::uint32_t>&) override {
    now_ = std::size_t{token} * layers_ + layer;
  }
  double value(std::uint32_t key, std::uint32_t) override {
    const auto& uses = uses_[key];
    std::size_t& n = next_[key];
    while (n < uses.size() && uses[n] <= now_) ++n;
    return n < uses.size() ? -static_cast<double>(uses[n]) : -std::numeric_limits<double>::max();
  }

 private:
  std::size_t layers_, now_ = 0;
  std::vector<std::vector<std::size_t>> uses_;
  std::vector<std::size_t> next_;
};

// Shares of the last ~8 and ~128 tokens: the shipped policy without its successors.
class Mixture final : public Rule {
 public:
  explicit Mixture(const Trace& t) : experts_(t.experts), fast_(t.layers * t.experts), slow_(fast_.size()) {}
  void use(std::uint32_t, std::uint32_t layer, const std::vector<std::uint32_t>& keys) override {
    static const double fast = std::exp2(-1.0 / 8), slow = std::exp2(-1.0 / 128);
    for (std::uint32_t k = layer * experts_; k < (layer + 1) * experts_; ++k) fast_[k] *= fast, slow_[k] *= slow;
    for (const auto k : keys) fast_[k] += 1 - fast, slow_[k] += 1 - slow;
  }
  double value(std::uint32_t key, std::uint32_t) override { return 0.4 * fast_[key] + slow_[key]; }

 private:
  std::uint32_t experts_;
  std::vector<double> fast_, slow_;
};

// The hit rate of a cache of `slots` experts over all layers, after the first eighth of the trace. What a layer uses is
// in memory together, and none of it leaves for another of the same token.
inline double hit_rate(const Trace& t, std::uint32_t slots, Rule& rule) {
  std::vector<std::uint8_t> resident(t.layers * t.experts);
  std::vector<std::uint32_t> keys(t.used);
  std::uint32_t held = 0;
  double hits = 0, uses = 0;
  for (std::uint32_t token = 0; token < t.tokens; ++token) {
    for (std::uint32_t layer = 0; layer < t.layers; ++layer) {
      for (std::uint32_t i = 0; i < t.used; ++i) keys[i] = layer * t.experts + t.at(token, layer)[i];
      for (const auto k : keys) {
        if (token >= t.tokens / 8) hits += resident[k] != 0, ++uses;
        if (!resident[k]) rule.enter(k), ++held;
        resident[k] = 2;
      }
      rule.use(token, layer, keys);
      for (; held > slots; --held) {
        std::uint32_t out = 0;
        double least = std::numeric_limits<double>::infinity();
        for (std::uint32_t k = 0; k < resident.size(); ++k) {
          if (resident[k] != 1) continue;
          const double value = rule.value(k, layer);
          if (value < least) out = k, least = value;
        }
        resident[out] = 0;
        rule.leave(out);
      }
      for (const auto k : keys) resident[k] = 1;
    }
  }
  return hits / uses;
}

// The same of the shipped policy, which names its victims itself.
inline double shipped_hit_rate(const Trace& t, std::uint32_t slots) {
  Policy policy({.layers = t.layers, .experts = t.experts, .used = t.used, .slots = slots});
  std::vector<model::ExpertUse> list(t.used);
  std::uint32_t held = 0;
  double hits = 0, uses = 0;
  for (std::uint32_t token = 0; token < t.tokens; ++token) {
    for (std::uint32_t layer = 0; layer < t.layers; ++layer) {
      for (std::uint32_t i = 0; i < t.used; ++i) list[i] = {ExpertId{t.at(token, layer)[i]}, 1};
      policy.use(layer, list, 1);
      for (const auto& use : list) policy.hold(policy.key(layer, use.expert), true);
      for (const auto& use : list) {
        const ExpertKey key = policy.key(layer, use.expert);
        if (token >= t.tokens / 8) hits += policy.resident(key), ++uses;
        if (policy.resident(key)) continue;
        if (held == slots) policy.drop(policy.victim(layer));
        else ++held;
        policy.keep(key);
      }
      for (const auto& use : list) policy.hold(policy.key(layer, use.expert), false);
    }
  }
  return hits / uses;
}

inline constexpr std::array<const char*, 9> kRules = {"lru",        "slru 50%", "slru 80%", "lfu",   "lfru",
                                                      "static hot", "mixture",  "lode",     "belady"};
inline double hit_rate_of(const Trace& t, std::uint32_t slots, const std::string& rule) {
  const auto of = [&](Rule&& r) { return hit_rate(t, slots, r); };
  if (rule == "lru") return of(Lru(t));
  if (rule == "slru 50%") return of(Slru(t, slots, 0.5));
  if (rule == "slru 80%") return of(Slru(t, slots, 0.8));
  if (rule == "lfu") return of(Lfu(t, false));
  if (rule == "lfru") return of(Lfu(t, true));
  if (rule == "static hot") return of(StaticHot(t));
  if (rule == "mixture") return of(Mixture(t));
  if (rule == "belady") return of(Belady(t));
  LODE_CHECK(rule == "lode");
  return shipped_hit_rate(t, slots);
}

}  // namespace lode::experts::sim
