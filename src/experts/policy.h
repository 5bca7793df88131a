// Which experts stay in memory: a value for each (layer, expert), learned from what the router chose. Pure: no I/O, no
// clock; the cache tells it what is resident, and asks what to give up. Owns counts only. Step thread only.
//
// value = 0.4 * share of the last ~8 tokens that chose the expert + 1 * share of the last ~128
//       + 2 * mean share with which it was chosen one token after each expert that this token chose;
// less up to 30% for a layer whose next turn is far. The terms were chosen by bench/expert_sim (docs/expert-cache.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/expert_source.h"

namespace lode::experts {

// One expert of one layer: layer * experts + expert, layers counted among those that have experts.
using ExpertKey = Id<struct ExpertKeyTag>;

struct PolicyShape {
  std::uint32_t layers = 0;   // With experts.
  std::uint32_t experts = 0;  // Of each layer.
  std::uint32_t used = 0;     // By a token, in each layer.
  std::uint32_t slots = 0;    // Experts that memory holds.
};

// A step of more tokens reads the cache and does not fill it: it needs nearly every expert once, and what it would
// leave behind says little of the tokens that follow.
inline constexpr std::int64_t kFillTokensMax = 32;

class Policy {
 public:
  explicit Policy(const PolicyShape& shape);
  // Bytes that a policy of this shape takes; the successors are most of it, 2 * experts^2 a layer.
  static std::uint64_t bytes(const PolicyShape& shape);

  ExpertKey key(std::uint32_t layer, ExpertId expert) const { return {layer * shape_.experts + expert.v}; }
  std::uint32_t layer_of(ExpertKey key) const { return key.v / shape_.experts; }
  ExpertId expert_of(ExpertKey key) const { return {key.v % shape_.experts}; }

  // What the router of `layer` chose for a step's `tokens`. Ascending ids.
  void use(std::uint32_t layer, std::span<const model::ExpertUse> uses, std::int64_t tokens);

  // Residency, as the cache changes it. Held: a step needs it, or its bytes are on their way.
  void keep(ExpertKey key);
  void drop(ExpertKey key);
  void hold(ExpertKey key, bool held) { held_[key.v] = held; }
  bool resident(ExpertKey key) const { return resident_[key.v] != 0; }
  std::uint32_t resident_in(std::uint32_t layer) const { return counts_[layer]; }

  // The resident expert of the least value, none() where all are held. `layer` is the one at work. A layer with less
  // than half its even share of the slots, or one token's worth if that is less, gives nothing up while others can.
  ExpertKey victim(std::uint32_t layer) const;
  float value(ExpertKey key, std::uint32_t layer) const;

 private:
  void learn_successors(std::uint32_t layer, std::span<const model::ExpertUse> uses);
  const PolicyShape shape_;
  const std::uint32_t floor_;              // Residents below which a layer is spared.
  std::vector<float> fast_, slow_;         // [layers, experts]
  std::vector<float> values_;              // [layers, experts]
  std::vector<float> chosen_;              // [experts] share of a step's tokens
  std::vector<std::uint16_t> successors_;  // [layers, experts, experts] of 65535: chosen one token later
  std::vector<std::uint32_t> last_;        // [layers, used] what the last token chose
  std::vector<std::uint32_t> last_count_;  // [layers] 0: the last step had several tokens
  std::vector<std::uint8_t> resident_, held_;
  std::vector<std::uint32_t> counts_;  // [layers]
};

}  // namespace lode::experts
