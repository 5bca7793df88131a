// The operations of zmm.h in plain C++, lane by lane as the processor's manual defines them: tests run the AVX-512
// kernels' own code with them on any machine. Reads and writes exactly the bytes that the processor would. Owns
// nothing. Tests only.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "quant/types.h"

namespace lode::kernels::avx512 {

// Calls, not copies: inlined hundreds of times a kernel, the loops would take minutes to compile.
#define LODE_EMULATED_OP __attribute__((noinline))

struct Emulated {
  struct F {
    float v[16];
  };
  struct I {
    std::uint8_t b[64];
    std::int32_t at(int i) const { return word<std::int32_t>(i); }
    template <typename W>
    W word(int i) const {
      W w;
      std::memcpy(&w, b + static_cast<std::size_t>(i) * sizeof(W), sizeof(W));
      return w;
    }
  };
  using M = std::uint16_t;
  using T = F;

  LODE_EMULATED_OP static F zero() { return set(0); }
  LODE_EMULATED_OP static F set(float x) {
    return lanes([&](int) { return x; });
  }
  LODE_EMULATED_OP static F load(const float* p) { return load_first(p, 16); }
  LODE_EMULATED_OP static void store(float* p, F x) { std::memcpy(p, x.v, 64); }
  LODE_EMULATED_OP static F load_first(const float* p, std::int64_t count) {
    F x{};
    std::memcpy(x.v, p, static_cast<std::size_t>(count) * 4);
    return x;
  }
  LODE_EMULATED_OP static void store_first(float* p, std::int64_t count, F x) {
    std::memcpy(p, x.v, static_cast<std::size_t>(count) * 4);
  }
  LODE_EMULATED_OP static F load_half(const std::uint16_t* p) { return load_half_first(p, 16); }
  LODE_EMULATED_OP static F load_half_first(const std::uint16_t* p, std::int64_t count) {
    return words_first(p, count, quant::f16_to_f32);
  }
  LODE_EMULATED_OP static F load_brain(const std::uint16_t* p) { return load_brain_first(p, 16); }
  LODE_EMULATED_OP static F load_brain_first(const std::uint16_t* p, std::int64_t count) {
    return words_first(p, count, quant::bf16_to_f32);
  }
  LODE_EMULATED_OP static F halves(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
    const std::uint64_t all[4] = {a, b, c, d};
    std::uint16_t h[16];
    std::memcpy(h, all, 32);
    return load_half(h);
  }

  LODE_EMULATED_OP static F add(F a, F b) {
    return lanes([&](int i) { return a.v[i] + b.v[i]; });
  }
  LODE_EMULATED_OP static F sub(F a, F b) {
    return lanes([&](int i) { return a.v[i] - b.v[i]; });
  }
  LODE_EMULATED_OP static F mul(F a, F b) {
    return lanes([&](int i) { return a.v[i] * b.v[i]; });
  }
  LODE_EMULATED_OP static F div(F a, F b) {
    return lanes([&](int i) { return a.v[i] / b.v[i]; });
  }
  LODE_EMULATED_OP static F fma(F a, F b, F c) {
    return lanes([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
  }
  LODE_EMULATED_OP static F fms(F a, F b, F c) {
    return lanes([&](int i) { return std::fma(a.v[i], b.v[i], -c.v[i]); });
  }
  LODE_EMULATED_OP static F fnma(F a, F b, F c) {
    return lanes([&](int i) { return std::fma(-a.v[i], b.v[i], c.v[i]); });
  }
  LODE_EMULATED_OP static F fma_alt(F a, F b, F c) {
    return lanes([&](int i) { return std::fma(a.v[i], b.v[i], i % 2 == 0 ? -c.v[i] : c.v[i]); });
  }
  LODE_EMULATED_OP static F max(F a, F b) {
    return lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  LODE_EMULATED_OP static M less(F a, F b) {
    unsigned mask = 0;
    for (int i = 0; i < 16; ++i) mask |= (a.v[i] < b.v[i] ? 1u : 0u) << i;
    return static_cast<M>(mask);
  }
  LODE_EMULATED_OP static F select(M mask, F yes, F no) {
    return lanes([&](int i) { return ((mask >> i) & 1) != 0 ? yes.v[i] : no.v[i]; });
  }
  LODE_EMULATED_OP static F exp2i(F shifted) {
    return lanes(
        [&](int i) { return std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted.v[i]) << 23) + (127u << 23)); });
  }
  LODE_EMULATED_OP static float lane0(F x) { return x.v[0]; }
  LODE_EMULATED_OP static float tree_sum(F x) {
    for (int step = 8; step >= 1; step /= 2)
      for (int i = 0; i < step; ++i) x.v[i] += x.v[i + step];
    return x.v[0];
  }
  LODE_EMULATED_OP static float largest(F x) {
    for (int step = 8; step >= 1; step /= 2)
      for (int i = 0; i < step; ++i) x.v[i] = x.v[i] > x.v[i + step] ? x.v[i] : x.v[i + step];
    return x.v[0];
  }
  LODE_EMULATED_OP static F evens(F x) {
    return lanes([&](int i) { return x.v[i & ~1]; });
  }
  LODE_EMULATED_OP static F odds(F x) {
    return lanes([&](int i) { return x.v[i | 1]; });
  }
  LODE_EMULATED_OP static F swap_pairs(F x) {
    return lanes([&](int i) { return x.v[i ^ 1]; });
  }
  LODE_EMULATED_OP static F all_evens(F a, F b) {
    return lanes([&](int i) { return i < 8 ? a.v[2 * i] : b.v[2 * i - 16]; });
  }
  LODE_EMULATED_OP static F all_odds(F a, F b) {
    return lanes([&](int i) { return i < 8 ? a.v[2 * i + 1] : b.v[2 * i - 15]; });
  }

  LODE_EMULATED_OP static I izero() { return set8(0); }
  LODE_EMULATED_OP static I set8(int x) {
    I r;
    std::memset(r.b, x, 64);
    return r;
  }
  LODE_EMULATED_OP static I set32(std::int32_t x) {
    return words<std::int32_t>([&](int) { return x; });
  }
  LODE_EMULATED_OP static I iload(const void* p) {
    I r;
    std::memcpy(r.b, p, 64);
    return r;
  }
  LODE_EMULATED_OP static void istore(void* p, I x) { std::memcpy(p, x.b, 64); }
  LODE_EMULATED_OP static I broadcast32(const void* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return set32(v);
  }
  LODE_EMULATED_OP static I pair(const void* low, const void* high) {
    I r;
    std::memcpy(r.b, low, 32);
    std::memcpy(r.b + 32, high, 32);
    return r;
  }
  LODE_EMULATED_OP static I low_half(const void* p) {
    I r{};
    std::memcpy(r.b, p, 32);
    return r;
  }
  LODE_EMULATED_OP static I quads(const void* low, const void* high) {
    I r;
    for (int i = 0; i < 4; ++i) std::memcpy(r.b + 16 * i, i < 2 ? low : high, 16);
    return r;
  }
  LODE_EMULATED_OP static I widen_u8(std::uint64_t low, std::uint64_t high) {
    return words<std::int32_t>(
        [&](int i) { return static_cast<std::int32_t>(((i < 8 ? low : high) >> (8 * (i % 8))) & 255); });
  }
  LODE_EMULATED_OP static I widen_s8(const std::int8_t* p) {
    return words<std::int32_t>([&](int i) { return std::int32_t{p[i]}; });
  }
  LODE_EMULATED_OP static I widen_s16(const std::int16_t* p) {
    return words<std::int32_t>([&](int i) { return std::int32_t{p[i]}; });
  }
  LODE_EMULATED_OP static I widen_s16_high(const std::int16_t* p) {
    return words<std::int32_t>([&](int i) { return i < 8 ? 0 : std::int32_t{p[i - 8]}; });
  }

  LODE_EMULATED_OP static I dot_u8s8(I acc, I u, I s) {
    return words<std::int32_t>([&](int i) {
      std::uint32_t sum = acc.word<std::uint32_t>(i);
      for (int j = 4 * i; j < 4 * i + 4; ++j)
        sum += static_cast<std::uint32_t>(u.b[j] * static_cast<std::int8_t>(s.b[j]));
      return static_cast<std::int32_t>(sum);
    });
  }
  LODE_EMULATED_OP static I dot_s16(I acc, I a, I b) {
    return words<std::int32_t>([&](int i) {
      std::uint32_t sum = acc.word<std::uint32_t>(i);
      for (int j = 2 * i; j < 2 * i + 2; ++j)
        sum += static_cast<std::uint32_t>(a.word<std::int16_t>(j) * b.word<std::int16_t>(j));
      return static_cast<std::int32_t>(sum);
    });
  }
  LODE_EMULATED_OP static I add32(I a, I b) {
    return words<std::uint32_t>([&](int i) { return a.word<std::uint32_t>(i) + b.word<std::uint32_t>(i); });
  }
  LODE_EMULATED_OP static I sub32(I a, I b) {
    return words<std::uint32_t>([&](int i) { return a.word<std::uint32_t>(i) - b.word<std::uint32_t>(i); });
  }
  LODE_EMULATED_OP static I mul32(I a, I b) {
    return words<std::uint32_t>([&](int i) { return a.word<std::uint32_t>(i) * b.word<std::uint32_t>(i); });
  }
  LODE_EMULATED_OP static F store_s16(std::int16_t* p, F x) {
    return lanes([&](int i) {
      const auto word = static_cast<std::int16_t>(std::lrint(x.v[i]));
      std::memcpy(p + i, &word, 2);
      return static_cast<float>(word);
    });
  }
  LODE_EMULATED_OP static F to_f32(I x) {
    return lanes([&](int i) { return static_cast<float>(x.at(i)); });
  }
  LODE_EMULATED_OP static I and_(I a, I b) {
    return words<std::uint64_t>([&](int i) { return a.word<std::uint64_t>(i) & b.word<std::uint64_t>(i); });
  }
  LODE_EMULATED_OP static I or_(I a, I b) {
    return words<std::uint64_t>([&](int i) { return a.word<std::uint64_t>(i) | b.word<std::uint64_t>(i); });
  }
  LODE_EMULATED_OP static I xor_(I a, I b) {
    return words<std::uint64_t>([&](int i) { return a.word<std::uint64_t>(i) ^ b.word<std::uint64_t>(i); });
  }
  LODE_EMULATED_OP static I rotate64(I x, I counts) {
    return words<std::uint64_t>([&](int i) {
      return std::rotr(x.word<std::uint64_t>(i), static_cast<int>(counts.word<std::uint64_t>(i) & 63));
    });
  }
  LODE_EMULATED_OP static I counts64(int a, int b, int c, int d) {
    const int all[4] = {a, b, c, d};
    return words<std::uint64_t>([&](int i) { return static_cast<std::uint64_t>(all[i / 2]); });
  }
  LODE_EMULATED_OP static I add8_where(I x, std::uint64_t bits, int value) {
    for (int i = 0; i < 64; ++i)
      if (((bits >> i) & 1) != 0) x.b[i] = static_cast<std::uint8_t>(x.b[i] + value);
    return x;
  }
  LODE_EMULATED_OP static I permute32(I index, I x) {
    return words<std::int32_t>([&](int i) { return x.at(index.at(i) & 15); });
  }
  template <int kFirst, int kRepeat>
  LODE_EMULATED_OP static I lane_index() {
    return words<std::int32_t>([](int i) { return kFirst + i / kRepeat; });
  }
  LODE_EMULATED_OP static I low32(I a, I b) { return interleave<std::uint32_t>(a, b, 0); }
  LODE_EMULATED_OP static I high32(I a, I b) { return interleave<std::uint32_t>(a, b, 2); }
  LODE_EMULATED_OP static I low64(I a, I b) { return interleave<std::uint64_t>(a, b, 0); }
  LODE_EMULATED_OP static I high64(I a, I b) { return interleave<std::uint64_t>(a, b, 1); }
  LODE_EMULATED_OP static I even_quads(I a, I b) { return quads_of(a, b, 0); }
  LODE_EMULATED_OP static I odd_quads(I a, I b) { return quads_of(a, b, 1); }

  LODE_EMULATED_OP static void fetch_near(const void*) {}
  LODE_EMULATED_OP static void fetch_l2(const void*) {}
  LODE_EMULATED_OP static void pin(I&) {}
  LODE_EMULATED_OP static void pin(F&) {}

 private:
  template <typename Fn>
  static F lanes(Fn fn) {
    F r;
    for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
    return r;
  }
  template <typename W, typename Fn>
  static I words(Fn fn) {
    I r;
    for (int i = 0; i < static_cast<int>(64 / sizeof(W)); ++i) {
      const W w = fn(i);
      std::memcpy(r.b + static_cast<std::size_t>(i) * sizeof(W), &w, sizeof(W));
    }
    return r;
  }
  template <typename Fn>
  static F words_first(const std::uint16_t* p, std::int64_t count, Fn fn) {
    F x{};
    for (std::int64_t i = 0; i < count; ++i) x.v[i] = fn(p[i]);
    return x;
  }
  // In each 128-bit lane: words `first`, ... of a and of b in turn.
  template <typename W>
  static I interleave(I a, I b, int first) {
    constexpr int kIn = 16 / sizeof(W);
    return words<W>([&](int i) {
      const int from = i / kIn * kIn + first + i % kIn / 2;
      return i % 2 == 0 ? a.word<W>(from) : b.word<W>(from);
    });
  }
  static I quads_of(I a, I b, int first) {
    I r;
    for (int i = 0; i < 4; ++i) std::memcpy(r.b + 16 * i, (i < 2 ? a : b).b + 16 * (first + 2 * (i % 2)), 16);
    return r;
  }
};

#undef LODE_EMULATED_OP

}  // namespace lode::kernels::avx512
