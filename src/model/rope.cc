#include "model/rope.h"

#include <cmath>

#include <fmt/format.h>

namespace lode::model {

Rope make_rope(std::int64_t dims, double base, double linear_factor, const float* divisors) {
  Rope rope;
  rope.inv_freq.resize(static_cast<std::size_t>(dims / 2));
  for (std::size_t i = 0; i < rope.inv_freq.size(); ++i) {
    rope.inv_freq[i] = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims)) / linear_factor;
    if (divisors) rope.inv_freq[i] /= static_cast<double>(divisors[i]);
  }
  return rope;
}

std::string describe(const Rope& rope) {
  // Hex floats are exact: two ropes share a description only if every factor is the same number.
  std::string out = fmt::format("{:a};", rope.attn_factor);
  for (double f : rope.inv_freq) out += fmt::format("{:a},", f);
  return out;
}

}  // namespace lode::model
