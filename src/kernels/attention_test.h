// What the tests of attention share: sequences, runs of kv_write and attention over them, and a naive attention in
// double. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/generic/attention.h"
#include "kernels/cpu/ops.h"
#include "kernels/kernels.h"

namespace lode::kernels::test {

struct Ops {
  void (*kv_write)(Stream&, const KvWriteArgs&);
  void (*attention)(Stream&, const AttentionArgs&);
};
inline constexpr Ops kGeneric{generic::kv_write, generic::attention};
inline constexpr Ops kAvx2{avx2::kv_write, avx2::attention};

inline bool has_avx2() {
  return available_tables().front()->name != "generic";
}

struct Case {
  std::int32_t heads = 1, kv_heads = 1, k_dim = 64, v_dim = 64;
  std::int64_t window = 0, chunk = 0;
  float softcap = 0;
  bool sinks = false;
  KvType k_type = KvType::f16, v_type = KvType::f16;
};

inline KvLayer layer_of(const Case& c) {
  KvLayer layer;
  layer.k_type = c.k_type;
  layer.v_type = c.v_type;
  layer.kv_heads = c.kv_heads;
  layer.k_dim = c.k_dim;
  layer.v_dim = c.v_dim;
  layer.k_offset = 64;  // Not 0, so that a forgotten offset shows.
  layer.v_offset = 64 + 32 * 4 * c.kv_heads * c.k_dim;
  return layer;
}

// A sequence's inputs, its blocks (all NaN until written) and its outputs.
struct Sequence {
  Case c;
  std::int64_t tokens;
  std::vector<float> q, k, v, out;
  std::vector<float> sinks;
  std::vector<std::vector<std::byte>> blocks;

  Sequence(const Case& config, std::int64_t count, unsigned seed) : c(config), tokens(count) {
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal(0, 1);
    const auto fill = [&](std::vector<float>& x, std::int64_t n) {
      x.resize(static_cast<std::size_t>(n));
      for (float& value : x) value = normal(rng);
    };
    fill(q, tokens * c.heads * c.k_dim);
    fill(k, tokens * c.kv_heads * c.k_dim);
    fill(v, tokens * c.kv_heads * c.v_dim);
    fill(sinks, c.heads);
    out.assign(static_cast<std::size_t>(tokens * c.heads * c.v_dim), std::numeric_limits<float>::quiet_NaN());
    clear_blocks();
  }
  void clear_blocks() {
    const std::size_t bytes = static_cast<std::size_t>(64 + 32 * 4 * c.kv_heads * (c.k_dim + c.v_dim));
    blocks.assign(static_cast<std::size_t>((tokens + 31) / 32), std::vector<std::byte>(bytes, std::byte{0xFF}));
  }
  float scale() const { return 1.5f / std::sqrt(static_cast<float>(c.k_dim)); }
};

inline std::int64_t naive_first(const Case& c, std::int64_t p) {
  std::int64_t first = 0;
  for (std::int64_t t = p; t >= 0; --t) {
    const bool in_window = c.window == 0 || t > p - c.window;
    const bool in_chunk = c.chunk == 0 || t / c.chunk == p / c.chunk;
    if (in_window && in_chunk) first = t;
  }
  return first;
}

// One step: consecutive tokens of several sequences, in one batch.
struct Piece {
  Sequence* sequence;
  std::int64_t first, count;
};

struct Runner {
  Ops ops;
  ThreadPool pool;
  std::vector<std::byte> scratch;
  std::vector<float> room;
  Stream stream;

  Runner(Ops with, int threads) : ops(with), pool(threads) {
    const std::size_t bytes = generic::attention_scratch_bytes(576);
    // NaN everywhere: stale scratch must not reach a result.
    scratch.assign(bytes * static_cast<std::size_t>(threads) + 64, std::byte{0xFF});
    stream.pool = &pool;
    void* base = scratch.data();
    std::size_t space = scratch.size();
    stream.scratch = static_cast<std::byte*>(std::align(64, bytes, base, space));
    stream.scratch_bytes_per_thread = bytes;
    room.assign(1 << 21, std::numeric_limits<float>::quiet_NaN());
  }

  void step(std::vector<Piece> pieces) {
    const Case& c = pieces[0].sequence->c;
    std::vector<float> q, k, v;
    std::vector<KvRun> runs;
    std::vector<std::vector<std::byte*>> tables;
    std::int64_t n = 0;
    for (const Piece& piece : pieces) {
      Sequence& s = *piece.sequence;
      const auto append = [&](std::vector<float>& to, const std::vector<float>& from, std::int64_t width) {
        to.insert(to.end(), from.begin() + piece.first * width, from.begin() + (piece.first + piece.count) * width);
      };
      append(q, s.q, c.heads * c.k_dim);
      append(k, s.k, c.kv_heads * c.k_dim);
      append(v, s.v, c.kv_heads * c.v_dim);
      std::vector<std::byte*>& table = tables.emplace_back();
      const std::int64_t visible = naive_first(c, piece.first) / 32;
      for (std::int64_t b = 0; b * 32 < piece.first + piece.count; ++b) {
        table.push_back(b < visible ? nullptr : s.blocks[static_cast<std::size_t>(b)].data());
      }
      runs.push_back({.first_row = n, .count = piece.count, .first_position = piece.first, .blocks = nullptr});
      n += piece.count;
    }
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i].blocks = tables[i].data();
    std::vector<float> out(static_cast<std::size_t>(n * c.heads * c.v_dim), std::numeric_limits<float>::quiet_NaN());
    ops.kv_write(stream, {.k = k.data(), .v = v.data(), .layer = layer_of(c), .runs = runs});
    AttentionArgs args;
    args.q = q.data();
    args.out = out.data();
    args.heads = c.heads;
    args.scale = pieces[0].sequence->scale();
    args.window = c.window;
    args.chunk = c.chunk;
    args.softcap = c.softcap;
    args.sinks = c.sinks ? pieces[0].sequence->sinks.data() : nullptr;
    args.layer = layer_of(c);
    args.runs = runs;
    args.span_room = room.data();
    args.span_room_floats = room.size();
    ops.attention(stream, args);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const std::int64_t width = c.heads * c.v_dim;
      std::memcpy(pieces[i].sequence->out.data() + pieces[i].first * width, out.data() + runs[i].first_row * width,
                  static_cast<std::size_t>(pieces[i].count * width) * sizeof(float));
    }
  }

  // The whole sequence in chunks; its outputs.
  std::vector<float> all(Sequence& s, std::int64_t chunk) {
    s.clear_blocks();
    s.out.assign(s.out.size(), std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t p = 0; p < s.tokens; p += chunk) step({{&s, p, std::min(chunk, s.tokens - p)}});
    return s.out;
  }
};

// One side of one token and head.
enum class Side { k, v };
inline std::vector<double> input(const Sequence& s, Side side, std::int64_t t, std::int64_t head) {
  const std::vector<float>& from = side == Side::k ? s.k : s.v;
  const auto dim = static_cast<std::size_t>(side == Side::k ? s.c.k_dim : s.c.v_dim);
  const auto* x = from.data() + static_cast<std::size_t>(t * s.c.kv_heads + head) * dim;
  return {x, x + dim};
}

// Attention of one (token, head) in double over given rows of K and V [tokens from `first`][dim]; the weights too.
struct Naive {
  std::vector<double> weights, out;
  double norm = 0;  // The largest sum of |q k|.
};
inline Naive naive(const Sequence& s, std::int64_t head, const std::vector<double>& q,
                   const std::vector<std::vector<double>>& k, const std::vector<std::vector<double>>& v) {
  const Case& c = s.c;
  Naive r;
  double top = c.sinks ? s.sinks[static_cast<std::size_t>(head)] : -1e30;
  for (const std::vector<double>& row : k) {
    double sum = 0, abs_sum = 0;
    for (std::size_t d = 0; d < row.size(); ++d) sum += q[d] * row[d], abs_sum += std::abs(q[d] * row[d]);
    r.norm = std::max(r.norm, abs_sum);
    if (c.softcap > 0) sum = c.softcap * std::tanh(sum / c.softcap);
    r.weights.push_back(sum);
    top = std::max(top, sum);
  }
  double total = c.sinks ? std::exp(s.sinks[static_cast<std::size_t>(head)] - top) : 0;
  for (double& x : r.weights) total += x = std::exp(x - top);
  r.out.resize(v[0].size());
  for (std::size_t t = 0; t < v.size(); ++t) {
    r.weights[t] /= total;
    for (std::size_t d = 0; d < v[t].size(); ++d) r.out[d] += r.weights[t] * v[t][d];
  }
  return r;
}

inline std::vector<double> query(const Sequence& s, std::int64_t p, std::int64_t h) {
  const auto dim = static_cast<std::size_t>(s.c.k_dim);
  std::vector<double> q(dim);
  for (std::size_t d = 0; d < dim; ++d) q[d] = s.q[static_cast<std::size_t>(p * s.c.heads + h) * dim + d] * s.scale();
  return q;
}

inline ::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << "sizes " << a.size() << ", " << b.size();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], 4) != 0 || std::isnan(a[i])) {
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << ", " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace lode::kernels::test
