#include "kv/value.h"

#include <algorithm>
#include <bit>

namespace lode::kv {

void ComputeCost::observe(std::int64_t tokens, double positions, double seconds) {
  if (tokens < kTokensLeast || !(seconds > 0) || !(positions >= 0)) return;
  const auto n = static_cast<double>(tokens);
  if (measured()) seconds = std::min(seconds, kOutlier * (per_token_ * n + per_depth_ * positions));
  for (double* sum : {&nn_, &np_, &pp_, &ns_, &ps_}) *sum *= kKeep;
  nn_ += n * n;
  np_ += n * positions;
  pp_ += positions * positions;
  ns_ += n * seconds;
  ps_ += positions * seconds;
  steps_ = std::min(steps_ + 1, kStepsLeast);
  // Both, where the depths seen tell them apart; else the part that depth had before stays in proportion.
  const double determinant = nn_ * pp_ - np_ * np_;
  if (determinant > 1e-4 * nn_ * pp_) {
    const double a = (ns_ * pp_ - ps_ * np_) / determinant, b = (ps_ * nn_ - ns_ * np_) / determinant;
    if (a > 0 && b >= 0) {
      per_token_ = a;
      per_depth_ = b;
      return;
    }
  }
  const double ratio = per_depth_ / per_token_;
  // Least squares of seconds = a * (tokens + ratio * positions).
  const double scale = nn_ + 2 * ratio * np_ + ratio * ratio * pp_;
  per_token_ = std::max((ns_ + ratio * ps_) / scale, 1e-9);
  per_depth_ = ratio * per_token_;
}

void ReadCost::observe(std::uint64_t bytes, double seconds, std::int64_t now_ns) {
  if (bytes < kBytesLeast || !(seconds > 0)) return;
  const double rate = static_cast<double>(bytes) / std::max(seconds - kLatencySeconds, seconds / 2);
  bytes_per_second_ = measured(now_ns) ? 0.75 * bytes_per_second_ + 0.25 * rate : rate;
  measured_ = true;
  measured_ns_ = now_ns;
}

ReuseModel::ReuseModel() {
  refresh();
}

int ReuseModel::uses_class(std::uint32_t uses) {
  if (uses < 3) return static_cast<int>(uses);
  return std::min(kUses - 1, static_cast<int>(std::bit_width(uses - 1)) + 1);
}

// Bucket 0 is age 0; bucket i holds ages [2^(i-1), 2^i).
int ReuseModel::bucket(std::uint64_t age) {
  return std::min(kAges - 1, static_cast<int>(std::bit_width(age)));
}

void ReuseModel::note(Kind kind, std::uint32_t uses, std::uint64_t age, double reuses) {
  auto& cells = cells_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(uses_class(uses))];
  const int last = bucket(age);
  double start = 0;
  for (int i = 0; i <= last; ++i) {  // It spent ticks at every age below its own.
    const double end = i == last ? static_cast<double>(age) + 1 : static_cast<double>(std::uint64_t{1} << i);
    cells[static_cast<std::size_t>(i)].ticks += end - start;
    start = end;
  }
  cells[static_cast<std::size_t>(last)].uses += reuses;
  if (++events_ >= kHalfLife) {
    events_ /= 2;
    for (auto& by_uses : cells_)
      for (auto& by_age : by_uses)
        for (Cell& cell : by_age) cell = {cell.uses / 2, cell.ticks / 2};
  }
  if (++since_refresh_ >= kRefreshEvery) refresh();
}

void ReuseModel::refresh() {
  since_refresh_ = 0;
  for (std::size_t u = 0; u < kUses; ++u) {
    std::array<Cell, kKinds> sums{};
    Cell all;
    for (std::size_t i = kAges; i-- > 0;) {
      for (std::size_t k = 0; k < kKinds; ++k) {
        sums[k].uses += cells_[k][u][i].uses;
        sums[k].ticks += cells_[k][u][i].ticks;
        all.uses += cells_[k][u][i].uses;
        all.ticks += cells_[k][u][i].ticks;
      }
      // The belief beforehand: of things used u times before, (u + 1) of (u + 2) are used once more (the rule of
      // succession, from one half), and what has waited for t ticks waits for about as many again.
      const double share = (static_cast<double>(u) + 1) / (static_cast<double>(u) + 2);
      const double wait = kPriorTicks + (i == 0 ? 0 : static_cast<double>(std::uint64_t{1} << (i - 1)));
      const double any = (all.uses + kPriorWeight * share) / (all.ticks + kPriorWeight * wait);
      for (std::size_t k = 0; k < kKinds; ++k) {
        const double weight = kPriorWeight * wait;
        const double like = u == 0 && static_cast<Kind>(k) == Kind::passed ? kPassedShare : 1;
        rates_[k][u][i] = (sums[k].uses + weight * any * like) / (sums[k].ticks + weight);
      }
    }
  }
}

}  // namespace lode::kv
