// What a stored block is worth: the seconds that having it saves, times how often that is to be expected, a byte. Pure
// figures, measured while the engine runs; owns no blocks. The store, the disk tier and the simulator
// (bench/kv_sim.cc) call the same code. One thread at a time. docs/eviction.md explains it.
#pragma once

#include <array>
#include <cstdint>

namespace lode::kv {

// Seconds of computing, as a function of depth: a token at position p takes per_token + per_depth * p. Fitted to the
// steps by least squares, with the newer ones counting more.
class ComputeCost {
 public:
  // Before anything is measured: a small model on a few cores.
  static constexpr double kPerToken = 1e-3, kPerDepth = 1e-7;

  ComputeCost() = default;
  ComputeCost(double per_token, double per_depth) : per_token_(per_token), per_depth_(per_depth) {}

  // A step that computed `tokens` tokens whose positions add up to `positions`. Steps of few tokens are passed over:
  // they read all weights for little work, and a prompt is not computed that way.
  void observe(std::int64_t tokens, double positions, double seconds);
  bool measured() const { return steps_ >= kStepsLeast; }
  // Of tokens [from, from + tokens).
  double seconds(std::int64_t from, std::int64_t tokens) const {
    const auto n = static_cast<double>(tokens), p = static_cast<double>(from);
    return per_token_ * n + per_depth_ * (n * p + n * n / 2);
  }
  double per_token() const { return per_token_; }
  double per_depth() const { return per_depth_; }

 private:
  static constexpr std::int64_t kTokensLeast = 32;
  static constexpr int kStepsLeast = 2;
  // A step of 512 tokens counts half after 43 more: a minute of prompts.
  static constexpr double kKeep = 1 - 1.0 / 64;
  // A step that took this many times what was expected was stopped (suspended, swapped): it counts for no more.
  static constexpr double kOutlier = 8;

  double per_token_ = kPerToken, per_depth_ = kPerDepth;
  double nn_ = 0, np_ = 0, pp_ = 0, ns_ = 0, ps_ = 0;  // Sums of products of tokens, positions and seconds.
  int steps_ = 0;
};

// Seconds of reading from the disk tier: a rate, from the restores themselves.
class ReadCost {
 public:
  static constexpr double kBytesPerSecond = 1e9;  // Before anything is measured.
  // Opening files and the first answer; of one restore.
  static constexpr double kLatencySeconds = 1e-3;
  // Smaller restores measure the latency.
  static constexpr std::uint64_t kBytesLeast = 1u << 20;
  // A measurement older than this decides nothing: the disk may have been busy then.
  static constexpr std::int64_t kFreshNs = 3'600'000'000'000;

  ReadCost() = default;
  explicit ReadCost(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  void observe(std::uint64_t bytes, double seconds, std::int64_t now_ns);
  bool measured(std::int64_t now_ns) const { return measured_ && now_ns - measured_ns_ < kFreshNs; }
  double seconds(std::uint64_t bytes) const { return static_cast<double>(bytes) / bytes_per_second_; }
  double bytes_per_second() const { return bytes_per_second_; }

 private:
  double bytes_per_second_ = kBytesPerSecond;
  bool measured_ = false;
  std::int64_t measured_ns_ = 0;
};

// How often a thing is used again: learned from those like it, that is, with as many uses before and the same time
// since the last one. Time counts in ticks of work done; the owner says what a tick is.
//
// For each class of uses and each age (powers of two) it counts the uses that ended such a wait and the ticks that
// things spent waiting, evicted ones included. Their quotient, over this age and all above it, is the rate of uses to
// expect of something that has waited so long. So a prompt seen once is worth little where scans are common and much
// where every prompt comes back, without a setting.
class ReuseModel {
 public:
  static constexpr int kKinds = 3, kUses = 7, kAges = 32;
  // Things that are used again for other reasons are counted apart. What is not yet known of one kind is taken from
  // all of them.
  enum class Kind : std::uint8_t {
    history,  // A block of full history: used by every prompt that goes through it.
    end,      // The resume point at a chain's end: used when the chain goes on.
    passed,   // A resume point in a chain's middle: used where prompts part.
  };

  ReuseModel();
  // 0, 1, 2, 3-4, 5-8, 9-16, more uses after the first.
  static int uses_class(std::uint32_t uses);
  void reused(Kind kind, std::uint32_t uses, std::uint64_t age) { note(kind, uses, age, 1); }
  void left(Kind kind, std::uint32_t uses, std::uint64_t age) { note(kind, uses, age, 0); }
  // Uses to expect per tick.
  double rate(Kind kind, std::uint32_t uses, std::uint64_t age) const {
    return rates_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(uses_class(uses))]
                 [static_cast<std::size_t>(bucket(age))];
  }

 private:
  // What is believed before anything was seen weighs as much as so many things seen.
  static constexpr double kPriorWeight = 16;
  static constexpr double kPriorTicks = 256;
  static constexpr double kPassedShare = 0.25;  // Most prompts go on at a chain's end.
  // Everything counts half after so many events: the hours of yesterday's job are no guide to today's.
  static constexpr int kHalfLife = 1 << 15;
  static constexpr int kRefreshEvery = 64;

  struct Cell {
    double uses = 0, ticks = 0;
  };
  static int bucket(std::uint64_t age);
  void note(Kind kind, std::uint32_t uses, std::uint64_t age, double reuses);
  void refresh();

  template <typename T>
  using Table = std::array<std::array<std::array<T, kAges>, kUses>, kKinds>;
  Table<Cell> cells_{};
  Table<double> rates_{};
  int events_ = 0, since_refresh_ = 0;
};

}  // namespace lode::kv
