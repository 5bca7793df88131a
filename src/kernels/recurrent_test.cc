// The kernels of recurrent layers: against double, bit for bit between instruction sets, threads, and cuts of a
// sequence into chunks and batches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/generic/math.h"
#include "kernels/cpu/ops.h"
#include "kernels/kernels.h"

namespace lode::kernels {
namespace {

using generic::Lane;
using Floats = std::vector<float>;

Floats random_floats(std::size_t count, unsigned seed, float scale) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, scale);
  Floats x(count);
  for (float& v : x) v = normal(rng);
  return x;
}

// A Stream with the scratch that kernels ask for.
struct Machine {
  ThreadPool pool;
  std::vector<std::byte> scratch;
  Stream stream;
  Machine(const Table* table, int threads) : pool(threads) {
    const std::size_t each = scratch_bytes_per_thread(4096, 256);
    scratch.resize(each * static_cast<std::size_t>(threads) + 64);
    auto at = reinterpret_cast<std::uintptr_t>(scratch.data());
    stream = {table, &pool, scratch.data() + (64 - at % 64) % 64, each, nullptr};
  }
};

// Runs fn(machine) with every table on one thread and on three, and expects the same bits of all. Returns them.
template <typename Fn>
Floats expect_same(Fn fn) {
  Floats first;
  for (const int threads : {1, 3}) {
    for (const Table* table : available_tables()) {
      Machine machine(table, threads);
      const Floats got = fn(machine.stream);
      if (first.empty()) first = got;
      EXPECT_EQ(first.size(), got.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (std::memcmp(&first[i], &got[i], 4) == 0) continue;
        ADD_FAILURE() << table->name << ", " << threads << " threads, value " << i << ": " << got[i] << ", not "
                      << first[i];
        return first;
      }
    }
  }
  return first;
}

TEST(Math, SoftplusAndSigmoidAreWithinTheirBounds) {
  const auto ulps = [](float got, double truth) {
    int exponent;
    std::frexp(static_cast<float>(truth), &exponent);
    return std::abs(static_cast<double>(got) - truth) / std::ldexp(1.0, std::max(exponent, -125) - 24);
  };
  double softplus_worst = 0, sigmoid_worst = 0, log_worst = 0;
  for (int i = 0; i <= 1000000; ++i) {
    const float x = -70.0f + 140.0f * static_cast<float>(i) / 1000000, u = static_cast<float>(i) / 1000000;
    softplus_worst =
        std::max(softplus_worst, ulps(softplus<Lane>(x), std::max(0.0, static_cast<double>(x)) +
                                                             std::log1p(std::exp(-std::abs(static_cast<double>(x))))));
    sigmoid_worst = std::max(sigmoid_worst, ulps(sigmoid<Lane>(x), 1 / (1 + std::exp(-static_cast<double>(x)))));
    log_worst = std::max(log_worst, ulps(log1p_unit<Lane>(u), std::log1p(static_cast<double>(u))));
  }
  std::printf("softplus %.2f, sigmoid %.2f, log1p %.2f ulp\n", softplus_worst, sigmoid_worst, log_worst);
  EXPECT_LT(softplus_worst, 4.0);
  EXPECT_LT(sigmoid_worst, 3.0);
  EXPECT_LT(log_worst, 2.5);
  EXPECT_EQ(softplus<Lane>(-100.0f), 0.0f);
  EXPECT_EQ(softplus<Lane>(100.0f), 100.0f);
  EXPECT_EQ(softplus<Lane>(INFINITY), INFINITY);
  EXPECT_TRUE(std::isnan(softplus<Lane>(NAN)));
  EXPECT_EQ(sigmoid<Lane>(-INFINITY), 0.0f);
  EXPECT_EQ(sigmoid<Lane>(INFINITY), 1.0f);
  EXPECT_TRUE(std::isnan(sigmoid<Lane>(NAN)));
}

// Cuts of 23 tokens of one sequence; every one must give the same outputs and the same last state.
const std::vector<std::vector<std::int64_t>> kCuts = {{23}, {1, 22}, {2, 1, 20}, {20, 3}, {7, 7, 7, 2}};

// Runs fn(stream, first_row, run) chunk by chunk; states go back and forth between two rooms that start as NaN.
template <typename Fn>
Floats in_chunks(Stream& s, const std::vector<std::int64_t>& cuts, std::size_t state_floats, Fn fn) {
  Floats rooms[2] = {Floats(state_floats, NAN), Floats(state_floats, NAN)};
  std::int64_t row = 0;
  int now = 0;
  for (const std::int64_t count : cuts) {
    fn(s, row,
       StateRun{0, count, row == 0 ? nullptr : reinterpret_cast<const std::byte*>(rooms[now].data()),
                reinterpret_cast<std::byte*>(rooms[1 - now].data())});
    now = 1 - now;
    row += count;
  }
  return rooms[now];
}

TEST(CausalConv, AgreesWithDoubleInAnyChunks) {
  const std::int64_t n = 23, taps = 4;
  for (const std::int64_t channels : {1, 9, 64, 200, 1100}) {
    const Floats x = random_floats(static_cast<std::size_t>(n * channels), 1, 1);
    const Floats w = random_floats(static_cast<std::size_t>(taps * channels), 2, 0.5f);
    Floats first;
    for (const auto& cuts : kCuts) {
      const Floats got = expect_same([&](Stream& s) {
        Floats out(x.size());
        const Floats state = in_chunks(s, cuts, static_cast<std::size_t>(channels * (taps - 1)),
                                       [&](Stream& stream, std::int64_t row, StateRun run) {
                                         stream.ops->causal_conv(stream, {.x = x.data() + row * channels,
                                                                          .weights = w.data(),
                                                                          .out = out.data() + row * channels,
                                                                          .channels = channels,
                                                                          .taps = taps,
                                                                          .runs = {&run, 1}});
                                       });
        EXPECT_EQ(state, Floats(x.end() - channels * (taps - 1), x.end()));  // Its last three inputs.
        return out;
      });
      if (first.empty()) first = got;
      EXPECT_EQ(first, got);
    }
    for (std::int64_t t = 0; t < n; ++t)
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::int64_t j = std::max<std::int64_t>(0, taps - 1 - t); j < taps; ++j)
          sum += static_cast<double>(w[static_cast<std::size_t>(j * channels + c)]) *
                 x[static_cast<std::size_t>((t + j - taps + 1) * channels + c)];
        EXPECT_NEAR(first[static_cast<std::size_t>(t * channels + c)], sum / (1 + std::exp(-sum)), 2e-6);
      }
  }
}

TEST(L2Norm, ScalesTheFirstHeadsOfARow) {
  const std::int64_t n = 5, heads = 3;
  for (const std::int64_t dim : {1, 7, 16, 20, 64, 128}) {
    const std::int64_t stride = heads * dim + 11;
    const Floats x = random_floats(static_cast<std::size_t>(n * stride), 3, 0.3f);
    const Floats got = expect_same([&](Stream& s) {
      Floats out = x;
      s.ops->l2_norm(s, {out.data(), n, stride, heads, dim, 1e-6f, 0.25f});
      return out;
    });
    for (std::int64_t r = 0; r < n; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        double sum = 0;
        for (std::int64_t i = 0; i < dim; ++i)
          sum += std::pow(x[static_cast<std::size_t>(r * stride + h * dim + i)], 2.0);
        for (std::int64_t i = 0; i < dim; ++i) {
          const auto at = static_cast<std::size_t>(r * stride + h * dim + i);
          EXPECT_NEAR(got[at], x[at] * 0.25 / std::sqrt(sum + 1e-6), 1e-6);
        }
      }
      for (std::int64_t i = heads * dim; i < stride; ++i)
        EXPECT_EQ(got[static_cast<std::size_t>(r * stride + i)], x[static_cast<std::size_t>(r * stride + i)]);
    }
  }
}

TEST(DeltaGates, AgreeWithDouble) {
  const std::int64_t n = 70;
  for (const std::int64_t heads : {1, 4, 13, 32}) {
    const std::size_t count = static_cast<std::size_t>(n * heads);
    const Floats alpha = random_floats(count, 4, 3), beta = random_floats(count, 5, 3);
    const Floats dt = random_floats(static_cast<std::size_t>(heads), 6, 1);
    Floats a = random_floats(static_cast<std::size_t>(heads), 7, 1);
    for (float& v : a) v = -std::abs(v);
    const Floats got = expect_same([&](Stream& s) {
      Floats out = alpha, second = beta;
      s.ops->delta_gates(s, {out.data(), second.data(), dt.data(), a.data(), n, heads});
      out.insert(out.end(), second.begin(), second.end());
      return out;
    });
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t h = i % static_cast<std::size_t>(heads);
      const double decay = std::exp(a[h] * std::log1p(std::exp(static_cast<double>(alpha[i]) + dt[h])));
      EXPECT_NEAR(got[i], decay, 2e-6);
      EXPECT_NEAR(got[count + i], 1 / (1 + std::exp(-static_cast<double>(beta[i]))), 2e-7);
    }
  }
}

struct DeltaCase {
  std::int64_t k_heads, v_heads, k_dim, v_dim;
};

// One sequence's inputs of a gated delta net.
struct DeltaInput {
  std::int64_t n;
  DeltaCase c;
  Floats mixed, decay, beta;  // [n, 2 * k_heads * k_dim + v_heads * v_dim], [n, v_heads], [n, v_heads]
  DeltaInput(std::int64_t n_, DeltaCase c_, unsigned seed) : n(n_), c(c_) {
    mixed = random_floats(static_cast<std::size_t>(n * stride()), seed, 0.3f);
    const auto gates = static_cast<std::size_t>(n * c.v_heads);
    for (const float v : random_floats(gates, seed + 1, 1)) decay.push_back(1 / (1 + std::exp(-v - 2)));
    for (const float v : random_floats(gates, seed + 2, 1)) beta.push_back(1 / (1 + std::exp(-v)));
  }
  std::int64_t stride() const { return 2 * c.k_heads * c.k_dim + c.v_heads * c.v_dim; }
  std::size_t state_floats() const { return static_cast<std::size_t>(c.v_heads * c.k_dim * c.v_dim); }
  DeltaNetArgs args(std::int64_t row, float* out, std::span<const StateRun> runs) const {
    const float* q = mixed.data() + row * stride();
    const std::int64_t keys = c.k_heads * c.k_dim;
    return {.q = q,
            .k = q + keys,
            .v = q + 2 * keys,
            .decay = decay.data() + row * c.v_heads,
            .beta = beta.data() + row * c.v_heads,
            .out = out + row * c.v_heads * c.v_dim,
            .stride = stride(),
            .k_heads = c.k_heads,
            .v_heads = c.v_heads,
            .k_dim = c.k_dim,
            .v_dim = c.v_dim,
            .runs = runs};
  }
};

// The recurrence as the paper has it, in double: outputs, then the last state.
std::vector<double> delta_reference(const DeltaInput& in) {
  const DeltaCase& c = in.c;
  std::vector<double> out(static_cast<std::size_t>(in.n * c.v_heads * c.v_dim)), states;
  for (std::int64_t h = 0; h < c.v_heads; ++h) {
    std::vector<std::vector<double>> s(static_cast<std::size_t>(c.k_dim),
                                       std::vector<double>(static_cast<std::size_t>(c.v_dim)));
    for (std::int64_t t = 0; t < in.n; ++t) {
      const float* q = in.mixed.data() + t * in.stride() + h % c.k_heads * c.k_dim;
      const float* k = q + c.k_heads * c.k_dim;
      const float* v = in.mixed.data() + t * in.stride() + 2 * c.k_heads * c.k_dim + h * c.v_dim;
      const auto gate = static_cast<std::size_t>(t * c.v_heads + h);
      for (auto& row : s)
        for (double& x : row) x *= in.decay[gate];
      for (std::size_t j = 0; j < static_cast<std::size_t>(c.v_dim); ++j) {
        double seen = 0, sum = 0;
        for (std::size_t i = 0; i < s.size(); ++i) seen += s[i][j] * k[i];
        for (std::size_t i = 0; i < s.size(); ++i) s[i][j] += k[i] * in.beta[gate] * (v[j] - seen);
        for (std::size_t i = 0; i < s.size(); ++i) sum += s[i][j] * q[i];
        out[static_cast<std::size_t>((t * c.v_heads + h) * c.v_dim) + j] = sum;
      }
    }
    for (const auto& row : s) states.insert(states.end(), row.begin(), row.end());
  }
  out.insert(out.end(), states.begin(), states.end());
  return out;
}

TEST(DeltaNet, AgreesWithDoubleInAnyChunks) {
  // Whole tiles, ragged ones, tiny ones, and the sizes of real models (128 by 128).
  for (const DeltaCase c : {DeltaCase{1, 1, 1, 1}, {2, 4, 64, 64}, {1, 3, 20, 40}, {2, 2, 5, 7}, {1, 2, 128, 128}}) {
    const DeltaInput in(23, c, 11);
    Floats first;
    for (const auto& cuts : kCuts) {
      const Floats got = expect_same([&](Stream& s) {
        Floats out(static_cast<std::size_t>(in.n * c.v_heads * c.v_dim));
        const Floats state = in_chunks(s, cuts, in.state_floats(), [&](Stream& stream, std::int64_t row, StateRun run) {
          stream.ops->delta_net(stream, in.args(row, out.data(), {&run, 1}));
        });
        out.insert(out.end(), state.begin(), state.end());
        return out;
      });
      if (first.empty()) first = got;
      EXPECT_EQ(first, got);
    }
    const std::vector<double> want = delta_reference(in);
    ASSERT_EQ(first.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(first[i], want[i], 3e-5) << i;
  }
}

// Two sequences in one call, one of them fresh, equal each alone; offsets into a larger state are kept.
TEST(DeltaNet, AloneEqualsBatchedAtAnyOffset) {
  const DeltaCase c{2, 4, 64, 64};
  const DeltaInput in(23, c, 21);
  const std::size_t floats = in.state_floats(), pad = 5;
  expect_same([&](Stream& s) {
    const std::size_t width = static_cast<std::size_t>(c.v_heads * c.v_dim);
    Floats out(23 * width), alone(23 * width);
    Floats old(pad + floats, 0.5f), next[2] = {Floats(pad + floats, 7.0f), Floats(pad + floats, 7.0f)};
    const auto bytes = [](Floats& f) { return reinterpret_cast<std::byte*>(f.data()); };
    const StateRun runs[2] = {{0, 20, bytes(old), bytes(next[0])}, {20, 3, nullptr, bytes(next[1])}};
    DeltaNetArgs args = in.args(0, out.data(), runs);
    args.state_offset = static_cast<std::int64_t>(pad * 4);
    s.ops->delta_net(s, args);
    for (const Floats& state : next) EXPECT_EQ(std::count(state.begin(), state.begin() + pad, 7.0f), 5);
    for (int r = 0; r < 2; ++r) {
      Floats kept(floats);
      const StateRun run{0, runs[r].count, r == 0 ? bytes(old) + pad * 4 : nullptr, bytes(kept)};
      s.ops->delta_net(s, in.args(runs[r].first_row, alone.data(), {&run, 1}));
      EXPECT_TRUE(std::equal(kept.begin(), kept.end(), next[r].begin() + pad));
    }
    EXPECT_EQ(out, alone);
    return out;
  });
}

}  // namespace
}  // namespace lode::kernels
