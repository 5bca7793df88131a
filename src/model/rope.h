// Rotary embedding frequencies. Plain data; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lode::model {

// Resolved: what the kernels need, scaling applied.
struct Rope {
  std::vector<double> inv_freq;  // [pairs], radians per position.
  float attn_factor = 1;         // Multiplies cos and sin (YaRN).
  std::int64_t pairs() const { return static_cast<std::int64_t>(inv_freq.size()); }
};

// inv_freq[i] = base^(-2i/dims) / factor / divisors[i] (su et al. 2021; linear position scaling: Chen et al. 2023).
// `divisors` [dims/2] may be nullptr (the GGUF tensor rope_freqs).
Rope make_rope(std::int64_t dims, double base, double linear_factor, const float* divisors);

// The factors in a fixed text form, for the KV root key: equal text means equal rotation.
std::string describe(const Rope& rope);

}  // namespace lode::model
