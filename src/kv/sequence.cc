#include "kv/sequence.h"

#include <algorithm>

namespace lode::kv {

Sequence::Sequence(std::size_t group_count, std::int64_t blocks_max) : groups(group_count) {
  const auto n = static_cast<std::size_t>(blocks_max);
  path.reserve(n);
  loads.reserve(8);
  source.resize(n, Source::ram);
  for (Group& g : groups) {
    g.table.resize(n, nullptr);
    g.own.resize(n, SlotId::none());
    g.run.copies.reserve(kExtentBlocks);
  }
}

void Sequence::reset() {
  root = nullptr;
  path.clear();
  for (Group& g : groups) {
    std::fill(g.table.begin(), g.table.end(), nullptr);
    std::fill(g.own.begin(), g.own.end(), SlotId::none());
    g.first = g.slots_end = 0;
    g.marks = {};
    g.run.copies.clear();
    g.state = {};
  }
  held = length = tail_count = attached = matched = opened_ns = kept_end = 0;
  plan.clear();
  live = waiting = broken = counted = slow_read = false;
  loads.clear();
  reuse = {};
  std::fill(source.begin(), source.end(), Source::ram);
}

}  // namespace lode::kv
