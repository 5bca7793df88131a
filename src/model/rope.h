// Rotary embedding frequencies with every scaling that GGUF files name, resolved once at load. Plain data; any thread.
//
// Keys (all optional): ARCH.rope.scaling.type (none, linear, yarn, llama3, longrope), .factor, .attn_factor,
// .original_context_length, .yarn_ext_factor, .yarn_attn_factor, .yarn_beta_fast, .yarn_beta_slow,
// .yarn_log_multiplier, .low_freq_factor, .high_freq_factor, and ARCH.rope.scale_linear (an old name of the factor).
// Tensors: rope_freqs (each frequency is divided by its entry; how files carry llama3's scaling), rope_factors_short
// and rope_factors_long (longrope).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "model/tensors.h"

namespace lode::model {

// Resolved: what the kernels need, scaling applied.
struct Rope {
  std::vector<double> inv_freq;  // [pairs], radians per position.
  float attn_factor = 1;         // Multiplies cos and sin (YaRN, longrope).
  std::int64_t pairs() const { return static_cast<std::int64_t>(inv_freq.size()); }
};

// What the file says, before the tensors are seen. Defaults are those of the papers and of llama.cpp.
struct RopeScaling {
  enum class Kind : std::uint8_t { none, linear, yarn, llama3, longrope } kind = Kind::none;
  double factor = 1;                  // How many times longer than trained the context may be.
  std::int64_t original_context = 0;  // Tokens the model saw before it was stretched; default: context_length.
  std::int64_t context = 0;           // context_length
  std::optional<double> attn_factor;
  // YaRN: dimensions that turn more than beta_fast times in the original context keep their frequency, those that turn
  // less than beta_slow times are divided by the factor, a linear ramp lies between. ext_factor scales the ramp.
  double ext_factor = 1, beta_fast = 32, beta_slow = 1, log_multiplier = 0;
  // llama3: wavelengths under original / high keep their frequency, those over original / low are divided.
  double low_freq_factor = 1, high_freq_factor = 4;
};
RopeScaling read_rope_scaling(ConfigReader& r, const Config& c);

// Tensors that replace or divide frequencies, [dims / 2] each, or nullptr.
struct RopeFactors {
  const float *divisors = nullptr, *short_context = nullptr, *long_context = nullptr;
};
// Reads them; fails where longrope has none, where another scaling has longrope's, and on factors that are not
// positive.
RopeFactors read_rope_factors(TensorReader& t, const RopeScaling& scaling, std::int64_t dims);

// inv_freq[i] = base^(-2i/dims), scaled, / divisors[i]. Longrope takes its long factors where `context`, the configured
// length of a sequence (0: as long as trained), exceeds the original context, and keeps them for every position: a
// position's rotation must not depend on how long a sequence has become, since K is stored rotated.
Rope make_rope(std::int64_t dims, double base, const RopeScaling& scaling, const RopeFactors& factors,
               std::int64_t context);

// The factors in a fixed text form, for the KV root key: equal text means equal rotation.
std::string describe(const Rope& rope);

}  // namespace lode::model
