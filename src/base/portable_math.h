// exp, log and pow in double that give the same bits on every machine: a C library's may change with its version, and
// sampled tokens, log-probabilities and rope factors would change with it. Needs IEEE doubles and no contraction (the
// build's -ffp-contract=off). Owns nothing. Any thread.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace lode::portable {

// e^x: x = n ln2 + r with |r| <= ln2/2, Taylor to r^13 (its remainder is 4e-18), times 2^n. Within 2 ulp for normal
// results; 0 below -708 (no denormals), infinity above 709.78, NaN for NaN.
inline double exp(double x) {
  if (std::isnan(x)) return x;
  if (x < -708.0) return 0.0;
  if (x > 709.782712893384) return std::numeric_limits<double>::infinity();
  constexpr double kRound = 0x1.8p52;                // Adding it rounds to the nearest integer.
  constexpr double kLn2Hi = 0x1.62e42fefap-1;        // 33 bits: n * kLn2Hi is exact for |n| < 2^20.
  constexpr double kLn2Lo = 0x1.cf79abc9e3b398p-40;  // ln2 - kLn2Hi
  const double n = (x * 0x1.71547652b82fep+0 + kRound) - kRound;
  const double r = (x - n * kLn2Hi) - n * kLn2Lo;
  double sum = 1.0 / 6227020800.0;  // 1/13!
  constexpr double kInverse[] = {
      1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
  for (const double c : kInverse) sum = sum * r + c;
  // 2^n in two factors, since 2^1024 is no double.
  const auto power = [](std::int64_t k) { return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52); };
  const auto k = static_cast<std::int64_t>(n);
  return sum * power(k / 2) * power(k - k / 2);
}

// ln x: x = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m - 1) / (m + 1)) to its 21st power. Within 2 ulp, or
// 1e-16 beside 1. -infinity at 0, NaN below.
inline double log(double x) {
  if (std::isnan(x) || x < 0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0) return -std::numeric_limits<double>::infinity();
  if (std::isinf(x)) return x;
  int e = 0;
  double m = std::frexp(x, &e);  // Exact.
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --e;
  }
  const double s = (m - 1) / (m + 1), z = s * s;
  double sum = 1.0 / 21;
  for (int k = 19; k >= 3; k -= 2) sum = sum * z + 1.0 / k;
  constexpr double kLn2Hi = 0x1.62e42fefap-1, kLn2Lo = 0x1.cf79abc9e3b398p-40;
  return e * kLn2Hi + (e * kLn2Lo + (2 * s * z * sum + 2 * s));
}

// b^x for b > 0, as e^(x ln b): the error grows with |x ln b|, to about 1e-15 * |x ln b|.
inline double pow(double b, double x) {
  return exp(x * log(b));
}

}  // namespace lode::portable
