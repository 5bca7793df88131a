// Sources: rotary embedding, Su et al. 2021; linear scaling, Chen et al. 2023; YaRN, Peng et al. 2023, with the
// attention factor 0.1 ln(factor) + 1; longrope, Ding et al. 2024, with sqrt(1 + ln(factor) / ln(original)); the
// llama3 rule as Meta published it with Llama 3.1.
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "base/portable_math.h"

namespace lode::model {
namespace {

using Kind = RopeScaling::Kind;
constexpr double kTurn = 2 * std::numbers::pi;

// The (fractional) pair whose wave turns `turns` times within `context` positions.
double pair_turning(double turns, double context, double dims, double base) {
  return dims * portable::log(context / (turns * kTurn)) / (2 * portable::log(base));
}

// How much of pair i is interpolated: 0 keeps its frequency, 1 divides it by the factor.
struct YarnRamp {
  double low, high;
  YarnRamp(const RopeScaling& s, std::int64_t dims, double base) {
    const double d = static_cast<double>(dims), context = static_cast<double>(s.original_context);
    low = std::max(0.0, std::floor(pair_turning(s.beta_fast, context, d, base)));
    high = std::min(d - 1, std::ceil(pair_turning(s.beta_slow, context, d, base)));
  }
  double operator()(std::size_t pair) const {
    return std::clamp((static_cast<double>(pair) - low) / std::max(0.001, high - low), 0.0, 1.0);
  }
};

double yarn(double freq, double interpolated, const RopeScaling& s) {
  const double kept = (1 - interpolated) * s.ext_factor;
  return freq / s.factor * (1 - kept) + freq * kept;
}

double llama3(double freq, const RopeScaling& s) {
  const double turns = static_cast<double>(s.original_context) * freq / kTurn;  // In the original context.
  if (turns > s.high_freq_factor) return freq;
  if (turns < s.low_freq_factor) return freq / s.factor;
  const double kept = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return freq / s.factor * (1 - kept) + freq * kept;
}

double yarn_magnitude(double factor, double multiplier) {
  return factor <= 1 ? 1 : 0.1 * multiplier * portable::log(factor) + 1;
}

double attention_factor(const RopeScaling& s) {
  if (s.kind == Kind::yarn && s.ext_factor != 0) {
    const double all = s.log_multiplier == 0 ? 1 : yarn_magnitude(s.factor, s.log_multiplier);
    return s.attn_factor.value_or(1) * yarn_magnitude(s.factor, 1) / all;
  }
  if (s.kind == Kind::longrope && !s.attn_factor) {
    const double original = static_cast<double>(s.original_context);
    const double stretch = static_cast<double>(s.context) / original;
    return stretch <= 1 || original <= 1 ? 1 : std::sqrt(1 + portable::log(stretch) / portable::log(original));
  }
  return s.attn_factor.value_or(1);
}

Kind read_kind(ConfigReader& r) {
  // A file with a factor and no type means linear scaling.
  const bool factor = r.has("rope.scaling.factor") || r.has("rope.scale_linear");
  const std::string type = r.optional_string("rope.scaling.type", factor ? "linear" : "none");
  if (type.empty() || type == "none") return Kind::none;
  if (type == "linear") return Kind::linear;
  if (type == "yarn") return Kind::yarn;
  if (type == "llama3") return Kind::llama3;
  if (type == "longrope") return Kind::longrope;
  r.fail(Status::unsupported(
      fmt::format("{}: key '{}': rope scaling {} is not supported; supported: none, linear, yarn, llama3, longrope",
                  r.file().path().string(), r.full("rope.scaling.type"), gguf::quoted(type))));
  return Kind::none;
}

}  // namespace

RopeScaling read_rope_scaling(ConfigReader& r, const Config& c) {
  RopeScaling s;
  s.kind = read_kind(r);
  double factor = r.optional_float("rope.scaling.factor", 0, 0, 1e6);
  if (factor == 0) factor = r.optional_float("rope.scale_linear", 0, 0, 1e6);
  s.factor = factor == 0 ? 1 : factor;
  s.context = c.context;
  const std::int64_t original = r.optional("rope.scaling.original_context_length", 0, 0, 1 << 30);
  s.original_context = original > 0 ? original : c.context;
  const double attention = r.optional_float("rope.scaling.attn_factor", 0, 0, 1e6);
  if (attention != 0) s.attn_factor = attention;
  const double yarn_attention = r.optional_float("rope.scaling.yarn_attn_factor", 0, -1, 1e6);
  if (yarn_attention > 0) s.attn_factor = s.attn_factor.value_or(1) * yarn_attention;
  const double ext = r.optional_float("rope.scaling.yarn_ext_factor", -1, -1, 1e3);
  if (ext >= 0) s.ext_factor = ext;
  const double fast = r.optional_float("rope.scaling.yarn_beta_fast", 32, -1, 1e6);
  if (fast > 0) s.beta_fast = fast;
  const double slow = r.optional_float("rope.scaling.yarn_beta_slow", 1, -1, 1e6);
  if (slow > 0) s.beta_slow = slow;
  s.log_multiplier = r.optional_float("rope.scaling.yarn_log_multiplier", 0, 0, 1e3);
  s.low_freq_factor = r.optional_float("rope.scaling.low_freq_factor", 1, 1e-6, 1e6);
  s.high_freq_factor = r.optional_float("rope.scaling.high_freq_factor", 4, 1e-6, 1e6);
  if (r.status().ok() && s.high_freq_factor <= s.low_freq_factor)
    r.fail(
        Status::corrupt(fmt::format("{}: key '{}' is {}: expected more than the low one, {}", r.file().path().string(),
                                    r.full("rope.scaling.high_freq_factor"), s.high_freq_factor, s.low_freq_factor)));
  if (r.status().ok() && s.kind == Kind::yarn && c.rope_base <= 1)
    r.fail(Status::corrupt(fmt::format("{}: key '{}': expected more than 1 with YaRN, found {}",
                                       r.file().path().string(), r.full("rope.freq_base"), c.rope_base)));
  return s;
}

RopeFactors read_rope_factors(TensorReader& t, const RopeScaling& scaling, std::int64_t dims) {
  constexpr const char* kShort = "rope_factors_short.weight";
  constexpr const char* kLong = "rope_factors_long.weight";
  RopeFactors f;
  f.divisors = t.positive_vector("rope_freqs.weight", dims / 2);
  if (scaling.kind == Kind::longrope) {
    f.short_context = t.vector(kShort, dims / 2) ? t.positive_vector(kShort, dims / 2) : nullptr;
    f.long_context = t.vector(kLong, dims / 2) ? t.positive_vector(kLong, dims / 2) : nullptr;
  }
  return f;
}

Rope make_rope(std::int64_t dims, double base, const RopeScaling& s, const RopeFactors& factors, std::int64_t context) {
  Rope rope;
  rope.attn_factor = static_cast<float>(attention_factor(s));
  rope.inv_freq.resize(static_cast<std::size_t>(dims / 2));
  const bool stretched = (context > 0 ? context : s.context) > s.original_context;
  const float* longrope = stretched ? factors.long_context : factors.short_context;
  const YarnRamp ramp(s, dims, base);
  for (std::size_t i = 0; i < rope.inv_freq.size(); ++i) {
    double freq = portable::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dims));
    switch (s.kind) {
      case Kind::none: break;
      case Kind::linear: freq /= s.factor; break;
      case Kind::yarn: freq = yarn(freq, ramp(i), s); break;
      case Kind::llama3:
        if (!factors.divisors) freq = llama3(freq, s);  // Else the divisors are this rule, worked out by the converter.
        break;
      case Kind::longrope:
        if (longrope) freq /= static_cast<double>(longrope[i]);
        break;
    }
    if (factors.divisors) freq /= static_cast<double>(factors.divisors[i]);
    rope.inv_freq[i] = freq;
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
