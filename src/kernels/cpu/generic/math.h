// Lode's own exp, tanh, softplus, sin and cos, written once over a lane type so that every instruction set does the
// same operations in the same order; plus the one-lane type of the generic kernels. Owns nothing. Kernels and tests
// only.
//
// A lane type V has: float constants by V::set, and static add, sub, mul, div, fma (one rounding), less (a mask),
// select (mask, yes, no), and exp2i, which builds 2^k from the low mantissa bits of kRound + k. NaN comes out as NaN.
// Error bounds (ulp, measured by math_test over dense ranges) and constants: docs/numerics.md.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace lode::kernels {

namespace constants {
inline constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even.
inline constexpr float kLog2e = 0x1.715476p+0f;
inline constexpr float kLn2Hi = 0x1.62e43p-1f;
inline constexpr float kLn2Lo = -0x1.05c61p-29f;
inline constexpr float kExpLow = -80.0f;  // exp of anything lower is exactly 0.
inline constexpr float kExpHigh = 89.0f;  // Arguments are clamped here; the result is already infinite.
// exp(r) = 1 + r + r^2 (e0 + e1 r + ... + e4 r^4) on |r| <= ln2/2: minimax, 3.1e-9 relative.
inline constexpr float kExp[5] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23dp-10f};
// tanh(x) = x + x^3 (t0 + t1 z + ... + t4 z^4), z = x^2, on |x| <= 0.625: minimax, 4.1e-9 relative.
inline constexpr float kTanh[5] = {-0.33333284f, 0.13331491f, -0.053743497f, 0.020650588f, -0.005717045f};
inline constexpr float kTanhSmall = 0.625f;
inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluTwoRootTwoOverPi = 1.5957691216057308f;  // 2 sqrt(2/pi)
// ln((1 + s) / (1 - s)) = 2 s (1 + z (l0 + l1 z + ... + l6 z^6)), z = s^2: the series itself, 1.4e-9 off at s = 1/3.
inline constexpr float kLog[7] = {1.0f / 3, 1.0f / 5, 1.0f / 7, 1.0f / 9, 1.0f / 11, 1.0f / 13, 1.0f / 15};
}  // namespace constants

// 1 + r + r^2 q(r), with r = x - n ln2.
template <typename V>
static inline typename V::T exp_reduced(typename V::T x, typename V::T shifted) {
  using namespace constants;
  const auto n = V::sub(shifted, V::set(kRound));
  auto r = V::fma(n, V::set(-kLn2Hi), x);
  r = V::fma(n, V::set(-kLn2Lo), r);
  auto q = V::fma(V::set(kExp[4]), r, V::set(kExp[3]));
  q = V::fma(q, r, V::set(kExp[2]));
  q = V::fma(q, r, V::set(kExp[1]));
  q = V::fma(q, r, V::set(kExp[0]));
  return V::add(V::fma(q, V::mul(r, r), r), V::set(1.0f));
}

// exp(x) for x <= 0, as softmax needs it: exactly 0 below -80, exactly 1 at 0. Never denormal.
template <typename V>
static inline typename V::T exp_nonpositive(typename V::T x) {
  using namespace constants;
  const auto shifted = V::fma(x, V::set(kLog2e), V::set(kRound));
  const auto y = V::mul(exp_reduced<V>(x, shifted), V::exp2i(shifted));
  return V::select(V::less(x, V::set(kExpLow)), V::set(0.0f), y);
}

// exp(x) for every x: exactly 0 below -80, infinity where float overflows. Equals exp_nonpositive bit for bit there.
template <typename V>
static inline typename V::T exp(typename V::T x) {
  using namespace constants;
  const auto c = V::select(V::less(V::set(kExpHigh), x), V::set(kExpHigh), x);
  const auto shifted = V::fma(c, V::set(kLog2e), V::set(kRound));
  // 2^n in two factors, since 2^128 is no float: 2^(n-64) * 2^64 for n > 64, else 2^n * 1.
  const auto big = V::less(V::set(kRound + 64.0f), shifted);
  const auto first = V::exp2i(V::select(big, V::sub(shifted, V::set(64.0f)), shifted));
  const auto second = V::select(big, V::set(0x1p64f), V::set(1.0f));
  const auto y = V::mul(V::mul(exp_reduced<V>(c, shifted), first), second);
  return V::select(V::less(x, V::set(kExpLow)), V::set(0.0f), y);
}

template <typename V>
static inline typename V::T tanh(typename V::T x) {
  using namespace constants;
  const auto z = V::mul(x, x);
  auto p = V::fma(V::set(kTanh[4]), z, V::set(kTanh[3]));
  p = V::fma(p, z, V::set(kTanh[2]));
  p = V::fma(p, z, V::set(kTanh[1]));
  p = V::fma(p, z, V::set(kTanh[0]));
  const auto small = V::fma(V::mul(p, z), x, x);
  const auto negative = V::less(x, V::set(0.0f));
  const auto a = V::select(negative, V::sub(V::set(0.0f), x), x);
  const auto e = exp<V>(V::add(a, a));
  const auto big = V::sub(V::set(1.0f), V::div(V::set(2.0f), V::add(e, V::set(1.0f))));
  const auto big_signed = V::select(negative, V::sub(V::set(0.0f), big), big);
  return V::select(V::less(a, V::set(kTanhSmall)), small, big_signed);
}

// x / (1 + exp(-x)).
template <typename V>
static inline typename V::T silu(typename V::T x) {
  return V::div(x, V::add(V::set(1.0f), exp<V>(V::sub(V::set(0.0f), x))));
}

// 1 / (1 + exp(-x)).
template <typename V>
static inline typename V::T sigmoid(typename V::T x) {
  return V::div(V::set(1.0f), V::add(V::set(1.0f), exp<V>(V::sub(V::set(0.0f), x))));
}

// ln(1 + u) for 0 <= u <= 1, from s = u / (2 + u) <= 1/3; keeps its relative accuracy for small u.
template <typename V>
static inline typename V::T log1p_unit(typename V::T u) {
  using namespace constants;
  const auto s = V::div(u, V::add(V::set(2.0f), u));
  const auto z = V::mul(s, s);
  auto p = V::fma(V::set(kLog[6]), z, V::set(kLog[5]));
  p = V::fma(p, z, V::set(kLog[4]));
  p = V::fma(p, z, V::set(kLog[3]));
  p = V::fma(p, z, V::set(kLog[2]));
  p = V::fma(p, z, V::set(kLog[1]));
  p = V::fma(p, z, V::set(kLog[0]));
  const auto twice = V::add(s, s);
  return V::fma(V::mul(twice, z), p, twice);
}

// ln(1 + exp(x)) = max(x, 0) + ln(1 + exp(-|x|)).
template <typename V>
static inline typename V::T softplus(typename V::T x) {
  const auto zero = V::set(0.0f);
  const auto rest = log1p_unit<V>(exp_nonpositive<V>(V::select(V::less(x, zero), x, V::sub(zero, x))));
  return V::add(V::select(V::less(zero, x), x, zero), rest);
}

// 0.5 x (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), in the equal form x / (1 + exp(-2u)): it keeps its relative
// accuracy for negative x, where 1 + tanh(u) cancels, and needs one exp.
template <typename V>
static inline typename V::T gelu_tanh(typename V::T x) {
  using namespace constants;
  const auto inner = V::fma(V::mul(V::mul(x, x), V::set(kGeluCubic)), x, x);
  const auto u2 = V::mul(inner, V::set(kGeluTwoRootTwoOverPi));
  return V::div(x, V::add(V::set(1.0f), exp<V>(V::sub(V::set(0.0f), u2))));
}

// cap * tanh(x / cap).
template <typename V>
static inline typename V::T capped(typename V::T x, typename V::T cap) {
  return V::mul(cap, tanh<V>(V::div(x, cap)));
}

struct SinCos {
  double sin, cos;
};

// sin and cos in double: quarter-turn reduction with pi/2 in three parts, then Taylor to x^15 and x^16 on |r| <= pi/4.
// Within 1e-15 of the truth for |angle| <= 2^30. D::fma(a, b, c) is the one-rounding double fma.
template <typename D>
static inline SinCos sin_cos(double angle) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = angle * 0x1.45f306dc9c883p-1 + kRound;
  const double n = shifted - kRound;
  double r = D::fma(n, -0x1.921fb54442d18p+0, angle);
  r = D::fma(n, -0x1.1a62633145c07p-54, r);
  r = D::fma(n, 0x1.f1976b8p-110, r);
  const double z = r * r;
  double s = D::fma(-1.0 / 1307674368000.0, z, 1.0 / 6227020800.0);
  s = D::fma(s, z, -1.0 / 39916800.0);
  s = D::fma(s, z, 1.0 / 362880.0);
  s = D::fma(s, z, -1.0 / 5040.0);
  s = D::fma(s, z, 1.0 / 120.0);
  s = D::fma(s, z, -1.0 / 6.0);
  s = D::fma(s * z, r, r);
  double c = D::fma(1.0 / 20922789888000.0, z, -1.0 / 87178291200.0);
  c = D::fma(c, z, 1.0 / 479001600.0);
  c = D::fma(c, z, -1.0 / 3628800.0);
  c = D::fma(c, z, 1.0 / 40320.0);
  c = D::fma(c, z, -1.0 / 720.0);
  c = D::fma(c, z, 1.0 / 24.0);
  c = D::fma(c, z, -0.5);
  c = D::fma(c, z, 1.0);
  const std::uint64_t quarter = std::bit_cast<std::uint64_t>(shifted) & 3;  // n mod 4
  const double swapped_sin = (quarter & 1) != 0 ? c : s;
  const double swapped_cos = (quarter & 1) != 0 ? s : c;
  return {(quarter & 2) != 0 ? -swapped_sin : swapped_sin, ((quarter + 1) & 2) != 0 ? -swapped_cos : swapped_cos};
}

namespace generic {

// One lane in plain C++. std::fma is exact on every machine (slow where the processor has none).
struct Lane {
  using T = float;
  static float set(float x) { return x; }
  static float add(float a, float b) { return a + b; }
  static float sub(float a, float b) { return a - b; }
  static float mul(float a, float b) { return a * b; }
  static float div(float a, float b) { return a / b; }
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }
  static bool less(float a, float b) { return a < b; }
  static float select(bool mask, float yes, float no) { return mask ? yes : no; }
  // `shifted` = kRound + k: its low bits are k + 2^22, and the shift drops the 2^22.
  static float exp2i(float shifted) {
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + (127u << 23));
  }
};
struct DoubleLane {
  static double fma(double a, double b, double c) { return std::fma(a, b, c); }
};

}  // namespace generic
}  // namespace lode::kernels
